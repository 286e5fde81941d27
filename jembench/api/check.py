"""The check of results against a stored baseline, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jembench.api.arguments import checked, one_text, selection
from jembench.api.results import Shown
from jembench.api.stored import Location, OpenStore, opened
from jembench.errors import SpecError, StoreError
from jembench.experiment.stored import with_imports
from jembench.report.formats import Document
from jembench.store.latest import newest
from jembench.store.outcome import Cell
from jembench.store.store import Store


class Check(Shown):
    """The check of results against a baseline, returned by :func:`jembench.check`.

    Attributes:
        exit_code: 0 if no value is worse and no claim failed, 1 if one is or did, 2 if one could
            not be judged.
        summary: the counts of outcomes, in a sentence.
        records: a mapping for each value and claim, with its ``name``, its ``verdict`` and its
            ``outcome``: passed, failed, undecided, error (it could not be judged) or skipped.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.exit_code: int = document.about["exit_code"]
        self.summary: str = document.about["summary"]
        self.records = list(document.records())

    @property
    def passed(self) -> bool:
        """True if the exit code is 0."""
        return self.exit_code == 0

    def __repr__(self) -> str:
        return f"<Check: {self.summary}>"


@checked
def check(
    baseline: Location | OpenStore,
    suite: str | None = None,
    *,
    tolerance: Mapping[str, float] = MappingProxyType({}),
    strict: bool = False,
    store: Location | OpenStore | None = None,
    device: str | None = None,
    executor: str | None = None,
    max_hours: float | None = None,
    skip_missing: bool | None = None,
    progress: bool = True,
    **selected: Any,
) -> Check:
    """Compare results with a baseline's, and judge the claims of a file.

    A value is worse if the difference on the same images and seeds is significant after Holm's
    adjustment, and is above the tolerance. Values of both stores are paired by model, dataset,
    recipe, metric and seed.

    Args:
        baseline: the store that the results must not be worse than.
        suite: the name of a suite or a TOML file, which is first run as by :func:`run`; None: the
            store's results are taken as they are.
        tolerance: the largest losses that pass, by columns, in the units of tables:
            ``{"accuracy": 1.0}``. Times are judged only where they have a tolerance.
        strict: fail also where a loss above the tolerance is not excluded, or where a claim is
            undecided.
        store: the store of the results; None: the file's, or ``runs``.
        device: as for :func:`run`, and so are the next four.
        executor: the name or the import path of an executor.
        max_hours: raise OutOfTime after this many hours; the same call goes on from there.
        skip_missing: start even if weights or images are missing.
        progress: show progress on stderr.
        selected: the selection and the display names, as for :func:`selection`. With a suite,
            ``models``, ``dataset``, ``metrics``, ``seeds`` and ``recipe`` replace the suite's own.

    Raises:
        SpecError: if there is no such store, suite or column, or both stores are one.
        DamagedError: if a file of a store is damaged.

    Example:
        >>> check(store, store=folder.parent / "nowhere")
        Traceback (most recent call last):
        jembench.errors.SpecError: There are no results and no store...
    """
    from jembench.api.runs import place_and_options, plan_run, results_of

    which = selection(suite, **selected)
    place, how = place_and_options(
        which.suite,
        store,
        device=device,
        executor=executor,
        max_hours=max_hours,
        skip_missing=skip_missing,
    )
    before = opened(baseline).store
    earlier = _cells(before, place, which.split)  # refused before anything is trained
    if which.suite:
        selected.pop("columns", None)
        datasets = selected.pop("dataset", None)
        recipe = one_text(selected.pop("recipe", None), "recipe")
        plan = plan_run(which.suite, place, datasets=datasets, recipe=recipe, **selected)
        results = results_of(plan, place, how, progress=progress)
        if results.stopped:
            raise results.stopped
        cells, names = list(results.cells), plan.names
    else:
        cells, _, names, _ = which.of(place, _refuse)
    if not cells:
        raise SpecError(which.nothing(place.root))

    # imports numpy, which runs do not need
    from jembench.report import claims, gate
    from jembench.report.check import Measured, against

    narrowed = (which.suite, which.models, which.dataset, which.recipe, which.metrics)
    rows = against(
        Measured(_intact(place, cells), place.read_arrays),
        Measured(earlier, before.read_arrays),
        tolerance=tolerance,
        columns=which.columns,
        narrowed=any(narrowed),
        noted=bool(which.suite),
    )
    findings = []
    if which.suite:
        asked = with_imports(which.suite, place).claims
        findings = claims.judge(asked, cells, place.read_arrays, store=place.root)
    return Check(gate.document(rows, findings, names=names, tolerance=tolerance, strict=strict))


def _cells(store: Store, beside: Store, split: str) -> Sequence[Cell]:
    """Return the outcomes of a baseline on a split.

    Raises:
        SpecError: if there is no such store, or it is the one beside it.
        StoreError: if a file cannot be read.
    """
    store.check_exists()
    if beside.root.exists() and beside.root.samefile(store.root):
        raise SpecError(
            f"{store.root} is both the baseline and the store, which equals itself. Name another "
            "folder with --store, or copy the baseline."
        )
    cells = [cell for cell in store.cells(_refuse) if cell.split == split]
    return _intact(store, newest(cells))


def _intact(store: Store, cells: Sequence[Cell]) -> Sequence[Cell]:
    """Return cells whose arrays are the original ones, or are missing.

    Raises:
        DamagedError: if a file is another one.
    """
    for cell in cells:
        if store.arrays_path(cell).exists():
            store.check_arrays(cell)
    return cells


def _refuse(problem: str) -> None:
    """Refuse an unreadable file of a store, whose value would pass unseen."""
    raise StoreError(f"{problem} A check needs every result of both stores.")
