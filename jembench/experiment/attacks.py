"""Attacks of a suite: one metric under every combination of some of its options. Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jembench.catalog import discovery
from jembench.catalog.options import options_of
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option
from jembench.errors import unknown
from jembench.experiment.sweep import OnDatasets, bare_name

ATTACKS = ("pgd", "boundary", "pointwise", "transfer", "distal")
"""The attacks of core. A plugin's attack is a metric, and is named like one."""


@dataclass(frozen=True, kw_only=True)
class Attack(OnDatasets):
    """An attack on every model: each combination of its options is one metric, shown in one table."""

    name: str
    options: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)  # option -> the values that it takes

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> Attack:
        """From what a command or a call says: a value, or a list of values; None: the option is not given."""
        known = {
            key: given if isinstance(given, list | tuple) else [given]
            for key, given in options.items()
            if given is not None
        }
        return cls(name=name, options={key: tuple(map(str, values)) for key, values in known.items()})

    def specs(self, dataset: str) -> tuple[str, ...]:
        """Return the metrics on a dataset (a spec). The default budget is ``quick`` on digits, ``paper`` elsewhere.

        A refined model is shown beside the same model without refinement.

        Raises:
            SpecError: if there is no such attack.
        """
        takes = self._parameters()
        budget = {"budget": (default_budget(dataset),)} if "budget" in takes else {}
        combined = dict(sorted({**budget, **self.options}.items()))
        if "refine" in combined and "refine" in takes and takes["refine"].default == 0:
            combined["refine"] = tuple(dict.fromkeys(["0", *combined["refine"]]))
        return _specs(self.name, combined)

    def check(self, where: str) -> None:
        """Check that there is such an attack, with these options.

        Raises:
            SpecError: if not; ``where`` is the file.
        """
        takes = self._parameters()
        for key in self.options:
            if key not in takes:
                raise unknown(f"key in {where}", key, {"name", "on", "except", *takes}, "jembench list metrics")

    def _parameters(self) -> Mapping[str, Any]:
        known = {component.name for component in discovery.components("metrics")}
        if ":" not in self.name and bare_name(self.name) not in known:
            raise unknown("attack", self.name, ATTACKS, "jembench attack --help")
        return options_of(discovery.load(discovery.find("metrics", self.name)))


def default_budget(dataset: str) -> str:
    """``quick`` on digits, which run on a CPU; what the paper spends on all else."""
    return "quick" if bare_name(dataset) == "digits" else "paper"


def _specs(attack: str, combined: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Every combination; the options of chains and of their gradient are for refined models alone."""
    found = [dict(zip(combined, values, strict=True)) for values in itertools.product(*combined.values())]
    for chosen in found:
        if chosen.get("refine", "0") == "0":
            chosen.pop("grad", None)
            if not {"smooth", "data_noise"} & chosen.keys():
                chosen.pop("eot", None)
    return tuple(dict.fromkeys(str(Spec(attack, tuple(chosen.items()))) for chosen in found))
