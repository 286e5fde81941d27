"""Glow: an invertible flow, a density that integrates to 1, Bayes' rule, and a state that is all
there is.
"""

import math
from pathlib import Path

import pytest
import torch
from normflows.flows import Squeeze
from torch import Generator
from torch.testing import assert_close

from jembench import seeds
from jembench.data import dequantisation as units
from jembench.errors import Diverged, SpecError
from jembench.interfaces import Batch, DataSpec, Split
from jembench.metrics.ood import OutOfDistribution
from jembench.models.capabilities import capabilities
from jembench.plugin import resolve
from jembench.running.caches import FeatureBank
from jembench.running.evaluation import TrainedFit
from jembench.store.checkpoint import load_weights, read, write
from jembench.store.store import Store
from jembench_glow import glow
from jembench_glow.network import ActNorm

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
CPU = torch.device("cpu")


def make(data=DATA, *, wild=0.1, **options):
    """Return a small model without a parameter where it begins."""
    with seeds.drawing(0, "initialisation"):
        small = {"levels": 2, "steps": 2, "hidden": 4}
        model = glow(data, **{**small, **options}).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(wild * torch.randn(parameter.shape))
    return model


def draw(n=6, data=DATA, dtype=torch.float32):
    low, high = data.bounds
    generator = Generator().manual_seed(1)
    unit = torch.rand(n, *data.shape, generator=generator, dtype=dtype)
    return unit * (high - low) + low


def batch(n=6):
    labels = torch.arange(n) % DATA.num_classes
    return Batch(draw(n), draw(n), labels)


def actnorms(model):
    return [layer for layer in model.modules() if isinstance(layer, ActNorm)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@torch.no_grad()
def test_forward_undoes_inverse(dtype, tolerance):
    flow = make().to(dtype).flow
    x = draw(dtype=dtype)
    latents, log_det = flow.inverse_and_log_det(x)
    back, back_log_det = flow.forward_and_log_det(latents)
    assert back.dtype == dtype
    assert (back - x).abs().max() < tolerance
    assert (log_det + back_log_det).abs().max() < tolerance


def test_log_det_is_that_of_the_jacobian():
    flow = make().double().flow
    x = draw(2, dtype=torch.float64)

    def latents(image):
        latents, _ = flow.inverse_and_log_det(image[None])
        return torch.cat([z.flatten() for z in latents])

    pairs = zip(x, flow.inverse_and_log_det(x)[1], strict=True)
    for image, log_det in pairs:
        jacobian = torch.autograd.functional.jacobian(latents, image)
        jacobian = jacobian.reshape(16, 16)
        measured = torch.linalg.slogdet(jacobian).logabsdet
        assert_close(measured, log_det.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("conditional", [True, False])
@torch.no_grad()
def test_density_integrates_to_one(conditional):
    shape = (1, 2, 2)
    data = DataSpec(name="four pixels", shape=shape, num_classes=2, bounds=(0.0, 1.0))
    model = make(data, levels=1, conditional=conditional, wild=0.05).double()
    centre = torch.tensor(0.5, dtype=torch.float64)
    proposal = torch.distributions.Normal(centre, 2.0)
    generator = Generator().manual_seed(0)
    x = 0.5 + 2.0 * torch.randn(50_000, *shape, generator=generator, dtype=torch.float64)
    log_proposal = proposal.log_prob(x).flatten(1).sum(1)
    weights = (model.log_prob(x) - log_proposal).exp()
    error = weights.std() / math.sqrt(len(weights))
    assert error < 0.02
    assert abs(weights.mean() - 1) < 4 * error


@torch.no_grad()
def test_density_changes_with_the_units_of_x():
    wide = DATA
    shape = (1, 4, 4)
    narrow = DataSpec(name="toy", shape=shape, num_classes=3, bounds=(0.0, 1.0))
    x = draw(dtype=torch.float64)
    of_narrow = make(narrow).double().log_prob((x + 1) / 2)
    gain = of_narrow - make(wide).double().log_prob(x)
    expected = torch.full_like(gain, 16 * math.log(2))
    assert_close(gain, expected)


@torch.no_grad()
def test_bayes_rule_from_one_evaluation_for_each_class():
    model = make().double()
    x = draw(dtype=torch.float64)
    by_class = [model.log_prob(x, torch.full((6,), k)) for k in range(3)]
    log_probs = torch.stack(by_class, dim=1)
    density = log_probs.exp()
    assert (by_class[0] - by_class[1]).abs().min() > 1e-3
    measured = model.log_prob(x).exp()
    assert_close(measured, density.mean(dim=1))
    expected = density / density.sum(1, keepdim=True)
    assert_close(model.logits(x).softmax(1), expected)


def test_first_training_batch_sets_actnorms_and_no_other_does(tmp_path):
    model = make()
    before = [layer.t.clone() for layer in actnorms(model)]
    model.log_prob(draw())
    shifts = [layer.t for layer in actnorms(model)]
    assert all(map(torch.equal, before, shifts))

    first = model.train().training_loss(batch(64), None)
    unit = units.to_unit(draw(64), DATA.bounds)
    z, _ = Squeeze().inverse(unit)
    normalised, _ = model.flow.flows[-1][-2].inverse(z)
    std, mean = torch.std_mean(normalised, dim=(0, 2, 3))
    assert mean.abs().max() < 0.01
    assert (std - 1).abs().max() < 0.02
    assert first.total.isfinite()

    write(tmp_path / "state", dict(model.state_dict()))
    loaded = make(wild=0.3)
    load_weights(loaded, read(tmp_path / "state"))
    expected = [(layer.s.clone(), layer.t.clone()) for layer in actnorms(model)]
    loaded.train().training_loss(batch(), None)
    pairs = zip(actnorms(loaded), expected, strict=True)
    for layer, (s, t) in pairs:
        assert torch.equal(layer.s, s)
        assert torch.equal(layer.t, t)


def test_loss_is_the_mean_negative_log_likelihood_and_trains_every_parameter():
    model = make()
    model.training_loss(batch(), None)
    with seeds.drawing(0, "noise"):
        loss = model.training_loss(batch(), None)
    with torch.no_grad(), seeds.drawing(0, "noise"):
        x = units.dequantised(draw(), DATA.bounds)
        log_prob = model.log_prob(x, batch().y_labelled)
    assert_close(loss.total, -log_prob.mean())
    expected = units.bits_per_dim(log_prob, DATA).mean()
    assert_close(loss.parts["bits_per_dim"], expected)
    assert loss.energies is None
    loss.total.backward()
    for parameter in model.parameters():
        assert parameter.grad is not None


@torch.no_grad()
def test_samples_follow_the_generator_alone():
    model = make()
    y = torch.tensor([2, 0, 1])
    state = torch.get_rng_state()
    first = model.sample(3, y, generator=Generator().manual_seed(5))
    again = model.sample(3, y, generator=Generator().manual_seed(5))
    generator = Generator().manual_seed(6)
    another = model.sample(3, y, generator=generator)
    assert torch.equal(first, again)
    assert not torch.equal(first, another)
    assert torch.equal(torch.get_rng_state(), state)
    many = model.sample(130, generator=Generator().manual_seed(0))
    assert many.shape == (130, 1, 4, 4)
    assert many.min() >= -1
    assert many.max() <= 1


@torch.no_grad()
def test_samples_of_a_class_are_likelier_in_it():
    model = make(wild=0.0)
    for prior in model.flow.q0:
        means = torch.tensor([-0.3, 0.0, 0.3])
        prior.mean[:] = means.view(3, 1, 1, 1)
        prior.log_scale.fill_(-3.0)
    y = torch.arange(3).repeat(20)
    latents = [prior.sample(y, Generator().manual_seed(0)) for prior in model.flow.q0]
    unit, _ = model.flow.forward_and_log_det(latents)
    x = units.from_unit(unit, DATA.bounds)
    assert torch.equal(model.logits(x).argmax(1), y)


@torch.no_grad()
def test_rows_of_a_batch_do_not_depend_on_each_other():
    model = make()
    whole = model.logits(draw())
    expected = model.logits(draw()[2:3])
    assert_close(whole[2:3], expected, atol=1e-4, rtol=0)
    expected = model.logits(draw().flip(0))
    assert_close(whole.flip(0), expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_density_is_computed_in_float32_under_autocast():
    model = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = model.log_prob(draw())
    assert torch.equal(under, model.log_prob(draw()))


class Noise:
    """A dataset and an OOD set in one: images of random pixels."""

    spec = DATA

    def split(self, name):
        generator = Generator().manual_seed(len(name))
        shape = (5, *SHAPE)
        images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        return Split(images, torch.zeros(5, dtype=torch.int64))


def evaluation_of(model):
    bank = FeatureBank(Noise(), Store(Path()), CPU)
    options = {"dataset": Noise(), "device": CPU, "seed": 0, "bank": bank}
    return TrainedFit(model=model, sampler=None, **options).evaluation()


def test_a_gradient_that_overflows_is_reported_and_not_ranked():
    model = make()
    with torch.no_grad():
        # dE/dx is about exp(60), whose square is beyond float32
        model.flow.q0[0].log_scale.fill_(-30.0)
    assert model.log_prob(draw()).isfinite().all()
    with pytest.raises(Diverged, match="The gradient norms of 5 of 5 test images are not finite"):
        OutOfDistribution(set="uniform", score="grad-norm").compute(evaluation_of(model))


def test_samples_that_are_not_finite_are_reported():
    model = make()
    with torch.no_grad():
        model.flow.q0[0].log_scale.fill_(200.0)
        with pytest.raises(Diverged, match="4 of 4 samples of glow are not finite"):
            model.sample(4, generator=Generator().manual_seed(0))


def test_what_the_models_are():
    conditional = make()
    plain = make(conditional=False)
    assert capabilities(conditional) == {"logits", "energy", "log_prob", "samples"}
    assert capabilities(plain) == {"energy", "log_prob", "samples"}
    assert conditional.chains == plain.chains == "none"
    samples = plain.sample(2, generator=Generator().manual_seed(0))
    assert samples.shape == (2, 1, 4, 4)
    assert plain.training_loss(batch(), None).total.isfinite()
    with pytest.raises(SpecError, match="glow:conditional=true"):
        plain.log_prob(draw(), batch().y_labelled)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (
            (1, 8, 8),
            {"levels": 4},
            r"8x8 images of toy can be halved 3 times. Write glow:levels=3 or fewer",
        ),
        ((1, 28, 28), {}, "Write glow:levels=2 or fewer"),
        ((1, 6, 8), {}, r"Write glow:levels=1\."),
        ((1, 7, 8), {"levels": 1}, "even number of pixels"),
    ],
)
def test_options_that_do_not_fit_say_what_would(shape, options, message):
    with pytest.raises(SpecError, match=message):
        glow(DataSpec(name="toy", shape=shape, num_classes=3), **options)


def test_a_number_of_steps_is_at_least_1():
    with pytest.raises(SpecError, match="steps of glow is 0; it must be at least 1"):
        resolve("models", "glow:steps=0")


def test_classes_need_labels():
    with pytest.raises(SpecError, match="glow:conditional=false"):
        glow(DataSpec(name="toy", shape=(1, 8, 8), num_classes=0))
