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
from jembench.experiment.twins import between
from jembench.report.reproduction import Pair
from jembench.report.select import warn
from jembench.store.latest import newest
from jembench.store.outcome import Cell
from jembench.store.store import Store


class Reproduction(NamedTuple):
    """The plan of a reproduction, and the results that it repeats."""

    plan: Plan
    cells: list[Cell]  # the store's, in the order of the plan's cells
    # how identities of fits and metrics differ from the store's
    differing: list[str]

    def pairs(self, store: Store) -> list[Pair]:
        """Pair each result of the store with another store's."""
        repeated = map(store.read_cell, self.plan.cells)
        return list(map(Pair, self.cells, repeated))


def plan_reproduction(source: Path, datasets: Sequence[str] = ()) -> Reproduction:
    """Plan to measure a store's current results on test images again by its recorded recipes.

    Args:
        source: the folder of the store.
        datasets: specs that replace the store's of the same names, for files in other folders.

    Raises:
        SpecError: if there is no result, or if components are not installed or cannot be planned
            here.
        DamagedError: if a record is damaged.
    """
    store = Store(source)
    store.check_exists()
    of_test = [cell for cell in store.cells(warn) if cell.split == "test"]
    cells = [cell for cell in newest(of_test) if cell.outcome.status == "ok"]
    if not cells:
        raise SpecError(
            f"The store {source} holds no result that could be measured again. `jembench report` "
            "shows what it holds."
        )
    _check_installed(store, cells)
    replaced = {Spec(dataset).bare: dataset for dataset in datasets}
    fits: dict[str, FitPlan] = {}
    planned, differing = list[CellPlan](), list[str]()
    for cell in cells:
        key = cell.fit
        # the results of a fit share its plan
        if key.id not in fits:
            record = store.read_fit(key)
            if record is None:
                raise SpecError(
                    f"The store {source} has results of {key}, but no record of how it was trained."
                )
            dataset = replaced.get(key.dataset.bare, key.dataset)
            fit = plan_again(record, dataset, str(store.fit_folder(key)), ())
            fits[key.id] = fit
            if fit.key.id != key.id:
                parts = "; ".join(between(record, fit))
                differing.append(f"{key.model} on {key.dataset}, recipe {key.recipe}: {parts}")
        # the measurement is repeated by the code that is installed here
        trust.refuse_code([cell.metric], f"The cell {cell.id} of {store.root}")
        metric = registry.resolve("metrics", cell.metric)
        if cell.provenance.get("metric_id", metric.id) != metric.id:
            differing.append(f"the code or the options of the metric {cell.metric}")
        planned.append(CellPlan(fit=fits[key.id], metric=metric, limit=cell.limit))
    plan = Plan(Suite(name=source.stem, title=""), planned)
    return Reproduction(plan, cells, list(dict.fromkeys(differing)))


def _check_installed(store: Store, cells: Sequence[Cell]) -> None:
    """Check that the models, datasets and metrics of cells are installed."""
    named: dict[Kind, set[Spec]] = {"datasets": set(), "metrics": set(), "models": set()}
    for cell in cells:
        named["datasets"].add(cell.fit.dataset)
        named["metrics"].add(cell.metric)
        named["models"].add(cell.fit.model)
    lacking, marks = list[str](), list[str]()
    for kind, specs in named.items():
        installed = {component.name for component in discovery.components(kind)}
        names = {spec.bare for spec in specs if ":" not in spec.name}  # ":": an import path
        for name in sorted(names - installed):
            lacking.append(f"the {discovery.singular(kind)} {name}")
            marks.append(f"[{name} = ")
    if not lacking:
        return

    # records name the distributions of their components
    owners = dict[str, None]()
    for cell in cells:
        for plugin in map(str, cell.provenance.get("plugins") or ()):
            if any(mark in plugin for mark in marks):
                owners[plugin] = None
    where = f" They come from {', '.join(owners)}." if owners else ""
    raise SpecError(
        f"The store {store.root} names components that are not installed here: "
        f"{', '.join(lacking)}.{where} Install their distributions, or name their file with "
        "--plugin, and run the command again."
    )
