"""Test images at the ends of what each model says of them, by stored per-example values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jembench.catalog import registry, trust
from jembench.data.grid import arranged, pictures
from jembench.errors import SpecError
from jembench.report.figures.base import Arrays, Drawing, Planned, Result, figure_of
from jembench.report.figures.images import Panel, grids
from jembench.report.rows import grouped
from jembench.store.outcome import Cell


def plan(results: Sequence[Result], read: Callable[[Cell], Arrays]) -> Iterator[Planned]:
    """Plan a figure for each trained model with values of plain test images."""
    metrics, changes = ("energy-gap", "ece", "log-density"), {"data_noise", "scaling", "source"}
    stored = [result for result in results if result.metric in metrics and result.cell.arrays]
    plain = [result for result in stored if not changes & result.options.keys()]
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
    values = {name: array for result in results for name, array in read(result.cell).items()}
    if "energy-data" in values:
        values.setdefault("log-px", -values["energy-data"])
    if any(len(values[name]) != len(images) for name in {"predicted", "log-px"} & values.keys()):
        raise SpecError("The dataset has another number of test images than were measured.")

    # the order of the images in each panel, and the values that give it
    panels: dict[str, tuple[Any, Any]] = {}
    if "predicted" in values:
        surest = highest_first(values.get("log-odds", values["confidence"]))
        if truth is not None:
            wrong = (values["predicted"] != truth.numpy())[surest]
            panels["most wrong"] = surest[wrong], values["confidence"]
        panels["least confident"] = surest[::-1], values["confidence"]
        panels["most confident"] = surest, values["confidence"]
    if "log-px" in values:
        likeliest = highest_first(values["log-px"])
        panels["least likely"] = likeliest[::-1], values["log-px"]
        panels["most likely"] = likeliest, values["log-px"]
    rows = {title: arranged(order, 1, 8) for title, (order, _) in panels.items() if len(order)}
    arrays = pictures(images.numpy(), rows)
    drawn = [Panel(title, arrays[title], panels[title][1]) for title in rows]
    classes = None if truth is None else truth.numpy()
    return grids(f"test images: {first.title}", arrays, classes, drawn, columns=1)
