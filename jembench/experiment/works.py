"""Units of work: what is to be done for one fit, as plain data that any worker can carry out. Imports no torch.

A unit is JSON of a few kB. The worker plans it again from its specs and its recipe, and refuses it if the identities
that come out are others than those that the unit states: other code or data would give other results.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from jembench import __version__
from jembench.catalog import code_identity, registry, trust
from jembench.catalog.spec import stable_hash
from jembench.catalog.validation import Range, Rule
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import CellPlan, FitPlan, Plan, rebuilt
from jembench.experiment.suite import Suite
from jembench.experiment.twins import changes
from jembench.interfaces.running import Job, WorkKind
from jembench.store import records
from jembench.store.outcome import FitKey, Id, SpecText, encode


@dataclass(frozen=True, slots=True)
class WorkCell:
    """One metric of a unit of work."""

    metric: SpecText
    id: Id  # of the cell, as the driver planned it

    @property
    def name(self) -> str:
        """The known part of the names of its files: the store finds them by the id."""
        return self.metric


Cells = tuple[WorkCell, ...]
Part = Annotated[tuple[int, int], Rule("[number, of] with 0 <= number < of", lambda part: 0 <= part[0] < part[1])]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A unit of work on one fit.

    ``fit`` trains it if that is needed, and computes its cells; ``attack-part`` attacks a part of the images of its one
    cell, which a later unit measures. A fit of which no cell is possible is not trained.
    """

    kind: WorkKind
    model: SpecText  # with all options, also those of no identity
    dataset: SpecText  # the same
    recipe: Mapping[str, Any]  # every field
    fit: FitKey  # as the driver planned it
    identity: Mapping[str, Any]  # what its family is the hash of
    cells: Cells
    later: Cells = ()  # that other units compute once the fit is trained
    limit: Annotated[int, Range(least=1)] | None = None  # test images, None: all
    part: Part = (0, 1)  # of ``attack-part``: its number, and how many there are
    gpus: Annotated[int, Range(least=1)] = 1  # processes that train together, each on a GPU where there are any
    after: tuple[Id, ...] = ()  # the units that must have ended before
    deadline: float | None = None  # UTC, seconds since 1970
    command: str = ""  # what the user ran, for the record of what was computed
    versions: Mapping[str, str] = field(default_factory=dict)  # of its distributions, each with a digest of its code

    @property
    def id(self) -> str:
        """The hash of what is to be done."""
        cells = [[cell.id for cell in cells] for cells in (self.cells, self.later)]
        return stable_hash({"kind": self.kind, "fit": self.fit.id, "cells": cells, "part": list(self.part)}, 16)

    @property
    def all_cells(self) -> Cells:
        """The cells that need the fit."""
        return self.cells + self.later

    @property
    def is_late(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.time() >= self.deadline

    @property
    def name(self) -> str:
        """The unit in words."""
        part = f" part {self.part[0] + 1} of {self.part[1]}" if self.part[1] > 1 else ""
        return f"{self.kind}{part} {self.fit}"

    def job(self, order: int) -> Job:
        """Return the unit as an executor sees it."""
        text = records.text(encode(self))
        return Job(id=self.id, name=self.name, kind=self.kind, order=order, gpus=self.gpus, text=text)


def works(
    plan: Plan, trained: Callable[[FitKey], bool], *, slots: int = 1, deadline: float | None = None, command: str = ""
) -> list[Work]:
    """Return the units of a plan, in an order in which they can be carried out one after the other.

    Args:
        plan: what is to be done.
        trained: whether a fit has been trained.
        slots: how many units run at the same time. Where it is more than one, metrics that take long are units of
            their own, and attacks are spread over workers that would have nothing to do.
        deadline: when work stops, UTC.
        command: what the user ran.

    Raises:
        Unavailable: if the files are missing that a dataset is known by.
    """
    parts = _parts(plan) if slots > 1 else {}
    most = slots // max(sum(str(cell.metric) in parts for cell in plan.cells), 1)
    found: list[Work] = []
    for fit in plan.fits:
        if fit.absent:
            raise Unavailable(fit.absent)
        cells = plan.cells_of(fit)
        costly = [cell for cell in cells if str(cell.metric) in parts]
        unit = Work(
            kind="fit",
            model=fit.model.bound.in_full,
            dataset=fit.dataset.bound.in_full,
            recipe=dataclasses.asdict(fit.recipe),
            fit=fit.key,
            identity=fit.identity,
            cells=tuple(map(_named, (cell for cell in cells if cell not in costly))),
            later=tuple(map(_named, costly)),
            limit=cells[0].limit,
            deadline=deadline,
            command=command,
            versions=_versions(fit, cells),
        )
        training = not fit.is_pretrained and not trained(fit.key)
        if training:
            found.append(dataclasses.replace(unit, gpus=fit.recipe.processes))
        elif unit.cells:
            found.append(dataclasses.replace(unit, later=()))
        for cell, named in zip(costly, unit.later, strict=True):
            alone = dataclasses.replace(unit, cells=(named,), later=(), after=(unit.id,) if training else ())
            found += _apart(alone, min(most, parts[str(cell.metric)]))
    return found


def _parts(plan: Plan) -> dict[str, int]:
    """Return the metrics of a plan that take long, and into how many parts each can be divided."""
    made = {str(cell.metric): cell.metric for cell in plan.cells}
    metrics = {spec: metric.make() for spec, metric in made.items()}
    return {spec: metric.parts for spec, metric in metrics.items() if hasattr(metric, "parts")}


def _apart(unit: Work, parts: int) -> list[Work]:
    """Return a unit of one cell, after those that attack the parts of its images."""
    if parts == 1:
        return [unit]
    shards = [dataclasses.replace(unit, kind="attack-part", part=(number, parts)) for number in range(parts)]
    return [*shards, dataclasses.replace(unit, after=tuple(shard.id for shard in shards))]


def _named(cell: CellPlan) -> WorkCell:
    return WorkCell(cell.metric.bound.in_full, cell.id)


def _versions(fit: FitPlan, cells: Iterable[CellPlan]) -> dict[str, str]:
    """Return the version of each distribution that takes part, with a digest of its code."""
    components = [*fit.components(sampled=True), *(part for cell in cells for part in cell.metric.uses)]
    packages = {"jembench": (__version__, "jembench")}
    packages |= {part.distribution: (part.version, part.module) for part in components if part.version}
    return {
        name: f"{version} ({code_identity.digest(module.partition('.')[0])})"
        for name, (version, module) in packages.items()
    }


def code_of(found: Sequence[Work]) -> list[str]:
    """Return the import paths in units: the user of the command named them, and workers may follow them."""
    texts = {text for work in found for text in (work.model, work.dataset, *(cell.metric for cell in work.all_cells))}
    texts |= {text for work in found for text in trust.strings(work.recipe)}
    return sorted({name for text in texts for name in trust.code_in(text)})


def planned(work: Work, where: str) -> Plan:
    """Plan a unit again, with the code and the data of this machine.

    Args:
        work: the unit.
        where: the file that it is from.

    Raises:
        SpecError: if it is not the same here, with what differs; for a component that is not installed, or code that
            only the file names.
        Unavailable: if files are missing.
    """
    trust.refuse_code([work.dataset, *(cell.metric for cell in work.all_cells)], where)
    if not work.all_cells:
        raise SpecError(f"{where} names no metric. Start the run again, which writes its units.")
    fit = rebuilt(work.model, work.dataset, work.recipe, work.fit.seed, where)
    metrics = [registry.resolve("metrics", cell.metric) for cell in work.all_cells]
    cells = [CellPlan(fit=fit, metric=metric, limit=work.limit) for metric in metrics]
    here = _versions(fit, cells)
    there = {name: work.versions.get(name, "none") for name in here}
    what = [f"{name} {there[name]} -> {here[name]}" for name in here if there[name] != here[name]]
    if what or fit.key.id != work.fit.id:
        what = [*what, *changes(work.identity, fit.identity)] or ["its identity"]
    else:
        others = [cell.metric for cell, again in zip(work.all_cells, cells, strict=True) if cell.id != again.id]
        what = [f"the code, the version or the files of the metric {metric}" for metric in others]
    if what:
        raise SpecError(
            f"{work.fit} is not the same here as where it was planned, and nothing was done. It differs in: "
            f"{'; '.join(what)}. Install the same versions, code and data on both machines."
        )
    return Plan(Suite(name="", title=""), cells)
