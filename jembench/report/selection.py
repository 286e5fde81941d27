"""Which results of a store are shown, in which order, and under which names. Imports no torch."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jembench.errors import Fallback, SpecError
from jembench.experiment import suite_files as suites
from jembench.experiment.imports import with_imports
from jembench.experiment.plan import PRETRAINED
from jembench.experiment.planning import display_names_of, fit_names_of, labels_of
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name
from jembench.report.names import NO_NAMES, Names, check_apart, display_names, not_found, ranked, trained_on
from jembench.report.record import Column
from jembench.store.latest import earlier, newest
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store

EVERY = "all"
"""In place of a recipe: every recipe, whatever ``--set`` changed of it."""

SELECTED = "among the selected results"


def _warn(problem: str) -> None:
    warnings.warn(f"Left out: {problem}", Fallback, stacklevel=4)


def read(store: Store, left_out: Callable[[str], None] = _warn) -> list[Cell]:
    """Every outcome of a store.

    Args:
        store: a folder that exists.
        left_out: called with a sentence for each file that cannot be read; by default it is a warning.

    Raises:
        SpecError: if there is no such folder.
    """
    if not store.root.exists():
        raise SpecError(f"There is no store {store.root} yet: {_remedy(store.root)}")
    contents = store.contents()
    for problem in contents.problems:
        left_out(problem)
    return contents.cells


class Selected(NamedTuple):
    """What a selection finds in a store."""

    cells: Sequence[Cell]  # in the order asked for
    names: Names
    left_out: list[str]  # what else the store holds, a sentence each
    nothing: str  # what to do if there is no cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which results are shown, in the order of what is named; None: all, or what the file of an experiment names.

    Results of recipes that ``--set`` changed are shown only if ``recipe`` or ``settings`` ask for them, or if there are
    no others. What a suite changes of a recipe, as its variants, is shown with the suite, and where no suite is named.
    """

    suite: Suite | None = None  # whose metrics are shown
    file: str = ""  # of the suite, if it is an experiment: its fits alone are shown
    models: Sequence[str] | None = None  # specs or names of imports; a bare name is as for ``dataset``, by recipe
    dataset: Sequence[str] | None = None  # specs; a bare name means that, or all of the name
    recipe: Sequence[str] | None = None  # labels, as tables show them
    settings: Sequence[str] = ()  # changes that the recipes have: "epochs=9"
    seeds: Sequence[int] | None = None
    metrics: Sequence[str] | None = None  # specs, as dataset
    columns: Sequence[str] | None = None  # labels of values
    names: Mapping[str, str] = field(default_factory=dict)  # display names by specs
    limit: int | None = None  # how many of the test images were evaluated; None: all

    def of(self, store: Store, problem: Callable[[str], None] = _warn) -> Selected:
        """Return what is selected of a store.

        Args:
            store: a folder that exists.
            problem: called with a sentence for each file that cannot be read; by default it is a warning.

        Raises:
            SpecError: if there is no such folder, or no result of something that is named.
        """
        if self.models:
            models = [one if isinstance(one, str) else one.spec for one in with_imports(self.models, store)]
            if models != list(self.models):
                return dataclasses.replace(self, models=models).of(store, problem)
        found = read(store, problem)
        current = newest(found)
        left_out = earlier(found, current)
        current = [cell for cell in current if self.suite is None or bare_name(cell.metric) in self.suite.metric_names]
        if self.suite and self.file:
            every, current = current, self._of_experiment(current, self.suite)
            if others := len(every) - len(current):
                left_out.append(f"{outcomes(others)} of models, data, recipes or seeds that {self.file} does not name.")
        left_out += _of_other_images(current, self.limit)
        cells: Sequence[Cell] = [cell for cell in current if cell.provenance.get("limit") == self.limit]
        if cells:
            named = self.among(cells)
            cells = self._unchanged(named)
            if rest := [cell for cell in named if cell.fit.recipe not in {kept.fit.recipe for kept in cells}]:
                left_out.append(_of_changed(rest))
            # neither may a model be left out with the changed recipes or columns without a word
            ranked("models", self.models, cells, lambda cell: cell.fit.model, SELECTED)
        names = self._names([cell.fit for cell in cells])
        suite = self.file or (self.suite.name if self.suite else None)
        advice = nothing(store.root, suite, self.limit, "such results" if found else "results")
        return Selected(cells, names, left_out, advice)

    def _names(self, shown: Sequence[FitKey]) -> Names:
        """The display names of what is shown."""
        if not shown:
            return NO_NAMES
        names = display_names(display_names_of(self.suite) if self.suite else {}, shown)
        given = {(text, ""): name for text, name in self.names.items()}
        names |= display_names(given, shown, strict_where=SELECTED)
        check_apart(names, shown)
        return names

    def among(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Those of some cells that are named, sorted by datasets, then by models, then by recipes; changed or not."""
        return self._with_columns(self._named(cells))

    def order(self, columns: Sequence[Column]) -> list[Column]:
        """Those of some columns that are shown, in the order asked for."""
        columns = ranked("metrics", self.metrics, columns, lambda column: column.metric)
        return list(ranked("columns", self.columns, columns, lambda column: column.label))

    def _of_experiment(self, cells: Sequence[Cell], suite: Suite) -> list[Cell]:
        """Those of the fits of a suite, in its order; what is selected stands in place of what it names."""
        selected = (self.models, self.dataset, self.recipe or self.settings or None, self.seeds)

        def open_to_it(*names: object) -> tuple[object, ...]:
            return tuple(name for name, given in zip(names, selected, strict=True) if given is None)

        fits = list(dict.fromkeys(open_to_it(*names) for names in fit_names_of(suite)))
        found = [(open_to_it(c.fit.model, c.fit.dataset, c.fit.recipe, c.fit.seed), c) for c in cells]
        known = [(fits.index(names), cell) for names, cell in found if names in fits]
        return [cell for _, cell in sorted(known, key=lambda one: one[0])]

    def _named(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        changes = [change for cell in cells for change in _changes(cell.fit.recipe)]
        for setting in self.settings:
            if setting not in changes:
                raise not_found("settings", setting, changes)
        every, cells = cells, [cell for cell in cells if set(self.settings) <= set(_changes(cell.fit.recipe))]

        def where() -> str:
            return "in the store" if len(cells) == len(every) else SELECTED

        cells = ranked("metrics", self.metrics, cells, lambda cell: cell.metric, where())
        seeds = None if self.seeds is None else [str(seed) for seed in self.seeds]
        cells = ranked("seeds", seeds, cells, lambda cell: str(cell.fit.seed), where())
        if EVERY not in (self.recipe or ()):
            cells = ranked("recipe", self.recipe, cells, self._recipe, where())
        cells = ranked("dataset", self.dataset, cells, lambda cell: cell.fit.dataset, where())
        # last, so that a model that is not among the other selections' results is refused with those that are
        cells = ranked("models", self.models, cells, lambda cell: cell.fit.model, where(), lambda c: trained_on(c.fit))
        return ranked("dataset", self.dataset, cells, lambda cell: cell.fit.dataset, SELECTED)

    def _recipe(self, cell: Cell) -> str:
        """Return what names its recipe: without the settings, if they are given by themselves."""
        name, *changes = cell.fit.recipe.split("+")
        return "+".join((name, *(change for change in changes if change not in self.settings)))

    def _with_columns(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """The cells with the values of the columns alone; those without values, if their metric gives one elsewhere."""
        if self.columns is None:
            return cells
        labels: dict[str, set[str]] = {}
        for cell in cells:
            labels.setdefault(cell.metric, set()).update(cell.outcome.values)
        known = set().union(*labels.values())
        for column in self.columns:
            if column not in known and labels.get(column, {column}):  # a metric without values has its own name
                raise not_found("columns", column, known, "of these results")
        return [
            dataclasses.replace(cell, outcome=dataclasses.replace(cell.outcome, values=values))
            for cell in cells
            if (labels[cell.metric] or {cell.metric}).intersection(self.columns)
            for given in [cell.outcome.values]
            for values in [{label: given[label] for label in self.columns if label in given}]
            if values or not cell.outcome.values
        ]

    def _unchanged(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Those of recipes that were not changed, or by a suite; all of them, if there are no such cells."""
        if self.recipe is not None or self.settings or not any("+" in cell.fit.recipe for cell in cells):
            return cells
        by_suite = {tuple(_changes(label)) for label in labels_of([self.suite] if self.suite else suites.every())}
        return [
            cell
            for cell in cells
            if tuple(_changes(cell.fit.recipe)) in {(), *by_suite} or cell.fit.recipe.startswith(f"{PRETRAINED}+")
        ] or cells


WHOLE = Selection()
"""All that a store holds but for changed recipes."""


# --- what is left out -------------------------------------------------------------------------------------------------


def _of_other_images(cells: Iterable[Cell], limit: int | None) -> Iterator[str]:
    for other, count in Counter(cell.provenance.get("limit") for cell in cells).items():
        if other != limit:
            how = "without --limit" if other is None else f"with --limit {other}"
            images = "all test images" if other is None else f"{other} of the test images"
            yield f"{outcomes(count)} on {images}; `jembench report` shows them {how}."


def _of_changed(cells: Sequence[Cell]) -> str:
    recipes = list(dict.fromkeys(cell.fit.recipe for cell in cells))
    more = f" and {len(recipes) - 2} more" if len(recipes) > 2 else ""
    labels = ", ".join(recipes[:2]) + more
    return f"{outcomes(len(cells))} of changed recipes, {labels}; `jembench report` shows them with --recipe {EVERY}."


def _changes(recipe: str) -> list[str]:
    """Return what was changed of the recipe of a label, ``["epochs=9"]``."""
    return recipe.split("+")[1:]


def outcomes(count: int) -> str:
    """``1 outcome``, ``2 outcomes``."""
    return "1 outcome" if count == 1 else f"{count} outcomes"


# --- commands ---------------------------------------------------------------------------------------------------------


def nothing(store: Path, suite: str | None, limit: int | None, results: str) -> str:
    """Return what to do about a store without the results that were asked for."""
    return f"{store} holds no {results} yet: {_remedy(store, suite, limit)}"


def _remedy(store: Path, suite: str | None = None, limit: int | None = None) -> str:
    subset = "" if limit is None else f" --limit {limit}"
    return f"`jembench run {suite or 'hybrid'}{subset}{store_option(store)}` makes some."


def store_option(store: Path) -> str:
    """The option that a command needs for a store; none for the usual one."""
    return "" if store == Path("runs") else f" --store {shlex.quote(str(store))}"
