"""A metric under test: what it measures on a model in closed form, and what it changes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from jembench.errors import Unavailable
from jembench.interfaces import Evaluation, Measurement, Metric
from jembench.running.evaluation import TrainedFit
from jembench.testing import stage
from jembench.testing.checks import DoesNotApply, Subject
from jembench.testing.comparing import different, fingerprint, global_states, known_randomness

State = Mapping[str, Any]
"""What a metric must not change, by the names that messages use: "the model's mode"."""


class Run(NamedTuple):
    """The outcome of a metric's computation."""

    measurement: Measurement | None
    error: Exception | None
    changed: Sequence[str] = ()  # the names of what it changed


@dataclass(frozen=True)
class MetricSubject(Subject):
    """The metric of a spec."""

    kind = "metrics"
    protocol = Metric
    parts = ("name", "requires", "compute")

    @property
    def run(self) -> Run:
        """What the metric measures and changes, computed once for all checks."""
        key = self.resolved.factory, tuple(sorted(self.resolved.bound.arguments.items()))
        if key not in _runs:
            _runs[key] = compute(self.make(), stage.trained(), _state)
        return _runs[key]

    @property
    def measurement(self) -> Measurement:
        """What the metric measures; skips the check if it measures nothing."""
        return measured(self.run)


_runs: dict[Any, Run] = {}
"""By the factory and its options."""


def measured(run: Run) -> Measurement:
    """What a metric measured; skips the check if it measured nothing."""
    if isinstance(run.error, Unavailable):
        raise run.error
    if not isinstance(run.measurement, Measurement) or not run.measurement.values:
        raise DoesNotApply("It gives no measurement: see the check computes.")
    return run.measurement


def compute(metric: Metric, fit: TrainedFit, state: Callable[[Evaluation], State] = lambda _: {}) -> Run:
    """Run the metric, with the same global randomness each time, and find what of a state it changes."""
    evaluation = fit.evaluation()
    with known_randomness():
        before = state(evaluation)
        try:
            measurement = metric.compute(evaluation)
        except Exception as error:  # the checks say what it means
            return Run(None, error)
        after = state(evaluation)
    return Run(measurement, None, different(before, after))


def _state(evaluation: Evaluation) -> State:
    assert evaluation.sampler is not None
    parameters, buffers = dict(evaluation.model.named_parameters()), dict(evaluation.model.named_buffers())
    images, labels = evaluation.data.part("test")
    samples = evaluation.samples()
    return {
        **{f"the global generator of {name}": state for name, state in global_states().items()},
        "the model's mode": [module.training for module in evaluation.model.modules()],
        "the model's parameters": {
            name: (values.requires_grad, fingerprint(values)) for name, values in parameters.items()
        },
        "the model's buffers": _prints(buffers),
        "the model's gradients": _prints({name: values.grad for name, values in parameters.items()}),
        "the sampler's state": _prints(evaluation.sampler.state_dict()),
        "the shared test images": _prints({"images": images, "labels": labels}),
        "the shared logits": fingerprint(evaluation.predictions.read("logits")),
        "the shared energies": fingerprint(evaluation.predictions.read("energy")),
        "the shared samples": _prints({"images": samples.images, "ages": samples.ages}),
    }


def _prints(tensors: Mapping[str, Tensor | None]) -> dict[str, str]:
    return {name: "none" if values is None else fingerprint(values) for name, values in tensors.items()}
