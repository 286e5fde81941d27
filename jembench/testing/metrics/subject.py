"""A metric under test: its measurement and its side effects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from jembench.interfaces import Evaluation, Measurement
from jembench.interfaces.metrics import Metric
from jembench.running.evaluation import TrainedFit
from jembench.testing import stage
from jembench.testing.checks import DoesNotApply, Subject
from jembench.testing.comparing import different, fingerprint, global_states, known_randomness


class Measured(NamedTuple):
    """The outcome of a metric's computation."""

    measurement: Measurement
    changed: list[str]  # names: "the model's modes"


@dataclass(frozen=True)
class MetricSubject(Subject):
    """The metric of a spec."""

    kind = "metrics"
    parts = ("name", "requires", "compute")

    def compute(self) -> Measured:
        """Compute the metric, once for all checks."""
        key = self.resolved.factory, tuple(sorted(self.resolved.arguments.items()))
        if key not in _runs:
            _runs[key] = compute(self.build(), stage.trained())
        return _runs[key]

    @property
    def run(self) -> Measured:
        """The outcome.

        Skips the check if there are no values, which another check reports.
        """
        run = self.compute()
        if not isinstance(run.measurement, Measurement) or not run.measurement.values:
            raise DoesNotApply("See the check computes.")
        return run


_runs: dict[Any, Measured] = {}
"""The runs so far, by the factory and its options."""


def compute(metric: Metric, fit: TrainedFit) -> Measured:
    """Compute a metric with seeded global generators, and record its side effects."""
    evaluation = fit.evaluation()
    with known_randomness():
        before = _take_snapshot(evaluation)
        measurement = metric.compute(evaluation)
        after = _take_snapshot(evaluation)
    return Measured(measurement, different(before, after))


def _take_snapshot(evaluation: Evaluation) -> dict[str, Any]:
    snapshot = dict[str, Any]()
    for name, state in global_states().items():
        snapshot[f"the global generator of {name}"] = state
    model = evaluation.model
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    gradients = {name: values.grad for name, values in parameters.items()}
    images, labels = evaluation.data.part("test")
    snapshot |= {
        "the model's modes": [module.training for module in model.modules()],
        "the model's requires_grad": [values.requires_grad for values in parameters.values()],
        "the model's parameters and buffers": _hash(parameters | buffers),
        "the model's gradients": _hash(gradients),
        "the shared test images": _hash({"images": images, "labels": labels}),
    }
    for quantity in ("logits", "energy"):
        if hasattr(evaluation.model, quantity):
            snapshot[f"the shared {quantity}"] = fingerprint(evaluation.predictions.read(quantity))
    if evaluation.sampler is not None:
        samples = evaluation.samples()
        snapshot["the sampler's state"] = _hash(evaluation.sampler.state_dict())
        snapshot["the shared samples"] = _hash({"images": samples.images, "ages": samples.ages})
    return snapshot


def _hash(tensors: Mapping[str, Tensor | None]) -> dict[str, str]:
    hashes = {}
    for name, values in tensors.items():
        hashes[name] = "none" if values is None else fingerprint(values)
    return hashes
