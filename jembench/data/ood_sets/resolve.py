"""Resolution of the text of a ``set=`` option to an OOD set or a dataset."""

from typing import NamedTuple

from jembench.catalog import discovery, registry
from jembench.catalog.options import Content, marked
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Spec
from jembench.data.ood_sets.other_images import OtherDataset
from jembench.interfaces import OODSet, SplitName


class ResolvedOODSet(NamedTuple):
    """An OOD set, or a dataset as one, by its name."""

    component: Resolved
    is_dataset: bool

    def __str__(self) -> str:
        """Return the canonical spec without paths: where files lie changes no score."""
        paths = marked(self.component.factory, Content).keys()
        return self.component.text(without=self.component.incidental | paths)

    def make(self, part: SplitName = "test") -> OODSet:
        """Call the factory; a dataset is read when images are drawn from its ``part``."""
        if self.is_dataset:
            name = self.component.component.name
            return OtherDataset(make=self.component.make, name=name, part=part)
        outliers: OODSet = self.component.make()
        return outliers


def resolve(text: str) -> ResolvedOODSet:
    """Return the OOD set of a spec, or else the dataset.

    Raises:
        SpecError: if neither has the name, or there is no such option.
        PluginError: if the component cannot be imported.
    """
    name = Spec(text).bare
    is_dataset = name in _names("datasets") - _names("ood_sets")
    kind: discovery.Kind = "datasets" if is_dataset else "ood_sets"
    return ResolvedOODSet(registry.resolve(kind, text), is_dataset=is_dataset)


def _names(kind: discovery.Kind) -> set[str]:
    return {component.name for component in discovery.components(kind)}
