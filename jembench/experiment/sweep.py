"""Crossings beyond models, datasets and seeds: a metric's options in grids, and variants of a recipe.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from jembench.catalog import discovery, registry, spec
from jembench.catalog.options import Content, marked
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option
from jembench.errors import JembenchError

Axes = Mapping[str, tuple[Option, ...]]
"""Options of a metric, and the values that a grid takes each of them through."""


class Place(NamedTuple):
    """One metric of a grid, and where it stands there: the value of each option of its row and of its column."""

    metric: str  # canonical spec
    row: tuple[str, ...]
    column: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OnDatasets:
    """An entry of a suite that is for some datasets alone."""

    on: tuple[str, ...] = ()  # the names of the datasets that it is for; none: all
    besides: tuple[str, ...] = ()  # "except": those that it is not for

    def covers(self, dataset: str) -> bool:
        """Return whether it is for a dataset, given by its spec."""
        name = bare_name(dataset)
        return (not self.on or name in self.on) and name not in self.besides


@dataclass(frozen=True, kw_only=True)
class Grid(OnDatasets):
    """One metric under every combination of some of its options; shown as a table of its own for each value.

    Without options to combine, it is one metric that the main table has on these datasets.
    """

    title: str
    metric: str
    columns: Axes = field(default_factory=dict)
    rows: Axes = field(default_factory=dict)
    values: tuple[str, ...] = ()  # the labels that are shown; none: all
    fixed: Mapping[str, Option] = field(default_factory=dict)  # options that are the same throughout

    @property
    def crosses(self) -> bool:
        """Return whether there are options to combine."""
        return bool(self.rows or self.columns)

    @cached_property
    def places(self) -> list[Place]:
        """Every combination, row by row.

        Raises:
            SpecError: if the metric does not exist, or has no such option or value.
        """
        return [
            Place(self._metric((*row, *column)), row, column)
            for row in combinations(self.rows)
            for column in combinations(self.columns)
        ]

    def _metric(self, values: Sequence[str]) -> str:
        options = dict(zip((*self.rows, *self.columns), values, strict=True))
        return str(registry.resolve("metrics", with_options(self.metric, {**self.fixed, **options})))

    def pinned(self, options: Mapping[str, str]) -> Grid:
        """Return the grid with these options of its metric set: one that it crosses keeps that value alone."""
        crossed = {*self.rows, *self.columns}
        fixed = {**self.fixed, **{key: value for key, value in options.items() if key not in crossed}}
        rows, columns = (
            {key: (options[key],) if key in options else values for key, values in axes.items()}
            for axes in (self.rows, self.columns)
        )
        return dataclasses.replace(self, rows=rows, columns=columns, fixed=fixed)


def combinations(axes: Axes) -> list[tuple[str, ...]]:
    """Every combination of the values of some options, the last option changing fastest."""
    return list(itertools.product(*axes.values()))


@dataclass(frozen=True, kw_only=True)
class Variant(OnDatasets):
    """A recipe with something changed, or other models, under a name: one line of an ablation study."""

    name: str
    settings: tuple[str, ...] = ()  # as for --set
    models: tuple[str, ...] = ()  # in place of the suite's own; none: those

    def set(self, settings: Sequence[str]) -> Variant:
        """Return the same with further settings, unless it changes no recipe."""
        return dataclasses.replace(self, settings=(*self.settings, *settings)) if self.settings else self


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model of a suite, with what is its own."""

    spec: str
    name: str = ""  # that reports show; "": its spec
    recipe: str = ""  # "": the suite's
    settings: tuple[str, ...] = ()  # as for --set
    seeds: tuple[int, ...] = ()  # none: the suite's

    def under(self, settings: Sequence[str], *, keep_recipe: bool) -> Model:
        """Return the same with further settings, and with its own recipe or the suite's."""
        recipe = self.recipe if keep_recipe else ""
        return dataclasses.replace(self, recipe=recipe, settings=(*self.settings, *settings))


def bare_name(text: str) -> str:
    """Return a component's name without its distribution: ``cifar10`` of ``jembench/cifar10:root=/data``."""
    return spec.parse(text).name.rpartition("/")[2]


def compares_with_itself(metric: str, dataset: str) -> bool:
    """Return whether a metric's OOD set is the dataset's own test images, so that there is nothing to tell apart.

    Two folders of images are two data sets, although the names in their specs are the same.
    """
    outliers = dict(spec.parse(metric).arguments).get("set")
    return (
        outliers is not None
        and bare_name(outliers) == bare_name(dataset)
        and _paths(outliers, bare_name(dataset)) == _paths(dataset, bare_name(dataset))
    )


def _paths(text: str, name: str) -> list[str]:
    """Return the options of a data set's spec that say which files it is made of."""
    known = [component for component in discovery.components("datasets") if component.name == name]
    try:
        options = {option for component in known for option in marked(discovery.load(component), Content)}
    except JembenchError:  # no longer installed
        return []
    return [value for key, value in spec.parse(text).arguments if key in options]


def with_options(text: str, options: Mapping[str, str]) -> str:
    """Return a spec with some of its options set."""
    parsed = spec.parse(text)
    return str(Spec(parsed.name, tuple(sorted({**dict(parsed.arguments), **options}.items()))))
