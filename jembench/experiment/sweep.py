"""Grids: a metric under every combination of some of its options. Imports no torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, NamedTuple

from jembench.catalog import registry
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option, Rule

Axes = Mapping[str, tuple[Option, ...]]
"""The options of a metric that a grid crosses, with their values."""


class Place(NamedTuple):
    """A grid's metric, with the option values of its row and column."""

    metric: Spec  # canonical
    row: tuple[str, ...]
    column: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A metric under every combination of options, a table per value."""

    title: str
    metric: str
    columns: Axes = field(default_factory=dict)
    rows: Axes = field(default_factory=dict)
    values: tuple[str, ...] = ()  # the labels of the values that have a table; (): all
    fixed: Mapping[str, Option] = field(default_factory=dict)  # options with one value
    datasets: Annotated[
        tuple[str, ...], Rule("left out, since its block names datasets", lambda own: not own)
    ] = ()

    @cached_property
    def places(self) -> list[Place]:
        """All places, row by row, the last option changing fastest.

        Raises:
            SpecError: if the metric, an option or a value does not exist.
        """
        places, axes = list[Place](), {**self.rows, **self.columns}
        for values in itertools.product(*axes.values()):
            options = {**self.fixed, **dict(zip(axes, values, strict=True))}
            metric = registry.resolve("metrics", Spec(self.metric).with_(**options)).spec
            row, column = values[: len(self.rows)], values[len(self.rows) :]
            places.append(Place(metric, row, column))
        return places

    def pinned(self, options: Mapping[str, str]) -> Grid:
        """Return the grid with options of its metric set.

        An option that the grid crosses keeps only that value.
        """
        rows, columns, fixed = dict(self.rows), dict(self.columns), dict(self.fixed)
        for key, value in options.items():
            if key in rows:
                rows[key] = (value,)
            elif key in columns:
                columns[key] = (value,)
            else:
                fixed[key] = value
        return dataclasses.replace(self, rows=rows, columns=columns, fixed=fixed)


def covers(datasets: Sequence[str], dataset: str) -> bool:
    """Return whether ``datasets`` cover a dataset, by names without options.

    Args:
        datasets: specs; ``!digits`` covers all but digits, and (): all datasets.
        dataset: the spec of the dataset.
    """
    name = Spec(dataset).bare
    included = [Spec(text).bare for text in datasets if not text.startswith("!")]
    return f"!{name}" not in datasets and (not included or name in included)


def compares_with_itself(metric: Spec, dataset: Spec) -> bool:
    """Return whether a metric's OOD set is the dataset itself.

    Specs with different values of an option mean different datasets, such as two folders of images.
    """
    if "set" not in metric.options:
        return False
    outliers = Spec(metric.options["set"])
    shared = outliers.options.keys() & dataset.options.keys()
    return outliers.bare == dataset.bare and all(
        outliers.options[key] == dataset.options[key] for key in shared
    )
