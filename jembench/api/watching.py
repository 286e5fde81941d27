"""The page of a store while a run goes on: its results, and what is being done."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

from jembench.api.results import Results
from jembench.api.status import SILENCE, UnitStatus, status
from jembench.catalog.spec import stable_hash
from jembench.errors import CheckpointError
from jembench.files import changed
from jembench.report import references
from jembench.report.page.origin import of_texts
from jembench.report.page.pictures import Picture, Pictures
from jembench.report.page.render import render
from jembench.report.selection import Selection
from jembench.report.text import Footnote, Table
from jembench.running.display import DOES
from jembench.store.latest import LOG
from jembench.store.outcome import FitKey
from jembench.store.store import Store
from jembench.training.interventions import read_interventions

PERIOD = 10.0
"""Seconds after which the page shows how far a run has come, where there is no new outcome to show."""

_HEADINGS = ("model", "seed", "work", "progress", "state", "began", "dataset", "recipe")


class Watched:
    """The page of a store. What has not changed since it was last made is not drawn or tested again.

    Args:
        store: the results.
        which: those that are shown; what is being done is shown whole.

    Raises:
        PluginError: if the published numbers of the suite cannot be read.
    """

    def __init__(self, store: Store, which: Selection) -> None:
        self._store = store
        self._which = which
        self._published = references.load(which.suite.references if which.suite else ())
        self._pictures = Pictures(store)

    def state(self) -> str:
        """A name for what the page would show now, as an ``ETag``.

        It changes with every outcome, every request for some, every unit of work that begins or ends, every ten seconds
        while work goes on, and when nothing more is heard of it.
        """
        works = self._store.works.folder
        last = max(map(changed, works.glob("*.events")), default=0) / 1e9
        folders = (self._store.root / "cells", self._store.root / LOG, works)
        return f'"{stable_hash([*map(changed, folders), last // PERIOD, time.time() - last > SILENCE])}"'

    def page(self, etag: str) -> str:
        """The page as HTML, under the name of its state."""
        pictures = self._pictures
        pictures.left_out.clear()  # what could not be read for an earlier page may be whole now
        units = status(self._store.root).units
        unfinished = [picture for unit in units if unit.kind == "train" for picture in self._training(unit)]
        found = self._which.of(self._store, pictures.note)
        document = Results.selected(found, self._which, self._published, pictures).document
        assert document.page
        running = [_table(units)] if units else []
        content = dataclasses.replace(document.page(), running=running, unfinished=unfinished)
        return render(content, etag)

    def _training(self, unit: UnitStatus) -> Iterable[Picture]:
        """The energies of a training so far."""
        fit = FitKey(model=unit.model, dataset=unit.dataset, recipe=unit.recipe, seed=unit.seed, id=unit.fit)
        try:
            interventions = read_interventions(self._store.fit_folder(fit))
        except CheckpointError as error:
            self._pictures.note(str(error))
            interventions = []
        return self._pictures.of_training(fit, map(str, interventions))


def _table(units: Sequence[UnitStatus]) -> Table:
    """What is being done, and how much is waiting."""
    begun = [unit for unit in units if unit.state != "queued"]
    waiting = len(units) - len(begun)
    table = of_texts("What is being done", _HEADINGS, map(_row, begun))
    waits = f"{waiting} more {'waits' if waiting == 1 else 'wait'}." if begun else f"{waiting} wait for a worker."
    return dataclasses.replace(table, footnotes=(Footnote(waits),) if waiting else ())


def _row(unit: UnitStatus) -> tuple[str, ...]:
    doing, _ = DOES.get(unit.kind, (unit.kind, ""))
    progress = ", ".join(filter(None, [unit.progress, unit.reason]))
    began = "" if unit.since is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(unit.since))
    return unit.model, str(unit.seed), doing, progress, unit.state, began, unit.dataset, unit.recipe
