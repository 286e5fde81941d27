"""The two models: their capabilities, their losses, and imports that stay light."""

import pytest
import torch
from torch import Generator

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import plan_fit
from jembench.interfaces import Batch, Classifier, DataSpec, Energy, Negatives, Trainable
from jembench.models.capabilities import capabilities
from jembench.running.building import make_trainer

SHAPE = (3, 12, 10)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=7)


def make(spec, seed=0):
    with seeds.drawing(seed, "initialisation"):
        return registry.resolve("models", spec).make(DATA).eval()


def draw(n=4):
    generator = Generator().manual_seed(0)
    return torch.rand(n, *SHAPE, generator=generator) * 2 - 1


Y = torch.tensor([0, 6, 3, 3])
BATCH = Batch(draw(), draw().flip(0), Y)
NEGATIVES = Negatives(-draw(), Y)


@pytest.mark.parametrize(("spec", "chains"), [("jem", "marginal"), ("jem-factored", "conditional")])
def test_what_a_model_is(spec, chains):
    model = make(spec)
    assert isinstance(model, Classifier)
    assert isinstance(model, Energy)
    assert isinstance(model, Trainable)
    assert model.chains == chains
    assert capabilities(model) == {"logits", "energy", "samples"}
    assert model.logits(draw()).shape == (4, 7)
    assert model.energy(draw()).shape == (4,)


@torch.no_grad()
@pytest.mark.parametrize(
    ("spec", "iteration", "weight"),
    [
        ("jem", 0, 1),
        ("jem:marginal=0.2", 0, 0.2),
        ("jem:ramp=8", 0, 0),
        ("jem:ramp=8", 6, 0.75),
        ("jem:ramp=8", 9, 1),
    ],
)
def test_jem_is_trained_on_the_weighted_sum_of_both(spec, iteration, weight):
    model = make(spec)
    batch = BATCH._replace(iteration=torch.tensor(float(iteration)))
    loss = model.training_loss(batch, NEGATIVES)
    log_p = model.logits(BATCH.x_labelled).log_softmax(1)
    cross_entropy = -log_p[range(4), BATCH.y_labelled].mean()
    gap = model.energy(BATCH.x).mean() - model.energy(NEGATIVES.x).mean()
    assert torch.allclose(loss.total, cross_entropy + weight * gap, atol=1e-6)
    assert set(loss.parts) == {"cross_entropy", "energy_data", "energy_samples"}


@torch.no_grad()
def test_the_factored_ablation_is_trained_on_p_x_given_y_alone():
    model = make("jem-factored")
    loss = model.training_loss(BATCH, NEGATIVES)
    of_data = model.energy(BATCH.x_labelled, BATCH.y_labelled)
    of_samples = model.energy(NEGATIVES.x, NEGATIVES.y)
    gap = of_data.mean() - of_samples.mean()
    assert torch.allclose(loss.total, gap, atol=1e-6)
    assert set(loss.parts) == {"joint_energy_data", "joint_energy_samples"}


def test_log_px_has_no_weight_below_0():
    with pytest.raises(SpecError, match="marginal of jem is -1"):
        make("jem:marginal=-1")


@torch.no_grad()
def test_rows_of_a_batch_do_not_depend_on_each_other():
    model = make("jem")
    whole = model.logits(draw())
    row = model.logits(draw()[2:3])
    assert torch.allclose(whole[2:3], row, atol=1e-6)


def momenta(model):
    kind = torch.nn.BatchNorm2d
    norms = [module for module in model.modules() if isinstance(module, kind)]
    return {norm.momentum for norm in norms}


def test_options_reach_the_network():
    for name in ("jem", "jem-factored"):
        spec = f"{name}:net=wrn-10-1,norm=batch"
        assert momenta(make(spec)) == {0.9}  # as in the authors' code
        assert momenta(make(f"{spec},momentum=0.1")) == {0.1}


def recipes_with_chains_in_training_mode():
    """Return the recipes under batch norm whose chains change its running statistics."""
    loaded = [recipes.load(name) for name in recipes.names()]
    options = {"net", "norm", "momentum", "marginal"}
    names = []
    for recipe in loaded:
        in_training = recipe.model.get("norm") == "batch" and recipe.chains.mode == "train"
        if in_training and recipe.model.keys() <= options:
            names.append(recipe.name)
    return names


@pytest.mark.parametrize("model", ["jem", "jem-factored"])
@pytest.mark.parametrize("recipe", recipes_with_chains_in_training_mode())
def test_running_statistics_are_mostly_those_of_the_data(recipe, model):
    settings = ["model.net=small-2", "data.validation=0", "data.flip=false"]
    settings += ["optimizer.sharpness=0"]
    fit = plan_fit(model, "digits", recipe, settings)
    dataset = fit.dataset.make()
    made = fit.model.make(dataset.spec)
    trainer = make_trainer(fit, dataset, torch.device("cpu"), made)
    draw = trainer.batches.draw
    passes = []
    data = []

    def drawn():
        batch = draw()
        data.extend([batch.x, batch.x_labelled])
        return batch

    def record(net, images):
        if net.training:
            passes.append(images[0].clone())

    trainer.batches.draw = drawn
    made.net.register_forward_pre_hook(record)
    trainer.iterate()
    (momentum,) = momenta(made)
    later_passes = reversed(range(len(passes)))
    weights = [momentum * (1 - momentum) ** count for count in later_passes]
    of_data = []
    for images in passes:
        of_data.append(any(torch.equal(images, batch) for batch in data))
    share = sum(weight for weight, is_data in zip(weights, of_data, strict=True) if is_data)
    assert 0 < sum(of_data) < len(passes)
    assert share > 0.85 * sum(weights)
