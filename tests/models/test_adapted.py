"""Networks of another range, normalisation, size and outputs are those of a few lines by hand.

Adapted images are one product and one sum in float32; by hand they take two of each. So outputs
agree to rounding, and exactly where the affine map is a power of two.
"""

import dataclasses
import json

import pytest
import torch
from torch import Generator, nn
from torch.distributions import MultivariateNormal
from torch.nn import functional as F
from torch.testing import assert_close

from jembench.attacks import threat
from jembench.attacks.pgd import PGD
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Target
from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.errors import PluginError, SpecError
from jembench.interfaces import Batch, DataSpec, Trainable
from jembench.models import predictions
from jembench.models.adapted import adapt, adapted, read_outputs
from jembench.models.capabilities import capabilities
from jembench.models.energies import LogitModel, grad_energy
from jembench.models.preparation import Preparation, preparation
from jembench.sampling import chain

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
COLOURED = DataSpec(name="set", shape=(3, 5, 4), num_classes=3, class_names=("a", "b", "c"))
GREY = DataSpec(name="grey", shape=(1, 5, 4), num_classes=3, bounds=(0.0, 1.0))

pytestmark = pytest.mark.filterwarnings("ignore:.* outputs, (which are )?taken")


def levels(data, count=6):
    generator = Generator().manual_seed(0)
    return torch.randint(256, (count, *data.shape), generator=generator, dtype=torch.uint8)


def network(inputs, classes=3, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.SiLU(), nn.Linear(8, classes))


@pytest.mark.parametrize("data", [COLOURED, GREY])
@pytest.mark.parametrize("bounds", [(0, 1), (-1, 1), (0, 255), (1, 0)])
@pytest.mark.parametrize("normalised", [IMAGENET, {"mean": 0.0, "std": 1.0}])
def test_every_level_has_the_network_s_value(data, bounds, normalised):
    """Against the arithmetic of ToTensor and Normalize in double precision."""
    form = preparation(bounds, normalised["mean"], normalised["std"], None)
    model = adapt(nn.Flatten(), data, form)
    column = torch.arange(256, dtype=torch.uint8).view(-1, 1, 1, 1)
    images = column.expand(-1, *data.shape)
    mean = torch.tensor(normalised["mean"], dtype=torch.float64).view(-1, 1, 1)
    std = torch.tensor(normalised["std"], dtype=torch.float64).view(-1, 1, 1)
    low, high = bounds
    values = low + images.double() / 255 * (high - low)
    expected = (values - mean) / std
    ours = model.prepared(to_float(images, data.bounds))
    scale = float(expected.abs().max())
    assert_close(ours.double(), expected, rtol=0, atol=3e-7 * scale)


def test_images_are_resized_normalised_and_coloured_as_by_hand():
    form = Preparation(resize=(16, 12), method="bilinear", **IMAGENET)
    model = adapt(nn.Flatten(), GREY, form)
    x = torch.rand(2, 1, 5, 4)
    unit = F.interpolate(x, (16, 12), mode="bilinear")
    pairs = zip(IMAGENET["mean"], IMAGENET["std"], strict=True)
    channels = [(unit - mean) / std for mean, std in pairs]
    expected = torch.cat(channels, dim=1).flatten(1)
    assert_close(model(x), expected)


@pytest.mark.parametrize("crop", [None, (6, 6), (12, 12)])
def test_gradients_pass_through_resize_crop_and_normalisation(crop):
    form = Preparation(resize=9, crop=crop, order=(2, 1, 0), **IMAGENET)
    _, height, width = form.shape(COLOURED)
    model = adapt(network(3 * height * width), COLOURED, form).double()
    noise = torch.rand((2, 3, 5, 4), dtype=torch.float64)
    x = 0.2 * noise - 0.1  # no pixel leaves the range, beyond which it would be clamped
    assert torch.autograd.gradcheck(model.logits, x.requires_grad_())
    assert torch.autograd.gradcheck(model.energy, x)


def test_the_state_is_the_network_s():
    net = network(60)
    model = adapt(net, COLOURED, Preparation(**IMAGENET))
    assert [*model.state_dict()] == [f"net.{name}" for name in net.state_dict()]


def test_a_network_of_logits_is_a_classifier_of_its_own_range():
    net = network(60)
    model = adapt(net, COLOURED, Preparation())
    x = to_float(levels(COLOURED), COLOURED.bounds)
    logits = net((x + 1) / 2)
    assert_close(model.logits(x), logits)
    assert_close(model.energy(x), -logits.logsumexp(1))
    assert capabilities(model) == {"logits", "energy"}
    assert isinstance(model, Trainable)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    loss = model.training_loss(Batch(x, x, y), None).total
    assert_close(loss, F.cross_entropy(logits, y))


class Normal(nn.Module):
    """A normal density over images of 0..1, with everything that a model may have."""

    energy_follows_from_logits = False

    def __init__(self, seen):
        super().__init__()
        self.data = seen
        self.register_buffer("mean", torch.linspace(0.2, 0.8, seen.dimensions))
        self.head = nn.Linear(seen.dimensions, seen.num_classes)

    def of(self):
        return MultivariateNormal(self.mean, 0.04 * torch.eye(len(self.mean)))

    def logits(self, x):
        return self.head(x.flatten(1))

    def log_prob(self, x):
        return self.of().log_prob(x.flatten(1))

    def sample(self, n, y=None, *, generator):
        shape = (n, *self.data.shape)
        return self.mean.view(self.data.shape) + 0.2 * torch.randn(shape, generator=generator)


def test_a_density_gets_the_volume_of_the_map():
    form = preparation((0, 1), *IMAGENET.values(), None)
    model = adapted("normal", Normal, COLOURED, form)
    assert capabilities(model) == {"logits", "energy", "log_prob", "samples"}
    x = to_float(levels(COLOURED), COLOURED.bounds)

    # z is linear in x, so that x is normal too
    mean = torch.tensor(form.mean).view(3, 1, 1).expand(3, 5, 4).flatten()
    std = torch.tensor(form.std).view(3, 1, 1).expand(3, 5, 4).flatten()
    centre = (model.net.mean * std + mean) * 2 - 1
    of_x = MultivariateNormal(centre, torch.diag((0.2 * std * 2) ** 2))
    assert_close(model.log_prob(x), of_x.log_prob(x.flatten(1)), rtol=1e-5, atol=1e-3)

    drawn = model.sample(20_000, generator=Generator().manual_seed(0)).flatten(1)
    assert_close(drawn.mean(0), centre, rtol=0, atol=0.03)
    assert_close(drawn.std(0), 0.4 * std, rtol=0.03, atol=0)


@pytest.mark.parametrize(
    ("data", "form", "why"),
    [
        (COLOURED, Preparation(resize=(8, 8)), "resized to 8x8"),
        (GREY, Preparation(**IMAGENET), "shown as 3 equal channels"),
    ],
)
def test_without_an_inverse_there_is_neither_a_density_nor_a_sample(data, form, why):
    model = adapted("normal", Normal, data, form)
    assert capabilities(model) == {"logits", "energy"}
    assert why in model.lacks["log_prob"]
    x = to_float(levels(data), data.bounds)
    energy, _ = grad_energy(model)(x, None)
    assert_close(energy, -model.net.log_prob(model.prepared(x)))


class OfClasses(LogitModel):
    """Energies E(x, y) of four classes."""

    def __init__(self):
        super().__init__(network(60, classes=4))


@pytest.mark.parametrize(
    ("outputs", "places"),
    [
        (["c", "x", "A", "b"], (2, 3, 0)),
        ({"3": "c", "0": "b", "1": "a", "2": "x"}, (1, 0, 3)),
        ({"id2label": {"0": "b", "1": "c", "2": "d", "3": "a"}}, (3, 0, 1)),
        ([3, 1, 0], (3, 1, 0)),
    ],
)
def test_outputs_are_chosen_by_name_or_by_place(outputs, places, tmp_path):
    x = to_float(levels(COLOURED), COLOURED.bounds)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(outputs))
    for form in (outputs, file, str(file)):
        model = adapted("net", lambda _: OfClasses(), COLOURED, Preparation(), form)
        every = model.net.logits((x + 1) / 2)
        assert_close(model.logits(x), every[:, places])
        # the model's own energy: over all of its classes
        assert_close(model.energy(x), -every.logsumexp(1))
        assert_close(model.energy(x, y), -model.logits(x).gather(1, y[:, None]).squeeze(1))
        assert not model.energy_follows_from_logits


def test_the_network_is_made_for_its_own_images_and_classes():
    described = []

    def build(seen):
        described.append(seen)
        return network(192, 4)

    form = preparation((0, 1), *IMAGENET.values(), 8)
    data = dataclasses.replace(GREY, class_names=("0", "1", "2"))
    adapted("net", build, data, form, ["x", "2", "1", "0"])
    (seen,) = described
    assert seen.shape == (3, 8, 8)
    assert seen.class_names == ("x", "2", "1", "0")
    assert seen.bounds == pytest.approx(((0 - 0.485) / 0.229, (1 - 0.406) / 0.225))


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (["a", "b"], "outputs has 2 names, and net 4 outputs"),
        ([0, 1], "must be 3 different numbers below 4"),
        ([0, 1, 1], "must be 3 different numbers"),
        ([0, 1, 4], "must be 3 different numbers"),
        (None, "net has 4 outputs, and set 3 classes. Name the outputs"),
        (["a", "b", "x", "y"], "of which 2 are named"),
        ([1.5], "is not what the outputs of a network are"),
        ({"a": "b"}, "is not what the outputs"),
        (["a", 1], "is not what the outputs"),
        ("nowhere.json", "nowhere.json cannot be read as JSON"),
    ],
)
def test_outputs_that_are_not_those_of_the_classes_are_refused(outputs, words):
    with pytest.raises(SpecError, match=words):
        adapted("net", lambda _: network(60, 4), COLOURED, Preparation(), outputs)


def test_what_is_no_network_of_logits_is_refused():
    with pytest.raises(PluginError, match=r"is of type builtin.*; it must be a torch\.nn"):
        adapted("net", lambda _: len, COLOURED, Preparation())
    with pytest.raises(PluginError, match=r"gives \(2, 3, 5, 4\) .* method energy\(x\)"):
        adapted("net", lambda _: nn.Identity(), COLOURED, Preparation())
    with pytest.raises(PluginError, match=r"fails on two .* such as size=224"):
        adapted("net", lambda _: network(7), COLOURED, Preparation())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("bounds=0", "bounds is"),
        ("bounds=1..1", "bounds is"),
        ("mean=x", "mean is .* it must be numbers"),
        ("std=0", "std is .* greater than 0"),
        ("std=nan", "std is .* it must be numbers"),
        ("mean=1+2", "mean has 2 values, std 1, and the images of set 3 channels"),
        ("mean=1+2+3,std=1+2", "mean has 3 values, std 2"),
    ],
)
def test_a_wrong_option_is_named(options, words):
    spec = f"adapted:model=baseline:net=mlp-8,{options}"
    with pytest.raises(SpecError, match=words):
        registry.resolve("models", spec).make(COLOURED)


def test_the_options_of_a_spec_are_those_of_python():
    options = "bounds=-1..1,mean=.1+-.2+3e-1,std=2"
    spec = f'adapted:model="baseline:net=mlp-8",{options}'
    model = registry.resolve("models", spec).make(COLOURED)
    expected = preparation((-1, 1), (0.1, -0.2, 0.3), 2, None)
    assert model.preparation == expected
    assert [*read_outputs(""), *read_outputs(None)] == []


class ByHand(LogitModel):
    """A network of another range, as users wrap it."""

    def __init__(self, net, mean, std):
        super().__init__(net)
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def forward(self, x):
        return self.net(((x + 1) / 2 - self.mean) / self.std)


def attacked(model, norm):
    generator = Generator().manual_seed(1)
    x = levels(COLOURED, 8) / 255
    starts = threat.starts(2, COLOURED.shape, norm, generator).expand(8, -1, -1, -1, -1)
    y = torch.arange(8) % 3
    target = Target(model, COLOURED)
    return PGD(norm=norm, steps=5).at(target, x, y, torch.full((8,), 0.1), starts).adversarial


def sampled(model):
    sampler = registry.resolve("samplers", "sgld:steps=10,bounded=true,step_size=.1").make(COLOURED)
    generator = Generator().manual_seed(1)
    start = sampler.start(8, None, generator=generator)
    return chain.run(sampler, start, grad_energy(model), generator).x


def refined(model):
    sampler = registry.resolve("samplers", "sgld:steps=10,step_size=.1").make(COLOURED)
    options = {"steps": 3, "chains": 2, "grad": "through"}
    generator = Generator().manual_seed(1)
    return Refined(model, sampler, **options, generator=generator).logits(levels(COLOURED) / 255)


def gradient_norms(model):
    cpu = torch.device("cpu")
    return predictions.read(model, levels(COLOURED), COLOURED, cpu, {"grad-norm"})["grad-norm"]


@pytest.mark.parametrize(
    ("mean", "std", "tolerance"),
    [
        ((0.0,), (0.25,), 0),  # a product with 2: no rounding differs
        (IMAGENET["mean"], IMAGENET["std"], 2e-5),
    ],
)
@pytest.mark.parametrize(
    "outcome",
    [lambda model: attacked(model, "l2"), sampled, refined, gradient_norms],
    ids=["PGD", "SGLD", "refinement", "gradient norms"],
)
def test_attacks_and_chains_are_those_of_a_network_wrapped_by_hand(outcome, mean, std, tolerance):
    net = network(60)
    with torch.no_grad():
        net[1].weight *= 3
        net[3].weight *= 5
    ours = outcome(adapt(net, COLOURED, preparation((0, 1), mean, std, None)))
    assert_close(ours, outcome(ByHand(net, mean, std)), rtol=0, atol=tolerance)
    plain = outcome(LogitModel(net))
    assert float((ours - plain).abs().max()) > 1e-3


def test_nll_of_a_checkpoint_is_that_of_ten_lines(tmp_path):
    digits = registry.resolve("datasets", "digits").make()
    test = digits.split("test")
    net = registry.resolve("models", "baseline:net=mlp-8").make(digits.spec)
    torch.save(
        {"model": {f"module.{k}": v for k, v in net.state_dict().items()}}, tmp_path / "a.pt"
    )
    with torch.no_grad():
        x = ((test.images / 255) - 0.3) / 0.2
        expected = F.cross_entropy(net.logits(x).double(), test.labels)
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps([str(label) for label in range(10)]))
    options = f"mean=.3,std=.2,weights={tmp_path / 'a.pt'},outputs={file}"
    resolved = registry.resolve("models", f'adapted:model="baseline:net=mlp-8",{options}')
    assert resolved.is_pretrained
    model = resolved.make(digits.spec)
    cpu = torch.device("cpu")
    logits = predictions.read(model, test.images, digits.spec, cpu, {"logits"})["logits"]
    nll = float(F.cross_entropy(logits.double(), test.labels))
    assert nll == pytest.approx(float(expected), abs=1e-6)
