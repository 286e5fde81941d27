"""A fit before it is trained, as its metrics see it: what could be known beforehand fails no metric afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from jembench.catalog import registry
from jembench.data.datasets import count, present
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import NotApplicable, Unavailable
from jembench.interfaces import Dataset, DataSpec, FeatureNetwork, Generative, Need, Sampler, Source, Split
from jembench.interfaces.evaluation import KEPT, Checked
from jembench.interfaces.models import Capability
from jembench.models.capabilities import capabilities, is_differentiable, require_gradients
from jembench.running.evaluation import FRESH_SAMPLES, check_source, limited, no_validation
from jembench.sampling.chain import require_chains
from jembench.training import snapshots


@dataclass(kw_only=True)
class PlannedData:
    """A dataset, and what was found to be available for it, whatever model or metric asked."""

    dataset: Dataset
    limit: int | None  # test images, None: all
    fetching: bool
    drawn: set[str] = field(default_factory=set)  # OOD sets
    networks: dict[str, FeatureNetwork] = field(default_factory=dict)

    @cached_property
    def test(self) -> Split:
        """The test images under evaluation."""
        return limited(self.dataset.split("test"), self.limit)


@dataclass(kw_only=True)
class PlannedFit:
    """The :class:`~jembench.interfaces.Planned` of a model at its start."""

    model: Any
    sampler: Sampler | None
    of: PlannedData
    validation: int = 0  # images that the recipe holds out
    buffers: int = 0  # of the last epochs, that training will keep
    pretrained: bool = False

    def require(self, needs: frozenset[Need], name: str) -> None:
        """Check that the fit will give what a metric needs; ``name`` is the model's.

        Raises:
            NotApplicable: with what is missing.
        """
        known: tuple[Need, ...] = get_args(Capability)
        has = capabilities(self.model)
        if missing := sorted(needs & set(known) - has):
            given = " and ".join(capability for capability in known if capability in has)
            given = f"{given} only" if given else "nothing"
            raise NotApplicable(f"needs {' and '.join(missing)}: {name} gives {given}")
        if "labels" in needs and self.of.test.labels is None:
            raise NotApplicable(f"The dataset {self.spec.name} has no labels, so there is nothing to classify.")
        if "validation" in needs and not self.validation:
            raise no_validation(self.count("train"), pretrained=self.pretrained)
        if "chains" in needs:
            require_chains(self.sampler)
        if "buffer" in needs and self._kept() == 0:
            raise NotApplicable("The model keeps no chains, or not their ages: only a replay buffer does.")
        if "gradients" in needs:
            require_gradients(is_differentiable(self.model))
        if "training" in needs and self.pretrained:
            raise NotApplicable("The model was trained elsewhere: nothing is known of its training.")

    @property
    def spec(self) -> DataSpec:
        """The description of the images."""
        return self.of.dataset.spec

    @property
    def fetching(self) -> bool:
        """True if downloads may be made now."""
        return self.of.fetching

    def count(self, images: Literal["test", "train"]) -> int:
        """Return the number of test images under evaluation, or of the whole training split."""
        return len(self.of.test.images) if images == "test" else count(self.of.dataset, "train")

    def samples(self, source: Source = KEPT) -> int | None:
        """Return how many images of its own the model will have; None: its sampler does not say how many it keeps."""
        kept = self._kept()
        buffers = 0 if kept == 0 else self.buffers
        check_source(source, chains=self.sampler is not None, pretrained=self.pretrained, buffers=buffers)
        if source.chains == "fresh":
            return source.images or FRESH_SAMPLES
        if isinstance(self.model, Generative) and source.pooling == "one":
            return FRESH_SAMPLES
        if kept is None:
            return None
        return kept * snapshots.COUNT if source.pooling == "five" else kept or FRESH_SAMPLES

    def _kept(self) -> int | None:
        """Return how many chains outlive training; None: the sampler does not say."""
        if self.sampler is None:
            return 0
        if self.pretrained:
            kept = self.sampler.kept()
            return len(kept.x) if kept else 0
        return getattr(self.sampler, "capacity", None)

    def check_ood_set(self, spec: str) -> None:
        """Draw them once. Those of a dataset that is to be downloaded are believed in where nothing may be fetched."""
        outliers = resolve(spec)
        if outliers.is_dataset and not self.fetching and outliers.component.bound.arguments.get("download"):
            try:
                present(outliers.component)
            except Unavailable:
                return
        if spec not in self.of.drawn:
            outliers.make().draw(self.of.test, self.spec)
            self.of.drawn.add(spec)

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, checked once."""
        if spec not in self.of.networks:
            network = registry.resolve("features", spec).make()
            if isinstance(network, Checked):
                network.check(self)
            self.of.networks[spec] = network
        return self.of.networks[spec]
