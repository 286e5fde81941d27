"""A trained model under evaluation. Quantities that several metrics need are computed once.

A :class:`TrainedFit` holds the shared state of a fit's metrics; its method
:meth:`~TrainedFit.evaluation` makes the immutable :class:`~jembench.interfaces.Evaluation` of one
metric.

Legend: N examples, C channels, H height, W width, K classes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Generator, Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.catalog.discovery import Component
from jembench.catalog.spec import Spec
from jembench.data.holdout import Holdout
from jembench.data.ood_sets.resolve import resolve
from jembench.data.pixels import content_hash, to_float, to_uint8
from jembench.errors import NotApplicable, PluginError, SpecError
from jembench.interfaces import Dataset, DataSpec, FeatureNetwork, Features, Generative, Split
from jembench.interfaces.data import Truth
from jembench.interfaces.evaluation import (
    KEPT,
    Evaluation,
    Quantity,
    Samples,
    Source,
    TrainingRecord,
)
from jembench.interfaces.samplers import ChainState, Sampler
from jembench.metrics.classification import require_finite
from jembench.models import predictions, running_statistics
from jembench.models.energies import grad_energy
from jembench.running.caches import FeatureBank, TensorCache
from jembench.running.fit_samples import FRESH_SAMPLES, drawn_name, way_of
from jembench.sampling import chain
from jembench.training import snapshots

_HELD = ("train", "validation")

_IN_WORDS: Mapping[Quantity, str] = {
    "logits": "logits",
    "energy": "energies",
    "grad-norm": "gradient norms",
}
_REMEDY = (
    "the model has diverged, or overflows in float32. Train it again with another seed or a lower "
    "learning rate, or leave out what needs these values."
)

_UNKNOWN = TrainingRecord()
_NO_CACHE = TensorCache(None)


@dataclass(frozen=True, kw_only=True)
class TrainedFit:
    """A trained model, its data and its training.

    The evaluations of all metrics share its caches.
    """

    model: Any  # the nn.Module, on the device, in evaluation mode
    sampler: Sampler | None  # in its state after training
    dataset: Dataset
    device: torch.device
    seed: int
    bank: FeatureBank
    limit: int | None = None  # of the test images
    training: TrainingRecord = _UNKNOWN
    data_content: str = ""  # a hash of the files of a dataset of the user's own files
    conditional: bool = False  # True if the recipe trained with chains on E(x, y)
    held: Holdout | None = None  # the training and validation images of the recipe
    # of the last epochs of training, the oldest first
    buffers: Callable[[], Sequence[Samples]] = tuple
    cache: TensorCache = _NO_CACHE
    pretrained: bool = False  # trained elsewhere: its training data and buffers are unknown
    wanted: frozenset[Quantity] = frozenset()  # to read of test images and OOD sets in one pass
    deadline: float | None = None  # UTC, at which long metrics stop
    steps: int | None = None  # of new chains, as the recipe's metric selected; None: as in training
    ood_sets: dict[str, Split] = field(default_factory=dict, init=False)  # by their specs
    # by the content of the images
    known: dict[str, dict[Quantity, Tensor]] = field(default_factory=dict, init=False)
    drawn: dict[Source, Samples] = field(default_factory=dict, init=False)

    @cached_property
    def test(self) -> Split:
        """The test images under evaluation."""
        return limited(self.dataset.split("test"), self.limit)

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> Generator:
        """Return a generator for one purpose, derived from the fit's seed."""
        return seeds.generator(self.seed, f"evaluation/{purpose}", device)

    def evaluation(
        self, used: set[Component] | None = None, code: str = "", share: tuple[int, int] = (0, 1)
    ) -> Evaluation:
        """Return the evaluation for one metric.

        Args:
            used: receives the feature networks and OOD sets that the metric uses.
            code: a hash of the metric's code, if it has no version.
            share: the share of a long metric to compute, and the number of shares.
        """
        used = set() if used is None else used
        access = FitAccess(self, used, code, share)
        return Evaluation(
            model=self.model,
            sampler=self.sampler,
            device=self.device,
            training=self.training,
            data=access,
            predictions=access,
            samples=self.samples,
            services=access,
        )

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the tensors of a name, cached; random numbers depend on the name."""

        def seeded() -> dict[str, Tensor]:
            with seeds.drawing(self.seed, f"evaluation/{name}", self.device):
                return compute()

        return self.cache.once(name, seeded)

    def statistics_remark(self) -> str:
        """Return a remark on running statistics of batch norm that cost accuracy; "": they do not.

        The images that are classified correctly are cached, so that a model is examined once.
        """
        train, validation = self.held or Holdout(self.dataset.split("train"), None)
        if train.labels is None or not running_statistics.followed_layers(self.model):
            return ""
        counted, judged = running_statistics.parts(train, validation)

        spec, device = self.dataset.spec, self.device

        def compute() -> dict[str, Tensor]:
            return running_statistics.correct(self.model, counted.images, judged, spec, device)

        correct = self.once("running-statistics", compute)
        judged_on = "further training images" if validation is None else "validation images"
        return running_statistics.remark(**correct, images=len(counted.images), judged_on=judged_on)

    def samples(self, source: Source = KEPT) -> Samples:
        """Return generated images, computed once.

        They are direct samples, the kept chains, or the ends of new ones.
        """
        if source not in self.drawn:
            self.drawn[source] = self._draw(source)
        return self.drawn[source]

    def _draw(self, source: Source) -> Samples:
        has_chains, buffers = (
            self.sampler is not None,
            self.buffers() if source.pooling != "one" else (),
        )
        way = way_of(
            source, self.model, chains=has_chains, pretrained=self.pretrained, buffers=len(buffers)
        )
        if way == "pooled":
            return (snapshots.together if source.pooling == "five" else snapshots.pixelwise_mean)(
                buffers
            )
        if way == "direct":
            return self._drawn_directly(self.model)
        kept = self.sampler.kept() if self.sampler and way == "kept" else None
        return self._fresh(source) if kept is None else self._as_samples(kept, "buffer")

    @torch.no_grad()
    def _drawn_directly(self, model: Generative) -> Samples:
        """Draw images with balanced classes, or without classes if the model has none."""
        generator = self.generator("samples", self.device)
        classes = self.dataset.spec.num_classes
        y = torch.arange(FRESH_SAMPLES, device=self.device) % classes if classes else None
        with seeds.drawing(self.seed, "evaluation/samples", self.device):
            try:
                x = model.sample(FRESH_SAMPLES, y, generator=generator)
            except SpecError:  # of a model without classes
                x, y = model.sample(FRESH_SAMPLES, generator=generator), None
        expected = (FRESH_SAMPLES, *self.dataset.spec.shape)
        if not isinstance(x, Tensor) or x.shape != expected or not x.is_floating_point():
            described = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise PluginError(
                f"{type(model).__name__}.sample returns {described}; return images of real "
                f"floating-point numbers, {expected}, within {self.dataset.spec.bounds}."
            )
        return self._as_samples(ChainState(x, y), "direct")

    def _fresh(self, source: Source) -> Samples:
        """Return the ends of new chains. The sampler's state does not change."""
        sampler, data = self.sampler, self.dataset.spec
        selected = source.steps is None and source.sampler is None and self.steps is not None
        if selected:
            source = replace(source, steps=self.steps)
        named = registry.resolve("samplers", source.sampler) if source.sampler else None
        if named:
            sampler = chain.make(
                named, data, self.held.train if self.held else self.dataset.split("train")
            )
        assert sampler is not None
        steps, n = (
            sampler.steps if source.steps is None else source.steps,
            source.images or FRESH_SAMPLES,
        )
        as_trained = self.conditional or getattr(self.model, "chains", "none") == "conditional"
        conditional = as_trained if source.conditional is None else source.conditional
        unusual = {} if conditional == as_trained else {"conditional": conditional}
        options = {**(named.arguments if named else {}), **unusual, "steps": steps}
        name = _spec(named, options)

        def run() -> dict[str, Tensor]:
            generator = self.generator(name, self.device)
            y = torch.arange(n, device=self.device) % data.num_classes if conditional else None
            state = sampler.start(n, y, generator=generator)
            gradient = predictions.batched(grad_energy(self.model, of_chains=True), data)
            end = chain.run(sampler, state, gradient, generator, steps)
            images, labels, *_ = self._as_samples(end, name)
            return {"images": images} | ({} if labels is None else {"labels": labels})

        drawn = self.once(drawn_name(n, steps, conditional, named), run)
        if selected:  # under one protocol, although the seeds may have selected several lengths
            name = _spec(named, options | {"steps": "selected"})
        return Samples(drawn["images"], drawn.get("labels"), name)

    def _as_samples(self, state: ChainState, source: str) -> Samples:
        labels, ages = (None if part is None else part.cpu() for part in (state.y, state.ages))
        return Samples(to_uint8(state.x, self.dataset.spec.bounds).cpu(), labels, source, ages)


def _spec(sampler: registry.Resolved | None, options: Mapping[str, Any]) -> str:
    return Spec.of(sampler.name if sampler else "chains", options)


@dataclass(frozen=True)
class FitAccess:
    """The ``Data``, ``Predictions`` and ``Services`` of a trained model, for one metric."""

    fit: TrainedFit
    used: set[Component]
    code: str
    share: tuple[int, int]

    @property
    def spec(self) -> DataSpec:
        """The description of the dataset."""
        return self.fit.dataset.spec

    @property
    def content(self) -> str:
        """A hash of the files of a dataset of the user's own files."""
        return self.fit.data_content

    @property
    def truth(self) -> Truth | None:
        """The density of synthetic images."""
        return getattr(self.fit.dataset, "truth", None)

    def part(self, name: str) -> Split:
        """Return test, validation or training images, or an OOD set.

        A set is drawn once for all metrics.

        Raises:
            SpecError: if there is no OOD set or dataset of that name.
        """
        if name == "test":
            return self.fit.test
        if name in _HELD:
            held = self.fit.held or Holdout(self.fit.dataset.split("train"), None)
            if name == "train":
                return held.train
            if held.validation is None:
                raise no_validation(len(held.train.images), pretrained=self.fit.pretrained)
            return held.validation
        ood_set = resolve(name)
        self.used.add(ood_set.component.component)
        if name not in self.fit.ood_sets:
            drawn = ood_set.make().draw(self.fit.test, self.spec)
            self.fit.ood_sets[name] = drawn if isinstance(drawn, Split) else Split(drawn, None)
        return self.fit.ood_sets[name]

    def images(self, name: str) -> Tensor:
        """Return the images of a part or of an OOD set."""
        return self.part(name).images

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """Return a quantity of images.

        For test images and OOD sets, the same pass computes all quantities that the metrics of the
        run need. If one of these fails, this quantity is read alone.

        Raises:
            Diverged: if the quantity of an image is not finite.
        """
        fit, pixels = self.fit, self._pixels(images)
        content = _cache_name("", pixels, noise)
        values = fit.known.setdefault(content, {})
        if quantity not in values:
            values.update(cast(dict[Quantity, Tensor], fit.cache.recall(content)))
        if quantity not in values:
            together = isinstance(images, str) and images not in _HELD
            wanted = ({quantity} | (fit.wanted if together else set())) - values.keys()
            shown = predictions.noisy(pixels, noise, self.spec.bounds) if noise else pixels
            seed = seeds.derive(fit.seed, f"evaluation/{content}")
            try:
                readings = predictions.read(fit.model, shown, self.spec, fit.device, wanted, seed)
            except Exception:  # of one of several quantities, which fails the metrics that read it
                if len(wanted) == 1:
                    raise
                readings = predictions.read(
                    fit.model, shown, self.spec, fit.device, {quantity}, seed
                )
            values.update(readings)
            fit.cache.keep(content, cast(dict[str, Tensor], values))
        shown_as = f"{images} images" if isinstance(images, str) else "images"
        require_finite(values[quantity], _IN_WORDS[quantity], shown_as, _REMEDY)
        return values[quantity]

    def _pixels(self, images: str | Tensor) -> Tensor:
        return self.images(images) if isinstance(images, str) else images

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        """Return E(x) after ``steps`` of the model's own chain."""
        fit, pixels, bounds = self.fit, self._pixels(images), self.spec.bounds
        sampler = chain.require_chains(fit.sampler)

        def refine() -> dict[str, Tensor]:
            generator = fit.generator(f"refined:steps={steps}", fit.device)
            begin = predictions.noisy(pixels, noise, bounds) if noise else to_float(pixels, bounds)
            gradient = predictions.batched(grad_energy(fit.model, of_chains=True), self.spec)
            end = chain.run(sampler, ChainState(begin.to(fit.device)), gradient, generator, steps)
            return {"energy": gradient(end.x, None)[0].cpu()}

        energy = fit.once(_cache_name(f"refined-{steps}-", pixels, noise), refine)["energy"]
        require_finite(energy, "refined energies", "images", _REMEDY)
        return energy

    def generator(self, purpose: str) -> Generator:
        """Return a generator on the CPU for one purpose."""
        return self.fit.generator(purpose)

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, ready for use."""
        self.used.add(registry.resolve("features", spec).component)
        return self.fit.bank.network(spec)

    def features_of(self, spec: str, images: Literal["train", "test"] | Tensor) -> Features:
        """Return the features of a part of the dataset, or of any images."""
        self.features(spec)
        if not isinstance(images, Tensor):
            images = (self.fit.test if images == "test" else self.fit.dataset.split(images)).images
        return self.fit.bank.of_images(spec, images)

    def remembered(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the result of ``compute``, cached on disk.

        The key is the name and the version of the metric's code.
        """
        return self.fit.once(f"{name}-{self.code}" if self.code else name, compute)

    def out_of_time(self) -> bool:
        """Return whether the deadline has passed."""
        return self.fit.deadline is not None and time.time() >= self.fit.deadline


def _cache_name(prefix: str, images: Tensor, noise: float) -> str:
    """Return the cache name of a quantity of images."""
    return prefix + content_hash(images) + (f"-noise={noise:g}" if noise else "")


def limited(test: Split, limit: int | None) -> Split:
    """Return the test images under evaluation.

    They are all, or ``limit`` at random, the same for every model and seed.
    """
    if limit is None:
        return test
    chosen = torch.randperm(len(test.images), generator=seeds.generator(0, "evaluation/limit"))[
        :limit
    ]
    return Split(test.images[chosen], None if test.labels is None else test.labels[chosen])


def no_validation(train: int, *, pretrained: bool) -> NotApplicable:
    """Return the error for a model without validation images."""
    if pretrained:
        return NotApplicable(
            "The model was trained elsewhere, so that its validation images are unknown, and "
            "nothing may be fitted on test images."
        )
    return NotApplicable(
        "The model is trained without validation images, and nothing may be fitted on test "
        f"images. Train it with validation images: --set data.validation={max(train // 10, 1)}, "
        "or a recipe that does."
    )
