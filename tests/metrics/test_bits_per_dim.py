import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from jembench.data.dequantisation import bits_per_dim
from jembench.interfaces import DataSpec
from jembench.metrics.densities import BitsPerDim


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0), (0.0, 255.0)])
def test_uniform_noise_costs_eight_bits_whatever_the_units(bounds):
    data = DataSpec(name="d", shape=(3, 4, 5), num_classes=0, bounds=bounds)
    width = (bounds[1] - bounds[0]) / 255
    log_prob = torch.full((7,), -60 * math.log(256 * width), dtype=torch.float64)
    torch.testing.assert_close(
        bits_per_dim(log_prob, data), torch.full((7,), 8.0, dtype=torch.float64)
    )


def test_the_mean_over_the_test_images_with_an_interval(fake):
    values = torch.tensor([100.0, 120.0, 90.0, 130.0, 110.0] * 20)
    evaluation = fake.Evaluation(test_energies=values)
    measured = BitsPerDim(resamples=200).compute(evaluation)
    expected = bits_per_dim(-values.double(), evaluation.spec).numpy()
    value = measured.values["bits-per-dim"]
    assert value.value == pytest.approx(expected.mean())
    assert value.low < value.value < value.high
    assert (value.unit, value.better, value.n) == ("bits", "lower", 100)
    np.testing.assert_allclose(measured.arrays["bits-per-dim"], expected)
    assert "at=cell-middle" in measured.protocol
    assert "density" not in measured.protocol
    evaluation.model = SimpleNamespace(log_prob_is_bound=True)
    assert "density=bound" in BitsPerDim().compute(evaluation).protocol
