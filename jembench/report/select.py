"""Find the trained models of a store by name. Imports no torch."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jembench.catalog import registry, spec
from jembench.catalog.discovery import Kind
from jembench.errors import Fallback, JembenchError, SpecError, unknown
from jembench.experiment.sweep import bare_name
from jembench.report.record import grouped
from jembench.store.outcome import Cell
from jembench.store.store import Store

Names = Mapping[tuple[str, str], str]
"""Display names by the canonical spec of a model and the label of its recipe. They are no part of any identity."""


NO_NAMES: Names = MappingProxyType({})


class Subject(NamedTuple):
    """A model trained on one dataset by one recipe, with what was measured on it, whatever the seed."""

    model: str  # canonical spec
    dataset: str  # canonical spec
    recipe: str  # label
    cells: tuple[Cell, ...]
    printed_as: str = ""  # its display name, if it has one

    @property
    def name(self) -> str:
        """What tables and figures call the model."""
        return self.printed_as or self.model

    def __str__(self) -> str:
        return f"{self.model} on {self.dataset}, recipe {self.recipe}"

    def has(self, cell: Cell) -> bool:
        """Whether a cell is of it."""
        return (cell.fit.model, cell.fit.dataset, cell.fit.recipe) == self[:3]

    @property
    def seeds(self) -> set[int]:
        """The seeds with any result."""
        return {cell.fit.seed for cell in self.cells}


class Pair(NamedTuple):
    """Two models on one dataset."""

    a: Subject
    b: Subject

    @property
    def names(self) -> tuple[str, str]:
        """What tells the two apart: their models or, where these are called the same, their recipes."""
        if self.a.name != self.b.name:
            return self.a.name, self.b.name
        return self.a.recipe, self.b.recipe


def subjects(cells: Iterable[Cell], names: Names = NO_NAMES) -> list[Subject]:
    """Every model of some cells, in their order, with its display name."""
    groups = grouped(cells, lambda cell: (cell.fit.model, cell.fit.dataset, cell.fit.recipe))
    return [
        Subject(fit.model, fit.dataset, fit.recipe, tuple(group), names.get((fit.model, fit.recipe), ""))
        for group in groups
        for fit in [group[0].fit]
    ]


def _warn(problem: str) -> None:
    warnings.warn(f"Left out: {problem}", Fallback, stacklevel=4)


def read(store: Store, left_out: Callable[[str], None] = _warn) -> list[Cell]:
    """Every outcome of a store.

    Args:
        store: a folder that exists.
        left_out: called with a sentence for each file that cannot be read.

    Raises:
        SpecError: if there is no such folder.
    """
    if not store.root.exists():
        raise SpecError(f"There is no store {store.root} yet: {_remedy(store.root)}")
    contents = store.contents()
    for problem in contents.problems:
        left_out(problem)
    return contents.cells


def nothing(store: Path, suite: str | None, limit: int | None, results: str) -> str:
    """What to do about a store without the results that were asked for."""
    return f"{store} holds no {results} yet: {_remedy(store, suite, limit)}"


def _remedy(store: Path, suite: str | None = None, limit: int | None = None) -> str:
    subset = "" if limit is None else f" --limit {limit}"
    return f"`jembench run {suite or 'hybrid'}{subset}{store_option(store)}` makes some."


def store_option(store: Path) -> str:
    """The option that a command needs for a store; none for the usual one."""
    return "" if store == Path("runs") else f" --store {shlex.quote(str(store))}"


def find_pair(
    known: Sequence[Subject],
    a: str,
    b: str,
    *,
    dataset: str | None = None,
    recipe: str | None = None,
    recipe_b: str | None = None,
    commands: Sequence[Collection[str]] = (),
) -> Pair:
    """Find two models on the same dataset and, if no recipe is given, trained by the same recipe where there is one.

    Of several recipes on one dataset, it takes the one that the last command asked for.

    Args:
        known: what the store has.
        a: a model's spec, in full or its name alone where that means one.
        b: the same.
        dataset: the spec or the name of one; None: whatever there is.
        recipe: its label; None: whatever there is.
        recipe_b: that of ``b``, where it is another.
        commands: the families of the fits that each command asked for, the oldest first.

    Raises:
        SpecError: if the store has no such model or pair, or more than one.
    """
    known = _on(known, dataset)
    ours = _by(_of(known, a), recipe)
    theirs = _by(_of(known, b), recipe_b or recipe)
    pairs = [Pair(one, other) for one in ours for other in theirs if one.dataset == other.dataset]
    distinct = [pair for pair in pairs if pair.a[:3] != pair.b[:3]]
    if pairs and not distinct:
        raise SpecError(f"Both models are {pairs[0].a}. Name two, or two recipes of one with --recipe and --recipe-b.")
    alike = [pair for pair in distinct if pair.a.recipe == pair.b.recipe]
    candidates = _of_last_command(distinct if recipe_b or not alike else alike, commands)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        found = "; ".join(dict.fromkeys(map(str, (*ours, *theirs))))
        raise SpecError(
            f"{a} and {b} were not measured on the same dataset: {found}. `jembench run` with "
            "--dataset measures the one that is missing."
        )
    raise SpecError(
        f"More than one comparison is meant by {a} and {b}: "
        f"{'; '.join(f'({number}) {pair.a}, with {pair.b}' for number, pair in enumerate(candidates, 1))}. "
        "Say which with --dataset, --recipe and --recipe-b, or with a model's spec in full."
    )


def _of_last_command(pairs: Sequence[Pair], commands: Sequence[Collection[str]]) -> Sequence[Pair]:
    """Those that the last command asked for which asked for any; all of them, if they are of several datasets."""
    if len({pair.a.dataset for pair in pairs}) > 1:
        return pairs
    for families in reversed(commands):
        if found := [pair for pair in pairs if all(subject.cells[0].fit.family in families for subject in pair)]:
            return found
    return pairs


def _on(known: Sequence[Subject], dataset: str | None) -> list[Subject]:
    found = matching("datasets", dataset, [subject.dataset for subject in known]) if dataset else None
    kept = [subject for subject in known if found is None or subject.dataset in found]
    if not kept:
        raise unknown("dataset in the store", dataset or "", {subject.dataset for subject in known}, "jembench report")
    return kept


def _of(known: Sequence[Subject], model: str) -> list[Subject]:
    names = list(dict.fromkeys(subject.model for subject in known))
    found = matching("models", model, names)
    if not found:
        raise unknown("model in the store", model, names, "jembench report")
    if len(found) > 1:
        raise SpecError(f"The store has more than one model {model}: {', '.join(found)}. Write the one that you mean.")
    return [subject for subject in known if subject.model in found]


def _by(known: Sequence[Subject], recipe: str | None) -> list[Subject]:
    found = [subject for subject in known if recipe in (None, subject.recipe)]
    if not found:
        labels = ", ".join(dict.fromkeys(subject.recipe for subject in known))
        raise SpecError(f"{known[0].model} was not trained by a recipe {recipe!r}. In the store: {labels}.")
    return found


def matching(kind: Kind, text: str, specs: Iterable[str]) -> list[str]:
    """The canonical specs that ``text`` means: the same spec, or all of that name if it has no options."""
    names = list(dict.fromkeys(specs))
    found = [name for name in names if name in (text, canonical(kind, text))]
    bare = not spec.parse(text).arguments
    return found or [name for name in names if bare and bare_name(name) == bare_name(text)]


def canonical(kind: Kind, text: str) -> str:
    """The canonical form of a spec; of a component that is not installed any more, as far as it can be known."""
    try:
        return str(registry.resolve(kind, text))
    except JembenchError:
        return str(spec.parse(text))
