from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import kstest, norm, truncnorm
from torch import Generator

from jembench.data.dequantisation import bits_per_dim
from jembench.data.pixels import to_uint8
from jembench.interfaces import DataSpec
from jembench.models.energies import grad_energy
from jembench.sampling.starts import UniformStart
from jembench_density.annealing import Annealing, Chains, reflected
from jembench_density.partition import BOUNDS, LogZ, effective_sizes, not_converged

PLANE = DataSpec(name="plane", shape=(1, 1, 2), num_classes=0, bounds=(-1.0, 2.0))
MEAN, SCALE = 0.2, 0.6  # the walls cut off a part
TRUNCATED = truncnorm((-1 - MEAN) / SCALE, (2 - MEAN) / SCALE, MEAN, SCALE)
LOG_Z = -2 * math.log(TRUNCATED.pdf(MEAN))  # E(MEAN) is 0, so that p(MEAN) is 1 / Z


class Gaussian:
    """A Gaussian cut off by a box, with exact samples."""

    def energy(self, x, y=None):
        scaled = (x - MEAN) / SCALE
        return scaled.square().flatten(1).sum(1) / 2

    def log_prob(self, x, y=None):
        return -self.energy(x)

    def sample(self, n, y=None, *, generator):
        random_state = generator.initial_seed() % 2**32
        x = TRUNCATED.rvs((n, 1, 1, 2), random_state=random_state)
        return torch.from_numpy(x).float()


class Banana:
    """A curved valley and a well, without exact samples."""

    def energy(self, x, y=None):
        a, b = x.flatten(1).unbind(1)
        bend = -((b - a**2) ** 2) / 0.08 - a**2
        hill = 1.0 - ((a - 1) ** 2 + (b + 0.5) ** 2) / 0.1
        return -torch.logaddexp(bend, hill)


def of_plane(model, **options):
    generator = Generator().manual_seed(5)
    x = UniformStart(PLANE).draw(300, None, generator)
    images = to_uint8(x, PLANE.bounds)
    sets = {"test": images}
    energies = model.energy(x)
    return FakeEvaluation(
        model=model, spec=PLANE, test_energies=energies, sampled=images, sets=sets
    )


def test_the_integral_of_a_gaussian_in_a_box_and_the_likelihood_of_images():
    evaluation = of_plane(Gaussian())
    measurement = LogZ(temperatures=30, leapfrog=2).compute(evaluation)
    assert list(measurement.values) == [*BOUNDS, "log-z-ess", "log-z", "log-likelihood"]
    assert "source=exact" in measurement.protocol
    for label in ("log-z-lower", "log-z-upper", "log-z"):
        value = measurement.values[label]
        assert value.low <= LOG_Z <= value.high
        assert value.value == pytest.approx(LOG_Z, abs=0.1)
        assert value.n == 100
        assert value.unit == "nats"
    log_px = -evaluation.test_energies.double() - measurement.values["log-z"].value
    bits = -bits_per_dim(log_px, PLANE)
    likelihood = measurement.values["log-likelihood"]
    assert likelihood.value == pytest.approx(float(bits.mean()))
    assert likelihood.n == 300
    pilot = 20 * (1 + 40 * 4 * 2)
    both_ways = 2 * 100 * (1 + 29 * 2)
    assert measurement.details["passes"] == pilot + both_ways
    assert min(measurement.details["acceptance"]) > 0.5


def test_an_integral_by_quadrature_from_samples_of_chains(monkeypatch):
    middles = torch.arange(1000, dtype=torch.float64) + 0.5
    places = middles * 3 / 1000 - 1
    energy = Banana().energy(torch.cartesian_prod(places, places))
    area = (3 / 1000) ** 2
    expected = float((-energy).logsumexp(0)) + math.log(area)
    metric = LogZ(temperatures=80, leapfrog=2)
    measurement = metric.compute(of_plane(Banana()))
    assert measurement.values["log-z"].low <= expected <= measurement.values["log-z"].high
    assert measurement.values["log-z"].high - measurement.values["log-z"].low < 0.5
    monkeypatch.setenv("JEMBENCH_BATCH", "60")
    again = metric.compute(of_plane(Banana()))
    for way in ("forward", "reverse"):
        expected = measurement.arrays[way]
        assert_allclose(again.arrays[way], expected, atol=1e-4)


def test_the_integral_of_a_mixture_on_64_pixels():
    shape = (1, 8, 8)
    data = DataSpec(name="mixture", shape=shape, num_classes=0)
    scale = 0.5
    generator = Generator().manual_seed(0)
    signs = torch.randn(3, 64, generator=generator).sign()
    means = torch.linspace(-0.3, 0.3, 3)[:, None] * signs
    above = norm.cdf((1 - means) / scale)
    inside = np.log(above - norm.cdf((-1 - means) / scale))
    height = math.log(scale * math.sqrt(2 * math.pi))
    of_each = (inside + height).sum(axis=1)
    expected = logsumexp(of_each)

    class Mixture:
        def log_prob(self, x, y=None):
            return -self.energy(x)

        def energy(self, x, y=None):
            deviations = (x.flatten(1)[:, None] - means) / scale
            return -(-deviations.square().sum(2) / 2).logsumexp(1)

        def sample(self, n, y=None, *, generator):
            rng = np.random.default_rng(0)
            shares = np.exp(of_each - expected)
            centre = means[rng.choice(3, n, p=shares)].numpy()
            low = (-1 - centre) / scale
            high = (1 - centre) / scale
            x = truncnorm.rvs(low, high, centre, scale, random_state=rng)
            return torch.from_numpy(x).float().view(n, 1, 8, 8)

    generator = Generator().manual_seed(5)
    x = UniformStart(data).draw(100, None, generator)
    model = Mixture()
    evaluation = FakeEvaluation(model=model, spec=data, test_energies=model.energy(x))
    values = LogZ(temperatures=150, leapfrog=2).compute(evaluation).values
    measurement = values["log-z"]
    assert measurement.low <= expected <= measurement.high
    assert measurement.value == pytest.approx(expected, abs=0.3)


def test_where_the_bounds_differ_the_reason_stands_in_place_of_a_number():
    class Narrow(Gaussian):
        def energy(self, x, y=None):
            return 400 * super().energy(x)

    metric = LogZ(chains=20, temperatures=2, leapfrog=1)
    measurement = metric.compute(of_plane(Narrow()))
    assert {*measurement.values} == {*BOUNDS, "log-z-ess"}
    assert {*measurement.details["undefined"]} == {"log-z", "log-likelihood"}
    assert measurement.details["undefined"]["log-z"].startswith(
        "not converged: the bounds of log Z, "
    )


@pytest.mark.parametrize("way", [0, 1])
def test_bounds_of_few_effective_chains_have_not_converged_even_if_they_agree(way):
    even = np.zeros(100)
    peaked = np.array([*[0.0] * 99, 10.0])
    ways = [even, -even]
    ways[way] = peaked * (1, -1)[way]
    level = logsumexp(peaked) - math.log(100)
    change = level * (1, -1)[way]
    ways[1 - way] = ways[1 - way] + change
    weights = np.exp(peaked)
    size = weights.sum() ** 2 / (weights**2).sum()
    assert effective_sizes(*ways)[way] == pytest.approx(size)
    assert effective_sizes(*ways)[1 - way] == pytest.approx(100)
    reason = not_converged(*ways, least=20)
    assert "effective sample sizes of" in reason
    assert not_converged(*ways, least=1) == ""


def test_a_mode_that_chains_from_noise_miss_is_seen_from_test_images():
    """A well with nine tenths of the mass escapes chains and samples."""

    class Well:
        def energy(self, x, y=None):
            place = x.flatten(1).double()
            from_broad = (place + 0.2) / 0.3
            broad = -from_broad.square().sum(1) / 2
            depth = math.log(9) + 4 * math.log(0.3 / 0.01)
            from_narrow = (place - 0.8) / 0.01
            narrow = depth - from_narrow.square().sum(1) / 2
            return -torch.logaddexp(broad, narrow)

    shape = (1, 1, 4)
    data = DataSpec(name="well", shape=shape, num_classes=0)
    generator = Generator().manual_seed(0)
    draws = torch.randn(300, 1, 1, 4, generator=generator)
    broad = to_uint8(0.3 * draws - 0.2, data.bounds)
    narrow = to_uint8(0.01 * draws + 0.8, data.bounds)
    images = {"sampled": broad, "sets": {"test": narrow}}
    energies = torch.zeros(300)
    evaluation = FakeEvaluation(model=Well(), spec=data, test_energies=energies, **images)
    measurement = LogZ(temperatures=60, leapfrog=3).compute(evaluation)
    assert "source=direct+test-images" in measurement.protocol
    assert measurement.values["log-z-ess"].value > 20
    assert measurement.details["undefined"]["log-z"].endswith(
        "differ by more than their errors. Raise temperatures (now 60)."
    )


def test_of_100_simulations_at_least_95_intervals_cover_log_z(monkeypatch):
    generator = Generator().manual_seed(1)
    metric = LogZ(chains=50, resamples=300)
    evaluation = of_plane(Gaussian())
    energy = grad_energy(Gaussian())
    path = Annealing(energy, PLANE.bounds, temperatures=10, leapfrog=1)
    uniform = UniformStart(PLANE)
    path.adapt(uniform.draw(100, None, generator), generator)
    noise = uniform.draw(5000, None, generator)
    forward, _ = path.run(noise, generator)
    samples = Gaussian().sample(5000, generator=generator)
    reverse, _ = path.run(samples, generator, reverse=True)
    evaluation.test_energies = evaluation.test_energies[:2]
    measurement = []
    log_volume = 2 * math.log(3)
    forward = log_volume + forward.view(100, 50)
    reverse = log_volume - reverse.view(100, 50)
    for ways in zip(forward, reverse, strict=True):
        arrays = dict(zip(("forward", "reverse"), ways, strict=True))
        monkeypatch.setattr(LogZ, "_anneal", lambda *_, arrays=arrays: (dict(arrays), {}, "exact"))
        measurement.append(metric.compute(evaluation).values.get("log-z"))
    numbers = [value for value in measurement if value is not None]
    assert len(numbers) > 90
    covered = [value.low <= LOG_Z <= value.high for value in numbers]
    assert sum(covered) >= 0.95 * len(numbers)


@pytest.mark.parametrize("leapfrog", [1, 4])
def test_transitions_keep_the_density_up_to_the_walls(leapfrog):
    generator = Generator().manual_seed(2)
    energy = grad_energy(Gaussian())
    path = Annealing(energy, PLANE.bounds, temperatures=15, leapfrog=leapfrog)
    path.steps[:] = 0.9
    x = Gaussian().sample(4000, generator=generator)
    x = path.equilibrate(x, generator)
    assert kstest(x.flatten().numpy(), TRUNCATED.cdf).pvalue > 0.01
    before = Chains(x, *energy(x, None))
    chains, rate = path.transition(before, 1.0, 0.9, generator)
    assert 0.2 < rate < 0.99
    stayed = (chains.x == x).flatten(1).all(1).float()
    assert float(stayed.mean()) == pytest.approx(1 - rate, abs=0.03)


def test_paths_are_reflected_as_often_as_they_hit_a_wall():
    x = torch.linspace(-9, 9, 181, dtype=torch.float64)
    x = x.view(-1, 1, 1, 1)
    low = -1.0
    high = 2.0
    place = x.clone()
    speed = torch.ones_like(x)
    while ((place < low) | (place > high)).any():
        for wall, beyond in ((low, place < low), (high, place > high)):
            place = torch.where(beyond, 2 * wall - place, place)
            speed = torch.where(beyond, -speed, speed)
    measurement, momentum = reflected(x, torch.ones_like(x), (low, high))
    from_low = (measurement - low).abs()
    from_high = (measurement - high).abs()
    inside = (from_low > 1e-9) & (from_high > 1e-9)
    assert_allclose(measurement, place, atol=1e-12)
    assert torch.equal(momentum[inside], speed[inside])
