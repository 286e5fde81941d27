"""Metrics of a training: its cost, the time of an iteration, and stability."""

from dataclasses import dataclass, replace
from typing import ClassVar

from jembench.catalog.spec import Scalar
from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Need, Value
from jembench.metrics.base import Arrays, Estimate, Metric, median, protocol_id
from jembench.metrics.sample_protocol import passes

BUSY = 0.5
"""The largest number of waiting processes on an idle machine; more of them slow training down."""

_UNKNOWN = (
    "not known: the model gives no samples, was fitted at once, or its chains are of unknown age"
)


@dataclass(frozen=True, kw_only=True)
class IterationTime(Metric):
    """Median seconds of a training iteration, and hours of the training.

    It is the median over the means of the logged windows, since windows in which the machine did
    other work are outliers. The time is measured during training; if other processes were busy
    then, the values are marked. The hours are of all attempts, also of those that diverged, and
    have no interval.
    """

    name: ClassVar[str] = "iteration-time"
    requires: ClassVar[frozenset[Need]] = frozenset({"training"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the training."""
        import numpy as np
        import torch

        from jembench.models import devices

        training = evaluation.training
        at_once = "The model was fitted at once: no timings of iterations are known."
        if not training.iteration_seconds and training.hours is None:
            raise NotApplicable(at_once)
        windows = {"seconds": np.asarray(training.iteration_seconds, dtype=np.float64)}
        estimates = self.estimates(windows) if training.iteration_seconds else {}
        busy = (training.other_load or 0.0) > BUSY
        details = {
            "suspicious": ["it was measured while other processes computed"] if busy else [],
            "undefined": {} if estimates else {self.name: at_once},
        }
        parts: dict[str, Scalar] = {
            "statistic": "median",
            "when": "training",
            "hardware": devices.name(evaluation.device),
            "threads": torch.get_num_threads(),
        }
        found = self.measurement(evaluation, {}, estimates=estimates, parts=parts, details=details)
        if training.hours is None:
            return found
        hours = Value(training.hours, None, None, 1, "h", "lower")
        return replace(found, values={**found.values, "training-hours": hours})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the median of the windows."""
        return {self.name: median(arrays["seconds"], "s", "lower")}


@dataclass(frozen=True, kw_only=True)
class Cost(Metric):
    """Network passes of a training and of a sample, and the number of parameters.

    The sample is one of the model's own.

    A pass is one image that goes through the network once, forward, or forward and backward. Those
    of a training are the steps of all chains and the images of all losses, also of attempts that
    diverged. A sample has as many as its chain has steps, or one if it is drawn directly. Passes
    are counted, and have no interval. ``parameters`` is the number of trained weights.
    """

    name: ClassVar[str] = "cost"
    requires: ClassVar[frozenset[Need]] = frozenset({"training"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Read the record of the training and the ages of the chains."""
        from jembench.models.capabilities import capabilities

        training = evaluation.training
        each = passes(evaluation.samples()) if "samples" in capabilities(evaluation.model) else None
        found = {"training-passes": training.passes, "sample-passes": each}
        found["parameters"] = float(
            sum(weights.numel() for weights in evaluation.model.parameters())
        )
        return Measurement(
            protocol=protocol_id(self.name, evaluation),
            values={
                label: Value(value, None, None, 1, "", "lower")
                for label, value in found.items()
                if value is not None
            },
            details={
                "undefined": {label: _UNKNOWN for label, value in found.items() if value is None}
            },
        )


@dataclass(frozen=True, kw_only=True)
class StabilityOfTraining(Metric):
    """Iterations before training diverged, and interventions of the guard.

    The first value is the number of all iterations if training did not diverge. Both are of one
    training, so they have no interval. They are not applicable to a loss that reports no energies
    of data and samples, such as that of a classifier or a flow, unless it diverged itself. With
    ``guard.mode=watch`` the values are those of the recipe without changes; with ``repair``
    training continues with other settings after the first divergence. Grathwohl et al. (2020),
    Appendices H.2 and H.3, compare samplers and regularisers by the stability of training.
    """

    name: ClassVar[str] = "stability"
    requires: ClassVar[frozenset[Need]] = frozenset({"training"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Read the record of the training."""
        record = evaluation.training.stability
        if record is None:
            raise NotApplicable(
                "Nothing tells whether the training diverged: it was fitted at once, ran with "
                "guard.mode=off (train again with guard.mode=watch, in another --store), or its "
                "loss reports no energies of data and samples that could be judged, or a "
                "generator's in fewer than five windows (log_every)."
            )
        stable = record.iterations if record.diverged_at is None else record.diverged_at
        return Measurement(
            protocol=protocol_id(self.name, evaluation, criterion=record.criterion),
            values={
                "stable-iterations": Value(
                    float(stable), None, None, record.iterations, "", "higher"
                ),
                "interventions": Value(
                    float(len(record.remedies)), None, None, record.iterations, "", "lower"
                ),
            },
        )
