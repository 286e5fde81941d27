"""Parts that the figures of all metrics share.

The parts are results, names of files, numbers, intervals and histograms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jembench import drawing
from jembench.catalog.spec import slug
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.interfaces import Value
from jembench.report import headings
from jembench.report.protocols import parts_of
from jembench.report.rows import grouped
from jembench.report.table import fixed
from jembench.store.outcome import Cell, FitKey

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]


class Drawing(NamedTuple):
    """A figure, and a line of its CSV for each number that it shows.

    All lines have the same fields.
    """

    figure: Figure
    rows: Sequence[Mapping[str, Any]]


class Planned(NamedTuple):
    """A figure that can be drawn."""

    stem: str  # of the files' names
    draw: Callable[[], Drawing]
    details: Sequence[str] = ()  # that distinguish figures with the same stem


@dataclass(frozen=True)
class Result:
    """A cell that has values, with its per-example arrays."""

    cell: Cell
    arrays: Arrays
    names: DisplayNames = NO_NAMES
    colours: Mapping[str, str] = field(default_factory=dict)

    @property
    def fit(self) -> FitKey:
        """The trained model."""
        return self.cell.fit

    @property
    def values(self) -> Mapping[str, Value]:
        """The values of the cell."""
        return self.cell.outcome.values

    @property
    def place(self) -> tuple[object, ...]:
        """The dataset, the seed and the number of images, which all models in one figure share."""
        return self.fit.dataset, self.fit.seed, self.cell.limit

    @property
    def metric(self) -> str:
        """The name of the metric, without its options."""
        return self.cell.metric.bare

    @cached_property
    def options(self) -> Mapping[str, str]:
        """The metric's options that are not at their defaults."""
        return dict(self.cell.metric.options)

    @cached_property
    def protocol(self) -> Mapping[str, str]:
        """The parts of the protocol's id; none if the id is no spec."""
        return parts_of(self.cell.outcome.protocol)

    def protocol_without(self, free: Collection[str]) -> tuple[tuple[str, str], ...]:
        """Return the parts of the protocol that must be the same in a figure.

        The free parts may differ.
        """
        kept = {key: value for key, value in self.protocol.items() if key not in free}
        return tuple(sorted(kept.items()))

    @property
    def model(self) -> str:
        """The model as figures name it."""
        return model_of(self.fit, self.names)

    @property
    def colour(self) -> str:
        """The colour of the model in all figures; "" where only one figure is drawn."""
        return self.colours.get(self.model, "")

    @property
    def dataset(self) -> str:
        """The dataset as figures name it."""
        return dataset_of(self.fit, self.names)

    @property
    def title(self) -> str:
        """The names of model and dataset, and the seed."""
        return title_of(self.fit, self.names)

    @property
    def trained_on(self) -> str:
        """The dataset and the seed, as figures name them."""
        return f"{self.dataset}, seed {self.fit.seed}"

    def figure(self, name: str, draw: Callable[..., Drawing], *arguments: Any) -> Planned:
        """Return a figure of only this result."""
        return figure_of([self], name, draw, *arguments)


def figure_of(
    results: Sequence[Result], name: str, draw: Callable[..., Drawing], *arguments: Any
) -> Planned:
    """Return a figure of these results, drawn from the arguments."""
    options = [set(result.options.items()) for result in results]
    details = [f"{key}={value}" for key, value in sorted(set.intersection(*options))]
    limit = results[0].cell.limit
    if limit is not None:
        details.append(f"limit={limit}")
    fits = [result.fit for result in results]
    return planned(name, fits, partial(draw, *arguments), details)


# --- names ----------------------------------------------------------------------------------------

_LONGEST = 80  # letters, for readers; file systems allow more


def display_names(fits: Iterable[FitKey], names: DisplayNames) -> DisplayNames:
    """Return names that tell fits apart.

    A model's name has the recipe where several recipes share the name. Datasets have no options.

    Args:
        fits: of all figures.
        names: display names by canonical specs and recipes.
    """
    keys = {fit.names for fit in fits}
    uses = Counter((fit.dataset, names.model(fit.model, fit.recipe)) for fit in keys)
    datasets = headings.distinct({fit.dataset: fit.dataset.bare for fit in keys})
    models = dict(names.models)
    for model, dataset, recipe in keys:
        name = names.model(model, recipe)
        if uses[dataset, name] > 1:
            models[model, recipe] = f"{name} ({names.recipes.get(recipe, recipe)})"
    return replace(names, models=models, datasets=datasets)


def model_of(fit: FitKey, names: DisplayNames = NO_NAMES) -> str:
    """Return the display name of a model."""
    return names.model(fit.model, fit.recipe)


def colours_of(fits: Iterable[FitKey], names: DisplayNames) -> Mapping[str, str]:
    """Return the colours that models have in all figures, by their display names.

    Args:
        fits: of all figures, in the order of the models.
        names: from :func:`display_names`.
    """
    models = dict.fromkeys(model_of(fit, names) for fit in fits)
    return {model: drawing.look(index).colour for index, model in enumerate(models)}


def dataset_of(fit: FitKey, names: DisplayNames = NO_NAMES) -> str:
    """Return the display name of the dataset of a fit."""
    return names.datasets.get(fit.dataset, fit.dataset)


def title_of(fit: FitKey, names: DisplayNames = NO_NAMES) -> str:
    """Return the name of a trained model in full."""
    return f"{model_of(fit, names)} on {dataset_of(fit, names)}, seed {fit.seed}"


def planned(
    figure: str, fits: Sequence[FitKey], draw: Callable[[], Drawing], details: Iterable[str] = ()
) -> Planned:
    """Return a figure of models on one dataset.

    The figure's name has the model and the seed if all fits share them.

    Args:
        figure: the beginning of the name.
        fits: the models.
        draw: draws the figure.
        details: that distinguish the figure from others of these models, beside options and
            recipes.
    """
    parts = [figure, fits[0].dataset.bare]
    models = {fit.model.bare for fit in fits}
    seeds = {f"s{fit.seed}" for fit in fits}
    for names in (models, seeds):
        if len(names) == 1:
            parts += names
    details = list(details)
    for fit in fits:
        for spec in (fit.model, fit.dataset):
            details += [f"{key}={value}" for key, value in spec.options.items()]
    details += [fit.recipe for fit in fits]
    return Planned("-".join(parts), draw, details)


def distinct(figures: Iterable[Planned]) -> list[Planned]:
    """Return figures with distinct stems.

    Equal stems get the details in which figures differ, or a number.
    """
    distinct_figures, uses = list[Planned](), Counter[str]()
    for alike in grouped(figures, lambda figure: figure.stem):
        details = [set(figure.details) for figure in alike]
        common = set.intersection(*details)
        for figure in alike:
            own = dict.fromkeys(detail for detail in figure.details if detail not in common)
            stem = slug("-".join((figure.stem, *own)), _LONGEST)
            uses[stem] += 1
            if uses[stem] > 1:
                stem = f"{stem}-{uses[stem]}"
            distinct_figures.append(figure._replace(stem=stem))
    return distinct_figures


# --- numbers --------------------------------------------------------------------------------------


def rows_of(
    columns: Mapping[str, NDArray[Any] | Sequence[Any]], **shared: Any
) -> list[dict[str, Any]]:
    """Return the lines of a CSV: the shared fields, then one entry of each column."""
    lists = []
    for column in columns.values():
        lists.append(column.tolist() if isinstance(column, np.ndarray) else column)
    rows = []
    for line in zip(*lists, strict=True):
        rows.append(shared | dict(zip(columns, line, strict=True)))
    return rows


# --- lines ----------------------------------------------------------------------------------------

GUIDE: dict[str, Any] = {"color": drawing.BLACK, "linestyle": ":", "linewidth": drawing.HAIR}
"""The look of a line that values are compared with."""


def legend_entry(axes: Axes, label: str, **look: Any) -> None:
    """Add an entry to the legend of axes, without drawing a line."""
    axes.plot([], [], label=label, **look)


# --- intervals ------------------------------------------------------------------------------------


def error_bars(values: Sequence[Value]) -> Numbers:
    """Return the distances from values down and up to their intervals' ends.

    They are NaN for a value without an interval.
    """
    numbers = np.array([value[:3] for value in values], dtype=np.float64)  # None becomes NaN
    middle, low, high = numbers.reshape(-1, 3).T
    return np.stack([middle - low, high - middle])


def with_interval(value: Value, decimals: int, unit: str = "") -> str:
    """Return ``1.43 % [0.98, 2.71]``, or only the value if the interval is not known."""
    text = f"{fixed(value.value, decimals)}{unit}"
    if value.low is None or value.high is None:
        return text
    return f"{text} [{fixed(value.low, decimals)}, {fixed(value.high, decimals)}]"


# --- histograms -----------------------------------------------------------------------------------

BINS = 40
# % of a sample, at either end, that goes into the first or the last bin, however far out
_TAIL = 0.5


def edges_of(*samples: Numbers) -> Numbers:
    """Return the edges of the bins that samples share."""
    ends = [np.percentile(sample, [_TAIL, 100 - _TAIL]) for sample in samples]
    lows, highs = zip(*ends, strict=True)
    low, high = min(lows), max(highs)
    margin = 0.02 * (high - low) or 0.5  # a single value has bins around it
    return np.linspace(low - margin, high + margin, BINS + 1)


def histogram(
    edges: Numbers, sample: Numbers, **of: Any
) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
    """Count the values in each bin; the end bins have values beyond the edges.

    Args:
        edges: of the bins.
        sample: the values.
        of: fields of the CSV that the bins share.

    Returns:
        The counts, and the lines of their CSV.
    """
    inside = np.clip(sample, edges[0], edges[-1])
    counts, _ = np.histogram(inside, edges)
    columns = {"bin_low": edges[:-1], "bin_high": edges[1:], "count": counts}
    return counts, rows_of(columns, **of)


def histograms(axes: Axes, samples: Mapping[str, Numbers], **of: Any) -> list[dict[str, Any]]:
    """Draw histograms over one another, as densities; return the lines of their CSV.

    Readers compare areas, not heights.

    Args:
        axes: to draw in.
        samples: values in any number, by label.
        of: fields of the CSV that the samples share.
    """
    edges, rows = edges_of(*samples.values()), []
    for series, (label, sample) in enumerate(samples.items()):
        colour, _, _, hatch = drawing.look(series)
        counts, lines = histogram(edges, sample, **of, images=label)
        density = counts / (counts.sum() * np.diff(edges))
        axes.stairs(density, edges, fill=True, facecolor=colour, alpha=0.3, linewidth=0)
        outline = axes.stairs(density, edges, edgecolor=colour, linewidth=1.0)
        outline.set(hatch=hatch, label=label)
        rows += lines
    axes.set(yticks=[], ylim=(0, None))
    axes.spines["left"].set_visible(False)
    return rows
