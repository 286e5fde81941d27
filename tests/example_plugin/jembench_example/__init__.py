"""The factories of the example plugin. Each imports its module when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jembench.plugin import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jembench.interfaces import Dataset, DataSpec, Metric, Sampler, Tracker
    from jembench.plugin import Document, Planned, Result
    from jembench_example.model import Linear


def linear(data: DataSpec, *, bias: bool = True) -> Linear:
    """Logistic regression on the pixels, read as an energy."""
    from jembench_example.model import Linear

    return Linear(data, bias)


def mala(data: DataSpec, *, steps: int = 10, step_size: float = 0.01) -> Sampler:
    """The Metropolis-adjusted Langevin algorithm: exact at any step size, from uniform noise."""
    from jembench_example.sampler import MALA

    if steps < 1:
        raise SpecError(f"steps of mala is {steps}; it must be at least 1.")
    if step_size <= 0:
        raise SpecError(f"step_size of mala is {step_size}; it must be greater than 0.")
    return MALA(data, steps=steps, step_size=step_size)


def stripes(*, noise: float = 0.2) -> Dataset:
    """Horizontal, vertical and diagonal stripes, 8x8, grey."""
    from jembench_example.data import Stripes

    return Stripes(noise)


def confidence() -> Metric:
    """Mean probability of the predicted class, in %."""
    from jembench_example.metric import Confidence

    return Confidence()


def jsonl(*, file: str) -> Tracker:
    """Appends each logged window of training to a file, as a line of JSON."""
    from jembench_example.tracker import JsonLines

    return JsonLines(file)


def sentences(document: Document, *, digits: int = 4) -> str:
    """A sentence for each value: a report format."""
    measured = [record for record in document.records() if record.get("value") is not None]
    return "".join(
        f"{record['label']} of {record['model']} is {record['value']:.{digits}g} {record['unit']}".rstrip() + ".\n"
        for record in measured
    )


def bars(results: list[Result]) -> Iterator[Planned]:
    """The confidence of each model as a bar: a figure for the metric of that name."""
    from jembench.plugin import Planned
    from jembench_example.figure import draw

    values = {result.fit.model: result.values["confidence"].value for result in results}
    yield Planned("confidence", lambda: draw(values))
