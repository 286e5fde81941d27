"""The base class of metrics, in core and in plugins, and common statistics.

This module and all modules with metrics import neither torch nor numpy at the top, only inside
methods, so that listing, planning and reporting stay fast.

Legend: N examples, R resamples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_type_hints

from jembench.catalog.spec import Scalar, Spec, format_value
from jembench.catalog.validation import Range
from jembench.errors import PluginError, SpecError
from jembench.interfaces import Evaluation, Measurement, Need, Quantity, Resampling, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Generator, Tensor

    Array = NDArray[Any]
else:
    Array = Any

Arrays = Mapping[str, Array]
"""Values of each example, by name."""

Needs = frozenset[Need]
Quantities = frozenset[Quantity]

Parts = dict[str, Scalar]
"""The parts of a protocol."""

Bounds = tuple[float, float]
"""The range of a value."""

UNBOUNDED = (-math.inf, math.inf)
NOT_NEGATIVE = (0.0, math.inf)
PERCENT = (0.0, 100.0)

MOST = 1_000_000
"""The largest count: more would take too long or too much memory."""

Better = Literal["higher", "lower", ""]
Count = Annotated[int, Range(least=1, most=MOST)]
OptionalCount = Annotated[int | None, Range(least=1, most=MOST)]
NotNegative = Annotated[float, Range(least=0)]
Resamples = Annotated[int, Range(least=0, most=MOST)]
OptionalResamples = Annotated[int | None, Range(least=0, most=MOST)]


# --- statistics -----------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A value and the statistic behind it."""

    resampling: Resampling
    unit: str = ""
    better: Better = ""
    n: int | None = None  #: number of observations; None: the size of the smallest sample
    #: computed by a library; None: the statistic of the observations themselves
    value: float | None = None
    flags: Array | None = None  #: bool (N,): the value is their share, with Wilson's interval


Estimates = dict[str, Estimate]
"""The values of a metric, by label."""


def mean(
    values: Array, unit: str = "", better: Better = "", within: Bounds = UNBOUNDED
) -> Estimate:
    """Return the mean of per-example values (N,), whose range is ``within``."""
    resampling = Resampling(lambda drawn: values[drawn].mean(axis=1), (len(values),), within)
    return Estimate(resampling, unit, better)


def median(
    values: Array, unit: str = "", better: Better = "", within: Bounds = NOT_NEGATIVE
) -> Estimate:
    """Return the median of non-negative per-example values (N,)."""
    import numpy as np

    resampling = Resampling(lambda drawn: np.median(values[drawn], axis=1), (len(values),), within)
    return Estimate(resampling, unit, better)


def share(flags: Array, better: Better = "") -> Estimate:
    """Return the share of examples whose flag (N,) is set, in %, with Wilson's interval."""
    estimate = mean(100.0 * flags, "%", better, PERCENT)
    resampling = estimate.resampling._replace(trials=len(flags))
    return estimate._replace(resampling=resampling, flags=flags)


PROBABILITIES = (
    "the outputs are probabilities (each row lies in [0, 1] and sums to 1), and were taken for "
    "logits. Leave out the softmax at the end, or give log-probabilities"
)
"""A sentence on outputs that make every metric of confidence wrong."""


def are_probabilities(logits: Tensor) -> bool:
    """Return whether outputs (N, K) of at least two classes lie in [0, 1] and sum to 1."""
    if logits.shape[1] < 2:
        return False
    if not bool(((logits >= 0) & (logits <= 1)).all()):
        return False
    errors = logits.double().sum(dim=1) - 1
    return bool((errors.abs() < ROUNDING).all())


ROUNDING = 5e-3
"""The largest error of a sum of probabilities in half precision."""


def value_of(estimate: Estimate, rng: np.random.Generator, resamples: int) -> Value:
    """Return a value with its interval.

    The interval is Wilson's for a share, and else the bootstrap's, see
    :mod:`jembench.stats.intervals`.

    Args:
        estimate: the value and its statistic.
        rng: the generator of the resamples.
        resamples: R; 0: only shares have an interval.
    """
    import numpy as np

    from jembench.stats.intervals import bootstrap_interval, wilson

    resampling, unit, better, n, value, flags = estimate

    if flags is not None:
        hits, n = int(flags.sum()), len(flags)
        within = wilson(hits, n)
        return Value(100 * hits / n, 100 * within.low, 100 * within.high, n, unit, better)

    if value is None:
        # the observations themselves are the resample that draws each of them once
        each_once = [np.arange(size)[None] for size in resampling.sizes]
        value = float(resampling.statistic(*each_once)[0])
    if n is None:
        n = min(resampling.sizes)

    interval = bootstrap_interval(value, resampling, rng=rng, resamples=resamples)
    low, high = interval or (None, None)
    return Value(value, low, high, n, unit, better)


def bootstrap_rng(generator: Generator) -> np.random.Generator:
    """Return a numpy generator for the resamples of a metric, seeded from PyTorch's."""
    import numpy as np
    import torch

    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    return np.random.default_rng(int(seed))


# --- metrics --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A measurement of one trained model.

    The fields of a subclass are its options, and the fields' annotations the options' ranges.

    A metric has a :attr:`name` and the needs :attr:`requires`, and defines :meth:`arrays` and
    :meth:`estimates`. The base class provides the protocol (the options, the data and the number of
    test images), intervals from ``resamples`` resamples (0: no intervals but Wilson's of shares),
    and the comparison of two models image by image.

    Raises:
        SpecError: if an option is out of its range.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Margin(Metric):
        ...     name: ClassVar[str] = "margin"
        ...     requires: ClassVar[frozenset[Need]] = frozenset({"logits"})
        ...
        ...     def arrays(self, evaluation):
        ...         logits = evaluation.predictions.read("logits").double()
        ...         best, second = logits.topk(2).values.unbind(dim=1)
        ...         return {"margin": (best - second).numpy()}
        ...
        ...     def estimates(self, arrays):
        ...         return {"margin": mean(arrays["margin"], "nats", "higher")}
    """

    resamples: OptionalResamples = 1000
    name: ClassVar[str]

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for option, hint in hints.items():
            for limit in getattr(hint, "__metadata__", ()):
                value = getattr(self, option)
                if isinstance(limit, Range) and not limit.holds(value):
                    raise SpecError(
                        f"{option} of {self.name} is {value:,.12g}; it must be {limit.wanted}."
                    )

    @property
    def requires(self) -> Needs:
        """The needs of the metric.

        If a fit lacks a need, the metric is N/A, and the fit is not trained for the metric.
        """
        return frozenset()

    @property
    def reads(self) -> Quantities:
        """The quantities that the metric reads of test images and outliers.

        One pass computes them for all metrics of a run.
        """
        return frozenset()

    @property
    def protocol_options(self) -> Parts:
        """The options that are part of the protocol."""
        options: Parts = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "resamples" and value is not None:
                options[field.name] = value
        return options

    def arrays(self, evaluation: Evaluation) -> Arrays:
        """Measure each test image.

        Returns arrays (N, ...) of finite numbers, by name, in the order of the images.
        """
        raise NotImplementedError

    def estimates(self, arrays: Arrays) -> Mapping[str, Estimate]:
        """Return the values by label, each a statistic of the arrays."""
        raise NotImplementedError

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure one trained model.

        Raises:
            Unavailable: if something is missing; the message names the remedy.
            NotApplicable: if the metric is not defined for this model or dataset.
            Diverged: if an output of the model is not finite.
            PluginError: if an array does not have a row for each test image.
        """
        arrays = self.arrays(evaluation)
        count = len(evaluation.data.part("test").images)
        for name, array in arrays.items():
            if len(array) != count:
                raise PluginError(
                    f"{self.name} gives {len(array)} rows of {name} for {count} test images; give "
                    "a row for each."
                )
        return self.measurement(evaluation, arrays)

    def measurement(
        self,
        evaluation: Evaluation,
        arrays: Arrays,
        *,
        estimates: Mapping[str, Estimate] | None = None,
        parts: Mapping[str, Scalar] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Measurement:
        """Return the protocol, the values with intervals, the arrays and the details.

        Args:
            evaluation: of the model.
            arrays: stored values of each example.
            estimates: the values by label; by default, :meth:`estimates` of the arrays.
            parts: of the protocol, which override the options; by default, the description of the
                test images.
            details: additional information, in JSON types.
        """
        if estimates is None:
            estimates = self.estimates(arrays)
        if parts is None:
            n = len(evaluation.data.part("test").images)
            parts = describe_test_images(n) | self.protocol_options
        protocol = protocol_id(self.name, evaluation, **{**self.protocol_options, **parts})

        # say if outputs are no logits, which would make every metric of confidence wrong
        details = dict(details or {})
        if "logits" in self.reads & self.requires:
            noise = getattr(self, "data_noise", 0.0)
            logits = evaluation.predictions.read("logits", "test", noise)
            if are_probabilities(logits):
                details["suspicious"] = [*details.get("suspicious", ()), PROBABILITIES]

        # one generator for all values, in their order
        rng = bootstrap_rng(evaluation.services.generator(f"bootstrap {self.name}"))
        resamples = self.resamples or 0
        values = {
            label: value_of(estimate, rng, resamples) for label, estimate in estimates.items()
        }
        return Measurement(protocol=protocol, values=values, arrays=arrays, details=details)

    def resamplings(self, arrays: Arrays) -> dict[str, Resampling]:
        """Return the statistic of each label, to compare two models image by image."""
        estimates = self.estimates(arrays)
        return {label: estimate.resampling for label, estimate in estimates.items()}


def describe_test_images(n: int, data_noise: float = 0.0) -> Parts:
    """Return the parts of a protocol that describe n test images with noise.

    ``data_noise`` is the standard deviation of the noise.
    """
    return {"split": "test", "images": n, "data_noise": data_noise}


def protocol_id(metric: str, evaluation: Evaluation, **parts: Scalar) -> str:
    """Return the identity of a measurement: metric, data and other parts of its protocol.

    It is written like a spec string, keys sorted:
    ``accuracy:data=digits,data_noise=0,images=397,split=test``. A dataset of the user's own files
    has no unique name, so a hash of the files' content is a part too.
    """
    named = {"data": evaluation.data.spec.name, **parts}
    if evaluation.data.content:
        named["data_content"] = evaluation.data.content
    texts = {}
    for key, value in named.items():
        if isinstance(value, float):
            texts[key] = f"{value:.12g}"
        else:
            texts[key] = format_value(value)
    return str(Spec.of(metric, texts))
