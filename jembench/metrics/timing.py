"""How long a training iteration takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.estimates import Estimate, values_of
from jembench.metrics.protocol import protocol_id
from jembench.metrics.training import NO_TIMINGS, IterationTime
from jembench.models import devices

BUSY = 0.5
"""A load of other processes above this slows training down."""


def _load(others: float | None) -> Iterator[str]:
    if others is not None and others > BUSY:
        yield f"it was measured under load: other processes kept {others:.1f} processors busy"


def compute(metric: IterationTime, evaluation: Evaluation) -> Measurement:
    """Measure the training."""
    if not evaluation.training.iteration_seconds:
        raise NotApplicable(NO_TIMINGS)
    windows = np.sort(np.asarray(evaluation.training.iteration_seconds, dtype=np.float64))
    median = Resampling(lambda indices: np.median(windows[indices], axis=1), (len(windows),), (0.0, np.inf))
    return Measurement(
        protocol=protocol_id(
            metric.name,
            evaluation,
            statistic="median",
            when="training",
            hardware=devices.name(evaluation.device),
            threads=torch.get_num_threads(),
        ),
        values=values_of({metric.name: Estimate(median, "s", "lower")}, evaluation, metric.name, metric.resamples),
        details={"suspicious": list(_load(evaluation.training.other_load))},
    )
