"""Metrics of a training: how long an iteration takes, and whether it was stable."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jembench.catalog.spec import Scalar
from jembench.errors import NotApplicable
from jembench.interfaces import Capability, Measurement, Value
from jembench.metrics.base import Bootstrapped, Metric, protocol_id

if TYPE_CHECKING:
    from jembench.interfaces import Evaluation, Planned

BUSY = 0.5
"""More processes than this without a processor of their own slow training down."""

NO_TIMINGS = "The model was trained elsewhere, or fitted at once: no timings of iterations are known."


@dataclass(frozen=True, kw_only=True)
class IterationTime(Bootstrapped):
    """Median seconds of a training iteration.

    The median of the logged windows' means, because a window in which the machine was busy with something else is an
    outlier upwards. The time is taken during training; where other processes were busy then, the value is marked.
    """

    name: ClassVar[str] = "iteration-time"
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def check(self, planned: Planned) -> None:
        """Whether there will be timings."""
        if planned.pretrained:
            raise NotApplicable(NO_TIMINGS)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the training."""
        import numpy as np
        import torch

        from jembench.metrics.estimates import measurement, median
        from jembench.models import devices

        seconds, other_load, _ = evaluation.training
        if not seconds:
            raise NotApplicable(NO_TIMINGS)
        windows = np.sort(np.asarray(seconds, dtype=np.float64))
        parts: dict[str, Scalar] = {
            "statistic": "median",
            "when": "training",
            "hardware": devices.name(evaluation.device),
            "threads": torch.get_num_threads(),
        }
        estimates = {self.name: median(windows, "s", "lower")}
        return measurement(self, evaluation, parts, estimates, details={"suspicious": _load(other_load)})


def _load(others: float | None) -> list[str]:
    if others is None or others <= BUSY:
        return []
    return [f"it was measured under load: {others:.1f} processes more than processors wanted to run"]


@dataclass(frozen=True, kw_only=True)
class StabilityOfTraining(Metric):
    """Iterations before training diverged, and interventions of the guard.

    All iterations, if divergence was never seen. Both are of one training, so they have no interval. The details say at
    which iteration it was seen and how, how often each remedy was tried, and what training ended with. With
    ``guard.mode=watch`` the number is that of the recipe as it stands; with ``repair`` training goes on with other
    settings after the first divergence. Grathwohl et al. (2020), Appendices H.2 and H.3, compare samplers and
    regularisers by how stably they train.
    """

    name: ClassVar[str] = "stability"
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def check(self, planned: Planned) -> None:
        """Whether the training will be known."""
        if planned.pretrained:
            raise NotApplicable("The model was trained elsewhere: its training was not watched.")

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Read the record of the training."""
        found = evaluation.training.stability
        if found is None:
            raise NotApplicable(
                "The record of the training does not say whether it diverged: it was fitted at once, ran with "
                "guard.mode=off, or an earlier version wrote it. Train again with guard.mode=watch, in another --store."
            )
        stable = found.iterations if found.diverged_at is None else found.diverged_at
        return Measurement(
            protocol=protocol_id(self.name, evaluation, criterion=found.criterion),
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
