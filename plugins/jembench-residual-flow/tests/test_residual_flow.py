"""Residual flows: invertible blocks, determinants against the whole Jacobian, and a state that is
all there is.
"""

import math
from pathlib import Path

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from jembench import seeds
from jembench.data import dequantisation as units
from jembench.errors import Diverged, SpecError
from jembench.experiment.recipe import Optimizer, Recipe, TrainingData, load
from jembench.interfaces import Batch, DataSpec, Split
from jembench.metrics.ood import OutOfDistribution
from jembench.models.capabilities import capabilities
from jembench.plugin import resolve
from jembench.running.caches import FeatureBank
from jembench.running.evaluation import TrainedFit
from jembench.store.store import Store
from jembench.training.loop import Trainer
from jembench_residual_flow import residual_flow
from jembench_residual_flow.flow import ActNorm, Block
from jembench_residual_flow.log_det import Truncated, Unbiased, exact

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
CPU = torch.device("cpu")


def make(data=DATA, *, wild=0.3, **options):
    """Return a small model without a parameter where it begins.

    So its convolutions are bounded.
    """
    with seeds.drawing(0, "initialisation"):
        small = {"levels": 2, "blocks": 2, "hidden": 4, "lipschitz": 0.9, "terms": 0}
        model = residual_flow(data, **{**small, **options})
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                scale = wild if "layers" in name else 0.1
                parameter.add_(scale * torch.randn(parameter.shape))
        for _ in range(5):
            model.flow.update_norms()
    return model.eval()


def draw(n=6, data=DATA, dtype=torch.float32):
    low, high = data.bounds
    generator = Generator().manual_seed(1)
    unit = torch.rand(n, *data.shape, generator=generator, dtype=dtype)
    return unit * (high - low) + low


def batch(n=6):
    labels = torch.arange(n) % DATA.num_classes
    return Batch(draw(n), draw(n), labels)


def jacobian(function, image):
    size = image.numel()
    matrix = torch.autograd.functional.jacobian(lambda x: function(x[None])[0], image)
    return matrix.reshape(size, size)


def strong(layer):
    """Make g nearly -A'A with a norm near its bound.

    So many terms of the series count.
    """
    first, second, third = (module for module in layer.net.modules() if hasattr(module, "u"))
    with torch.no_grad():
        first.weight.mul_(10)
        identity = torch.eye(len(second.weight))
        second.weight.copy_(10 * identity[:, :, None, None])
        mirrored = first.weight.flip(2, 3).transpose(0, 1)
        third.weight.copy_(-mirrored)
        for convolution in (first, second):
            convolution.bias.fill_(3.0)  # where swish is nearly a straight line
    for _ in range(20):
        layer.update_norms()
    return layer


def block():
    """One with a Jacobian whose determinant takes many terms, in float64."""
    layers = make().double().flow.layers
    return strong(next(layer for layer in layers if isinstance(layer, Block)))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-4)])
@torch.no_grad()
def test_inversion_undoes_the_flow(dtype, tolerance):
    flow = make().to(dtype).flow
    x = draw(dtype=dtype)
    for layer in flow.layers:
        if isinstance(layer, Block):
            strong(layer)
    z, _ = flow(x, exact)
    assert z.dtype == dtype
    change = z - x.reshape(z.shape)
    assert change.abs().max() > 0.1
    inverted = flow.invert(z)
    assert (inverted - x).abs().max() < tolerance


def test_blocks_are_contractions_however_large_their_weights():
    for layer in make().double().flow.layers:
        if isinstance(layer, Block):
            shape = (1, 4, 4) if layer.net.channels[0] == 1 else (4, 2, 2)
            image = draw(dtype=torch.float64)[0].reshape(shape) + 3
            norm = torch.linalg.matrix_norm(jacobian(strong(layer).net, image), 2)
            assert 0.3 < norm < 0.9**3


def test_exact_determinant_of_the_flow_is_that_of_the_jacobian():
    flow = make(wild=1.0).double().flow
    x = draw(2, dtype=torch.float64)
    pairs = zip(x, flow(x, exact).log_det, strict=True)
    for image, log_det in pairs:
        whole = jacobian(lambda x: flow(x, exact).z.flatten(1), image)
        measured = torch.linalg.slogdet(whole).logabsdet
        assert_close(measured, log_det.detach(), rtol=0, atol=1e-10)


def test_series_of_a_probe_comes_to_its_end():
    net = block().net
    x = (draw(3, dtype=torch.float64) + 3).requires_grad_()
    series = Truncated(60, 1, Generator().manual_seed(0))
    seen = series(net, x, differentiable=False).log_det
    signs = torch.randint(2, SHAPE, generator=Generator().manual_seed(0))
    probe = signs.double().flatten() * 2 - 1
    for image, value in zip(x.detach(), seen, strict=True):
        eigenvalues, vectors = torch.linalg.eig(jacobian(net, image))
        diagonal = torch.diag(torch.log1p(eigenvalues))
        logarithm = (vectors @ diagonal @ torch.linalg.inv(vectors)).real
        expected = probe @ logarithm @ probe
        assert_close(value, expected, rtol=0, atol=1e-6)


def test_mean_over_probes_is_the_exact_determinant():
    net = block().net
    x = (draw(2, dtype=torch.float64) + 3).requires_grad_()
    expected = exact(net, x, differentiable=False).log_det
    generator = Generator().manual_seed(0)
    series = Truncated(40, 1, generator)
    draws = [series(net, x, differentiable=False).log_det for _ in range(200)]
    seen = torch.stack(draws)
    error = seen.std(dim=0) / math.sqrt(200)
    assert (error < 0.1).all()
    deviation = (seen.mean(dim=0) - expected).abs()
    assert (deviation < 4 * error).all()


def test_several_probes_give_their_mean():
    net = block().net
    x = (draw(2, dtype=torch.float64) + 3).requires_grad_()
    one_by_one = Generator().manual_seed(0)
    together = Generator().manual_seed(0)
    single = Truncated(5, 1, one_by_one)
    log_dets = [single(net, x, differentiable=False).log_det for _ in range(4)]
    several = Truncated(5, 4, together)
    mean = several(net, x, differentiable=False).log_det
    expected = torch.stack(log_dets).mean(dim=0)
    assert_close(mean, expected)


def test_training_estimates_value_and_gradient_without_bias():
    net = block().net
    x = (draw(1, dtype=torch.float64) + 3).requires_grad_()
    repeats = 200
    weight = net.net[1].weight

    def value_and_slope(log_det):
        value = log_det(net, x, differentiable=True).log_det
        (slope,) = torch.autograd.grad(value.sum(), weight)
        return torch.cat([value.detach(), slope.flatten()])

    expected = value_and_slope(exact)
    unbiased = Unbiased()
    seen = torch.stack([value_and_slope(unbiased) for _ in range(repeats)])
    error = seen.std(dim=0) / math.sqrt(repeats)
    assert expected[0].abs() > 10 * error[0]  # nor would 0 do
    slopes = expected[1:].abs()
    assert slopes.max() > 10 * error[1:].max()
    deviation = (seen.mean(dim=0) - expected).abs()
    assert (deviation < 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("terms", [0, 5])
def test_gradient_of_the_density_is_that_of_its_values(terms):
    model = make(wild=1.0, terms=terms).double()
    x = draw(1, dtype=torch.float64)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model.log_prob(x), x, atol=1e-5)


@pytest.mark.parametrize("conditional", [True, False])
@torch.no_grad()
def test_density_integrates_to_one(conditional):
    shape = (1, 2, 2)
    data = DataSpec(name="four pixels", shape=shape, num_classes=2, bounds=(0.0, 1.0))
    model = make(data, conditional=conditional).double()
    k = torch.zeros(2_000, dtype=torch.int64)
    z = model.prior.sample(k, Generator().manual_seed(0)) * 1.5
    x = units.from_unit(model.flow.invert(z), data.bounds)
    of_wider = model.prior.log_prob(z / 1.5)[:, 0]
    proposal = of_wider - 4 * math.log(1.5)
    log_det = model.flow(model.flow.invert(z), exact).log_det
    weights = (model.log_prob(x) - proposal - log_det).exp()
    weights = weights * math.exp(-units.log_det_to_unit(data))
    error = weights.std() / math.sqrt(len(weights))
    assert error < 0.03
    assert abs(weights.mean() - 1) < 4 * error


@torch.no_grad()
def test_density_changes_with_the_units_of_x():
    shape = (1, 4, 4)
    narrow = DataSpec(name="toy", shape=shape, num_classes=3, bounds=(0.0, 1.0))
    x = draw(dtype=torch.float64)
    of_narrow = make(narrow).double().log_prob((x + 1) / 2)
    gain = of_narrow - make().double().log_prob(x)
    expected = torch.full_like(gain, 16 * math.log(2))
    assert_close(gain, expected)


@torch.no_grad()
def test_bayes_rule_from_one_evaluation_for_each_class():
    model = make().double()
    x = draw(dtype=torch.float64)
    by_class = [model.log_prob(x, torch.full((6,), k)) for k in range(3)]
    log_probs = torch.stack(by_class, dim=1)
    assert (by_class[0] - by_class[1]).abs().min() > 1e-3
    expected = log_probs.exp().mean(dim=1)
    assert_close(model.log_prob(x).exp(), expected)
    expected = log_probs.softmax(1)
    assert_close(model.logits(x).softmax(1), expected)
    assert_close(model.log_prob_by_class(x), log_probs)


def test_uniform_density_has_eight_bits():
    shape = (3, 2, 2)
    data = DataSpec(name="colour", shape=shape, num_classes=0)
    log_px = -12 * math.log(2 * 256 / 255)
    bits = units.bits_per_dim(torch.tensor([log_px]), data)
    assert_close(bits, torch.tensor([8.0]))


@pytest.mark.parametrize(("terms", "probes"), [(0, 1), (4, 1), (4, 3)])
@torch.no_grad()
def test_density_is_the_same_whenever_and_beside_whatever_it_is_asked_for(terms, probes):
    model = make(wild=1.0, terms=terms, probes=probes)
    x = draw()
    state = torch.get_rng_state()
    whole = model.log_prob_by_class(x)
    assert torch.equal(model.log_prob_by_class(x), whole)
    expected = model.log_prob_by_class(x[2:3])
    assert_close(whole[2:3], expected, atol=1e-4, rtol=0)
    expected = model.log_prob_by_class(x.flip(0))
    assert_close(whole.flip(0), expected, atol=1e-4, rtol=0)
    assert torch.equal(torch.get_rng_state(), state)
    model = make(wild=1.0, terms=terms, probes=probes).train()
    assert torch.equal(model.log_prob_by_class(x), whole)


@torch.no_grad()
def test_density_is_computed_in_float32_under_autocast():
    model = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = model.log_prob(draw())
    assert torch.equal(under, model.log_prob(draw()))


def test_first_training_batch_sets_actnorms_and_no_other_does():
    model = make().train()
    layers = model.flow.layers
    first = next(layer for layer in layers if isinstance(layer, ActNorm))
    model.training_loss(batch(64), None)
    x = units.to_unit(draw(64), DATA.bounds)
    normalised = first(x, exact).z.detach()
    assert normalised.mean().abs() < 0.01
    assert normalised.std() == pytest.approx(1, abs=0.02)
    before = first.shift.clone()
    model.training_loss(batch(), None)
    assert torch.equal(first.shift, before)


def test_loss_is_the_mean_negative_log_likelihood_with_noise():
    model = make()
    model.training_loss(batch(), None)
    losses = [model.training_loss(batch(), None).total.detach() for _ in range(20)]
    losses = torch.stack(losses)
    noise = []
    for seed in range(20):
        noise.append(units.dequantised(draw(), DATA.bounds, Generator().manual_seed(seed)))
    with torch.no_grad():
        labels = batch().y_labelled
        means = [model.log_prob(x, labels).mean() for x in noise]
        expected = -torch.stack(means)
    spread = math.hypot(losses.std(), expected.std())
    error = spread / math.sqrt(20)
    assert abs(losses.mean() - expected.mean()) < 4 * error
    assert error < 0.2
    loss = model.training_loss(batch(), None)
    assert loss.energies is None
    log_px = -loss.total.detach()
    bits = units.bits_per_dim(log_px[None], DATA)[0]
    assert_close(loss.parts["bits_per_dim"], bits)


@pytest.mark.parametrize("conditional", [True, False])
def test_loss_trains_every_parameter(conditional):
    model = make(conditional=conditional).train()
    model.training_loss(batch(), None).total.backward()
    without = []
    for name, parameter in model.named_parameters():
        if not (parameter.grad != 0).any():
            without.append(name)
    assert without == []


def test_training_alone_moves_the_singular_vectors():
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        convolutions = [module for module in model.modules() if hasattr(module, "u")]
        for convolution in convolutions:
            convolution.weight.copy_(convolution.weight.flip(0))
            for name, value in model.state_dict().items():
                if name.endswith("weight"):
                    before[name] = value.clone()
    model.log_prob(draw())
    model.sample(2, generator=Generator().manual_seed(0))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    model.training_loss(batch(), None)
    moved = []
    for name, value in model.state_dict().items():
        if not torch.equal(value, before[name]):
            moved.append(name)
    assert any(name.endswith(".u") for name in moved)
    assert any(name.endswith(".v") for name in moved)


def trainer():
    generator = Generator().manual_seed(0)
    shape = (60, *SHAPE)
    levels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    images = Split(levels, torch.arange(60) % 3)
    optimizer = Optimizer(name="adam", learning_rate=0.01)
    data = TrainingData(noise=0.03, validation=0, shared=True)
    every_two = {"epochs": 2, "log_every": 2, "checkpoint_every": 2}
    options = {"batch_size": 10, "optimizer": optimizer, "data": data, **every_two}
    recipe = Recipe(name="toy", title="", **options)
    with seeds.drawing(0, "initialisation"):
        model = residual_flow(DATA, levels=2, blocks=1, hidden=4)
    return Trainer(model, DATA, images, recipe, seed=0, device=CPU)


def test_training_goes_on_bit_for_bit():
    straight = trainer()
    stopped = trainer()
    resumed = trainer()
    losses = [float(straight.iterate()["loss"]) for _ in range(6)]
    for _ in range(3):
        stopped.iterate()
    resumed.load_state_dict(stopped.state_dict())
    for expected in losses[3:]:
        assert float(resumed.iterate()["loss"]) == expected
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_training_draws_nothing_from_the_global_generator():
    trained = trainer()
    before = torch.get_rng_state()
    trained.iterate()
    assert torch.equal(before, torch.get_rng_state())


@torch.no_grad()
def test_samples_follow_the_generator_alone():
    model = make()
    y = torch.tensor([2, 0, 1])
    first = model.sample(3, y, generator=Generator().manual_seed(5))
    again = model.sample(3, y, generator=Generator().manual_seed(5))
    assert torch.equal(first, again)
    another = model.sample(3, y, generator=Generator().manual_seed(6))
    assert not torch.equal(first, another)
    many = model.sample(130, generator=Generator().manual_seed(0))
    assert many.shape == (130, 1, 4, 4)
    assert many.min() >= -1
    assert many.max() <= 1


@torch.no_grad()
def test_samples_of_a_class_are_likelier_in_it():
    model = make(wild=0.0)
    means = torch.tensor([-0.3, 0.0, 0.3])
    model.prior.mean[:] = means.view(3, 1, 1, 1)
    model.prior.log_scale.fill_(-3.0)
    y = torch.arange(3).repeat(20)
    generator = Generator().manual_seed(0)
    x = model.sample(60, y, generator=generator)
    assert torch.equal(model.logits(x).argmax(1), y)


@torch.no_grad()
def test_inversion_of_an_image_does_not_depend_on_its_batch():
    flow = make(wild=1.0).double().flow
    shape = (6, 4, 2, 2)
    z = torch.randn(shape, dtype=torch.float64, generator=Generator())
    measured = flow.invert(z)[4:5]
    expected = flow.invert(z[4:5])
    assert_close(measured, expected, atol=1e-12, rtol=0)


class Noise:
    """A dataset of images of random pixels."""

    spec = DATA

    def split(self, name):
        generator = Generator().manual_seed(len(name))
        shape = (5, *SHAPE)
        images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        return Split(images, torch.zeros(5, dtype=torch.int64))


def test_a_gradient_that_overflows_is_reported_and_not_ranked():
    model = make()
    with torch.no_grad():
        model.prior.log_scale.fill_(-30.0)  # dE/dx is about exp(60), whose square is beyond float32
    assert model.log_prob(draw()).isfinite().all()
    dataset = Noise()
    bank = FeatureBank(dataset, Store(Path()), CPU)
    options = {"dataset": dataset, "device": CPU, "seed": 0, "bank": bank}
    evaluation = TrainedFit(model=model, sampler=None, **options).evaluation()
    with pytest.raises(Diverged, match="The gradient norms of 5 of 5 test images are not finite"):
        OutOfDistribution(set="uniform", score="grad-norm").compute(evaluation)


def test_samples_that_are_not_finite_are_reported():
    model = make()
    with torch.no_grad():
        model.prior.log_scale.fill_(200.0)
        with pytest.raises(Diverged, match="4 of 4 samples of residual-flow are not finite"):
            model.sample(4, generator=Generator().manual_seed(0))


def test_block_that_is_no_contraction_is_reported():
    model = make()
    with torch.no_grad():
        convolutions = [module for module in model.modules() if hasattr(module, "u")]
        for convolution in convolutions:
            convolution.u.zero_()  # as if every norm were 0: nothing is bounded
            convolution.weight.mul_(30)
        with pytest.raises(Diverged, match="a block is no contraction"):
            model.sample(4, generator=Generator().manual_seed(0))


def test_what_the_models_are():
    conditional = make()
    plain = make(conditional=False)
    assert capabilities(conditional) == {"logits", "energy", "log_prob", "samples"}
    assert capabilities(plain) == {"energy", "log_prob", "samples"}
    assert conditional.chains == plain.chains == "none"
    samples = plain.sample(2, generator=Generator().manual_seed(0))
    assert samples.shape == (2, 1, 4, 4)
    with pytest.raises(SpecError, match="residual-flow:conditional=true"):
        plain.log_prob(draw(), batch().y_labelled)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (
            (1, 8, 8),
            {"levels": 5},
            r"8x8 images of toy can be halved 3 times. Write residual-flow:levels=4 or fewer",
        ),
        ((1, 7, 8), {"levels": 2}, r"Write residual-flow:levels=1\."),
    ],
)
def test_options_that_do_not_fit_say_what_would(shape, options, message):
    with pytest.raises(SpecError, match=message):
        residual_flow(DataSpec(name="toy", shape=shape, num_classes=3), **options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("blocks=0", "blocks of residual-flow is 0; it must be at least 1"),
        ("terms=-1", "terms of residual-flow is -1; it must be at least 0"),
        ("probes=0", "probes of residual-flow is 0; it must be at least 1"),
        (
            "lipschitz=1",
            r"lipschitz of residual-flow is 1\.0; it must be greater than 0 and below 1",
        ),
    ],
)
def test_an_option_out_of_range_is_refused(option, message):
    with pytest.raises(SpecError, match=message):
        resolve("models", f"residual-flow:{option}")


def test_classes_need_labels():
    with pytest.raises(SpecError, match="residual-flow:conditional=false"):
        residual_flow(DataSpec(name="toy", shape=(1, 8, 8), num_classes=0))


@pytest.mark.parametrize("recipe", ["residual-flow", "residual-flow-digits"])
def test_recipes_make_a_model(recipe):
    size = 8 if recipe.endswith("digits") else 32
    values = load(recipe).model
    options = {key: int(values[key]) for key in ("levels", "terms") if key in values}
    data = DataSpec(name="toy", shape=(1, size, size), num_classes=10)
    assert residual_flow(data, blocks=1, hidden=4, **options)
