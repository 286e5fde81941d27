"""The share of the variance of log p(x) between predicted classes, against a one-way analysis of variance."""

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway

from jembench.metrics.class_offset import ClassOffset


def evaluation_of(fake, log_px, predicted):
    logits = torch.nn.functional.one_hot(torch.as_tensor(predicted), 3).float()
    return fake.Evaluation(test_energies=-torch.as_tensor(log_px), test_logits=logits)


@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_it_is_that_of_an_analysis_of_variance(fake, offset):
    """F = (eta^2 / (K - 1)) / ((1 - eta^2) / (N - K)); and 1 minus the share of the sums of squares within classes."""
    rng = np.random.default_rng(0)
    predicted = rng.integers(3, size=90)
    log_px = (rng.normal(size=90) + offset * predicted - 500).astype("float32")
    value = ClassOffset().compute(evaluation_of(fake, log_px, predicted)).values["class-offset"]
    groups = [log_px[predicted == number].astype("float64") for number in range(3)]
    f = f_oneway(*groups).statistic
    assert value.value == pytest.approx(2 * f / (2 * f + 87))
    whole = np.concatenate(groups)
    within = sum(((group - group.mean()) ** 2).sum() for group in groups)
    assert value.value == pytest.approx(1 - within / ((whole - whole.mean()) ** 2).sum())
    assert 0 <= value.low <= value.value <= value.high <= 1
    assert value.low < value.high
    assert (value.n, value.unit) == (90, "")


@pytest.mark.parametrize(
    ("log_px", "share"), [([1.0, 1.0, 5.0, 5.0], 1.0), ([1.0, 5.0, 1.0, 5.0], 0.0), ([2.0] * 4, 0.0)]
)
def test_its_ends(fake, log_px, share):
    assert ClassOffset().compute(evaluation_of(fake, log_px, [0, 0, 2, 2])).values["class-offset"].value == share
