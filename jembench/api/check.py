"""The check of results against a stored baseline, from Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jembench.api.arguments import checked, selection
from jembench.api.results import Shown
from jembench.api.stored import Location, OpenStore, opened
from jembench.errors import SpecError, StoreError
from jembench.experiment.names import DisplayNames
from jembench.experiment.stored import with_imports
from jembench.experiment.suite import Suite
from jembench.report.formats import Document
from jembench.report.select import Selection
from jembench.running.driver import RunOptions
from jembench.store.latest import newest
from jembench.store.outcome import Cell
from jembench.store.store import Store


class Check(Shown):
    """The check of results against a baseline, returned by :func:`jembench.check`.

    Attributes:
        exit_code: 0 if no value is worse and no claim failed, 1 if one is or did, 2 if one could
            not be judged.
        summary: the counts of outcomes, in a sentence.
        verdicts: the verdict on each value, by model, dataset and label.
        records: a mapping for each value and claim, with its ``verdict`` and ``outcome``: passed,
            failed, undecided, error (it could not be judged) or skipped.
    """

    def __init__(self, document: Document) -> None:
        # imports numpy, which runs do not need
        from jembench.report.gate import exit_code

        self.document = document
        self.summary: str = document.about["summary"]
        self.records = list(document.records())
        outcomes = [record["outcome"] for record in self.records]
        self.exit_code = exit_code(outcomes, strict=document.about["strict"])
        self.verdicts: dict[tuple[str, str, str], str] = {}
        for record in self.records:
            if not record.get("claim"):
                place = (record["model_a"], record["dataset"], record["label"])
                self.verdicts[place] = record["verdict"]

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
    """Compare results with those of a baseline, and judge the claims of a file.

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
        SpecError: if there is no such store, suite or column.
        DamagedError: if a file of a store is damaged.

    Example:
        >>> check(store, store=folder.parent / "nowhere")
        Traceback (most recent call last):
        jembench.errors.SpecError: There are no results and no store...
    """
    from jembench.api.runs import place_and_options

    which = selection(suite, **selected)
    place, how = place_and_options(
        which.suite,
        store,
        device=device,
        executor=executor,
        max_hours=max_hours,
        skip_missing=skip_missing,
    )
    return check_stores(
        opened(baseline).store, place, which, how, tolerance, strict=strict, progress=progress
    )


def check_stores(
    baseline: Store,
    store: Store,
    which: Selection,
    how: RunOptions,
    tolerance: Mapping[str, float],
    *,
    strict: bool,
    progress: bool = True,
) -> Check:
    """Return the check of :func:`check`.

    Raises:
        SpecError: if both stores are one, or one has no selected results.
        OutOfTime: if the time was up.
    """
    baseline.check_exists()
    if store.root.exists() and store.root.samefile(baseline.root):
        raise SpecError(
            f"{baseline.root} is both the baseline and the store, which equals itself. Name "
            "another folder with --store, or copy the baseline."
        )
    # before anything is trained
    stored = baseline.cells(functools.partial(_refuse, baseline))
    earlier = newest([cell for cell in stored if cell.split == which.split])
    _check_arrays(baseline, earlier)
    if which.suite:
        cells, names = _measured(which.suite, store, which, how, progress=progress)
    else:
        cells, _, names, _ = which.of(store, functools.partial(_refuse, store))
    if not cells:
        raise SpecError(which.nothing(store.root))
    _check_arrays(store, cells)
    limits = {cell.limit for cell in cells}
    alike = [cell for cell in earlier if cell.limit in limits]

    # imports numpy, which runs do not need
    from jembench.report import check as checks
    from jembench.report import claims

    narrowed = (which.suite, which.models, which.dataset, which.recipe, which.metrics)
    judged = checks.against(
        checks.Measured(cells, store.read_arrays),
        checks.Measured(alike or earlier, baseline.read_arrays),
        tolerance=tolerance,
        columns=which.columns,
        narrowed=any(narrowed),
        names=names,
    )
    findings = []
    if which.suite and which.suite.claims:
        asked = with_imports(which.suite, store).claims
        findings = claims.judge(asked, cells, store.read_arrays, store=store.root)
    document = checks.document(judged, findings, names=names, tolerance=tolerance, strict=strict)
    return Check(document)


def _check_arrays(store: Store, cells: Sequence[Cell]) -> None:
    """Check the arrays of cells; where a file is missing, intervals decide, with a remark.

    Raises:
        DamagedError: if a file is not the one that was written with its cell.
    """
    for cell in cells:
        if store.arrays_path(cell).exists():
            store.check_arrays(cell)


def _refuse(store: Store, problem: str) -> None:
    """Refuse a store with a file that cannot be read, since its values would pass unseen."""
    raise StoreError(f"{problem} A check needs every result of the store {store.root}.")


def _measured(
    suite: Suite, store: Store, which: Selection, how: RunOptions, *, progress: bool
) -> tuple[list[Cell], DisplayNames]:
    """Run a suite, and return its outcomes with the names of its models.

    Raises:
        SpecError: if several recipes are given.
        OutOfTime: if the time was up.
    """
    # imports what trains, which a check of stored results does not need
    from jembench.api.runs import plan_run, results_of

    recipes = which.recipe or []
    if len(recipes) > 1:
        raise SpecError(f"The recipes are {', '.join(recipes)}; a suite is run by one of them.")
    plan = plan_run(
        suite,
        store,
        models=which.models,
        metrics=which.metrics,
        datasets=which.dataset,
        seeds=which.seeds,
        recipe=next(iter(recipes), None),
        names=which.names,
        limit=which.limit,
        split=which.split,
    )
    results = results_of(plan, store, how, progress=progress)
    if results.stopped:
        raise results.stopped
    return list(results.cells), plan.names
