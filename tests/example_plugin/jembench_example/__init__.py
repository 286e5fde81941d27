"""The factories of the example plugin. Each imports its module when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import PredictionScore, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Generator, Tensor
    from torch.optim import Optimizer

    from jembench.interfaces import Dataset, DataSpec, OODScore, Sampler, Start, Tracker
    from jembench.parts import Planned
    from jembench.report.figures.base import Result
    from jembench.report.formats import Document
    from jembench_example.densities import Gaussians
    from jembench_example.model import Linear


def linear(data: DataSpec, *, bias: bool = True) -> Linear:
    """Logistic regression on the pixels, read as an energy."""
    from jembench_example.model import Linear

    return Linear(data, bias)


def class_gaussians(data: DataSpec, *, ridge: float = 0.01) -> Gaussians:
    """A Gaussian of each class, fitted to all training images at once."""
    from jembench_example.densities import Gaussians

    return Gaussians(data, ridge)


def mala(
    data: DataSpec,
    *,
    steps: Annotated[int, Range(least=1)] = 10,
    step_size: Annotated[float, Range(above=0)] = 0.01,
) -> Sampler:
    """The Metropolis-adjusted Langevin algorithm: exact at any step size, from uniform noise."""
    from jembench_example.sampler import MALA

    return MALA(data, steps=steps, step_size=step_size)


def stripes(*, noise: float = 0.2) -> Dataset:
    """Horizontal, vertical and diagonal stripes, 8x8, grey."""
    from jembench_example.data import Stripes

    return Stripes(noise)


def margin() -> OODScore:
    """The largest logit above the second largest: a score of outliers."""

    def function(logits: Tensor) -> Tensor:
        first, second = logits.topk(2, dim=1).values.unbind(dim=1)
        return first - second

    return PredictionScore("logits", "logits", function)


def jsonl(*, file: str) -> Tracker:
    """Appends each logged window of training to a file, as a line of JSON."""
    from jembench_example.tracker import JsonLines

    return JsonLines(file)


def sentences(document: Document, *, digits: int = 4) -> str:
    """A sentence for each value: a report format."""
    measured = [record for record in document.records() if record.get("value") is not None]
    return "".join(
        f"{record['label']} of {record['model']} is "
        f"{record['value']:.{digits}g} {record['unit']}".rstrip()
        + ".\n"
        for record in measured
    )


def bars(results: list[Result]) -> Iterator[Planned]:
    """The confidence of each model as a bar: a figure for the metric of that name."""
    from jembench.parts import Planned
    from jembench_example.figure import draw

    values = {result.fit.model: result.values["confidence"].value for result in results}
    yield Planned("confidence", lambda: draw(values))


def sign_sgd(params: Iterable[Tensor], lr: float) -> Optimizer:
    """Steps of one size along the sign of the gradient."""
    from jembench_example.training import SignSGD

    return SignSGD(params, lr)


def halving(*, every: float = 1.0) -> Callable[[int, int, int], float]:
    """Half the learning rate after each ``every`` epochs."""
    return lambda iteration, per_epoch, total: 0.5 ** (iteration // (every * per_epoch))


def erase(*, side: int = 2) -> Callable[[Tensor, Generator], Tensor]:
    """A square of zeros at a random place of each image."""
    from jembench_example.training import Erase

    return Erase(side)


def grey(data: DataSpec, *, level: float = 0.5) -> Start:
    """Every chain starts at a grey image; 0 is the darkest level, 1 the brightest."""
    from jembench_example.training import Grey

    return Grey(data, level)
