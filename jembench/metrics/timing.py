"""How long a training iteration takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from jembench.errors import NotApplicable
from jembench.interfaces import Capability, Evaluation, Measurement, Planned
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least, value_of
from jembench.models import devices
from jembench.stats import bootstrap_interval


def _no_timings() -> NotApplicable:
    return NotApplicable("The model was trained elsewhere: no timings of its training are known.")


BUSY = 0.5
"""A load of other processes above this slows training down."""


def _load(others: float | None) -> Iterator[str]:
    if others is not None and others > BUSY:
        yield f"it was measured under load: other processes kept {others:.1f} processors busy"


@dataclass(frozen=True, kw_only=True, slots=True)
class IterationTime:
    """The median of the logged windows' mean seconds per iteration, with a bootstrap interval.

    The median, because a window in which the machine was busy with something else is an outlier upwards. The time is
    taken during training; where other processes were busy then, the value is marked.
    """

    resamples: int = 1000
    name: ClassVar[str] = "iteration-time"
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def check(self, planned: Planned) -> None:
        """Whether there will be timings."""
        if planned.pretrained:
            raise _no_timings()

    def compute(self, evaluation: Evaluation) -> Measurement:
        if not evaluation.iteration_seconds:
            raise _no_timings()
        windows = np.sort(np.asarray(evaluation.iteration_seconds, dtype=np.float64))
        median, n = float(np.median(windows)), len(windows)
        interval = bootstrap_interval(
            median,
            lambda indices: np.median(windows[indices], axis=1),
            n,
            rng=bootstrap_rng(evaluation, self.name),
            resamples=self.resamples,
            within=(0.0, np.inf),
        )
        return Measurement(
            protocol=protocol_id(
                self.name,
                evaluation,
                statistic="median",
                when="training",
                hardware=devices.name(evaluation.device),
                threads=torch.get_num_threads(),
            ),
            values={self.name: value_of(median, interval, n, "s", "lower")},
            details={"suspicious": list(_load(getattr(evaluation, "other_load", None)))},
        )
