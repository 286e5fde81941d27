from __future__ import annotations

import math

import pytest

from jembench.data.pixels import to_float
from jembench.metrics.densities import EnergyGap


class Quadratic:
    """E(x) = sum x^2 / 2 over pixels: of each image alone."""

    def energy(self, x, y=None):
        return x.square().flatten(1).sum(dim=1) / 2


@pytest.fixture
def evaluation(fake):
    data_images, sampled = fake.images(70, 0), fake.images(50, 1, low=100, high=156)
    of_data = Quadratic().energy(to_float(data_images, (-1, 1)))
    return fake.Evaluation(model=Quadratic(), test_energies=of_data, sampled=sampled)


def test_the_difference_of_the_means(evaluation):
    measurement = EnergyGap().compute(evaluation)
    data = evaluation.test_energies.double().mean().item()
    drawn = Quadratic().energy(to_float(evaluation.sampled, (-1, 1))).double().mean().item()
    gap = measurement.values["energy-gap"]
    assert gap.value == pytest.approx(data - drawn)
    assert (gap.n, gap.unit) == (50, "nats")


def test_the_interval_of_the_gap_is_that_of_two_independent_means(evaluation):
    measurement = EnergyGap(resamples=4000).compute(evaluation)
    gap = measurement.values["energy-gap"]
    variances = [array.var(ddof=1) / len(array) for array in measurement.arrays.values()]
    half = 1.96 * math.sqrt(sum(variances))
    assert gap.low == pytest.approx(gap.value - half, abs=0.15 * half)
    assert gap.high == pytest.approx(gap.value + half, abs=0.15 * half)
