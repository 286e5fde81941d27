"""The two models: what they claim to be, how E(x, y) gives p(y|x), and what they are trained on."""

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import packages, registry
from jembench.errors import SpecError
from jembench.experiment import recipe
from jembench.interfaces import Batch, Classifier, DataSpec, Energies, Negatives, Trainable
from jembench.models.capabilities import capabilities
from jembench.models.energies import grad_energy
from jembench.training.loop import Trainer
from jembench_igebm.model import contrastive_loss

SHAPE = (3, 12, 10)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=7)


def make(spec="igebm:width=8", seed=0, data=DATA):
    with seeds.drawing(seed, "initialisation"):
        model = registry.resolve("models", spec).make(data).eval()
        for name, parameter in model.named_parameters():
            # what begins the same for every class
            if "bias_" in name or "gain_" in name or "conv_2" in name:
                torch.nn.init.normal_(parameter)
    return model


def draw(n=4):
    generator = Generator().manual_seed(0)
    return torch.rand(n, *SHAPE, generator=generator) * 2 - 1


LABELS = torch.tensor([0, 6, 3, 3])
BATCH = Batch(draw(), draw().flip(0), LABELS)
NEGATIVES = Negatives(-draw(), LABELS.flip(0))


def test_what_the_conditional_model_is():
    model = make()
    assert isinstance(model, Trainable)
    assert model.chains == "conditional"
    assert capabilities(model) == {"logits", "energy", "samples"}
    assert model.logits(draw()).shape == (4, 7)
    assert model.energy(draw()).shape == (4,)


def test_what_the_unconditional_model_is():
    model = make("igebm:conditional=false,width=8")
    assert isinstance(model, Trainable)
    assert not isinstance(model, Classifier)
    assert model.chains == "marginal"
    assert capabilities(model) == {"energy", "samples"}
    assert model.energy(draw()).shape == (4,)
    with pytest.raises(SpecError, match=r"has E\(x\) and no E\(x, y\).* take igebm"):
        model.energy(draw(), LABELS)


@torch.no_grad()
def test_logits_are_the_energies_of_all_classes_one_by_one():
    model, x = make(), draw()
    by_label = [-model.energy(x, torch.full((4,), label)) for label in range(7)]
    looped = torch.stack(by_label, dim=1)
    assert_close(model.logits(x), looped, rtol=1e-5, atol=1e-5)
    assert looped.std(1).min() > 1e-3
    expected = -looped.exp().sum(1).log()
    assert_close(model.energy(x), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_rows_of_a_batch_do_not_depend_on_each_other():
    model, x = make(), draw()
    measured = model.logits(x)[2:3]
    expected = model.logits(x[2:3])
    assert_close(measured, expected, rtol=1e-5, atol=1e-5)
    measured = model.energy(x, LABELS)[1:]
    expected = model.energy(x[1:], LABELS[1:])
    assert_close(measured, expected, rtol=1e-5, atol=1e-5)


def test_evaluation_changes_nothing_and_repeats_itself():
    model = make()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = grad_energy(model)(draw(), LABELS)
    second = grad_energy(model)(draw(), LABELS)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    energies = model.energy(draw())
    assert torch.equal(make().energy(draw()), energies)
    assert not torch.equal(make(seed=1).energy(draw()), energies)


def test_gradients_are_those_of_finite_differences():
    shape = (1, 4, 4)
    data = DataSpec(name="tiny", shape=shape, num_classes=7)
    model = make(data=data)
    generator = Generator().manual_seed(0)
    x = torch.rand(1, 1, 4, 4, generator=generator, dtype=torch.float64)
    block = model.net.blocks["res_optim"].double()
    maps = x.expand(1, 8, 4, 4).contiguous()
    maps.requires_grad_()
    assert torch.autograd.gradcheck(lambda maps: block(maps, LABELS[1:2]), maps)


def test_loss_by_hand():
    samples = torch.tensor([-1.0, 2.0])
    energies = Energies(torch.tensor([1.0, 3.0]), samples)
    loss = contrastive_loss(energies, 0.5, "joint_")
    assert float(loss.total) == 2 - 0.5 + 0.5 * (5 + 2.5)
    parts = {name: float(value) for name, value in loss.parts.items()}
    assert parts == {"joint_energy_data": 2, "joint_energy_samples": 0.5, "l2": 7.5}
    assert loss.energies is energies


@torch.no_grad()
def test_the_conditional_model_is_trained_on_labelled_data_and_samples_of_classes():
    model = make("igebm:width=8,l2=0.5")
    loss = model.training_loss(BATCH, NEGATIVES)
    data = model.energy(BATCH.x_labelled, LABELS)
    samples = model.energy(NEGATIVES.x, NEGATIVES.y)
    squares = data.square().mean() + samples.square().mean()
    expected = data.mean() - samples.mean() + 0.5 * squares
    assert_close(loss.total, expected)
    assert_close(loss.energies.data, data, rtol=1e-5, atol=1e-5)
    assert_close(loss.energies.samples, samples, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_unconditional_model_is_trained_without_labels():
    model = make("igebm:conditional=false,width=8")
    batch = Batch(BATCH.x, torch.full_like(BATCH.x, torch.nan), LABELS)
    loss = model.training_loss(batch, NEGATIVES._replace(y=None))
    data = model.energy(BATCH.x)
    samples = model.energy(NEGATIVES.x)
    squares = data.square().mean() + samples.square().mean()
    expected = data.mean() - samples.mean() + squares
    assert_close(loss.total, expected)
    assert set(loss.parts) == {"energy_data", "energy_samples", "l2"}


@pytest.mark.parametrize("spec", ["igebm:width=8", "igebm:conditional=false,width=8"])
def test_training_reaches_every_parameter(spec):
    model = make(spec).train()
    negatives = NEGATIVES
    if model.chains != "conditional":
        negatives = NEGATIVES._replace(y=None)
    model.training_loss(BATCH, negatives).total.backward()
    unmoved = []
    for name, parameter in model.named_parameters():
        if parameter.grad is None or parameter.grad.abs().sum() == 0:
            unmoved.append(name)
    assert unmoved == []


@pytest.mark.parametrize(
    ("spec", "num_classes", "said"),
    [
        ("igebm", 0, "toy is unlabelled.*igebm:conditional=false"),
        ("igebm:width=0", 7, "width of igebm is 0; it must be at least 1"),
        ("igebm:l2=-1", 7, "l2 of igebm is -1.0; it must be at least 0"),
    ],
)
def test_options_that_cannot_be(spec, num_classes, said):
    data = DataSpec(name="toy", shape=SHAPE, num_classes=num_classes)
    with pytest.raises(SpecError, match=said):
        registry.resolve("models", spec).make(data)


@pytest.mark.parametrize("name", ["igebm", "igebm-digits"])
def test_the_recipes_are_found_and_can_be_made(name):
    assert name in packages.files("recipes")
    loaded = recipe.load(name)
    options = {"width": "8", **loaded.model}
    spec = "igebm:" + ",".join(f"{option}={value}" for option, value in options.items())
    assert registry.resolve("models", spec).make(DATA).chains == "conditional"
    sampler = registry.resolve("samplers", loaded.chains.sampler)
    assert sampler.component.distribution == "jembench-igebm"


@pytest.mark.parametrize("spec", ["igebm:width=4,l2=0.1", "igebm:conditional=false,width=4"])
def test_training_by_its_own_recipe_moves_weights_and_chains(spec):
    digits = registry.resolve("datasets", "digits").make()
    model = make(spec, data=digits.spec)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    short = recipe.load("igebm-digits", ["chains.sampler=igebm-langevin:steps=2,buffer=100"])
    train = digits.split("train")
    cpu = torch.device("cpu")
    trainer = Trainer(model, digits.spec, train, short, seed=0, device=cpu)
    _, starts = trainer.window(2)
    assert trainer.is_finite()
    assert starts is not None
    for name, tensor in model.state_dict().items():
        assert not torch.equal(tensor, before[name])
    assert (trainer.chains.sampler.kept().ages > 0).sum() >= 32
    without_classes = trainer.chains.sampler.kept().y is None
    assert without_classes == (model.chains == "marginal")
