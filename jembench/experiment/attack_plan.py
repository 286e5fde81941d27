"""The plan of ``jembench attack``: every combination of an attack's options on every model. Imports no torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from jembench.catalog import discovery
from jembench.catalog.options import keyword_parameters
from jembench.catalog.spec import Spec, split_list
from jembench.errors import SpecError, unknown
from jembench.experiment.plan import Plan, make_plan
from jembench.experiment.suite import Suite
from jembench.experiment.sweep import bare_name

ATTACKS = ("pgd", "boundary", "pointwise", "transfer", "distal", "ensemble", "gradient-checks")
"""The attacks of core. A plugin's attack is a metric, and is named like one."""

CROSSED = ("norm", "eps", "refine", "eot", "smooth")
"""Options that take several values with commas between them: every combination is one attack."""


def plan_attack(
    attack: str,
    options: Mapping[str, Any],
    *,
    models: Sequence[str],
    datasets: Sequence[str],
    seeds: Sequence[int],
    budget: str | None = None,
    **how: Any,
) -> Plan:
    """Every combination of the attack's options, on every model and dataset.

    Args:
        attack: the name of an attack or of a metric.
        options: of the attack; those of ``CROSSED`` may hold several values with commas between them.
        models: specs.
        datasets: specs.
        seeds: of the models.
        budget: what the attack may spend; None: ``quick`` on digits, ``paper`` elsewhere.
        how: as for :func:`jembench.experiment.plan.make_plan`.

    Raises:
        SpecError: for any name or option that does not exist.
    """
    if not datasets:
        raise SpecError("--dataset names no dataset. `jembench list datasets` says what there is.")
    plans = []
    for dataset in datasets:
        combined = _combinations(attack, options, budget or default_budget(dataset))
        suite = Suite(
            name="robustness",
            title=f"Robustness: {attack}",
            models=tuple(models),
            datasets=(dataset,),
            metrics=tuple(_specs(attack, combined)),
            seeds=tuple(seeds),
        )
        plans.append(make_plan(suite, **how))
    return joined(plans)


def joined(plans: Sequence[Plan]) -> Plan:
    """One plan of all the cells and parts of some, under the suite of the first."""
    return dataclasses.replace(
        plans[0],
        cells=[cell for plan in plans for cell in plan.cells],
        parts=tuple(part for plan in plans for part in plan.parts),
    )


def default_budget(dataset: str) -> str:
    """``quick`` on digits, which run on a CPU; what the paper spends on all else."""
    return "quick" if bare_name(dataset) == "digits" else "paper"


def _combinations(attack: str, given: Mapping[str, Any], budget: str) -> dict[str, list[str]]:
    """The values of each option that was given, with a budget if the attack has such an option.

    A refined model is shown beside the same model without refinement.

    Raises:
        SpecError: if there is no such attack.
    """
    known = {component.name for component in discovery.components("metrics")}
    if bare_name(attack) not in known:
        raise unknown("attack", attack, ATTACKS, "jembench attack --help")
    takes = keyword_parameters(discovery.load(discovery.find("metrics", attack)))
    everything = ({"budget": budget} if "budget" in takes else {}) | dict(given)
    combined = {
        name: split_list(str(value)) if name in CROSSED else [str(value)] for name, value in sorted(everything.items())
    }
    if "refine" in combined and "refine" in takes and takes["refine"].default == 0:
        combined["refine"] = list(dict.fromkeys(["0", *combined["refine"]]))
    return combined


def _specs(attack: str, combined: Mapping[str, Sequence[str]]) -> list[str]:
    """Every combination; the options of chains and of their gradient are for refined models alone."""
    found = [dict(zip(combined, values, strict=True)) for values in itertools.product(*combined.values())]
    for chosen in found:
        if chosen.get("refine", "0") == "0":
            chosen.pop("grad", None)
            if not {"smooth", "data_noise"} & chosen.keys():
                chosen.pop("eot", None)
    return list(dict.fromkeys(str(Spec(attack, tuple(chosen.items()))) for chosen in found))
