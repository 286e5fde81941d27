"""Test images of a page: those at the ends of what models say of them, chosen by stored per-example
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench.catalog import registry, spec, trust
from jembench.errors import SpecError
from jembench.experiment.names import NO_NAMES, Names
from jembench.experiment.sweep import bare_name
from jembench.report.page.pictures import png
from jembench.report.protocols import parts_of
from jembench.report.rows import grouped
from jembench.report.table import fixed
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec, Split

_METRICS = ("energy-gap", "ece", "log-density")
"""The metrics with per-example values of the test images; of two with the same values the later one
is read.
"""

_SHOWN = 8  # images of a list, at most
_SIDE = 64  # pixels: smaller images are enlarged, larger ones reduced to less than twice as many
_PIXELS = 2**19  # of all images of a dataset, which bounds their share of the page to about 2 MB


class Verdict(NamedTuple):
    """The statements of a model on an image, as texts; "" for what is not known."""

    predicted: str = ""
    confidence: str = ""
    log_px: str = ""


class Example(NamedTuple):
    """A test image and what each model says of it."""

    label: str  # "": none
    image: str  # a data URI
    verdicts: Mapping[str, Verdict]  # by model


class Gallery(NamedTuple):
    """Lists of test images of a dataset; none, if its images are not there."""

    dataset: str
    examples: Mapping[int, Example] = {}  # by index
    # indices, by the kind of the list and the model
    lists: Mapping[str, Mapping[str, Sequence[int]]] = {}


def galleries(cells: Sequence[Cell], store: Store, names: Names = NO_NAMES) -> list[Gallery]:
    """Return a gallery for each dataset with models that classify its test images or give their log
    p(x).

    Args:
        cells: the results, measured on the same test images of a dataset. Of each model the first
            seed is shown.
        store: of the results.
        names: display names by canonical specs and recipes.
    """
    of_images = [cell for cell in cells if cell.arrays and _is_plain(cell.metric)]
    return [
        _gallery(group, store, names) for group in grouped(of_images, lambda cell: cell.fit.dataset)
    ]


def _is_plain(metric: str) -> bool:
    """Return whether a metric reads the test images as they are and the model's own probabilities."""
    return (
        bare_name(metric) in _METRICS
        and not {"data_noise", "scaling", "source"} & dict(spec.parse(metric).arguments).keys()
    )


def _gallery(cells: Sequence[Cell], store: Store, names: Names) -> Gallery:
    import numpy as np

    from jembench.data.grid import sheet
    from jembench.report.figures.base import model_of

    models = {}
    try:
        data, test = _test_images(cells[0])
        for of_model in grouped(
            sorted(cells, key=lambda cell: cell.fit.seed), lambda cell: cell.fit.names
        ):
            first = [cell for cell in of_model if cell.fit == of_model[0].fit]
            models[model_of(first[0].fit, names)] = _values(first, store, len(test.images))
    except Exception:  # of a plugin's dataset
        return Gallery(cells[0].fit.dataset)
    images, labels = test.images.numpy(), None if test.labels is None else test.labels.numpy()
    lists = {model: _lists(values, labels) for model, values in models.items()}
    kinds = dict.fromkeys(kind for of_model in lists.values() for kind in of_model)
    pixels = (
        min(2 * _SIDE, images.shape[2]) * min(2 * _SIDE, images.shape[3]) * len(kinds) * len(models)
    )
    count = max(1, min(_SHOWN, _PIXELS // max(1, pixels)))
    shown = {
        kind: {model: lists[model][kind][:count] for model in models if kind in lists[model]}
        for kind in kinds
    }
    chosen = {
        index for of_kind in shown.values() for indices in of_kind.values() for index in indices
    }
    whole = np.zeros((1, 1), dtype=np.int64)
    examples = {
        index: Example(
            "" if labels is None else _class(data, labels[index]),
            png(sheet(images[index, None, : 3 if images.shape[1] == 3 else 1], whole), _SIDE),
            {model: _verdict(values, index, data) for model, values in models.items()},
        )
        for index in sorted(chosen)
    }
    return Gallery(cells[0].fit.dataset, examples, shown)


def _test_images(cell: Cell) -> tuple[DataSpec, Split]:
    """Return the test images that a cell was measured on.

    Raises:
        JembenchError: if they are not there, or have changed.
    """
    from jembench.data.datasets import make
    from jembench.running.evaluation import limited

    trust.refuse_code([cell.fit.dataset], "A result of the store")
    resolved = registry.resolve("datasets", cell.fit.dataset)
    if parts_of(cell.outcome.protocol).get("data_content", "") != resolved.content:
        raise SpecError("The images have changed.")
    dataset = make(resolved, download=False)
    return dataset.spec, limited(dataset.split("test"), cell.limit)


def _values(cells: Sequence[Cell], store: Store, n: int) -> dict[str, Any]:
    """Return what a trained model says of each image, as far as it is known.

    Returns:
        ``predicted``, ``confidence``, ``log-odds`` and ``log-px``, arrays (n,).
    """
    values: dict[str, Any] = {}
    for cell in sorted(cells, key=lambda cell: _METRICS.index(bare_name(cell.metric))):
        arrays = store.read_arrays(cell)
        values |= {"log-px": -arrays["energy-data"]} if "energy-data" in arrays else {}
        values |= {
            name: arrays[name]
            for name in ("predicted", "confidence", "log-odds", "log-px")
            if name in arrays
        }
    if any(array.shape != (n,) for array in values.values()):
        raise SpecError("There is another number of images.")
    return values


def _lists(values: Mapping[str, Any], labels: Any) -> dict[str, list[int]]:
    """Return the indices of the images in the order of each list."""
    from jembench.metrics.log_density import highest_first

    found = {}
    if "predicted" in values:
        surest = highest_first(values.get("log-odds", values["confidence"]))
        if labels is not None:
            wrong = (values["predicted"] != labels)[surest]
            found["Most wrong: another class than the label, highest confidence"] = surest[wrong]
        found |= {"Least confident": surest[::-1], "Most confident": surest}
    if "log-px" in values:
        likeliest = highest_first(values["log-px"])
        found |= {
            "Least likely: lowest log p(x)": likeliest[::-1],
            "Most likely: highest log p(x)": likeliest,
        }
    return {kind: order.tolist() for kind, order in found.items()}


def _verdict(values: Mapping[str, Any], index: int, data: DataSpec) -> Verdict:
    texts = {"log_px": fixed(float(values["log-px"][index]), 1)} if "log-px" in values else {}
    if "predicted" in values:
        texts["predicted"] = _class(data, values["predicted"][index])
        texts["confidence"] = f"{100 * values['confidence'][index]:.1f} %"
    return Verdict(**texts)


def _class(data: DataSpec, number: int) -> str:
    return data.class_names[number] if number < len(data.class_names) else str(number)
