"""Metrics of a training: its cost, the time of an iteration, and stability."""

from dataclasses import dataclass, replace

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Value
from jembench.metrics.base import Arrays, Estimates, Metric, Parts, median, protocol_id
from jembench.metrics.sample_protocol import passes

BUSY = 0.5
"""The largest number of waiting processes on an idle machine; more of them slow training down."""

_UNKNOWN = (
    "not known: the model gives no samples, was fitted at once, or its chains are of unknown age"
)


@dataclass(frozen=True, kw_only=True)
class IterationTime(Metric):
    """Median seconds of a training iteration, and hours of the training.

    The median is over the means of the logged windows, since windows in which the machine did other
    work are outliers. The time is measured during training; if other processes were busy then, the
    values are marked. The hours include attempts that diverged, and have no interval.
    """

    name = "iteration-time"
    requires = frozenset({"training"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the training."""
        import numpy as np
        import torch

        from jembench.models import devices

        training = evaluation.training
        at_once = "The model was fitted at once: no timings of iterations are known."
        if not training.iteration_seconds and training.hours is None:
            raise NotApplicable(at_once)

        suspicious: list[str] = []
        if (training.other_load or 0.0) > BUSY:
            suspicious.append("it was measured while other processes computed")
        estimates: Estimates = {}
        undefined = {self.name: at_once}
        if training.iteration_seconds:
            seconds = np.asarray(training.iteration_seconds, dtype=np.float64)
            estimates = self.estimates({"seconds": seconds})
            undefined = {}

        parts: Parts = {"statistic": "median", "when": "training"}
        parts |= {"hardware": devices.name(evaluation.device), "threads": torch.get_num_threads()}
        details = {"suspicious": suspicious, "undefined": undefined}
        measured = self.measurement(
            evaluation, {}, estimates=estimates, parts=parts, details=details
        )
        if training.hours is None:
            return measured
        hours = Value(training.hours, None, None, 1, "h", "lower")
        return replace(measured, values={**measured.values, "training-hours": hours})

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the median of the windows."""
        return {self.name: median(arrays["seconds"], "s", "lower")}


@dataclass(frozen=True, kw_only=True)
class Cost(Metric):
    """Network passes of a training and of a sample, and the number of parameters.

    The sample is the model's own.

    A pass is one image that goes through the network once, forward, or forward and backward. A
    training takes a pass for each step of each chain and for each image of each loss, attempts that
    diverged included. A sample takes as many passes as its chain has steps, or one if it is drawn
    directly. Passes are counted, and have no interval. ``parameters`` is the number of trained
    weights.
    """

    name = "cost"
    requires = frozenset({"training"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Read the record of the training and the ages of the chains."""
        from jembench.models.capabilities import capabilities

        model = evaluation.model
        counts = {"training-passes": evaluation.training.passes, "sample-passes": None}
        if "samples" in capabilities(model):
            counts["sample-passes"] = passes(evaluation.samples())
        counts["parameters"] = float(sum(weights.numel() for weights in model.parameters()))

        values = {}
        undefined = {}
        for label, count in counts.items():
            if count is None:
                undefined[label] = _UNKNOWN
            else:
                values[label] = Value(count, None, None, 1, "", "lower")
        protocol = protocol_id(self.name, evaluation)
        return Measurement(protocol=protocol, values=values, details={"undefined": undefined})


@dataclass(frozen=True, kw_only=True)
class StabilityOfTraining(Metric):
    """Iterations before training diverged, and interventions of the guard.

    The first value is the number of all iterations if training did not diverge. Both values are of
    one training, and have no interval. They are N/A if the loss reports no energies of data and
    samples, such as the loss of a classifier or a flow, unless the loss itself diverged. With
    ``guard.mode=watch`` the values are of the unchanged recipe; with ``repair`` training continues
    with other settings after the first divergence. Grathwohl et al. (2020), Appendices H.2 and H.3,
    compare samplers and regularisers by the stability of training.
    """

    name = "stability"
    requires = frozenset({"training"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Read the record of the training."""
        record = evaluation.training.stability
        if record is None:
            raise NotApplicable(
                "It is not known whether the training diverged: it was fitted at once, ran with "
                "guard.mode=off (train again with guard.mode=watch, in another --store), its loss "
                "reports no energies of data and samples to judge, or a generator's loss reported "
                "them in fewer than five windows (log_every)."
            )
        n = record.iterations
        stable = record.diverged_at
        if stable is None:
            stable = n
        remedies = len(record.remedies)
        values = {
            "stable-iterations": Value(float(stable), None, None, n, "", "higher"),
            "interventions": Value(float(remedies), None, None, n, "", "lower"),
        }
        protocol = protocol_id(self.name, evaluation, criterion=record.criterion)
        return Measurement(protocol=protocol, values=values)
