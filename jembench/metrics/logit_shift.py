"""A check of numerics: a constant added to all logits leaves p(y|x), and shifts log p(x) by itself.

Grathwohl et al. (2020), arXiv:1912.03263, section 3: it is the degree of freedom of a classifier's logits that their
energy-based reading uses. How exactly float32 keeps it tells how far log p(x) can be trusted.

Legend: N test images, K classes.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from jembench.interfaces import Evaluation, Measurement, Value
from jembench.metrics.classified import require_finite
from jembench.metrics.densities import LogitShift
from jembench.metrics.protocol import protocol_id
from jembench.models.energies import marginal_energy


class ShiftErrors(NamedTuple):
    """How far a shift of the logits is from what it should do, each >= 0, in float64."""

    py: Tensor  # (N,) the largest change of a p(y|x)
    log_px: Tensor  # (N,) the distance of the shift of log p(x) from the constant, in nats


def shift_errors(logits: Float[Tensor, "N K"], by: float) -> ShiftErrors:
    """Add a constant to the logits. Everything is computed in their precision; only the differences are in float64."""
    shifted = logits + by
    py, py_shifted = (part.softmax(dim=1).double() for part in (logits, shifted))
    log_px, log_px_shifted = (-marginal_energy(part).double() for part in (logits, shifted))
    return ShiftErrors((py_shifted - py).abs().amax(dim=1), (log_px_shifted - log_px - by).abs())


def compute(metric: LogitShift, evaluation: Evaluation) -> Measurement:
    """Measure the test images."""
    logits = evaluation.predictions.read("logits").cpu().float()
    require_finite(logits, "test images")
    errors = shift_errors(logits, metric.by)
    n = len(logits)
    return Measurement(
        protocol=protocol_id(
            metric.name, evaluation, split="test", images=n, data_noise=0, by=metric.by, precision="float32"
        ),
        values={
            "py-change": Value(float(errors.py.max()), None, None, n, "", "lower"),
            "log-px-error": Value(float(errors.log_px.max()), None, None, n, "nats", "lower"),
        },
        arrays={"py-change": errors.py.numpy(), "log-px-error": errors.log_px.numpy()},
    )
