"""Resolution of the text of a ``set=`` option to an OOD set or a dataset."""

from __future__ import annotations

from typing import NamedTuple

from jembench.catalog import discovery, registry, spec
from jembench.catalog.options import Content, marked
from jembench.catalog.registry import Resolved
from jembench.data.ood_sets.other_images import OtherDataset
from jembench.errors import SpecError, unknown
from jembench.interfaces import OODSet

_KINDS: tuple[discovery.Kind, ...] = ("ood_sets", "datasets")


class ResolvedOODSet(NamedTuple):
    """The component that a text names."""

    component: Resolved
    is_dataset: bool

    def __str__(self) -> str:
        """Return the canonical spec without the options that are paths: where files lie changes no score."""
        bound = self.component.bound
        return bound.without(bound.incidental | marked(self.component.factory, Content).keys())

    def make(self) -> OODSet:
        """Call the factory; a dataset is read when images are drawn from it."""
        if self.is_dataset:
            return OtherDataset(make=self.component.make, name=self.component.component.name)
        outliers: OODSet = self.component.make()
        return outliers


def resolve(text: str) -> ResolvedOODSet:
    """Return the OOD set of a spec, or else the dataset.

    Raises:
        SpecError: if neither has the name, or there is no such option.
        PluginError: if the component cannot be imported.
    """
    name = spec.parse(text).name
    if name in _names("ood_sets") or ":" in name:
        return ResolvedOODSet(registry.resolve("ood_sets", text), is_dataset=False)
    if name in _names("datasets"):
        return ResolvedOODSet(registry.resolve("datasets", text), is_dataset=True)
    raise _unknown(name)


def _names(kind: discovery.Kind) -> set[str]:
    components = discovery.components(kind)
    return {each.name for each in components} | {f"{each.distribution}/{each.name}" for each in components}


def _unknown(name: str) -> SpecError:
    known = {component.name for kind in _KINDS for component in discovery.components(kind)}
    return unknown("OOD set and no dataset", name, known, "jembench list ood_sets")
