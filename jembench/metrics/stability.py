"""Whether and when a training diverged, as the guard saw it."""

from __future__ import annotations

from collections import Counter

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Value
from jembench.metrics.protocol import protocol_id
from jembench.metrics.training import StabilityOfTraining


def compute(metric: StabilityOfTraining, evaluation: Evaluation) -> Measurement:
    """Read the record of the training."""
    found = evaluation.training.stability
    if found is None:
        raise NotApplicable(
            "The record of the training does not say whether it diverged: it ran with guard.mode=off, or an "
            "earlier version wrote it. Train again with guard.mode=watch, in another --store."
        )
    stable = found.iterations if found.diverged_at is None else found.diverged_at
    return Measurement(
        protocol=protocol_id(metric.name, evaluation, criterion=found.criterion),
        values={
            "stable-iterations": Value(float(stable), None, None, found.iterations, "", "higher"),
            "interventions": Value(float(len(found.remedies)), None, None, found.iterations, "", "lower"),
        },
        details={
            "diverged-at": found.diverged_at,
            "reason": found.reason,
            "remedies": dict(Counter(found.remedies)),
            "ended-with": found.ended_with,
        },
    )
