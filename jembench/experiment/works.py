"""Units of work: the work on one fit as plain data. Imports no torch.

Any worker can carry out any unit.

A unit is JSON of a few kB. The worker plans the unit again from its specs and its recipe, and
refuses it if the identities differ from the unit's: other code or data would give other results.
"""

import dataclasses
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from jembench.catalog import code_identity, registry, trust
from jembench.catalog.spec import Spec, stable_hash
from jembench.catalog.validation import Range, Rule
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import CellPlan, FitPlan, Plan, rebuilt
from jembench.experiment.suite import Suite
from jembench.experiment.twins import changes
from jembench.interfaces.running import Job, WorkKind
from jembench.store import records
from jembench.store.outcome import Evaluated, FitKey, Id, PlainSpec, encode
from jembench.version import __version__


@dataclass(frozen=True, slots=True)
class WorkCell:
    """A metric of a unit of work."""

    metric: PlainSpec
    id: Id  # of the cell, planned by the driver

    @property
    def name(self) -> str:
        """A part of the names of the cell's files."""
        return self.metric


Cells = tuple[WorkCell, ...]
Part = Annotated[
    tuple[int, int], Rule("[number, of] with 0 <= number < of", lambda part: 0 <= part[0] < part[1])
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A unit of work on one fit.

    ``fit`` trains the fit if needed, and computes its cells; ``attack-part`` attacks a part of the
    images of its only cell, which a later unit measures. A fit without a possible cell is not
    trained. ``check`` finds what is wrong or missing before anything is trained, and leaves nothing
    in the store.
    """

    kind: WorkKind
    model: PlainSpec  # with all options, also those that are not part of the identity
    dataset: PlainSpec  # likewise
    recipe: Mapping[str, Any]  # every field
    fit: FitKey  # planned by the driver
    identity: Mapping[str, Any]  # of the fit, without the seed
    cells: Cells
    later: Cells = ()  # cells that other units compute after the training
    limit: Annotated[int, Range(least=1)] | None = None  # number of test images; None: all
    split: Evaluated = "test"
    part: Part = (0, 1)  # of ``attack-part``: its number, and the number of parts
    gpus: Annotated[int, Range(least=1)] = 1  # processes that train together, each on its own GPU
    after: tuple[Id, ...] = ()  # units that must end before this one starts
    deadline: float | None = None  # UTC, seconds since 1970
    command: str = ""  # of the user, for the provenance
    display: str = ""  # the display name of the model
    # distribution -> its version, with a digest of its code
    versions: Mapping[str, str] = field(default_factory=dict)
    run: str = ""  # of ``check``: a token, by which each run has its own units

    @property
    def id(self) -> str:
        """The hash of the work."""
        now = [cell.id for cell in self.cells]
        later = [cell.id for cell in self.later]
        work: dict[str, Any] = {"kind": self.kind, "fit": self.fit.id, "cells": [now, later]}
        work["part"] = list(self.part)
        if self.run:
            work["run"] = self.run
        return stable_hash(work, 16)

    @property
    def all_cells(self) -> Cells:
        """The cells that this unit or later units compute."""
        return self.cells + self.later

    @property
    def is_late(self) -> bool:
        """True if the deadline has passed."""
        return self.deadline is not None and time.time() >= self.deadline

    @property
    def name(self) -> str:
        """The description of the unit in words."""
        part = f" part {self.part[0] + 1} of {self.part[1]}" if self.part[1] > 1 else ""
        return f"{self.kind}{part} {self.fit}"

    def job(self, order: int) -> Job:
        """Return the unit as a job for executors."""
        text = records.text(encode(self))
        return Job(
            id=self.id, name=self.name, kind=self.kind, order=order, gpus=self.gpus, text=text
        )


def works(
    plan: Plan,
    trained: Callable[[FitKey], bool],
    *,
    slots: int = 1,
    deadline: float | None = None,
    command: str = "",
    check: bool = False,
) -> list[Work]:
    """Return a plan's units, in an order in which they can run.

    Args:
        plan: the work.
        trained: the function that says whether a fit is trained.
        slots: the number of units that run at the same time. With several, metrics that take long
            become separate units, and attacks are divided among idle workers.
        deadline: the time at which work stops, UTC in seconds since 1970.
        command: the user's command.
        check: True for further units, which check the plan before all others.

    Raises:
        Unavailable: if the files of a dataset are missing.
    """
    parts = _parts(plan) if slots > 1 else {}
    attacks = sum(cell.metric.spec in parts for cell in plan.cells)
    most = slots // max(attacks, 1)
    units, trainings = list[Work](), dict[int, FitPlan]()  # place of a unit -> its fit
    for fit in plan.fits:
        if fit.absent:
            raise Unavailable(fit.absent)
        cells = plan.cells_of(fit)
        costly = [cell for cell in cells if cell.metric.spec in parts]
        whole = _work("fit", cells, deadline=deadline, command=command)
        unit = dataclasses.replace(
            whole,
            cells=tuple(_work_cell(cell) for cell in cells if cell not in costly),
            later=tuple(map(_work_cell, costly)),
            display=plan.names.models.get((fit.key.model, fit.key.recipe), ""),
        )
        alone = dataclasses.replace(unit, later=())
        if not fit.is_pretrained and not trained(fit.key):
            trainings[len(units)] = fit
            units.append(dataclasses.replace(unit, gpus=fit.recipe.processes))
            alone = dataclasses.replace(alone, after=(unit.id,))
        elif unit.cells:
            units.append(alone)
        for cell in costly:
            of_cell = dataclasses.replace(alone, cells=(_work_cell(cell),))
            units += _divided(of_cell, min(most, parts[cell.metric.spec]))
    # a training waits for the fits that it starts from
    for place, fit in trainings.items():
        starts = [units[n].id for n, start in trainings.items() if fit.starts_from(start.key)]
        units[place] = dataclasses.replace(units[place], after=tuple(starts))
    if not check:
        return units
    run = secrets.token_hex(8)
    checks = [_work("check", cells, deadline=deadline, run=run) for cells in _to_check(plan, slots)]
    before = tuple(unit.id for unit in checks)
    return checks + [dataclasses.replace(unit, after=unit.after + before) for unit in units]


def _divided(unit: Work, number: int) -> list[Work]:
    """Return an attack's unit, preceded by units of its several parts."""
    if number <= 1:
        return [unit]
    parts = [
        dataclasses.replace(unit, kind="attack-part", part=(part, number)) for part in range(number)
    ]
    return [*parts, dataclasses.replace(unit, after=tuple(part.id for part in parts))]


def _work_cell(cell: CellPlan) -> WorkCell:
    return WorkCell(cell.metric.text(), cell.id)


def _work(kind: WorkKind, cells: Sequence[CellPlan], **fields: Any) -> Work:
    """Return a unit of ``cells``, which are all of one fit."""
    fit = cells[0].fit
    return Work(
        kind=kind,
        model=fit.model.text(),
        dataset=fit.dataset.text(),
        recipe=dataclasses.asdict(fit.recipe),
        fit=fit.key,
        identity=fit.identity,
        cells=tuple(map(_work_cell, cells)),
        limit=cells[0].limit,
        split=cells[0].split,
        versions=_versions(fit, cells),
        **fields,
    )


def _to_check(plan: Plan, slots: int) -> list[list[CellPlan]]:
    """Return the cells to check, a list for each fit.

    One fit of each family has all metrics of the family, whose fits differ only in their seeds.
    Further fits follow if there are more slots, so that all workers start at once.
    """
    families: dict[str, dict[Spec, CellPlan]] = {}
    for cell in plan.cells:
        family = families.setdefault(cell.fit.key.family, {})
        first = next(iter(family.values()), cell)
        family.setdefault(cell.metric.spec, dataclasses.replace(cell, fit=first.fit))
    checks = [list(family.values()) for family in families.values()]
    checked = {cells[0].fit.key.id for cells in checks}
    for fit in plan.fits:
        if len(checks) < slots and fit.key.id not in checked:
            checks.append(plan.cells_of(fit))
    return checks


def _parts(plan: Plan) -> dict[Spec, int]:
    """Return a plan's long metrics, with their largest numbers of parts."""
    parts = {}
    for metric in {cell.metric.spec: cell.metric for cell in plan.cells}.values():
        made = metric.make()
        if hasattr(made, "parts"):
            parts[metric.spec] = made.parts
    return parts


def _versions(fit: FitPlan, cells: Iterable[CellPlan]) -> dict[str, str]:
    """Return each distribution's version, with a digest of its code.

    The distributions are those of a fit's components and its cells'.
    """
    components = list(fit.components)
    for cell in cells:
        components += cell.metric.uses
    distributions = {"jembench": (__version__, "jembench")}
    for component in components:
        if component.version:
            distributions[component.distribution] = (component.version, component.module)
    versions = {}
    for name, (version, module) in distributions.items():
        versions[name] = f"{version} ({code_identity.digest(module.partition('.')[0])})"
    return versions


def code_of(units: Sequence[Work]) -> list[str]:
    """Return the import paths in units: the user has named them."""
    values = list[Any]()
    for work in units:
        values += [work.model, work.dataset, work.recipe]
        values += [cell.metric for cell in work.all_cells]
    return sorted(set(trust.code_in(values)))


def planned(work: Work, where: str) -> Plan:
    """Plan a unit again, with this machine's code and data.

    Args:
        work: the unit.
        where: the file of the unit.

    Raises:
        SpecError: if the identities differ here, with the differences; if a component is not
            installed; or if the file names code that the user did not name.
        Unavailable: if files are missing.
    """
    trust.refuse_code([work.dataset, *(cell.metric for cell in work.all_cells)], where)
    if not work.all_cells:
        raise SpecError(f"{where} names no metric. Start the run again, which writes its units.")
    fit = rebuilt(work.model, work.dataset, work.recipe, work.fit.seed, where)
    metrics = [registry.resolve("metrics", cell.metric) for cell in work.all_cells]
    cells = [
        CellPlan(fit=fit, metric=metric, limit=work.limit, split=work.split) for metric in metrics
    ]
    here = _versions(fit, cells)
    there = {name: work.versions.get(name, "none") for name in here}
    differing = [
        f"{name} {there[name]} -> {here[name]}" for name in here if there[name] != here[name]
    ]
    if differing or fit.key.id != work.fit.id:
        differing += changes(work.identity, fit.identity)
        differing = differing or ["its identity"]
    else:
        for cell, again in zip(work.all_cells, cells, strict=True):
            if cell.id != again.id:
                differing.append(f"the code, the version or the files of the metric {cell.metric}")
    if differing:
        raise SpecError(
            f"{work.fit} is not the same here as where it was planned, and nothing was done. It "
            f"differs in: {'; '.join(differing)}. Install the same versions, code and data on both "
            "machines."
        )
    return Plan(Suite(name="", title=""), cells)
