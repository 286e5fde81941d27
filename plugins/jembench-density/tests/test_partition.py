from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation
from scipy.special import logsumexp
from scipy.stats import kstest, norm, truncnorm

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
    """A Gaussian whose tails the walls of the box cut off, with exact samples."""

    def energy(self, x, y=None):
        return ((x - MEAN) / SCALE).square().flatten(1).sum(1) / 2

    def log_prob(self, x, y=None):
        return -self.energy(x)

    def sample(self, n, y=None, *, generator):
        return torch.from_numpy(
            TRUNCATED.rvs((n, 1, 1, 2), random_state=generator.initial_seed() % 2**32)
        ).float()


class Banana:
    """A curved valley and a well, without exact samples."""

    def energy(self, x, y=None):
        a, b = x.flatten(1).unbind(1)
        return -torch.logaddexp(
            -((b - a**2) ** 2) / 0.08 - a**2, 1.0 - ((a - 1) ** 2 + (b + 0.5) ** 2) / 0.1
        )


def of_plane(model, **given):
    x = UniformStart(PLANE).draw(300, None, torch.Generator().manual_seed(5))
    images = to_uint8(x, PLANE.bounds)
    return FakeEvaluation(
        model=model,
        spec=PLANE,
        test_energies=model.energy(x),
        sampled=images,
        sets={"test": images},
    )


def test_the_integral_of_a_gaussian_in_a_box_and_the_likelihood_of_images():
    evaluation = of_plane(Gaussian())
    found = LogZ(temperatures=30, leapfrog=2).compute(evaluation)
    assert list(found.values) == [*BOUNDS, "log-z-ess", "log-z", "log-likelihood"]
    assert "source=exact" in found.protocol
    for label in ("log-z-lower", "log-z-upper", "log-z"):
        value = found.values[label]
        assert value.low <= LOG_Z <= value.high
        assert (value.value, value.n, value.unit) == (pytest.approx(LOG_Z, abs=0.1), 100, "nats")
    bits = -bits_per_dim(-evaluation.test_energies.double() - found.values["log-z"].value, PLANE)
    likelihood = found.values["log-likelihood"]
    assert (likelihood.value, likelihood.n) == (pytest.approx(float(bits.mean())), 300)
    assert found.details["passes"] == 20 * (1 + 40 * 4 * 2) + 2 * 100 * (1 + 29 * 2)
    assert min(found.details["acceptance"]) > 0.5


def test_an_integral_by_quadrature_from_samples_of_chains(monkeypatch):
    places = (torch.arange(1000, dtype=torch.float64) + 0.5) * 3 / 1000 - 1
    energy = Banana().energy(torch.cartesian_prod(places, places))
    expected = float((-energy).logsumexp(0)) + 2 * math.log(3 / 1000)
    metric = LogZ(temperatures=80, leapfrog=2)
    found = metric.compute(of_plane(Banana()))
    assert found.values["log-z"].low <= expected <= found.values["log-z"].high
    assert found.values["log-z"].high - found.values["log-z"].low < 0.5
    monkeypatch.setenv("JEMBENCH_BATCH", "60")
    again = metric.compute(of_plane(Banana()))
    for way in ("forward", "reverse"):
        np.testing.assert_allclose(again.arrays[way], found.arrays[way], atol=1e-4)


def test_the_integral_of_a_mixture_on_64_pixels():
    data, scale = DataSpec(name="mixture", shape=(1, 8, 8), num_classes=0), 0.5
    signs = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).sign()
    means = torch.linspace(-0.3, 0.3, 3)[:, None] * signs
    inside = np.log(norm.cdf((1 - means) / scale) - norm.cdf((-1 - means) / scale))
    of_each = (inside + math.log(scale * math.sqrt(2 * math.pi))).sum(axis=1)
    expected = logsumexp(of_each)

    class Mixture:
        def log_prob(self, x, y=None):
            return -self.energy(x)

        def energy(self, x, y=None):
            return -(-((x.flatten(1)[:, None] - means) / scale).square().sum(2) / 2).logsumexp(1)

        def sample(self, n, y=None, *, generator):
            rng = np.random.default_rng(0)
            centre = means[rng.choice(3, n, p=np.exp(of_each - expected))].numpy()
            x = truncnorm.rvs(
                (-1 - centre) / scale, (1 - centre) / scale, centre, scale, random_state=rng
            )
            return torch.from_numpy(x).float().view(n, 1, 8, 8)

    x = UniformStart(data).draw(100, None, torch.Generator().manual_seed(5))
    evaluation = FakeEvaluation(model=Mixture(), spec=data, test_energies=Mixture().energy(x))
    found = LogZ(temperatures=150, leapfrog=2).compute(evaluation).values["log-z"]
    assert found.low <= expected <= found.high
    assert found.value == pytest.approx(expected, abs=0.3)


def test_where_the_bounds_differ_the_reason_stands_in_place_of_a_number():
    class Narrow(Gaussian):
        def energy(self, x, y=None):
            return 400 * super().energy(x)

    found = LogZ(chains=20, temperatures=2, leapfrog=1).compute(of_plane(Narrow()))
    assert {*found.values} == {*BOUNDS, "log-z-ess"}
    assert {*found.details["undefined"]} == {"log-z", "log-likelihood"}
    assert found.details["undefined"]["log-z"].startswith("not converged: the bounds of log Z, ")


@pytest.mark.parametrize("way", [0, 1])
def test_bounds_of_few_effective_chains_have_not_converged_even_if_they_agree(way):
    even, peaked = np.zeros(100), np.array([*[0.0] * 99, 10.0])
    ways = [even, -even]
    ways[way] = peaked * (1, -1)[way]
    level = logsumexp(peaked) - math.log(100)
    ways[1 - way] = ways[1 - way] + level * (1, -1)[way]
    weights = np.exp(peaked)
    assert effective_sizes(*ways)[way] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert effective_sizes(*ways)[1 - way] == pytest.approx(100)
    reason = not_converged(*ways, least=20)
    assert "effective sample sizes of" in reason
    assert not_converged(*ways, least=1) == ""


def test_a_mode_that_chains_from_noise_miss_is_seen_from_test_images():
    """Nine tenths of the mass lie in a well that no chain from noise finds, nor the samples."""

    class Well:
        def energy(self, x, y=None):
            place = x.flatten(1).double()
            broad = -((place + 0.2) / 0.3).square().sum(1) / 2
            depth = math.log(9) + 4 * math.log(0.3 / 0.01)
            narrow = depth - ((place - 0.8) / 0.01).square().sum(1) / 2
            return -torch.logaddexp(broad, narrow)

    data = DataSpec(name="well", shape=(1, 1, 4), num_classes=0)
    draws = torch.randn(300, 1, 1, 4, generator=torch.Generator().manual_seed(0))
    broad, narrow = (
        to_uint8(place, data.bounds) for place in (0.3 * draws - 0.2, 0.01 * draws + 0.8)
    )
    evaluation = FakeEvaluation(
        model=Well(),
        spec=data,
        sampled=broad,
        sets={"test": narrow},
        test_energies=torch.zeros(300),
    )
    found = LogZ(temperatures=60, leapfrog=3).compute(evaluation)
    assert "source=direct+test-images" in found.protocol
    assert found.values["log-z-ess"].value > 20
    assert found.details["undefined"]["log-z"].endswith(
        "differ by more than their errors. Raise temperatures (now 60)."
    )


def test_of_100_simulations_at_least_95_intervals_cover_log_z(monkeypatch):
    generator, metric, evaluation = (
        torch.Generator().manual_seed(1),
        LogZ(chains=50, resamples=300),
        of_plane(Gaussian()),
    )
    path = Annealing(grad_energy(Gaussian()), PLANE.bounds, temperatures=10, leapfrog=1)
    uniform = UniformStart(PLANE)
    path.adapt(uniform.draw(100, None, generator), generator)
    forward, _ = path.run(uniform.draw(5000, None, generator), generator)
    reverse, _ = path.run(Gaussian().sample(5000, generator=generator), generator, reverse=True)
    evaluation.test_energies, found = evaluation.test_energies[:2], []
    for ways in zip(
        2 * math.log(3) + forward.view(100, 50),
        2 * math.log(3) - reverse.view(100, 50),
        strict=True,
    ):
        arrays = dict(zip(("forward", "reverse"), ways, strict=True))
        monkeypatch.setattr(LogZ, "_anneal", lambda *_, arrays=arrays: (dict(arrays), {}, "exact"))
        found.append(metric.compute(evaluation).values.get("log-z"))
    numbers = [value for value in found if value is not None]
    assert len(numbers) > 90
    assert sum(value.low <= LOG_Z <= value.high for value in numbers) >= 0.95 * len(numbers)


@pytest.mark.parametrize("leapfrog", [1, 4])
def test_transitions_keep_the_density_up_to_the_walls(leapfrog):
    generator = torch.Generator().manual_seed(2)
    path = Annealing(grad_energy(Gaussian()), PLANE.bounds, temperatures=15, leapfrog=leapfrog)
    path.steps[:] = 0.9
    x = path.equilibrate(Gaussian().sample(4000, generator=generator), generator)
    assert kstest(x.flatten().numpy(), TRUNCATED.cdf).pvalue > 0.01
    chains, rate = path.transition(
        Chains(x, *grad_energy(Gaussian())(x, None)), 1.0, 0.9, generator
    )
    assert 0.2 < rate < 0.99
    assert float(((chains.x == x).flatten(1).all(1)).float().mean()) == pytest.approx(
        1 - rate, abs=0.03
    )


def test_paths_are_reflected_as_often_as_they_hit_a_wall():
    x, low, high = torch.linspace(-9, 9, 181, dtype=torch.float64).view(-1, 1, 1, 1), -1.0, 2.0
    place, speed = x.clone(), torch.ones_like(x)
    while ((place < low) | (place > high)).any():
        for wall, beyond in ((low, place < low), (high, place > high)):
            place, speed = (
                torch.where(beyond, 2 * wall - place, place),
                torch.where(beyond, -speed, speed),
            )
    found, momentum = reflected(x, torch.ones_like(x), (low, high))
    inside = ((found - low).abs() > 1e-9) & ((found - high).abs() > 1e-9)
    np.testing.assert_allclose(found, place, atol=1e-12)
    assert torch.equal(momentum[inside], speed[inside])
