"""Residual flows: invertible blocks, determinants against the whole Jacobian, and a state that is
all there is.
"""

import math
from pathlib import Path

import pytest
import torch
from torch import Generator

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

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
CPU = torch.device("cpu")


def make(data=DATA, *, wild=0.3, **options):
    """A small model, every parameter of which is away from where it begins, so that its
    convolutions are bounded.
    """
    with seeds.drawing(0, "initialisation"):
        model = residual_flow(
            data, **{"levels": 2, "blocks": 2, "hidden": 4, "lipschitz": 0.9, "terms": 0, **options}
        )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_((wild if "layers" in name else 0.1) * torch.randn(parameter.shape))
        for _ in range(5):
            model.flow.update_norms()
    return model.eval()


def draw(n=6, data=DATA, dtype=torch.float32):
    low, high = data.bounds
    return (
        torch.rand(n, *data.shape, generator=Generator().manual_seed(1), dtype=dtype) * (high - low)
        + low
    )


def batch(n=6):
    return Batch(draw(n), draw(n), torch.arange(n) % DATA.num_classes)


def jacobian(function, image):
    size = image.numel()
    return torch.autograd.functional.jacobian(lambda x: function(x[None])[0], image).reshape(
        size, size
    )


def strong(layer):
    """Make g nearly -A'A with a norm near its bound, so that many terms of the series count."""
    first, second, third = (module for module in layer.net.modules() if hasattr(module, "u"))
    with torch.no_grad():
        first.weight.mul_(10)
        second.weight.copy_(10 * torch.eye(len(second.weight))[:, :, None, None])
        third.weight.copy_(-first.weight.flip(2, 3).transpose(0, 1))
        for convolution in (first, second):
            convolution.bias.fill_(3.0)  # where swish is nearly a straight line
    for _ in range(20):
        layer.update_norms()
    return layer


def block():
    """One with a Jacobian whose determinant takes many terms, in float64."""
    return strong(next(layer for layer in make().double().flow.layers if isinstance(layer, Block)))


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
    assert (z - x.reshape(z.shape)).abs().max() > 0.1
    assert (flow.invert(z) - x).abs().max() < tolerance


def test_blocks_are_contractions_however_large_their_weights():
    for layer in make().double().flow.layers:
        if isinstance(layer, Block):
            shape = (1, 4, 4) if layer.net.channels[0] == 1 else (4, 2, 2)
            image = draw(dtype=torch.float64)[0].reshape(shape) + 3
            assert 0.3 < torch.linalg.matrix_norm(jacobian(strong(layer).net, image), 2) < 0.9**3


def test_exact_determinant_of_the_flow_is_that_of_the_jacobian():
    flow = make(wild=1.0).double().flow
    x = draw(2, dtype=torch.float64)
    pairs = zip(x, flow(x, exact).log_det, strict=True)
    for image, log_det in pairs:
        whole = jacobian(lambda x: flow(x, exact).z.flatten(1), image)
        measured = torch.linalg.slogdet(whole).logabsdet
        torch.testing.assert_close(measured, log_det.detach(), rtol=0, atol=1e-10)


def test_series_of_a_probe_comes_to_its_end():
    net = block().net
    x = (draw(3, dtype=torch.float64) + 3).requires_grad_()
    seen = Truncated(60, 1, Generator().manual_seed(0))(net, x, differentiable=False).log_det
    probe = (
        torch.randint(2, DATA.shape, generator=Generator().manual_seed(0)).double().flatten() * 2
        - 1
    )
    for image, value in zip(x.detach(), seen, strict=True):
        eigenvalues, vectors = torch.linalg.eig(jacobian(net, image))
        logarithm = (
            vectors @ torch.diag(torch.log1p(eigenvalues)) @ torch.linalg.inv(vectors)
        ).real
        torch.testing.assert_close(value, probe @ logarithm @ probe, rtol=0, atol=1e-6)


def test_mean_over_probes_is_the_exact_determinant():
    net = block().net
    x = (draw(2, dtype=torch.float64) + 3).requires_grad_()
    expected = exact(net, x, differentiable=False).log_det
    generator = Generator().manual_seed(0)
    seen = torch.stack(
        [Truncated(40, 1, generator)(net, x, differentiable=False).log_det for _ in range(200)]
    )
    error = seen.std(dim=0) / math.sqrt(200)
    assert (error < 0.1).all()
    assert ((seen.mean(dim=0) - expected).abs() < 4 * error).all()


def test_several_probes_give_their_mean():
    net = block().net
    x = (draw(2, dtype=torch.float64) + 3).requires_grad_()
    one_by_one = Generator().manual_seed(0)
    together = Generator().manual_seed(0)
    each = [Truncated(5, 1, one_by_one)(net, x, differentiable=False).log_det for _ in range(4)]
    mean = Truncated(5, 4, together)(net, x, differentiable=False).log_det
    expected = torch.stack(each).mean(dim=0)
    torch.testing.assert_close(mean, expected)


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
    assert expected[1:].abs().max() > 10 * error[1:].max()
    assert ((seen.mean(dim=0) - expected).abs() < 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("terms", [0, 5])
def test_gradient_of_the_density_is_that_of_its_values(terms):
    model = make(wild=1.0, terms=terms).double()
    x = draw(1, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: model.log_prob(x), x.requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("conditional", [True, False])
@torch.no_grad()
def test_density_integrates_to_one(conditional):
    data = DataSpec(name="four pixels", shape=(1, 2, 2), num_classes=2, bounds=(0.0, 1.0))
    model = make(data, conditional=conditional).double()
    z = model.prior.sample(torch.zeros(2_000, dtype=torch.int64), Generator().manual_seed(0)) * 1.5
    x = units.from_unit(model.flow.invert(z), data.bounds)
    proposal = model.prior.log_prob(z / 1.5)[:, 0] - 4 * math.log(1.5)
    weights = (model.log_prob(x) - proposal - model.flow(model.flow.invert(z), exact).log_det).exp()
    weights = weights * math.exp(-units.log_det_to_unit(data))
    error = weights.std() / math.sqrt(len(weights))
    assert error < 0.03
    assert abs(weights.mean() - 1) < 4 * error


@torch.no_grad()
def test_density_changes_with_the_units_of_x():
    narrow = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3, bounds=(0.0, 1.0))
    x = draw(dtype=torch.float64)
    gain = make(narrow).double().log_prob((x + 1) / 2) - make().double().log_prob(x)
    expected = torch.full_like(gain, 16 * math.log(2))
    torch.testing.assert_close(gain, expected)


@torch.no_grad()
def test_bayes_rule_from_one_evaluation_for_each_class():
    model = make().double()
    x = draw(dtype=torch.float64)
    each = torch.stack([model.log_prob(x, torch.full((6,), k)) for k in range(3)], dim=1)
    assert (each[:, 0] - each[:, 1]).abs().min() > 1e-3
    expected = each.exp().mean(dim=1)
    torch.testing.assert_close(model.log_prob(x).exp(), expected)
    expected = each.exp() / each.exp().sum(1, keepdim=True)
    torch.testing.assert_close(model.logits(x).softmax(1), expected)
    torch.testing.assert_close(model.log_prob_by_class(x), each)


def test_uniform_density_has_eight_bits():
    shape = (3, 2, 2)
    data = DataSpec(name="colour", shape=shape, num_classes=0)
    uniform = torch.tensor([-12 * math.log(2 * 256 / 255)])
    torch.testing.assert_close(units.bits_per_dim(uniform, data), torch.tensor([8.0]))


@pytest.mark.parametrize(("terms", "probes"), [(0, 1), (4, 1), (4, 3)])
@torch.no_grad()
def test_density_is_the_same_whenever_and_beside_whatever_it_is_asked_for(terms, probes):
    model = make(wild=1.0, terms=terms, probes=probes)
    x = draw()
    state = torch.get_rng_state()
    whole = model.log_prob_by_class(x)
    assert torch.equal(model.log_prob_by_class(x), whole)
    expected = model.log_prob_by_class(x[2:3])
    torch.testing.assert_close(whole[2:3], expected, atol=1e-4, rtol=0)
    expected = model.log_prob_by_class(x.flip(0))
    torch.testing.assert_close(whole.flip(0), expected, atol=1e-4, rtol=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(
        make(wild=1.0, terms=terms, probes=probes).train().log_prob_by_class(x), whole
    )


@torch.no_grad()
def test_density_is_computed_in_float32_under_autocast():
    model = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = model.log_prob(draw())
    assert torch.equal(under, model.log_prob(draw()))


def test_first_training_batch_sets_actnorms_and_no_other_does():
    model = make().train()
    first = next(layer for layer in model.flow.layers if isinstance(layer, ActNorm))
    model.training_loss(batch(64), None)
    normalised = first(units.to_unit(draw(64), DATA.bounds), exact).z.detach()
    assert normalised.mean().abs() < 0.01
    assert normalised.std() == pytest.approx(1, abs=0.02)
    before = first.shift.clone()
    model.training_loss(batch(), None)
    assert torch.equal(first.shift, before)


def test_loss_is_the_mean_negative_log_likelihood_with_noise():
    model = make()
    model.training_loss(batch(), None)
    losses = torch.stack([model.training_loss(batch(), None).total.detach() for _ in range(20)])
    noise = [units.dequantised(draw(), DATA.bounds, Generator().manual_seed(i)) for i in range(20)]
    with torch.no_grad():
        expected = -torch.stack([model.log_prob(x, batch().y_labelled).mean() for x in noise])
    error = math.hypot(losses.std(), expected.std()) / math.sqrt(20)
    assert abs(losses.mean() - expected.mean()) < 4 * error
    assert error < 0.2
    loss = model.training_loss(batch(), None)
    assert loss.energies is None
    bits = units.bits_per_dim(-loss.total.detach()[None], DATA)[0]
    torch.testing.assert_close(loss.parts["bits_per_dim"], bits)


@pytest.mark.parametrize("conditional", [True, False])
def test_loss_trains_every_parameter(conditional):
    model = make(conditional=conditional).train()
    model.training_loss(batch(), None).total.backward()
    without = [
        name for name, parameter in model.named_parameters() if not (parameter.grad != 0).any()
    ]
    assert without == []


def test_training_alone_moves_the_singular_vectors():
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for convolution in (module for module in model.modules() if hasattr(module, "u")):
            convolution.weight.copy_(convolution.weight.flip(0))
            before |= {
                name: value.clone()
                for name, value in model.state_dict().items()
                if name.endswith("weight")
            }
    model.log_prob(draw())
    model.sample(2, generator=Generator().manual_seed(0))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    model.training_loss(batch(), None)
    moved = [
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    ]
    assert any(name.endswith(".u") for name in moved)
    assert any(name.endswith(".v") for name in moved)


def trainer():
    generator = Generator().manual_seed(0)
    images = Split(
        torch.randint(256, (60, *DATA.shape), dtype=torch.uint8, generator=generator),
        torch.arange(60) % 3,
    )
    optimizer = Optimizer(name="adam", learning_rate=0.01)
    data = TrainingData(noise=0.03, validation=0, shared=True)
    recipe = Recipe(
        name="toy",
        title="",
        epochs=2,
        batch_size=10,
        log_every=2,
        checkpoint_every=2,
        optimizer=optimizer,
        data=data,
    )
    with seeds.drawing(0, "initialisation"):
        model = residual_flow(DATA, levels=2, blocks=1, hidden=4)
    return Trainer(model, DATA, images, recipe, seed=0, device=CPU)


def test_training_goes_on_bit_for_bit():
    straight = trainer()
    stopped = trainer()
    resumed = trainer()
    expected = [float(straight.iterate()["loss"]) for _ in range(6)]
    for _ in range(3):
        stopped.iterate()
    resumed.load_state_dict(stopped.state_dict())
    assert [float(resumed.iterate()["loss"]) for _ in range(3)] == expected[3:]
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_training_draws_nothing_from_the_global_generator():
    one = trainer()
    before = torch.get_rng_state()
    one.iterate()
    assert torch.equal(before, torch.get_rng_state())


@torch.no_grad()
def test_samples_follow_the_generator_alone():
    model = make()
    y = torch.tensor([2, 0, 1])
    first, again = (model.sample(3, y, generator=Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, model.sample(3, y, generator=Generator().manual_seed(6)))
    many = model.sample(130, generator=Generator().manual_seed(0))
    assert many.shape == (130, 1, 4, 4)
    assert many.min() >= -1
    assert many.max() <= 1


@torch.no_grad()
def test_samples_of_a_class_are_likelier_in_it():
    model = make(wild=0.0)
    model.prior.mean[:] = torch.tensor([-0.3, 0.0, 0.3]).view(3, 1, 1, 1)
    model.prior.log_scale.fill_(-3.0)
    y = torch.arange(3).repeat(20)
    generator = Generator().manual_seed(0)
    x = model.sample(60, y, generator=generator)
    assert torch.equal(model.logits(x).argmax(1), y)


@torch.no_grad()
def test_inversion_of_an_image_does_not_depend_on_its_batch():
    flow = make(wild=1.0).double().flow
    z = torch.randn(6, 4, 2, 2, dtype=torch.float64, generator=Generator())
    measured = flow.invert(z)[4:5]
    expected = flow.invert(z[4:5])
    torch.testing.assert_close(measured, expected, atol=1e-12, rtol=0)


class Noise:
    """A dataset of images of random pixels."""

    spec = DATA

    def split(self, name):
        generator = Generator().manual_seed(len(name))
        images = torch.randint(256, (5, *DATA.shape), dtype=torch.uint8, generator=generator)
        return Split(images, torch.zeros(5, dtype=torch.int64))


def test_a_gradient_that_overflows_is_reported_and_not_ranked():
    model = make()
    with torch.no_grad():
        model.prior.log_scale.fill_(-30.0)  # dE/dx is about exp(60), whose square is beyond float32
    assert model.log_prob(draw()).isfinite().all()
    evaluation = TrainedFit(
        model=model,
        sampler=None,
        dataset=Noise(),
        device=CPU,
        seed=0,
        bank=FeatureBank(Noise(), Store(Path()), CPU),
    ).evaluation()
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
        for convolution in (module for module in model.modules() if hasattr(module, "u")):
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
    assert plain.sample(2, generator=Generator().manual_seed(0)).shape == (2, 1, 4, 4)
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
    options = {
        key: int(value) for key, value in load(recipe).model.items() if key in ("levels", "terms")
    }
    assert residual_flow(
        DataSpec(name="toy", shape=(1, size, size), num_classes=10), blocks=1, hidden=4, **options
    )
