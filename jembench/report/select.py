"""Selection of a store's results by fields, their order, and the display names of models. Imports
no torch.
"""

import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from jembench.catalog.discovery import Kind
from jembench.errors import Fallback, Remark, SpecError, unknown
from jembench.experiment.crossing import absent_of, fit_names_of, presentation
from jembench.experiment.names import NO_NAMES, Fit, Names, display_names, matching, recorded
from jembench.experiment.plan import Part
from jembench.experiment.stored import with_imports
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name, without_sampler
from jembench.report.headings import known_as
from jembench.store import fits
from jembench.store.fits import UNREADABLE
from jembench.store.latest import newest
from jembench.store.layout import listed
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store

T = TypeVar("T")

_KINDS: Mapping[str, Kind] = {"model": "models", "dataset": "datasets", "metric": "metrics"}


def select(
    field: str, wanted: Sequence[str] | None, items: Sequence[T], *of: Callable[[T], str | None]
) -> list[T]:
    """Return the items whose field is wanted, in the order of what is wanted; of equal ones, in
    theirs. None: all.

    Args:
        field: its name, for errors: model, dataset, metric, recipe, seed or column.
        wanted: texts that :func:`matching` understands.
        items: of a store.
        of: return the field of an item, and the other names under which it may be wanted.

    Raises:
        SpecError: for a text that matches none of the items.
    """
    if wanted is None:
        return list(items)
    keys = [tuple(get(item) or "" for get in of) for item in items]
    known, others, ranks = (
        [key[0] for key in keys],
        [name for key in keys for name in key[1:]],
        dict[Any, int](),
    )
    for text in wanted:
        found = {*matching(_KINDS.get(field), text, known), *matching(None, text, others)}
        if field == "column":
            found = found or {label for label in known if text in known_as(label, label)}
        if not found:
            names = map(bare_name, known) if field == "metric" else (*known, *others)
            raise unknown(f"{field} among these results", text, set(names), "")
        for key in (key for key in keys if found & {*key}):
            ranks.setdefault(key, len(ranks))
    order = sorted((ranks[key], index) for index, key in enumerate(keys) if key in ranks)
    return [items[index] for _, index in order]


def find_pair(
    fits: Sequence[Fit],
    a: str,
    b: str,
    *,
    dataset: str | None = None,
    recipe: str | None = None,
    recipe_b: str | None = None,
    names: Names = NO_NAMES,
) -> tuple[Fit, Fit]:
    """Find two models on the same dataset and, if no recipe is given, trained by the same recipe
    where there is one.

    Args:
        fits: of a store.
        a: a model, as :func:`matching` understands it.
        b: the other.
        dataset: of both; None: any.
        recipe: label of the recipe of both; None: any.
        recipe_b: that of ``b``, where it is another.
        names: display names of models, by which they may be named.

    Raises:
        SpecError: if there is no such model or pair, or more than one.
    """

    def chosen(model: str, label: str | None) -> list[Fit]:
        found = select("dataset", [dataset] if dataset else None, fits, lambda fit: fit[1])
        found = select(
            "model", [model], found, lambda fit: fit[0], lambda fit: names.get((fit[0], fit[2]))
        )
        return select("recipe", [label] if label else None, found, lambda fit: fit[2])

    ours, theirs = chosen(a, recipe), chosen(b, recipe_b or recipe)
    pairs = [
        (one, other) for one in ours for other in theirs if one[1] == other[1] and one != other
    ]
    alike = [(one, other) for one, other in pairs if one[2] == other[2]]
    candidates = pairs if recipe_b or not alike else alike
    if len(candidates) == 1:
        return candidates[0]
    texts = [
        f"({i}) {_fit_text(one)}, with {_fit_text(other)}"
        for i, (one, other) in enumerate(candidates, 1)
    ]
    problem = f"More than one comparison is meant by {a} and {b}: {'; '.join(texts)}"
    if not candidates:
        found = "; ".join(map(_fit_text, dict.fromkeys(ours + theirs)))
        problem = f"{a} and {b} are not two models on one dataset: {found}"
    raise SpecError(
        f"{problem}. Say which with --dataset, --recipe and --recipe-b, or with a model's spec in full."
    )


def _fit_text(fit: Fit) -> str:
    model, dataset, recipe = fit
    return f"{model} on {dataset}, recipe {recipe}"


# --- what a store has
# -------------------------------------------------------------------------------------------------


def warn(problem: str) -> None:
    """Warn that a file of a store was left out, at the line that called the function reading the
    store.
    """
    warnings.warn(f"Left out: {problem}", Fallback, stacklevel=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Filters of results by fields, each also an order; None: all, or the ones that the file of an
    experiment gives.

    A text is a spec, a bare name, which means all specs of that name, or a pattern.
    """

    suite: Suite | None = None  # whose metrics are shown
    file: str = ""  # of the suite, if it is an experiment: its fits alone are shown
    models: Sequence[str] | None = None  # specs or names of imports
    dataset: Sequence[str] | None = None  # specs
    recipe: Sequence[str] | None = None  # labels, as tables show them
    seeds: Sequence[int] | None = None
    metrics: Sequence[str] | None = None  # specs
    columns: Sequence[str] | None = None  # labels of values
    names: Mapping[str, str] = field(default_factory=dict)  # display names by specs
    some_names: bool = False  # True if only some of the names need be of results that are shown
    # number of test images; None: all, or the number of all results if that is one
    limit: int | None = None

    def of(
        self,
        store: Store,
        problem: Callable[[str], None] = warn,
        left_out: Callable[[str], object] = lambda note: None,
    ) -> tuple[list[Cell], Sequence[Part], Names]:
        """Return the selected results of a store in the order asked for, the parts of the suite and
        display names.

        Args:
            store: a folder that exists.
            problem: called with a sentence for each file that cannot be read; by default it is a
                warning.
            left_out: called with a sentence for each reason why other results are not selected.

        Raises:
            SpecError: if there is no such folder, or no result of something that is named.
        """
        if not store.root.exists():
            raise SpecError(
                f"There are no results and no store {store.root} yet: {_remedy(store.root)}"
            )
        current = newest(store.cells(problem), left_out)
        if self.suite and not self.suite.joint:
            current = [
                cell for cell in current if bare_name(cell.metric) in self.suite.metric_names
            ]
        suite = with_imports(self.suite, store) if self.suite else None
        if suite and not suite.datasets:  # those of --dataset
            suite = suite.replaced(
                datasets=list(dict.fromkeys(cell.fit.dataset for cell in current))
            )
        if suite and self.file:
            every, current = current, self._of_experiment(current, suite)
            if others := len(every) - len(current):
                left_out(
                    f"{outcomes(others)} of models, data, recipes or seeds that {self.file} does not name."
                )
        limits = Counter(cell.limit for cell in current)
        shown_limit = next(iter(limits)) if self.limit is None and len(limits) == 1 else self.limit
        for limit, count in limits.items():
            if limit != shown_limit:
                how = "without --limit" if limit is None else f"with --limit {limit}"
                images = "all test images" if limit is None else f"{limit} of the test images"
                left_out(f"{outcomes(count)} on {images}; `jembench report` shows them {how}.")
        cells = [cell for cell in current if cell.limit == shown_limit]
        shown = {cell.fit.names: cell.fit for cell in cells}
        specs = {names: _requested(fit, store) for names, fit in shown.items()}
        parts, of_suite = presentation(suite, shown.values()) if suite else ((), NO_NAMES)
        ranks = {
            names: rank
            for rank, names in enumerate(
                dict.fromkeys(names for part in parts for names in part.rows)
            )
        }
        cells.sort(key=lambda cell: ranks.get(cell.fit.names, len(ranks)))
        if cells:
            cells = self.among(cells, specs)
        parts = tuple(_measured(part, {cell.metric for cell in cells}) for part in parts)
        places = {(cell.metric, label) for cell in cells for label in ("", *cell.outcome.values)}
        places |= {(metric, "") for part in parts for metric in part.metrics}
        columns = {text for place in places for text in known_as(*place) if text}
        given = suite.display if suite else {}  # for all results of the file
        specs = {cell.fit.names: specs[cell.fit.names] for cell in cells}
        also = self.names if self.some_names else given
        return (
            cells,
            parts,
            display_names({**given, **self.names}, specs, of_suite, columns, also=also),
        )

    def nothing(self, store: Path, results: str = "") -> str:
        """Return the remedy for a store without the selected results, or without ``results`` among
        them.
        """
        results = results or ("such results" if listed(store / "cells") else "results")
        suite = self.file or (self.suite.name if self.suite else None)
        return f"{store} holds no {results} yet: {_remedy(store, suite, self.limit)}"

    def among(
        self, cells: Sequence[Cell], names: Mapping[Fit, str] = MappingProxyType({})
    ) -> list[Cell]:
        """Return the selected ones of some cells, sorted by datasets, then by models, then by
        recipes.

        ``names`` are other names of the models of fits, which may be selected by them.
        """
        seeds = None if self.seeds is None else [str(seed) for seed in self.seeds]
        # a bare name is of one's models
        found = select("dataset", self.dataset, cells, lambda cell: cell.fit.dataset)
        found = select("metric", self.metrics, found, lambda cell: cell.metric)
        found = select("seed", seeds, found, lambda cell: str(cell.fit.seed))
        found = select("recipe", self.recipe, found, lambda cell: cell.fit.recipe)
        found = select(
            "model",
            self.models,
            found,
            lambda cell: cell.fit.model,
            lambda cell: names.get(cell.fit.names),
        )
        found = select("dataset", self.dataset, found, lambda cell: cell.fit.dataset)
        labels = [label for cell in found for label in (*cell.outcome.values, cell.metric)]
        try:
            select("column", self.columns, labels, str)  # refuses a label that no result has
        except SpecError as error:
            if not self.suite or self.suite.joint:
                raise
            of_suite = f"{self.file or self.suite.name} shows {', '.join(sorted(self.suite.metric_names))} alone"
            raise SpecError(
                f"{error} {of_suite}; leave it out to choose among all results."
            ) from error
        return found

    def _of_experiment(self, cells: Sequence[Cell], suite: Suite) -> list[Cell]:
        """Return the cells of the fits of a suite; selected fields replace those that it names.

        Of models that cannot be resolved here, all results with their names are returned, with a
        note.
        """
        selected = (self.models, self.dataset, self.recipe, self.seeds)
        fields = [index for index, given in enumerate(selected) if given is None]
        named = {tuple(fit[index] for index in fields) for fit in fit_names_of(suite)}
        absent = absent_of(suite)
        for (model, _), (_, reason) in absent.items():
            note = (
                f"All results named {model} are shown, whatever their options and recipe: {reason}"
            )
            warnings.warn(note, Remark, stacklevel=2)

        def is_named(fit: FitKey) -> bool:
            seeds, _ = absent.get((bare_name(fit.model), bare_name(fit.dataset)), (set[int](), ""))
            is_absent = fit.seed in seeds or (bool(seeds) and self.seeds is not None)
            return is_absent or tuple((*fit.names, fit.seed)[index] for index in fields) in named

        return [cell for cell in cells if is_named(cell.fit)]


def _requested(fit: FitKey, store: Store) -> str:
    """Return the name of an import, or the spec of a model as it was requested; of an unreadable
    record, its own.
    """
    with suppress(*UNREADABLE):
        record = fits.read(store.fit_folder(fit))
        return record.import_name or recorded(fit.model, record.identity, record.recipe)
    return fit.model


def _measured(part: Part, measured: Set[str]) -> Part:
    """Return a part of a suite with the metrics that were measured under added options, such as a
    sampler.

    They take the place of metrics without these options that were not measured.
    """
    found = {
        plain: metric
        for metric in sorted(measured)
        if (plain := without_sampler(metric)) not in measured
    }

    def of(metrics: Sequence[str]) -> tuple[str, ...]:
        return tuple(found.get(metric, metric) for metric in metrics)

    return part._replace(
        metrics=of(part.metrics), rows={fit: of(metrics) for fit, metrics in part.rows.items()}
    )


WHOLE = Selection()
"""All that a store holds."""


# --- sentences
# --------------------------------------------------------------------------------------------------------


def outcomes(count: int) -> str:
    """Return ``1 outcome``, ``2 outcomes``."""
    return "1 outcome" if count == 1 else f"{count} outcomes"


def _remedy(store: Path, suite: str | None = None, limit: int | None = None) -> str:
    subset = "" if limit is None else f" --limit {limit}"
    return f"`jembench run {suite or 'hybrid'}{subset}{store_option(store)}` makes some."


def store_option(store: Path) -> str:
    """Return the option that a command needs for a store; none for the usual one."""
    return "" if store == Path("runs") else f" --store {shlex.quote(str(store))}"
