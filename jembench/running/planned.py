"""A fit before its training, for the check of its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from jembench.catalog import registry
from jembench.data.datasets import count, make, no_training_images
from jembench.data.images import check_small
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import NotApplicable, Unavailable
from jembench.interfaces import (
    Dataset,
    DataSpec,
    FeatureNetwork,
    Need,
    Sampler,
    Source,
    Split,
    Trainable,
)
from jembench.interfaces.data import Truth
from jembench.interfaces.evaluation import KEPT, Checked
from jembench.interfaces.models import Capability
from jembench.models.capabilities import capabilities, has_energy_gradient, require_gradients
from jembench.models.predictions import energy_follows_from_logits
from jembench.running.evaluation import no_validation
from jembench.running.fit_samples import way_of
from jembench.sampling import chain
from jembench.store.layout import FRESH_SAMPLES
from jembench.store.outcome import Evaluated
from jembench.training import snapshots
from jembench.training.memory import Memory


@dataclass(frozen=True, kw_only=True)
class PlannedFit:
    """The :class:`~jembench.interfaces.Planned` of a fit before its training.

    ``model`` is None before a model is built, and again after the check.
    """

    dataset: Dataset
    test: Split  # the test images under evaluation
    fetching: bool  # True if downloads may be made now
    split: Evaluated = "test"  # what metrics read as test images
    content: str = ""  # a hash of the dataset's files, if they are the user's own
    drawn: set[str] = field(default_factory=set)  # specs of OOD sets that were drawn
    networks: dict[str, FeatureNetwork] = field(default_factory=dict)  # checked, by their specs
    model: Any = None
    sampler: Sampler | None = None
    validation: int = 0  # number of validation images of the recipe
    buffers: int = 0  # number of buffers of the last epochs that training will keep
    pretrained: bool = False
    iterations: int = 0  # of the training
    memory: Memory | None = None  # of the training; None: unknown
    # metric -> the reason why it cannot be computed, with the remedy
    reasons: Mapping[str, Unavailable] = field(default_factory=dict)

    def require(self, needs: frozenset[Need]) -> None:
        """Check that the fit will meet a metric's needs.

        Raises:
            NotApplicable: if a need will not be met.
        """
        if "chains" in needs:
            chain.require_chains(self.sampler)
        if missing := sorted(needs & set(get_args(Capability)) - capabilities(self.model)):
            reasons = getattr(self.model, "lacks", {})
            remedy = "".join({f": {reasons[need]}" for need in missing if need in reasons})
            is_trained_here = isinstance(self.model, Trainable) and not self.pretrained
            if "samples" in missing and has_energy_gradient(self.model) and not is_trained_here:
                remedy += f"; --sampler sgld:steps=100 draws samples from {self._energy}"
            raise NotApplicable(
                f"needs {' and '.join(missing)}, which the model does not give{remedy}"
            )
        if "labels" in needs and self.test.labels is None:
            raise NotApplicable(
                f"The dataset {self.spec.name} has no labels, so that no class can be wrong."
            )
        if "validation" in needs and not (self.validation and self.split == "test"):
            raise no_validation(self.count("train"), pretrained=self.pretrained, split=self.split)
        if "buffer" in needs and self._kept() == 0:
            raise NotApplicable(
                "The model keeps no chains with their ages: only a replay buffer does."
            )
        if "gradients" in needs:
            require_gradients(self.model)
        if "memory" in needs:
            check_small(self.test.images, "This metric")
        if "training" in needs and self.pretrained:
            raise NotApplicable(
                "The model was trained elsewhere: nothing is known of its training."
            )

    @property
    def _energy(self) -> str:
        """The energy that chains of a sampler follow, in words."""
        has_own = "energy" in capabilities(self.model)
        if has_own and not energy_follows_from_logits(self.model):
            return "its energy"
        return "-logsumexp of its logits, as JEM reads a classifier"

    @property
    def spec(self) -> DataSpec:
        """The description of the images."""
        return self.dataset.spec

    @property
    def truth(self) -> Truth | None:
        """The density of synthetic images."""
        return getattr(self.dataset, "truth", None)

    def count(self, images: Literal["test", "train"]) -> int:
        """Return the number of evaluated test images, or of all training images.

        Raises:
            NotApplicable: if there are no training images.
        """
        if images == "test":
            return len(self.test.images)
        number = count(self.dataset, "train")
        if number == 0:
            raise no_training_images(self.spec.name, "this metric reads training images")
        return number

    def samples(self, source: Source = KEPT) -> int | None:
        """Return the number of images that the model will generate.

        None if its sampler has no ``capacity``.
        """
        if source.sampler:  # refuses one that does not exist or does not suit the images
            named = registry.resolve("samplers", source.sampler)
            chain.make(named, self.spec, self.dataset.split("train"))
        if not (source.sampler and has_energy_gradient(self.model)):
            self.require(frozenset({"samples"}))  # the model's own samples are used

        kept = self._kept()
        way = way_of(
            source,
            self.model,
            chains=self.sampler is not None,
            pretrained=self.pretrained,
            buffers=self.buffers if kept != 0 else 0,
        )
        if way == "new":
            return source.images or FRESH_SAMPLES
        if way == "direct":
            return FRESH_SAMPLES
        if kept is None:
            return None
        if source.pooling == "five":
            return kept * snapshots.COUNT
        return kept or FRESH_SAMPLES

    def _kept(self) -> int | None:
        """Return the number of chains that training will keep.

        None if the sampler has no ``capacity``.
        """
        if self.sampler is None:
            return 0
        if not self.pretrained:
            return getattr(self.sampler, "capacity", None)
        kept = self.sampler.kept()
        return len(kept.x) if kept else 0

    def check_ood_set(self, spec: str) -> None:
        """Check that an OOD set is available, by drawing it once.

        If nothing may be downloaded now, a dataset with ``download=true`` counts as available.
        """
        outliers = resolve(spec)
        comes_later = outliers.is_dataset and outliers.component.arguments.get("download")
        if comes_later and not self.fetching:
            try:
                make(outliers.component, download=False)
            except Unavailable:
                return
        if spec not in self.drawn:
            outliers.make().draw(self.test, self.spec)
            self.drawn.add(spec)

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec after its check."""
        if spec not in self.networks:
            network = registry.resolve("features", spec).make()
            if isinstance(network, Checked):
                network.check(self)
            self.networks[spec] = network
        return self.networks[spec]
