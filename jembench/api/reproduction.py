"""Running a shared result again: from the records of a store, without the files that it was asked by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, registry, spec, trust
from jembench.catalog.discovery import Kind
from jembench.errors import DamagedError, SpecError
from jembench.experiment import suite_files as suites
from jembench.experiment.plan import CellPlan, FitPlan, Plan, plan_again
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name
from jembench.experiment.twins import between
from jembench.report.reproduction import Pair
from jembench.report.selection import read
from jembench.store.fits import FitRecord
from jembench.store.latest import EXPERIMENTS, LOG, asked, asked_by, experiment, newest
from jembench.store.outcome import Cell
from jembench.store.store import Store


class Reproduction(NamedTuple):
    """What is measured again."""

    plan: Plan
    cells: list[Cell]  # of the store, one for each cell of the plan
    differing: list[str]  # how the identities of fits and metrics differ from those of the store

    def pairs(self, store: Store) -> list[Pair]:
        """Each result of the former store, and that of the new one."""
        return [Pair(cell, store.read_cell(planned)) for cell, planned in zip(self.cells, self.plan.cells, strict=True)]


def plan_reproduction(source: Path, datasets: Sequence[str] = ()) -> Reproduction:
    """The plan of what a store holds, by the recipes of its records.

    Args:
        source: the folder of a store: all its current results. Or the file of an experiment, of a store or outside it:
            what the store, or the one that the file names, has of it.
        datasets: specs in place of those of the same names, for files that lie elsewhere.

    Raises:
        SpecError: if there is no such result, or if it cannot be planned here; for components that are not installed.
        DamagedError: if a record, or the file of an experiment in a store, is damaged.
    """
    store, text = _found(source)
    cells = [cell for cell in newest(read(store), asked(store)) if cell.outcome.status == "ok"]
    if text:
        commands = asked_by(store, text)
        cells = [cell for cell in cells if any(command.covers(cell) for command in commands)]
    if not cells:
        whose = f"that {source} asked for, as it is now" if text else "that could be measured again"
        raise SpecError(f"The store {store.root} holds no result {whose}. `jembench report` shows what it holds.")
    _check_installed(store, cells)
    places = {bare_name(dataset): dataset for dataset in datasets}
    fits: dict[str, FitPlan] = {}
    planned, differing = list[CellPlan](), dict[str, None]()
    for cell in cells:
        if cell.fit.id not in fits:
            record = _record(store, cell)
            data = places.get(bare_name(cell.fit.dataset), cell.fit.dataset)
            fits[cell.fit.id] = fit = plan_again(record, data, str(store.fit_folder(cell.fit)), ())
            if fit.key.id != cell.fit.id:
                what = "; ".join(between(record, fit))
                differing[f"{cell.fit.model} on {cell.fit.dataset}, recipe {cell.fit.recipe}: {what}"] = None
        trust.refuse_code([cell.metric], f"The cell {cell.id} of {store.root}")
        metric = registry.resolve("metrics", cell.metric)
        if cell.provenance.get("metric_id", metric.id) != metric.id:
            differing[f"the code or the options of the metric {cell.metric}"] = None
        planned.append(CellPlan(fit=fits[cell.fit.id], metric=metric, limit=cell.provenance.get("limit")))
    suite = Suite(name=source.stem, title="", text=text)
    return Reproduction(Plan(suite, planned), cells, list(differing))


def _found(source: Path) -> tuple[Store, str]:
    """The store, and the text of the experiment that is meant alone."""
    if source.is_dir():
        return Store(source), ""
    if not source.is_file():
        raise SpecError(f"There is no store and no file {source}. Name the folder of a store, or an experiment's file.")
    store = Store(source.absolute().parent.parent)
    if source.absolute().parent.name == EXPERIMENTS and (store.root / LOG).exists():
        if not (text := experiment(store, source.name)):
            raise DamagedError(
                f"{source} is damaged or was edited: its content does not match the digest in its name. Name the store "
                f"{store.root} for all that it holds, or the file that the experiment was run from."
            )
        return store, text
    suite = suites.load(str(source))
    return Store(Path(suite.run.store or "runs")), suite.text


def _record(store: Store, cell: Cell) -> FitRecord:
    record = store.read_fit(cell.fit)
    if record is None:
        raise SpecError(f"The store {store.root} has results of {cell.fit}, but no record of how it was trained.")
    return record


def _check_installed(store: Store, cells: Sequence[Cell]) -> None:
    """Whether the models, datasets and metrics of cells are installed."""
    lacking, made_with = dict[str, None](), dict[str, None]()
    kinds: dict[str, Kind] = {"model": "models", "dataset": "datasets", "metric": "metrics"}
    known = {kind: {one.name for one in discovery.components(kind)} for kind in kinds.values()}
    for cell in cells:
        for what, text in (("model", cell.fit.model), ("dataset", cell.fit.dataset), ("metric", cell.metric)):
            if ":" not in spec.parse(text).name and bare_name(text) not in known[kinds[what]]:
                lacking[f"the {what} {bare_name(text)}"] = None
                plugins = cell.provenance.get("plugins")
                made_with |= dict.fromkeys(str(one) for one in plugins or () if f"[{bare_name(text)} = " in str(one))
    if lacking:
        where = f" They are of {', '.join(made_with)}." if made_with else ""
        raise SpecError(
            f"The store {store.root} names components that are not installed here: {', '.join(lacking)}.{where} "
            "Install their distributions, or name their file with --plugin, and run the command again."
        )
