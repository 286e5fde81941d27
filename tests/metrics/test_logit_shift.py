"""A constant added to the logits leaves p(y|x) and shifts log p(x)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from jembench.errors import Diverged, SpecError
from jembench.metrics.densities import LogitShift
from jembench.metrics.energies import shift_errors


def random_logits(scale, seed=0):
    return scale * torch.randn(200, 5, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("by", [10.0, -0.3])
def test_errors_are_those_of_rounding(fake, scale, by):
    logits = random_logits(scale)
    found = LogitShift(by=by).compute(fake.Evaluation(test_logits=logits))
    # each logit and each log-sum-exp is rounded by half a unit in the last place of the largest number there is
    unit = float(np.spacing(np.float32(logits.abs().max() + abs(by) + 2)))
    assert found.values["py-change"].value <= 2 * unit
    assert found.values["log-px-error"].value <= 4 * unit
    for label, value in found.values.items():
        assert (value.low, value.high, value.n, value.better) == (None, None, 200, "lower")
        assert value.value == found.arrays[label].max()
    assert found.values["log-px-error"].unit == "nats"
    assert f"by={by}" in found.protocol
    assert "precision=float32" in found.protocol


def test_logits_that_float32_shifts_exactly_have_no_error():
    """Integers of one digit, and classes so far apart that the sum of exponentials is the largest one."""
    logits = torch.tensor([[500.0, 0.0, -300.0], [-7.0, 400.0, 2.0]])
    errors = shift_errors(logits, 8.0)
    assert errors["py-change"].tolist() == [0, 0]
    assert errors["log-px-error"].tolist() == [0, 0]


@given(seed=st.integers(0, 1000), by=st.floats(-50, 50))
def test_in_float64_p_of_y_is_kept_to_the_last_digits(seed, by):
    logits = random_logits(5.0, seed)
    assert float(shift_errors(logits.double(), by)["py-change"].max()) < 1e-13


def test_a_shift_that_float32_cannot_hold_is_seen(fake):
    """Of a constant of 1e9, float32 keeps steps of 64: the logits are lost in it, and the check must say so."""
    logits = random_logits(30.0)
    found = LogitShift(by=1e9).compute(fake.Evaluation(test_logits=logits))
    shifted = (logits.numpy() + np.float32(1e9)).astype(np.float64)
    expected = abs(logsumexp(shifted, axis=1) - logsumexp(logits.double().numpy(), axis=1) - 1e9)
    assert found.arrays["log-px-error"] == pytest.approx(expected, abs=64)
    assert found.values["log-px-error"].value > 10
    assert found.values["py-change"].value > 0.5


@pytest.mark.parametrize("by", [0.0, float("nan"), float("inf")])
def test_a_constant_that_shifts_nothing_is_refused(by):
    with pytest.raises(SpecError, match=r"by of logit-shift is .*; it must be a number other than 0"):
        LogitShift(by=by)


def test_logits_that_are_not_finite_are_told(fake):
    logits = random_logits(1.0)
    logits[3, 2] = float("inf")
    with pytest.raises(Diverged, match="The logits of 1 of 200 test images are not finite"):
        LogitShift().compute(fake.Evaluation(test_logits=logits))
