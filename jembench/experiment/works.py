"""Units of work: what is to be done for one fit, as plain data that any worker can carry out. Imports no torch.

A unit is JSON of a few kB. The worker plans it again from its specs and its recipe, and refuses it if the identities
that come out are others than those that the unit states: other code or data would give other results.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from jembench import __version__
from jembench.catalog import code_identity, registry, trust
from jembench.catalog.spec import stable_hash
from jembench.catalog.validation import Range, Rule
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import CellPlan, FitPlan, Plan, rebuilt
from jembench.experiment.suite import Suite
from jembench.experiment.twins import changes
from jembench.interfaces.metrics import Costly
from jembench.interfaces.running import Job, WorkKind
from jembench.store import records
from jembench.store.outcome import FitKey, Id, SpecText, encode


class WorkCell(NamedTuple):
    """One metric of a unit of work."""

    metric: SpecText
    id: Id  # of the cell, as the driver planned it

    @property
    def name(self) -> str:
        """What is known of the names of its files: the store finds them by the id."""
        return self.metric


Cells = Annotated[tuple[WorkCell, ...], Rule("at least one metric", bool)]
Part = Annotated[tuple[int, int], Rule("[number, of] with 0 <= number < of", lambda part: 0 <= part[0] < part[1])]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A unit of work on one fit.

    ``train`` trains it; ``measure`` computes its cells; ``attack-shard`` attacks a part of the images of its one cell,
    which a later unit measures.
    """

    kind: WorkKind
    model: SpecText  # with all options, also those of no identity
    dataset: SpecText  # the same
    recipe: Mapping[str, Any]  # every field
    fit: FitKey  # as the driver planned it
    identity: Mapping[str, Any]  # what its family is the hash of
    cells: Cells  # of ``train``: those that need the fit
    limit: Annotated[int, Range(least=1)] | None = None  # test images, None: all
    part: Part = (0, 1)  # of ``attack-shard``: its number, and how many there are
    gpus: Literal[0, 1] = 1  # 1: it runs a network; 0: it computes statistics on the CPU
    after: tuple[Id, ...] = ()  # the units that must have ended before
    deadline: float | None = None  # UTC, seconds since 1970
    command: str = ""  # what the user ran, for the record of what was computed
    versions: Mapping[str, str] = field(default_factory=dict)  # of its distributions, each with a digest of its code

    @property
    def id(self) -> str:
        """A hash of what is to be done."""
        cells = [cell.id for cell in self.cells]
        return stable_hash({"kind": self.kind, "fit": self.fit.id, "cells": cells, "part": list(self.part)}, 16)

    @property
    def is_late(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.time() >= self.deadline

    @property
    def name(self) -> str:
        """For people."""
        part = f" part {self.part[0] + 1} of {self.part[1]}" if self.part[1] > 1 else ""
        return f"{self.kind}{part} {self.fit}"

    def job(self, order: int) -> Job:
        """The unit as an executor sees it."""
        data = encode({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})
        text = records.text(data | {"cells": [encode(cell._asdict()) for cell in self.cells]})
        return Job(id=self.id, name=self.name, kind=self.kind, order=order, gpus=self.gpus, text=text)


def works(
    plan: Plan,
    trained: Callable[[FitKey], bool],
    *,
    slots: int = 1,
    gpus: bool = False,
    deadline: float | None = None,
    command: str = "",
) -> list[Work]:
    """The units of a plan, in an order in which they can be carried out one after the other.

    Args:
        plan: what is to be done.
        trained: whether a fit has been trained.
        slots: how many units run at the same time. Where it is more than one, metrics that take long are units of
            their own, and attacks are spread over workers that would have nothing to do.
        gpus: whether GPUs are shared out among units. Then metrics that only read predictions are units for the CPU:
            the unit that trains computes the predictions.
        deadline: when work stops, UTC.
        command: what the user ran.

    Raises:
        Unavailable: if the files are missing that a dataset is known by.
    """
    known = {str(cell.metric): cell.metric for cell in plan.cells} if slots > 1 else {}
    metrics = {spec: metric.make() for spec, metric in known.items()}
    costly = sum(isinstance(metrics.get(str(cell.metric)), Costly) for cell in plan.cells)
    found: list[Work] = []
    for fit in plan.fits:
        if fit.absent:
            raise Unavailable(fit.absent)
        cells = plan.cells_of(fit)
        base = _base(fit, cells, deadline, command)
        training = not fit.is_pretrained and not trained(fit.key)
        found += [base] if training else []
        measuring = dataclasses.replace(base, kind="measure", after=(base.id,) if training else ())
        found += _measuring(measuring, cells, metrics, slots // max(costly, 1), on_cpu=gpus and training)
    return found


def _base(fit: FitPlan, cells: Sequence[CellPlan], deadline: float | None, command: str) -> Work:
    """The unit that trains a fit, from which all others of the fit differ in few fields."""
    return Work(
        kind="train",
        model=fit.model.bound.in_full,
        dataset=fit.dataset.bound.in_full,
        recipe=dataclasses.asdict(fit.recipe),
        fit=fit.key,
        identity=fit.identity,
        cells=tuple(WorkCell(cell.metric.bound.in_full, cell.id) for cell in cells),
        limit=cells[0].limit,
        deadline=deadline,
        command=command,
        versions=_versions(fit, cells),
    )


def _versions(fit: FitPlan, cells: Iterable[CellPlan]) -> dict[str, str]:
    components = [*fit.components(sampled=True), *(part for cell in cells for part in cell.metric.uses)]
    made_from = {"jembench": (__version__, "jembench")}
    made_from |= {part.distribution: (part.version, part.module) for part in components if part.version}
    packages = {name: (version, module.partition(".")[0]) for name, (version, module) in made_from.items()}
    return {name: f"{version} ({code_identity.digest(package)})" for name, (version, package) in packages.items()}


def _measuring(
    base: Work, cells: Sequence[CellPlan], metrics: Mapping[str, Any], parts: int, *, on_cpu: bool
) -> Iterator[Work]:
    """Return the units that measure a fit.

    Args:
        base: the unit with all cells.
        cells: of the fit.
        metrics: by their specs; none: all cells are measured together. Otherwise those that take long are apart.
        parts: of an attack, at most.
        on_cpu: whether metrics that only read predictions are a unit for the CPU.
    """
    together: dict[Literal[0, 1], list[WorkCell]] = {1: [], 0: []}
    for cell, named in zip(cells, base.cells, strict=True):
        metric = metrics.get(str(cell.metric))
        if isinstance(metric, Costly):
            yield from _apart(dataclasses.replace(base, cells=(named,)), min(parts, getattr(metric, "parts", 1)))
        else:
            together[0 if on_cpu and getattr(metric, "reads", None) else 1].append(named)
    yield from (dataclasses.replace(base, cells=tuple(group), gpus=gpus) for gpus, group in together.items() if group)


def _apart(unit: Work, parts: int) -> list[Work]:
    """Return a unit of one cell, after those that attack the parts of its images."""
    if parts == 1:
        return [unit]
    shards = [dataclasses.replace(unit, kind="attack-shard", part=(number, parts)) for number in range(parts)]
    return [*shards, dataclasses.replace(unit, after=tuple(shard.id for shard in shards))]


def code_of(found: Sequence[Work]) -> list[str]:
    """The import paths in units: the user of the command named them, and workers must be allowed to follow them."""
    texts = {text for work in found for text in (work.model, work.dataset, *(cell.metric for cell in work.cells))}
    texts |= {text for work in found for text in trust.strings(work.recipe)}
    return sorted({name for text in texts for name in trust.code_in(text)})


_NO_SUITE = Suite(name="", title="")


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
    trust.refuse_code([work.dataset, *(cell.metric for cell in work.cells)], where)
    fit = rebuilt(work.model, work.dataset, work.recipe, work.fit.seed, where)
    cells = [
        CellPlan(fit=fit, metric=registry.resolve("metrics", cell.metric), limit=work.limit) for cell in work.cells
    ]
    here = _versions(fit, cells)
    there = {name: work.versions.get(name, "none") for name in here}
    what = [f"{name} {there[name]} -> {here[name]}" for name in here if there[name] != here[name]]
    if what or fit.key.id != work.fit.id:
        what += changes(work.identity, fit.identity)
        raise SpecError(
            f"{work.fit} is not the same fit here as where it was planned, and nothing was done. It differs in: "
            f"{'; '.join(what) or 'its identity'}. Install the same versions, code and data on both machines."
        )
    for cell, expected in zip(cells, work.cells, strict=True):
        if cell.id != expected.id:
            raise SpecError(
                f"The metric {cell.metric} is not the same here as where the work on {work.fit} was planned, and "
                "nothing was done: its code, its version or its files differ. Install the same on both machines."
            )
    return Plan(_NO_SUITE, cells)
