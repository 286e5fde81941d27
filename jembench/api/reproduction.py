"""The reproduction of a shared store, planned from its records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, registry, trust
from jembench.catalog.discovery import Kind
from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment.plan import CellPlan, FitPlan, Plan, plan_again
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name
from jembench.experiment.twins import between
from jembench.report.reproduction import Pair
from jembench.report.select import warn
from jembench.store.latest import newest
from jembench.store.outcome import Cell
from jembench.store.store import Store


class Reproduction(NamedTuple):
    """The plan of a reproduction, and the results that it repeats."""

    plan: Plan
    cells: list[Cell]  # of the store, in the order of the plan's cells
    # differences of the identities of fits and metrics from those of the store
    differing: list[str]

    def pairs(self, store: Store) -> list[Pair]:
        """Pair each result of the former store with that of the new one."""
        return [
            Pair(cell, store.read_cell(planned))
            for cell, planned in zip(self.cells, self.plan.cells, strict=True)
        ]


def plan_reproduction(source: Path, datasets: Sequence[str] = ()) -> Reproduction:
    """Plan the current results of a store, by the recipes of its records.

    Args:
        source: the folder of the store.
        datasets: specs that replace those of the same names, for files in other folders.

    Raises:
        SpecError: if there is no result, or if components are not installed or cannot be planned
            here.
        DamagedError: if a record is damaged.
    """
    store = Store(source)
    store.check_exists()
    cells = [cell for cell in newest(store.cells(warn)) if cell.outcome.status == "ok"]
    if not cells:
        raise SpecError(
            f"The store {source} holds no result that could be measured again. `jembench report` "
            "shows what it holds."
        )
    _check_installed(store, cells)
    places = {bare_name(dataset): dataset for dataset in datasets}
    fits: dict[str, FitPlan] = {}
    planned, differing = list[CellPlan](), dict[str, None]()
    for cell in cells:
        if cell.fit.id not in fits:
            record = store.read_fit(cell.fit)
            if record is None:
                raise SpecError(
                    f"The store {source} has results of {cell.fit}, but no record of how it was "
                    "trained."
                )
            data = places.get(bare_name(cell.fit.dataset), cell.fit.dataset)
            fits[cell.fit.id] = fit = plan_again(record, data, str(store.fit_folder(cell.fit)), ())
            if fit.key.id != cell.fit.id:
                what = "; ".join(between(record, fit))
                differing[
                    f"{cell.fit.model} on {cell.fit.dataset}, recipe {cell.fit.recipe}: {what}"
                ] = None
        trust.refuse_code([cell.metric], f"The cell {cell.id} of {store.root}")
        metric = registry.resolve("metrics", cell.metric)
        if cell.provenance.get("metric_id", metric.id) != metric.id:
            differing[f"the code or the options of the metric {cell.metric}"] = None
        planned.append(CellPlan(fit=fits[cell.fit.id], metric=metric, limit=cell.limit))
    return Reproduction(Plan(Suite(name=source.stem, title=""), planned), cells, list(differing))


def _check_installed(store: Store, cells: Sequence[Cell]) -> None:
    """Check that the models, datasets and metrics of cells are installed."""
    kinds: tuple[Kind, ...] = ("models", "datasets", "metrics")
    known = {(kind, one.name) for kind in kinds for one in discovery.components(kind)}
    named = {
        pair
        for cell in cells
        for pair in zip(kinds, (cell.fit.model, cell.fit.dataset, cell.metric), strict=True)
    }
    bare = {(kind, bare_name(text)) for kind, text in named if ":" not in Spec(text).name}
    if lacking := sorted(bare - known):
        plugins = dict.fromkeys(
            str(one) for cell in cells for one in cell.provenance.get("plugins") or ()
        )
        made_with = [one for one in plugins if any(f"[{name} = " in one for _, name in lacking)]
        where = f" They are of {', '.join(made_with)}." if made_with else ""
        raise SpecError(
            f"The store {store.root} names components that are not installed here: "
            f"{', '.join(f'the {kind[:-1]} {name}' for kind, name in lacking)}.{where} Install "
            "their distributions, or name their file with --plugin, and run the command again."
        )
