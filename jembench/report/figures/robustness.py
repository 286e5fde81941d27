"""Robustness curves: the accuracy of models over the size of an attacker's change.

Grathwohl et al. (2020), arXiv:1912.03263, Figures 5 and 17.

Legend: N attacked images, K sizes at which an accuracy changes, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.report.figures import adversarial
from jembench.report.figures.base import (
    Drawing,
    Numbers,
    Planned,
    Result,
    figure_of,
    legend_entry,
    rows_of,
)
from jembench.report.headings import in_words
from jembench.report.protocols import DEFENCE, RULE, in_common, part_in_words, values_of
from jembench.report.rows import grouped
from jembench.stats.intervals import wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FREE = ("norm", *DEFENCE, *RULE)  # what may differ between the curves of a figure
FEW = 5
"""Curves end a little beyond the size at which they fall below this accuracy in %."""

_TITLES = {"transfer": "images made against the model without chains, shown to the model with them"}


class AccuracyCurve(NamedTuple):
    """Accuracy as a step function of eps, with Wilson's intervals, in %."""

    eps: Numbers  # (K,) in levels of 255, the first one 0
    accuracy: Numbers  # (K,) from each eps to the next
    low: Numbers
    high: Numbers


class Curve(NamedTuple):
    """The accuracy of one model under one attack."""

    model: str
    norm: str
    images: int
    steps: AccuracyCurve
    colour: str = ""  # the model's, shared by its curves under all defences


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan robustness curves of all models, and adversarial images of each model.

    A figure has the curves of a dataset, a seed and a budget.
    """
    searched = [result for result in results if "eps" not in result.protocol]
    for group in grouped(searched, lambda result: (result.place, result.protocol_without(_FREE))):
        yield figure_of(group, f"{group[0].metric}-curves", of_attack, group)
    for result in results:
        yield from adversarial.images_of(result)


def of_attack(results: Sequence[Result]) -> Drawing:
    """Draw the curves of one attack under one budget."""
    attack = results[0].metric
    spent = in_common(result.cell.outcome.protocol for result in results)
    name = _TITLES.get(attack, f"{in_words(attack)} attack")
    title = f"{name}: {results[0].trained_on}\n{spent}".strip()
    return curves(title, curves_of(results))


def curves_of(results: Sequence[Result]) -> list[Curve]:
    """Return the curves of one budget's results, model by model.

    Curves of a model are in the order of refinement steps. A model's name has the parts of its
    defence that differ between the results.
    """
    models = list(dict.fromkeys(result.model for result in results))

    def place(result: Result) -> tuple[object, ...]:
        model, part = models.index(result.model), result.protocol.get
        steps = int(part("refine", "0"))
        chains = int(part("eot", "0"))
        return model, steps, chains, part("grad", "")

    ordered = sorted(results, key=place)
    protocols = [result.protocol for result in ordered]
    differing = [part for part in DEFENCE if len(values_of(part, protocols)) > 1]
    # the models without chains, against which transferred images were made
    undefended: dict[tuple[str, str], Curve] = {}
    attacked = []
    for result in ordered:
        name = result.model
        for part in differing:
            value = result.protocol.get(part, "0")
            if value != "0":
                name = f"{name}, {part_in_words(part, value)}"
        for norm in adversarial.norms_of(result):
            attacked.append(_curve(result, name, norm))
            if f"distance-{norm}-as-it-is" in result.arrays:
                itself = f"{result.model}, attacked itself"
                undefended[result.model, norm] = _curve(result, itself, norm, "-as-it-is")
    return [*undefended.values(), *attacked]


def _curve(result: Result, name: str, norm: str, suffix: str = "") -> Curve:
    """Return a curve from an attack's arrays, whose names may have a suffix."""
    distance = result.arrays[f"distance-{norm}{suffix}"]
    steps = accuracy_over(distance, result.arrays[f"found{suffix}"])
    return Curve(name, norm, len(distance), steps, result.colour)


def accuracy_over(distance: Numbers, found: NDArray[np.bool_]) -> AccuracyCurve:
    """Return the accuracy under attack as a step function of eps.

    Args:
        distance: (N,) to the nearest image of another class, in units of a pixel's range; 0 where
            the image itself is misclassified.
        found: (N,) whether there is such an image; if not, the image withstands any eps.
    """
    broken = np.sort(adversarial.LEVELS * distance[found.astype(bool)])
    eps = np.unique(np.append(broken, 0.0))
    standing = len(distance) - np.searchsorted(broken, eps, side="right")
    images = len(distance)
    intervals = np.array([wilson(count, images) for count in standing.tolist()])
    return AccuracyCurve(eps, 100 * standing / images, *(100 * intervals.T))


def curves(title: str, of_models: Sequence[Curve]) -> Drawing:
    """Draw a panel for each norm, a step function with its band for each model."""
    colours = {curve.model: curve.colour for curve in of_models}
    of_norms = {}
    for norm in adversarial.NORMS:
        of_norm = [curve for curve in of_models if curve.norm == norm]
        if of_norm:
            of_norms[norm] = of_norm
    width = drawing.page() if len(of_norms) > 1 else drawing.column()
    labels = [drawing.wrapped(model, width - 0.6) for model in colours]
    lines = sum(1 + label.count("\n") for label in labels)
    columns = 3 if len(of_norms) > 1 and lines == len(labels) else 1
    height = 2.6 + 0.16 * -(-lines // columns)
    count = len(of_norms)
    figure, panels = drawing.panels(title, height, count, count, sharey=True)
    for axes, (norm, of_norm) in zip(panels, of_norms.items(), strict=True):
        _draw(axes, of_norm, list(colours))
        axes.set(title=adversarial.NORMS[norm], xlabel="ε, 1/255")
    panels[0].set_ylabel("accuracy, %")
    for index, colour in enumerate(colours.values()):
        # also for a curve that only another panel has
        legend_entry(panels[0], labels[index], **drawing.line(index, colour))
    drawing.legend_below(figure, panels[0], columns=columns)
    rows: list[dict[str, Any]] = []
    for model, norm, images, steps, _ in of_models:
        fields = dict(zip(("eps_255", "accuracy", "low", "high"), steps, strict=True))
        rows += rows_of(fields, norm=norm, model=model, images=images)
    return Drawing(figure, rows)


def _draw(axes: Axes, of_norm: Sequence[Curve], models: Sequence[str]) -> None:
    """Draw the curves of one norm, up to the size at which all are low."""
    # 1 if nothing was found, since all curves are level
    end = 1.1 * max(_end(curve.steps) for curve in of_norm) or 1.0
    for curve in of_norm:
        index = models.index(curve.model)
        look = drawing.line(index, curve.colour)
        steps = np.stack(curve.steps)
        eps, accuracy, low, high = np.append(steps, steps[:, -1:], axis=1)
        eps[-1] = end
        band = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(eps, low, high, step="post", **band)
        marked = (0.02 * index, 0.15)  # other points in each curve
        axes.step(eps, accuracy, where="post", markevery=marked, **look)
    axes.set(xlim=(0, end), ylim=(-1, 101))


def _end(steps: AccuracyCurve) -> float:
    """Return the size at which few images are still classified correctly.

    The CSV has the whole curve.
    """
    few = steps.eps[steps.accuracy <= FEW]
    if len(few):
        return float(few[0])
    return float(steps.eps[-1])
