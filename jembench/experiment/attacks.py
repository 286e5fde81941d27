"""The suite of an attack: its metrics for every combination of options. Imports no torch."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jembench.catalog import discovery
from jembench.catalog.options import options_of
from jembench.catalog.spec import Spec
from jembench.errors import unknown
from jembench.experiment.suite import Run, Suite

ATTACKS = ("pgd", "boundary", "pointwise", "transfer", "distal")
"""The attacks of core. An attack of a plugin is named by its metric."""


def attack_suite(attack: str, options: Mapping[str, Any], datasets: Sequence[str]) -> Suite:
    """Return the suite of an attack, which names no models.

    The suite has a metric for each combination of the attack's options.

    The default budget is ``quick`` on digits, ``paper`` elsewhere. A refined model is compared with
    the same model without refinement, for which options of chains and of their gradient have no
    effect.

    Args:
        attack: the name of an attack or of a metric, or a spec with some of its options.
        options: option -> a value or a list of values; None: the option is not set.
        datasets: specs, each with a block of its own.

    Raises:
        SpecError: if there is no such attack.
    """
    title, runs = f"Robustness: {attack}", list[Run]()
    for dataset in datasets:
        metrics = _metrics(attack, options, dataset)
        runs.append(Run(title=title, datasets=(dataset,), metrics=metrics))
    if len(runs) > 1:
        runs = [replace(run, title=f"{title}, {Spec(run.datasets[0]).bare}") for run in runs]
    return Suite(name="robustness", title=title, runs=tuple(runs), datasets=tuple(datasets))


def _metrics(attack: str, options: Mapping[str, Any], dataset: str) -> tuple[str, ...]:
    """Return the metrics of an attack on a dataset."""
    installed = {component.name for component in discovery.components("metrics")}
    own = Spec(attack)
    name = own.name
    if ":" not in name and own.bare not in installed:
        raise unknown("attack", name, ATTACKS, "jembench attack --help")
    takes = options_of(discovery.load(discovery.find("metrics", name)))
    combined: dict[str, list[str]] = {}
    for key, value in sorted(options.items()):
        values = value if isinstance(value, list | tuple) else [value]
        if values != [None]:
            combined[key] = list(map(str, values))
    if "budget" in takes:
        # digits are for CPUs; other datasets have the budget of the paper
        usual = "quick" if Spec(dataset).bare == "digits" else "paper"
        combined.setdefault("budget", [usual])
    if "refine" in combined and "refine" in takes and takes["refine"].default == 0:
        combined["refine"] = ["0", *combined["refine"]]
    specs = dict[Spec, None]()
    for values in itertools.product(*combined.values()):
        chosen = dict(zip(combined, values, strict=True))
        if chosen.get("refine", "0") == "0":
            chosen.pop("grad", None)
            if not {"smooth", "data_noise"} & chosen.keys():
                chosen.pop("eot", None)
        specs[own.with_(**{**chosen, **own.options})] = None
    return tuple(specs)
