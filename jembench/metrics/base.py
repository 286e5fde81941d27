"""The base of the metrics that jembench brings: dataclasses whose fields are the metric's options.

A module with such classes imports neither torch nor numpy, so that listing, planning and reporting stay fast. Each
class names the module that computes it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from jembench.catalog.validation import Range
from jembench.errors import SpecError

if TYPE_CHECKING:
    import numpy as np

    from jembench.interfaces import Evaluation, Measurement, Resampling

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

    ``computed_by`` names a module with a function ``compute(metric, evaluation)`` that gives the measurement. The range
    of an option stands in its annotation.

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
        measurement: Measurement = importlib.import_module(self.computed_by).compute(self, evaluation)
        return measurement


@dataclass(frozen=True, kw_only=True)
class Comparable(Metric):
    """A metric of which two models can be compared image by image.

    Its module has a function ``estimates(metric, arrays)``, from the arrays that were kept of each image to the values
    as statistics (:class:`jembench.metrics.estimates.Estimate`), by label.
    """

    def resamplings(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, Resampling]:
        """The statistic behind each label."""
        estimates = importlib.import_module(self.computed_by).estimates(self, arrays)
        return {label: estimate.resampling for label, estimate in estimates.items()}


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
