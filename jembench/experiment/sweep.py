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
    """A metric of a grid, and its place: the values of the options of its row and its column."""

    metric: str  # canonical spec
    row: tuple[str, ...]
    column: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A metric under every combination of some of its options, with a table for each value."""

    title: str
    metric: str
    columns: Axes = field(default_factory=dict)
    rows: Axes = field(default_factory=dict)
    values: tuple[str, ...] = ()  # the labels in tables; (): all
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
        found, axes = list[Place](), {**self.rows, **self.columns}
        for values in itertools.product(*axes.values()):
            text = with_options(self.metric, {**self.fixed, **dict(zip(axes, values, strict=True))})
            row, column = values[: len(self.rows)], values[len(self.rows) :]
            found.append(Place(str(registry.resolve("metrics", text)), row, column))
        return found

    def pinned(self, options: Mapping[str, str]) -> Grid:
        """Return the grid with options of its metric set.

        An option that the grid crosses keeps only that value.
        """
        crossed = {*self.rows, *self.columns}
        fixed = {
            **self.fixed,
            **{key: value for key, value in options.items() if key not in crossed},
        }
        rows, columns = (
            {key: (options[key],) if key in options else values for key, values in axes.items()}
            for axes in (self.rows, self.columns)
        )
        return dataclasses.replace(self, rows=rows, columns=columns, fixed=fixed)


def covers(datasets: Sequence[str], dataset: str) -> bool:
    """Return whether a dataset is among some, by its name without options.

    Args:
        datasets: specs; ``!digits`` means all but digits. Empty: all datasets.
        dataset: the spec of the dataset.
    """
    name = bare_name(dataset)
    named = [bare_name(one) for one in datasets if not one.startswith("!")]
    return f"!{name}" not in datasets and (not named or name in named)


def bare_name(text: str) -> str:
    """Return a component's name without its distribution.

    It is ``cifar10`` for ``jembench/cifar10:root=/data``.
    """
    return Spec(text).bare


def compares_with_itself(metric: str, dataset: str) -> bool:
    """Return whether a metric's OOD set is the dataset itself, so that there are no outliers.

    Specs with different values of an option mean different datasets, such as two folders of images.
    """
    outliers = Spec(metric).options.get("set")
    if outliers is None or bare_name(outliers) != bare_name(dataset):
        return False
    stated, of_dataset = Spec(outliers).options, Spec(dataset).options
    return all(stated[key] == of_dataset[key] for key in stated.keys() & of_dataset.keys())


def without_sampler(metric: str) -> str:
    """Return the spec of a metric without the sampler that a command adds to metrics of samples."""
    return Spec(metric).without("sampler")


def with_options(text: str, options: Mapping[str, str]) -> str:
    """Return a spec with some of its options set."""
    return Spec(text).with_(**options)
