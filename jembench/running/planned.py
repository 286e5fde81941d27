"""A fit before it is trained, as its metrics see it: what could be known beforehand fails no metric afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from jembench.catalog import registry
from jembench.data.datasets import count, present
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import JembenchError, NotApplicable, Unavailable
from jembench.interfaces import Dataset, DataSpec, FeatureNetwork, Generative, Need, Sampler, Source, Split
from jembench.interfaces.evaluation import KEPT, Checked
from jembench.interfaces.models import Capability
from jembench.models.capabilities import capabilities, is_differentiable, require_gradients
from jembench.running.evaluation import FRESH_SAMPLES, check_source, limited, no_validation
from jembench.sampling.chain import require_chains
from jembench.training import snapshots


@dataclass(kw_only=True)
class PlannedData:
    """A dataset, and what can be had for it: looked at once, whatever model or metric asks."""

    dataset: Dataset
    limit: int | None  # test images, None: all
    fetching: bool
    _found: dict[str, Any] = field(default_factory=dict)

    def once(self, what: str, look: Callable[[], Any]) -> Any:
        """What ``look`` gives or raises, looked up once."""
        if what not in self._found:
            try:
                self._found[what] = look()
            except JembenchError as error:
                self._found[what] = error
        if isinstance(found := self._found[what], JembenchError):
            raise found
        return found

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
    trained_here: list[str] = field(
        default_factory=list
    )  # the feature networks that were asked for and are trained first

    def require(self, needs: frozenset[Need], name: str) -> None:
        """Check that the fit will give what a metric needs; ``name`` is the model's.

        Raises:
            NotApplicable: with what is missing.
        """
        known: tuple[Need, ...] = get_args(Capability)
        has = capabilities(self.model)
        if missing := sorted(needs & set(known) - has):
            given = " and ".join(capability for capability in known if capability in has)
            raise NotApplicable(
                f"needs {' and '.join(missing)}: {name} gives {f'{given} only' if given else 'nothing'}"
            )
        if "labels" in needs and not self.labelled:
            raise NotApplicable(f"The dataset {self.spec.name} has no labels, so there is nothing to classify.")
        if "validation" in needs:
            self.count("validation")
        if "chains" in needs:
            require_chains(self.sampler)
        if "gradients" in needs:
            require_gradients(self.differentiable)
        if "training" in needs and self.pretrained:
            raise NotApplicable("The model was trained elsewhere: nothing is known of its training.")

    @property
    def spec(self) -> DataSpec:
        """What the images are."""
        return self.of.dataset.spec

    @property
    def differentiable(self) -> bool:
        """Whether the model's answers have gradients."""
        return is_differentiable(self.model)

    @property
    def fetching(self) -> bool:
        """Whether downloads may be made now."""
        return self.of.fetching

    @property
    def labelled(self) -> bool:
        """Whether the test images have labels."""
        return self.of.test.labels is not None

    @property
    def kept(self) -> int | None:
        """The chains that outlive training; None: the sampler does not say."""
        if self.sampler is None:
            return 0
        if self.pretrained:
            kept = self.sampler.kept()
            return len(kept.x) if kept else 0
        sampler: object = self.sampler
        return getattr(sampler, "capacity", None)

    def count(self, images: Literal["test", "validation", "train"]) -> int:
        """The test images under evaluation, those held out, or the whole training split."""
        if images == "test":
            return len(self.of.test.images)
        train = count(self.of.dataset, "train")
        if images == "validation" and not self.validation:
            raise no_validation(train, pretrained=self.pretrained)
        return self.validation if images == "validation" else train

    def samples(self, source: Source = KEPT) -> int | None:
        """How many images of its own the model will have; None: its sampler does not say how many it keeps."""
        kept = self.kept
        buffers = 0 if kept == 0 else self.buffers
        check_source(source, chains=self.sampler is not None, pretrained=self.pretrained, buffers=buffers)
        if source.chains == "fresh":
            return source.images or FRESH_SAMPLES
        if isinstance(self.model, Generative) and source.pooling == "one":
            return FRESH_SAMPLES
        if kept is None:
            return None
        return kept * snapshots.COUNT if source.pooling == "five" else kept or FRESH_SAMPLES

    def check_ood_set(self, spec: str) -> None:
        """Draw them once. Those of a dataset that is to be downloaded are believed in where nothing may be fetched."""
        self.of.once(f"outliers {spec}", lambda: self._draw(spec))

    def _draw(self, spec: str) -> None:
        outliers = resolve(spec)
        if outliers.is_dataset and not self.fetching and outliers.component.bound.arguments.get("download"):
            try:
                present(outliers.component)
            except Unavailable:
                return
        outliers.make().draw(self.of.test, self.spec)

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network, checked."""
        network: FeatureNetwork = self.of.once(f"features {spec}", lambda: self._network(spec))
        if getattr(network, "trained_here", False):
            self.trained_here.append(spec)
        return network

    def _network(self, spec: str) -> Any:
        network = registry.resolve("features", spec).make()
        if isinstance(network, Checked):
            network.check(self)
        return network
