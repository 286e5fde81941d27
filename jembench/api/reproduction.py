"""The reproduction of a shared store: a plan from the records alone, without the files that asked for the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, registry, spec, trust
from jembench.catalog.discovery import Kind
from jembench.errors import SpecError
from jembench.experiment.plan import CellPlan, FitPlan, Plan, plan_again
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name
from jembench.experiment.twins import between
from jembench.report.reproduction import Pair
from jembench.report.selection import read
from jembench.store.fits import FitRecord
from jembench.store.latest import asked, newest
from jembench.store.outcome import Cell
from jembench.store.store import Store


class Reproduction(NamedTuple):
    """The plan of a reproduction beside the results that it repeats."""

    plan: Plan
    cells: list[Cell]  # of the store, one for each cell of the plan
    differing: list[str]  # how the identities of fits and metrics differ from those of the store

    def pairs(self, store: Store) -> list[Pair]:
        """Pair each result of the former store with that of the new one."""
        return [Pair(cell, store.read_cell(planned)) for cell, planned in zip(self.cells, self.plan.cells, strict=True)]


def plan_reproduction(source: Path, datasets: Sequence[str] = ()) -> Reproduction:
    """Plan the current results of a store, by the recipes of its records.

    Args:
        source: the folder of the store.
        datasets: specs in place of those of the same names, for files that lie elsewhere.

    Raises:
        SpecError: if there is no result, or if it cannot be planned here; for components that are not installed.
        DamagedError: if a record is damaged.
    """
    if not source.is_dir():
        raise SpecError(f"There is no store {source}. Name the folder of a store.")
    store = Store(source)
    cells = [cell for cell in newest(read(store), asked(store)) if cell.outcome.status == "ok"]
    if not cells:
        raise SpecError(
            f"The store {source} holds no result that could be measured again. `jembench report` shows what it holds."
        )
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
    return Reproduction(Plan(Suite(name=source.stem, title=""), planned), cells, list(differing))


def _record(store: Store, cell: Cell) -> FitRecord:
    record = store.read_fit(cell.fit)
    if record is None:
        raise SpecError(f"The store {store.root} has results of {cell.fit}, but no record of how it was trained.")
    return record


def _check_installed(store: Store, cells: Sequence[Cell]) -> None:
    """Check that the models, datasets and metrics of cells are installed."""
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
