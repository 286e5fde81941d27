"""Test images of extreme confidence and density, by stored per-example values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jembench.catalog import registry, trust
from jembench.data.grid import arranged, pictures
from jembench.errors import SpecError
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, figure_of
from jembench.report.figures.images import Panel, grids
from jembench.report.rows import grouped
from jembench.store.outcome import Cell

_METRICS = ("energy-gap", "ece", "log-density")
_CHANGES = {"data_noise", "scaling", "source"}
"""Options under which values are not those of plain test images."""


def plan(results: Sequence[Result], read: Callable[[Cell], Arrays]) -> Iterator[Planned]:
    """Plan a figure for each trained model with values of plain test images."""
    stored = [result for result in results if result.metric in _METRICS and result.cell.arrays]
    of_test = [result for result in stored if result.cell.split == "test"]
    plain = [result for result in of_test if not _CHANGES & result.options.keys()]
    for of_fit in grouped(plain, lambda result: (result.fit, result.cell.limit)):
        yield figure_of(of_fit, "examples", extremes, of_fit, read)


def extremes(results: Sequence[Result], read: Callable[[Cell], Arrays]) -> Drawing:
    """Draw the most wrong, least and most confident, least and most likely test images."""
    from jembench.data.datasets import make
    from jembench.metrics.log_density import highest_first
    from jembench.running.evaluation import limited

    first = results[0]
    trust.refuse_code([first.fit.dataset], "A result of the store")
    dataset = registry.resolve("datasets", first.fit.dataset)
    if first.protocol.get("data_content", "") != dataset.content:
        raise SpecError(
            "The test images have changed since they were measured. Measure the model again for "
            "this figure."
        )
    images, truth = limited(make(dataset, download=False).split("test"), first.cell.limit)
    classes = None if truth is None else truth.numpy()
    values: dict[str, Any] = {}
    for result in results:
        values |= read(result.cell)
    if "energy-data" in values:
        values.setdefault("log-px", -values["energy-data"])
    for name in {"predicted", "log-px"} & values.keys():
        if len(values[name]) != len(images):
            raise SpecError("The dataset has another number of test images than were measured.")

    # each panel's images in order, and the values that order them
    orders, scores = {}, {}
    if "predicted" in values:
        surest = highest_first(values.get("log-odds", values["confidence"]))
        if classes is not None:
            orders["most wrong"] = surest[(values["predicted"] != classes)[surest]]
        orders |= {"least confident": surest[::-1], "most confident": surest}
        scores = dict.fromkeys(orders, values["confidence"])
    if "log-px" in values:
        likeliest = highest_first(values["log-px"])
        of_density = {"least likely": likeliest[::-1], "most likely": likeliest}
        orders |= of_density
        scores |= dict.fromkeys(of_density, values["log-px"])
    rows = {title: arranged(order, 1, 8) for title, order in orders.items() if len(order)}
    arrays = pictures(images, rows)
    panels = [Panel(title, arrays[title], scores[title]) for title in rows]
    return grids(f"test images: {first.title}", arrays, classes, panels, columns=1)
