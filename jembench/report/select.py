"""Selection of a store's results by fields, with names. Imports no torch."""

import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, compress, product
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from jembench.catalog.discovery import Kind
from jembench.catalog.spec import Spec
from jembench.errors import Fallback, Remark, SpecError, unknown
from jembench.experiment.crossing import absent_of, fit_names_of, presentation
from jembench.experiment.names import NO_NAMES, DisplayNames, dataset_id, display_names, matching
from jembench.experiment.plan import Part
from jembench.experiment.stored import with_imports
from jembench.experiment.suite import Suite
from jembench.report.headings import known_as, label_names
from jembench.store import fits
from jembench.store.fits import UNREADABLE
from jembench.store.latest import dataset_of, newest
from jembench.store.layout import listed
from jembench.store.outcome import Cell, Evaluated, FitKey, Trained
from jembench.store.store import Store

T = TypeVar("T")

_KINDS: Mapping[str, Kind] = {"model": "models", "dataset": "datasets", "metric": "metrics"}


def select(
    field: str,
    wanted: Sequence[str] | None,
    items: Sequence[T],
    value: Callable[[T], str],
    alias: Callable[[T], str | None] = lambda item: None,
) -> list[T]:
    """Return the wanted items, in the order asked for.

    Args:
        field: the field's name, for errors: model, dataset, metric, recipe, seed or column.
        wanted: texts that :func:`matching` understands; None: all items are returned.
        items: of a store; items that one text matches keep their order.
        value: returns the field of an item.
        alias: returns another name under which an item may be wanted, or None.

    Raises:
        SpecError: for a text that matches none of the items.
    """
    if wanted is None:
        return list(items)
    groups: dict[tuple[str, str], list[T]] = {}
    for item in items:
        key = (value(item), alias(item) or value(item))
        groups.setdefault(key, []).append(item)
    values = [own for own, _ in groups]
    aliases = [alias for _, alias in groups]
    selected: dict[tuple[str, str], list[T]] = {}
    for text in wanted:
        meant = {*matching(_KINDS.get(field), text, values), *matching(None, text, aliases)}
        if field == "column" and not meant:
            meant = {label for label in values if text in label_names(label)}
        if not meant:
            names = {*values, *aliases}
            if field == "metric":
                names = {Spec(metric).bare for metric in values}
            raise unknown(f"{field} among these results", text, names, "")
        for key in groups:
            if not meant.isdisjoint(key):
                selected[key] = groups[key]
    return list(chain.from_iterable(selected.values()))


def find_pair(
    fits: Sequence[Trained],
    a: str,
    b: str,
    *,
    dataset: str | None = None,
    recipe: str | None = None,
    recipe_b: str | None = None,
    names: DisplayNames = NO_NAMES,
) -> tuple[Trained, Trained]:
    """Find two models on the same dataset.

    Unless ``recipe_b`` is given, pairs of the same recipe are preferred.

    Args:
        fits: of a store.
        a: a model, as :func:`matching` understands it.
        b: the other model.
        dataset: of both models; None: any.
        recipe: label of both models' recipe; None: any.
        recipe_b: label of b's recipe, if it differs.
        names: display names, which may also name models.

    Raises:
        SpecError: if there is no such model or pair, or more than one.
    """
    on_dataset = select("dataset", _only(dataset), fits, lambda fit: fit.dataset)

    def trained(model: str, label: str | None) -> list[Trained]:
        of_model = select(
            "model",
            [model],
            on_dataset,
            lambda fit: fit.model,
            lambda fit: names.models.get((fit.model, fit.recipe)),
        )
        return select("recipe", _only(label), of_model, lambda fit: fit.recipe)

    fits_a, fits_b = trained(a, recipe), trained(b, recipe_b or recipe)
    pairs: list[tuple[Trained, Trained]] = []
    alike: list[tuple[Trained, Trained]] = []
    for fit_a, fit_b in product(fits_a, fits_b):
        if fit_a.dataset == fit_b.dataset and fit_a != fit_b:
            pairs.append((fit_a, fit_b))
            if fit_a.recipe == fit_b.recipe:
                alike.append((fit_a, fit_b))
    if alike and not recipe_b:
        pairs = alike
    if len(pairs) == 1:
        return pairs[0]

    texts = []
    for number, (fit_a, fit_b) in enumerate(pairs, 1):
        texts.append(f"({number}) {_fit_text(fit_a)}, with {_fit_text(fit_b)}")
    problem = f"More than one comparison is meant by {a} and {b}"
    if not pairs:
        texts = list(map(_fit_text, dict.fromkeys(fits_a + fits_b)))
        problem = f"{a} and {b} are not two models on one dataset"
    remedy = "Say which with --dataset, --recipe and --recipe-b, or with a model's spec in full."
    raise SpecError(f"{problem}: {'; '.join(texts)}. {remedy}")


def as_measured(datasets: Iterable[str], cells: Sequence[Cell]) -> list[str]:
    """Return specs of datasets as in the cells, where the files were named by another path."""
    names = {dataset_of(cell): str(cell.fit.dataset) for cell in cells}
    names.pop("", None)  # of cells without the hash
    measured = {*names.values()}
    return [text if text in measured else names.get(dataset_id(text), text) for text in datasets]


def _only(text: str | None) -> list[str] | None:
    if text:
        return [text]
    return None


def _fit_text(fit: Trained) -> str:
    return f"{fit.model} on {fit.dataset}, recipe {fit.recipe}"


# --- what a store has -----------------------------------------------------------------------------


def warn(problem: str) -> None:
    """Warn that a file of a store was left out.

    The warning points to the line whose call reads the store.
    """
    warnings.warn(f"Left out: {problem}", Fallback, stacklevel=4)


class Selected(NamedTuple):
    """The selected results of a store."""

    cells: list[Cell]  # in the order asked for
    parts: tuple[Part, ...]  # of the suite
    names: DisplayNames
    left_out: tuple[str, ...]  # why other results are not selected, a sentence each


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Filters of results by fields, each also an order.

    None stands for all, or for the values in the file of an experiment. A text is a spec, a
    pattern, or a bare name, which means all specs of that name.
    """

    suite: Suite | None = None  # whose metrics are shown
    file: str = ""  # the suite's, if the suite is an experiment: only its fits are shown
    models: Sequence[str] | None = None  # specs or names of imports
    dataset: Sequence[str] | None = None  # specs
    recipe: Sequence[str] | None = None  # labels, as tables show them
    seeds: Sequence[int] | None = None
    metrics: Sequence[str] | None = None  # specs
    columns: Sequence[str] | None = None  # labels of values
    names: Mapping[str, str] = field(default_factory=dict)  # display names by specs
    some_names: bool = False  # True if names may be of results that are not shown
    # number of test images; None: the number that all results share, else all
    limit: int | None = None
    split: Evaluated = "test"

    def of(self, store: Store, problem: Callable[[str], None] = warn) -> Selected:
        """Select results of a store.

        Args:
            store: a folder that exists.
            problem: called with a sentence for each file that cannot be read; by default,
                :func:`warn`.

        Raises:
            SpecError: if the folder does not exist, or a named field has no result.
        """
        if not store.root.exists():
            remedy = _remedy(store.root)
            raise SpecError(f"There are no results and no store {store.root} yet: {remedy}")
        left_out: list[str] = []
        current = newest(self._of_split(store.cells(problem), left_out), left_out.append)
        suite = self.suite
        if suite:
            suite, current = self._of_suite(suite, store, current, left_out)
        cells = self._of_limit(current, left_out)

        # the suite gives the order of models, which the selected fields refine
        fits = {cell.fit.names: cell.fit for cell in cells}
        parts: tuple[Part, ...] = ()
        of_suite, display = NO_NAMES, dict[str, str]()
        if suite:
            parts, of_suite = presentation(suite, fits.values())
            display = suite.display  # for all results of the file
        ranks: dict[Trained, int] = {}
        for part in parts:
            for fit in part.rows:
                ranks.setdefault(fit, len(ranks))
        cells.sort(key=lambda cell: ranks.get(cell.fit.names, len(ranks)))
        specs = {names: _asked(fit, store) for names, fit in fits.items()}
        if cells:
            cells = self.among(cells, specs)

        measured = {cell.metric for cell in cells}
        parts = tuple(_measured(part, measured) for part in parts)
        shown = {cell.fit.names: specs[cell.fit.names] for cell in cells}
        stated = {**display, **self.names}
        columns = _columns(cells, parts)
        also = self.names if self.some_names else display
        names = display_names(stated, shown, of_suite, columns, also)
        return Selected(cells, parts, names, tuple(left_out))

    def _of_suite(
        self, suite: Suite, store: Store, cells: list[Cell], left_out: list[str]
    ) -> tuple[Suite, list[Cell]]:
        """Return a suite as the store completes it, and its results."""
        if not suite.joint:
            cells = [cell for cell in cells if cell.metric.bare in suite.metric_names]
        suite = with_imports(suite, store)
        if not suite.datasets:  # then the datasets of the results
            datasets = dict.fromkeys(cell.fit.dataset for cell in cells)
            suite = suite.replaced(datasets=list(datasets))
        if self.file:
            suite = suite.replaced(datasets=as_measured(suite.datasets, cells))
            cells = self._of_experiment(cells, suite, left_out)
        return suite, cells

    def _of_split(self, cells: Sequence[Cell], left_out: list[str]) -> list[Cell]:
        """Return the results on test or on validation images, which are never shown together."""
        kept = [cell for cell in cells if cell.split == self.split]
        count = len(cells) - len(kept)
        if count:
            images, how = "validation", "with --split validation"
            if self.split != "test":
                images, how = "test", "without --split"
            left_out.append(
                f"{outcomes(count)} on {images} images; `jembench report` shows them {how}."
            )
        return kept

    def _of_limit(self, cells: Sequence[Cell], left_out: list[str]) -> list[Cell]:
        """Return the results on the wanted number of test images.

        If none is wanted and all results share one number, all are returned.
        """
        limits = Counter(cell.limit for cell in cells)
        if self.limit is None and len(limits) == 1:
            return list(cells)
        for limit, count in limits.items():
            if limit == self.limit:
                continue
            images, how = "all test images", "without --limit"
            if limit is not None:
                images, how = f"{limit} of the test images", f"with --limit {limit}"
            left_out.append(f"{outcomes(count)} on {images}; `jembench report` shows them {how}.")
        return [cell for cell in cells if cell.limit == self.limit]

    def nothing(self, store: Path, results: str = "") -> str:
        """Return the remedy for a store without the selected results.

        Args:
            store: the folder.
            results: what is missing among the selected results; "": all of them.
        """
        if not results:
            results = "such results" if listed(store / "cells") else "results"
        suite = self.file or (self.suite.name if self.suite else None)
        return f"{store} holds no {results} yet: {_remedy(store, suite, self.limit, self.split)}"

    def among(
        self, cells: Sequence[Cell], names: Mapping[Trained, str] = MappingProxyType({})
    ) -> list[Cell]:
        """Return the cells that the fields select.

        Args:
            cells: to select from.
            names: other names of fits' models, which may also be selected.
        """
        seeds = None if self.seeds is None else [str(seed) for seed in self.seeds]
        datasets = self.dataset
        if datasets is not None:
            datasets = as_measured(datasets, cells)
        # first, so that a bare name means only models on the wanted datasets
        among = select("dataset", datasets, cells, lambda cell: cell.fit.dataset)
        with self._of_suite_alone():
            among = select("metric", self.metrics, among, lambda cell: cell.metric)
        among = select("seed", seeds, among, lambda cell: str(cell.fit.seed))
        among = select("recipe", self.recipe, among, lambda cell: cell.fit.recipe)
        among = select(
            "model",
            self.models,
            among,
            lambda cell: cell.fit.model,
            lambda cell: names.get(cell.fit.names),
        )
        among = select("dataset", datasets, among, lambda cell: cell.fit.dataset)
        labels: list[str] = []
        for cell in among:
            labels += (*cell.outcome.values, cell.metric)
        with self._of_suite_alone():
            select("column", self.columns, labels, str)  # refuses a label that no result has
        return among

    @contextmanager
    def _of_suite_alone(self) -> Iterator[None]:
        """Add to an error that only the metrics of the suite can be chosen."""
        try:
            yield
        except SpecError as error:
            if not self.suite or self.suite.joint:
                raise
            metrics = ", ".join(sorted(self.suite.metric_names))
            problem = f"{error} {self.file or self.suite.name} shows only {metrics}"
            raise SpecError(f"{problem}; leave the suite out to choose among all.") from error

    def _of_experiment(
        self, cells: Sequence[Cell], suite: Suite, left_out: list[str]
    ) -> list[Cell]:
        """Return the cells of the fits of a suite.

        Selected fields replace the suite's fields.

        Models that cannot be resolved here are matched only by name, with a note.
        """
        selected = (self.models, self.dataset, self.recipe, self.seeds)
        of_file = [wanted is None for wanted in selected]
        named = {tuple(compress(fit, of_file)) for fit in fit_names_of(suite)}
        absent = absent_of(suite)
        for (model, _), (_, reason) in absent.items():
            shown = f"All results named {model} are shown, whatever their options and recipe"
            warnings.warn(f"{shown}: {reason}", Remark, stacklevel=2)

        def is_named(fit: FitKey) -> bool:
            seeds, _ = absent.get((fit.model.bare, fit.dataset.bare), (set[int](), ""))
            is_absent = fit.seed in seeds or (bool(seeds) and self.seeds is not None)
            return is_absent or tuple(compress((*fit.names, fit.seed), of_file)) in named

        of_suite = [cell for cell in cells if is_named(cell.fit)]
        count = len(cells) - len(of_suite)
        if count:
            what = f"{outcomes(count)} of models, data, recipes or seeds"
            left_out.append(f"{what} that {self.file} does not name.")
        return of_suite


def _columns(cells: Sequence[Cell], parts: Sequence[Part]) -> set[str]:
    """Return the texts that name a column of these results and parts."""
    labels: dict[Spec, set[str]] = {}
    for part in parts:
        labels |= {metric: {""} for metric in part.metrics}
    for cell in cells:
        labels.setdefault(cell.metric, {""}).update(cell.outcome.values)
    texts: set[str] = set()
    for metric, of_metric in labels.items():
        for label in of_metric:
            texts.update(known_as(metric, label))
    return texts - {""}


def _asked(fit: FitKey, store: Store) -> str:
    """Return the name of an import, or the spec that was asked for."""
    with suppress(*UNREADABLE):
        return fits.read(store.fit_folder(fit)).asked
    return fit.model


def _measured(part: Part, measured: Set[Spec]) -> Part:
    """Return a part with metrics that an added sampler measured.

    Such metrics replace metrics without a sampler that were not measured.
    """
    stand_ins = {metric.without("sampler"): metric for metric in sorted(measured)}
    stand_ins |= zip(measured, measured, strict=True)

    def replaced(metrics: Sequence[Spec]) -> tuple[Spec, ...]:
        return tuple(stand_ins.get(metric, metric) for metric in metrics)

    rows = {fit: replaced(metrics) for fit, metrics in part.rows.items()}
    return part._replace(metrics=replaced(part.metrics), rows=rows)


WHOLE = Selection()
"""All that a store holds."""


# --- sentences ------------------------------------------------------------------------------------


def outcomes(count: int) -> str:
    """Return ``1 outcome``, ``2 outcomes``."""
    if count == 1:
        return "1 outcome"
    return f"{count} outcomes"


def _remedy(
    store: Path, suite: str | None = None, limit: int | None = None, split: Evaluated = "test"
) -> str:
    command = f"jembench run {suite or 'hybrid'}"
    if limit is not None:
        command += f" --limit {limit}"
    if split != "test":
        command += f" --split {split}"
    return f"`{command}{store_option(store)}` makes some."


def store_option(store: Path) -> str:
    """Return a store's option; "" for the usual one."""
    if store == Path("runs"):
        return ""
    return f" --store {shlex.quote(str(store))}"
