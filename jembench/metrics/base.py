"""The base of the metrics that jembench brings: dataclasses whose fields are the metric's options.

A module with such classes imports neither torch nor numpy, so that listing, planning and reporting stay fast. Each
class names the module that computes it.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.catalog.validation import Range
from jembench.errors import NotApplicable, SpecError

if TYPE_CHECKING:
    import numpy as np

    from jembench.interfaces import DataSpec, Evaluation, Measurement, Planned, Resampling
    from jembench.metrics.estimates import Estimate

MOST = 1_000_000
"""The largest count: more would not end, or not fit into memory."""

Better = Literal["higher", "lower", ""]
Count = Annotated[int, Range(least=1, most=MOST)]
OptionalCount = Annotated[int | None, Range(least=1, most=MOST)]
NotNegative = Annotated[float, Range(least=0)]
Resamples = Annotated[int, Range(least=0, most=MOST)]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A :class:`jembench.interfaces.Metric` whose fields are its options.

    ``computed_by`` names a function ``(metric, evaluation)`` that gives the measurement, as ``module:function``. The
    range of an option stands in its annotation.

    Raises:
        SpecError: if an option is out of its range.
    """

    name: ClassVar[str]
    computed_by: ClassVar[str]

    def __post_init__(self) -> None:
        for option, within in _ranges(type(self)).items():
            value = getattr(self, option)
            if value is not None and value not in within:
                raise SpecError(f"{option} of {self.name} is {value:,.12g}; it must be {within}.")

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure one trained model."""
        measurement: Measurement = pkgutil.resolve_name(self.computed_by)(self, evaluation)
        return measurement


@dataclass(frozen=True, kw_only=True)
class Comparable(Metric):
    """A metric of which two models can be compared image by image.

    Beside the function ``f`` of ``computed_by`` there is ``f_estimates(metric, arrays)``. From the arrays that were
    kept of each image it makes the values as statistics (:class:`jembench.metrics.estimates.Estimate`), by label.
    """

    def estimates(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Estimate]:
        """The values, by label, as statistics of what was kept of each image."""
        found: dict[str, Estimate] = pkgutil.resolve_name(f"{self.computed_by}_estimates")(self, arrays)
        return found

    def resamplings(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, Resampling]:
        """The statistic behind each label."""
        return {label: estimate.resampling for label, estimate in self.estimates(arrays).items()}


@dataclass(frozen=True, kw_only=True)
class Bootstrapped(Metric):
    """A metric with bootstrap intervals from ``resamples`` resamples; 0: without intervals."""

    resamples: Resamples = 1000


def _ranges(metric: type[Metric]) -> Mapping[str, Range]:
    """The ranges of the options of a class, by option."""
    hints = get_type_hints(metric, include_extras=True)
    return {
        field.name: within
        for field in dataclasses.fields(metric)
        for within in getattr(hints[field.name], "__metadata__", ())
        if isinstance(within, Range)
    }


def check_labels(planned: Planned) -> None:
    """Whether the test images have labels.

    Raises:
        NotApplicable: if not.
    """
    if not planned.labelled:
        raise no_labels(planned.spec)


def no_labels(data: DataSpec) -> NotApplicable:
    """The error for a dataset without labels."""
    return NotApplicable(f"The dataset {data.name} has no labels, so there is nothing to classify.")


def protocol_id(metric: str, evaluation: Evaluation, **parts: Scalar) -> str:
    """The identity of a measurement: the metric, the data and everything else that decides what the number means.

    Written like a spec string, keys sorted: ``accuracy:data=digits,data_noise=0,images=397,split=test``. The name of a
    data set of the user's own files says little, so a hash of their content stands beside it.
    """
    named = {"data": evaluation.data.spec.name, **parts}
    if evaluation.data.content:
        named["data_content"] = evaluation.data.content
    return str(Spec(metric, tuple((key, format_value(value)) for key, value in named.items())))
