"""What the checks of metrics begin with: what the metric measures on the stage, and what it leaves changed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from jembench.catalog.registry import Resolved
from jembench.errors import Unavailable
from jembench.interfaces import Measurement, Metric
from jembench.running.evaluation import FitEvaluation
from jembench.testing import stage
from jembench.testing.asking import fingerprint, global_states, known_randomness, same
from jembench.testing.checks import DoesNotApply

GLOBAL = ("numpy.random", "torch")
MODEL = ("mode", "parameters", "buffers", "gradients")
SAMPLER = ("sampler",)
SHARED = ("test images", "logits", "energies", "samples")


class Run(NamedTuple):
    """What came of a metric's computation."""

    measurement: Measurement | None
    error: Exception | None
    disturbed: tuple[str, ...] = ()  # of the names above, what is not as it was before


@dataclass(frozen=True)
class Subject:
    """A metric of some spec."""

    resolved: Resolved

    def make(self) -> Metric:
        """The metric, newly made.

        Raises:
            DoesNotApply: if it is no metric at all.
        """
        metric: Metric = self.resolved.make()
        if not isinstance(metric, Metric):
            raise DoesNotApply("It lacks parts of a metric: see the check all-parts.")
        return metric

    @property
    def run(self) -> Run:
        """What the metric measures on the stage. It is computed once, for all checks."""
        return _observed(self.resolved.factory, tuple(sorted(self.resolved.bound.arguments.items())))

    @property
    def measurement(self) -> Measurement:
        """What the metric measures on the stage.

        Raises:
            DoesNotApply: if it measures nothing there.
        """
        return measured(self.run)


def measured(run: Run) -> Measurement:
    """What a metric measured.

    Raises:
        DoesNotApply: if it measured nothing.
    """
    if isinstance(run.error, Unavailable):
        raise DoesNotApply(str(run.error))
    if not isinstance(run.measurement, Measurement) or not run.measurement.values:
        raise DoesNotApply("It gives no measurement: see the check computes.")
    return run.measurement


def compute(metric: Metric, evaluation: FitEvaluation) -> Run:
    """Let the metric measure. Global randomness is the same each time, so that one check alone is about it."""
    with known_randomness():
        try:
            return Run(metric.compute(evaluation), None)
        except Exception as error:  # what it means, the checks say
            return Run(None, error)


@cache
def _observed(factory: Callable[..., Metric], arguments: tuple[tuple[str, Any], ...]) -> Run:
    """What comes of the computation, and what it leaves changed."""
    evaluation = stage.trained()
    with known_randomness():
        before = _state(evaluation)
        try:
            measurement = factory(**dict(arguments)).compute(evaluation)
        except Exception as error:
            return Run(None, error)
        after = _state(evaluation)
    return Run(measurement, None, tuple(name for name in before if not same(before[name], after[name])))


def _state(evaluation: FitEvaluation) -> dict[str, Any]:
    """By name, what a metric is to leave as it is."""
    assert evaluation.sampler is not None
    parameters, buffers = dict(evaluation.model.named_parameters()), dict(evaluation.model.named_buffers())
    images, labels = evaluation.test()
    samples = evaluation.samples()
    return {
        **global_states(),
        "mode": [module.training for module in evaluation.model.modules()],
        "parameters": {name: (values.requires_grad, fingerprint(values)) for name, values in parameters.items()},
        "buffers": _prints(buffers),
        "gradients": _prints({name: values.grad for name, values in parameters.items()}),
        "sampler": _prints(evaluation.sampler.state_dict()),
        "test images": _prints({"images": images, "labels": labels}),
        "logits": fingerprint(evaluation.logits()),
        "energies": fingerprint(evaluation.energies()),
        "samples": _prints({"images": samples.images, "ages": samples.ages}),
    }


def _prints(tensors: Mapping[str, Tensor | None]) -> dict[str, str]:
    return {name: "none" if values is None else fingerprint(values) for name, values in tensors.items()}
