"""The bound, its classifier and its samples, by the optimal predictor of Gaussian data; a training
step by hand.
"""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Generator, nn

from jembench import seeds
from jembench.experiment import recipe as recipes
from jembench.interfaces import DataSpec, Split
from jembench.plugin import SpecError, resolve
from jembench.training.loop import Trainer
from jembench_diffusion import diffusion
from jembench_diffusion.model import DiffusionClassifier, DiffusionDensity, log_noise_to_signal

SHAPE = (1, 2, 2)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
SPREAD, D = 0.2, 4
OF_CLASSES = [[-0.5, 0.1, 0.0, 0.3], [0.2, -0.3, 0.4, 0.0], [0.3, 0.3, -0.2, -0.4]]
MEANS = torch.tensor(OF_CLASSES).view(3, 1, 2, 2)


class Optimal(nn.Module):
    """E[eps | x_t, y] for images N(mean_y, SPREAD^2)."""

    def __init__(self, schedule, timesteps):
        super().__init__()
        gamma = log_noise_to_signal(schedule, timesteps)
        self.register_buffer("signal", gamma.neg().sigmoid().float())

    def forward(self, x, t, y):
        signal = self.signal[t][:, None, None, None]
        variance = signal * SPREAD**2 + 1 - signal
        return (1 - signal).sqrt() * (x - signal.sqrt() * MEANS[y]) / variance


def optimal(
    made=DiffusionDensity, schedule="linear", timesteps=1000, evaluations=1000, steps=1000, eta=0.0
):
    net = Optimal(schedule, timesteps)
    return made(DATA, net, timesteps, schedule, evaluations, steps, eta)


@pytest.fixture
def images():
    generator = Generator().manual_seed(0)
    y = torch.arange(60) % 3
    noise = torch.randn(60, *SHAPE, generator=generator)
    return MEANS[y] + SPREAD * noise


def log_normal(x):
    """log N(x; mean_y, SPREAD^2) of every class, (B, K)."""
    squares = (x[:, None] - MEANS).flatten(2).square().sum(2)
    log_z = D / 2 * math.log(2 * math.pi * SPREAD**2)
    return -squares / (2 * SPREAD**2) - log_z


def bound(x, model):
    """Return every class's bound, its expectation over eps in closed form."""
    a2 = model.alpha.double().square()
    s2 = model.sigma.double().square()
    squares = (x[:, None] - MEANS).flatten(2).square()
    squares = squares.sum(2).double()
    total = -D / 2 * math.log(2 * math.pi * s2[0] / a2[0])
    for t in range(len(a2)):
        numerator = a2[t] ** 2 * SPREAD**4 * D + s2[t] * a2[t] * squares
        error = numerator / (a2[t] * SPREAD**2 + s2[t]) ** 2
        before = 1.0 if t == 0 else a2[t - 1] * s2[t] / (a2[t] * s2[t - 1]) - 1
        total = total - before / 2 * error
    squared = s2[-1] + a2[-1] * x.double().square()
    kl = (squared - 1 - s2[-1].log()).flatten(1).sum(1) / 2
    return total - kl[:, None]


def test_the_bound_is_below_the_log_density_and_near_it_with_many_steps(images):
    gaps = []
    for steps in (20, 100, 1000):
        model = optimal(schedule="log-snr", timesteps=steps, evaluations=1)
        gap = log_normal(images) - bound(images, model)
        gaps.append(gap.mean())
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 0.15


@pytest.mark.parametrize("schedule", ["linear", "cosine", "log-snr"])
def test_its_estimate_agrees_with_the_expectation(images, schedule):
    model = optimal(schedule=schedule, timesteps=400, evaluations=400, steps=1)
    labels = torch.arange(60) % 3
    difference = model.logits(images).double() - bound(images, model)
    difference = difference[torch.arange(60), labels]
    assert difference.mean().abs() < 2.0  # noise that all images share
    assert difference.std() < 1.5


def test_both_classify_as_the_rule_of_bayes_does(images):
    best = log_normal(images).argmax(1)
    for made in (DiffusionClassifier, DiffusionDensity):
        predicted = optimal(made).logits(images).argmax(1)
        agree = (predicted == best).float().mean()
        assert agree >= 0.95
    model = optimal(evaluations=50)
    expected = model.logits(images).logsumexp(1) - math.log(3)
    assert torch.allclose(model.log_prob(images), expected)


def test_uniform_logits_are_mean_squared_errors_with_noise_shared_by_classes(images):
    model = optimal(DiffusionClassifier, timesteps=10, evaluations=10)
    logits = model.logits(images)
    rows = model.logits(images[7:9])
    assert torch.allclose(rows, logits[7:9], atol=1e-5)
    assert [t for t, _ in model.errors(images)] == list(range(10))
    total = sum(error for _, error in model.errors(images))
    assert torch.allclose(-total / 10, logits)
    assert not hasattr(model, "log_prob")


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_samples_have_the_moments_of_their_class(eta):
    model = optimal(steps=300, eta=eta)
    y = torch.arange(3).repeat_interleave(200)
    generator = Generator().manual_seed(0)
    x = model.sample(600, y, generator=generator)
    x = x.view(3, 200, D)
    assert torch.allclose(x.mean(1), MEANS.flatten(1), atol=0.04)
    spread = torch.full((3, D), SPREAD)
    assert torch.allclose(x.std(1), spread, atol=0.03)


class Affine(nn.Module):
    """eps = W x + u t + b_y, of which the gradient is known."""

    def __init__(self):
        super().__init__()
        draw = Generator().manual_seed(4)
        shapes = ((D, D), (D,), (3, D))
        weights = [torch.randn(shape, generator=draw) / 2 for shape in shapes]
        self.weight, self.slope, self.bias = map(nn.Parameter, weights)

    def forward(self, x, t, y):
        noise = x.flatten(1) @ self.weight.T + t[:, None] * self.slope
        return (noise + self.bias[y]).view_as(x)


def test_a_training_step_is_that_of_adam_on_the_gradient_in_closed_form():
    """Draw t and the noise as the step does.

    Loss, gradient, Adam and averaged weights are written out in NumPy.
    """
    model = DiffusionClassifier(DATA, Affine(), 20, "linear", 2, 2, 0.0)
    generator = Generator().manual_seed(0)
    shape = (5, *SHAPE)
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    recipe = recipes.load(
        "diffusion-digits", ["batch_size=5", "data.noise=0", "schedule.warmup_iterations=0"]
    )
    train = Split(pixels, torch.arange(5) % 3)
    trainer = Trainer(model, DATA, train, recipe, seed=0, device=torch.device("cpu"))
    batch = trainer.batches.draw()
    trainer.batches.draw = lambda: batch
    with seeds.drawing(0, trainer._chance("network")):
        t = torch.randint(20, (5,)).numpy()
        noise = torch.randn(5, D).double().numpy()
    before = [parameter.detach().double().numpy() for parameter in model.net.parameters()]
    weight, slope, bias = before
    x = batch.x_labelled.double().flatten(1).numpy()
    y = np.eye(3)[batch.y_labelled.numpy()]

    betas = 50 * np.linspace(1e-4, 0.02, 20)
    signal = np.cumprod(1 - betas)[t, None]
    noisy = np.sqrt(signal) * x + np.sqrt(1 - signal) * noise
    predicted = noisy @ weight.T + t[:, None] * slope + y @ bias
    error = predicted - noise
    towards = 2 * error / error.size
    rate = trainer.learning_rate()
    row = trainer.iterate()
    assert float(row["loss"]) == pytest.approx((error**2).mean(), rel=1e-5)
    averaged = list(trainer.weights().values())
    gradients = towards.T @ noisy, t @ towards, y.T @ towards
    rows = zip(before, gradients, model.net.parameters(), averaged, strict=True)
    for old, gradient, new, mean in rows:
        # both moments of the first step are unbiased
        stepped = old - rate * gradient / (np.abs(gradient) + 1e-8)
        measured = new.detach().numpy()
        assert_allclose(measured, stepped, atol=1e-6)
        # .1 is the first decay
        expected = 0.1 * old + 0.9 * stepped
        assert_allclose(mean.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"net": "unet-12"}, "multiple of 8"),
        ({"net": "resnet"}, "no net named 'resnet'.*mlp-WIDTH"),
        ({"timesteps": 10}, "neither may exceed the timesteps, 10"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    with pytest.raises(SpecError, match=message):
        diffusion(DATA, **options)
    assert resolve("models", "diffusion:net=mlp-8").make(DATA)
