"""A trained model under evaluation, which computes shared quantities once.

:meth:`TrainedFit.evaluation` makes the immutable :class:`~jembench.interfaces.Evaluation` for one
metric.

Legend: N examples, C channels, H height, W width, K classes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Generator, Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.catalog.discovery import Component
from jembench.catalog.spec import Spec
from jembench.data.datasets import no_training_images
from jembench.data.holdout import Holdout
from jembench.data.images import check_small, loaded, taken
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
from jembench.models import predictions, ranges, running_statistics
from jembench.models.capabilities import capabilities
from jembench.models.energies import grad_energy
from jembench.running.caches import FeatureBank, TensorCache
from jembench.running.fit_samples import way_of
from jembench.sampling import chain
from jembench.store.layout import FRESH_SAMPLES, drawn_name
from jembench.store.outcome import Evaluated
from jembench.store.tensors import Tensors
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
    """A trained model, its data, its predictions and its samples.

    Each metric gets a copy of the fit as its ``Data``, ``Predictions`` and ``Services``. All copies
    share the caches.
    """

    model: Any  # the nn.Module, on the device, in evaluation mode
    sampler: Sampler | None  # in its state after training
    dataset: Dataset
    device: torch.device
    seed: int
    bank: FeatureBank
    limit: int | None = None  # number of test images; None: all
    split: Evaluated = "test"  # what metrics read as test images
    training: TrainingRecord = _UNKNOWN
    content: str = ""  # a hash of the dataset's files, if they are the user's own
    conditional: bool = False  # True if the recipe trained with chains on E(x, y)
    held: Holdout | None = None  # the training and validation images of the recipe
    # reads the buffers of the last epochs of training, the oldest first
    buffers: Callable[[], Sequence[Samples]] = tuple
    cache: TensorCache = _NO_CACHE
    pretrained: bool = False  # trained elsewhere: its training data and buffers are unknown
    imported: bool = False  # its weights are from a file of the user's
    wanted: frozenset[Quantity] = frozenset()  # read in one pass over test images or an OOD set
    deadline: float | None = None  # UTC in s since 1970; long metrics stop then
    steps: int | None = None  # of new chains, selected by the recipe's metric; None: as in training
    # of one metric: the feature networks and OOD sets that it uses, a hash of its code if the code
    # has no version, and the share to compute
    used: set[Component] = field(default_factory=set)
    code: str = ""
    share: tuple[int, int] = (0, 1)
    # caches: test images and OOD sets by their names, quantities by the content of images, and
    # samples by their sources
    parts: dict[str, Split] = field(default_factory=dict)
    readings: dict[str, dict[Quantity, Tensor]] = field(default_factory=dict)
    drawn: dict[Source, Samples] = field(default_factory=dict)

    @property
    def spec(self) -> DataSpec:
        """The description of the dataset."""
        return self.dataset.spec

    @property
    def truth(self) -> Truth | None:
        """The density of synthetic images."""
        return getattr(self.dataset, "truth", None)

    @property
    def test(self) -> Split:
        """The test images under evaluation."""
        return self.part("test")

    @property
    def holdout(self) -> Holdout:
        """The training and validation images; without a recipe, the whole training split."""
        return self.held or Holdout(self.dataset.split("train"), None)

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
            share: the share of a long metric to compute, from 0, and the number of shares.
        """
        access = replace(self, used=set() if used is None else used, code=code, share=share)
        return Evaluation(
            model=self.model,
            sampler=self.sampler,
            device=self.device,
            training=self.training,
            data=access,
            predictions=access,
            samples=access.samples,
            services=access,
        )

    def once(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return a name's tensors, cached; random numbers depend on the name."""

        def seeded() -> Tensors:
            with seeds.drawing(self.seed, f"evaluation/{name}", self.device):
                return compute()

        return self.cache.once(name, seeded)

    def statistics_remark(self) -> str:
        """Return a remark if batch norm's running statistics cost accuracy, or "".

        The results are cached, so that a model is examined once.
        """
        train, validation = self.holdout
        if train.labels is None or len(train.labels) < 2:
            return ""
        if not running_statistics.followed_layers(self.model):
            return ""
        counted, judged = running_statistics.parts(train, validation)

        def compute() -> Tensors:
            images, device = counted.images, self.device
            return running_statistics.correct(self.model, images, judged, self.spec, device)

        correct = self.once("running-statistics", compute)
        judged_on = "further training images" if validation is None else "validation images"
        cause = running_statistics.OF_TRAINING
        if self.pretrained:
            cause = running_statistics.OF_INPUT
        elif "samples" in capabilities(self.model):
            cause = running_statistics.OF_CHAINS
        return running_statistics.remark(
            **correct, images=len(counted.images), judged_on=judged_on, cause=cause
        )

    def range_remark(self) -> str:
        """Return a remark if a pretrained model classifies better in another range, or ""."""
        train = self.holdout.train
        is_known = train.labels is not None and len(train.images) > 0
        if not self.pretrained or not is_known or "logits" not in capabilities(self.model):
            return ""

        def compute() -> Tensors:
            return ranges.correct(self.model, ranges.judged(train), self.spec, self.device)

        correct = self.once("input-ranges", compute)
        return ranges.remark(correct, ranges.IMPORTED if self.imported else ranges.ADAPTED)

    def samples(self, source: Source = KEPT) -> Samples:
        """Return generated images, computed once.

        The images are direct samples, kept chains, or the ends of new chains.
        """
        if source not in self.drawn:
            self.drawn[source] = self._draw(source)
        return self.drawn[source]

    def _draw(self, source: Source) -> Samples:
        buffers: Sequence[Samples] = ()
        if source.pooling != "one":
            buffers = self.buffers()
        has_chains = self.sampler is not None
        way = way_of(
            source, self.model, chains=has_chains, pretrained=self.pretrained, buffers=len(buffers)
        )
        if way == "pooled" and source.pooling == "five":
            return snapshots.together(buffers)
        if way == "pooled":
            return snapshots.pixelwise_mean(buffers)
        if way == "direct":
            return self._drawn_directly(self.model)
        if way == "kept" and self.sampler:
            kept = self.sampler.kept()
            if kept is not None:
                return self._as_samples(kept, "buffer")
        return self._fresh(source)

    @torch.no_grad()
    def _drawn_directly(self, model: Generative) -> Samples:
        """Draw images with balanced classes, if the model has classes."""
        generator = self.generator("samples", self.device)
        classes = self.spec.num_classes
        y = torch.arange(FRESH_SAMPLES, device=self.device) % classes if classes else None
        with seeds.drawing(self.seed, "evaluation/samples", self.device):
            try:
                x = model.sample(FRESH_SAMPLES, y, generator=generator)
            except SpecError:  # the model has no classes
                x, y = model.sample(FRESH_SAMPLES, generator=generator), None
        expected, returned = (FRESH_SAMPLES, *self.spec.shape), type(x).__name__
        if isinstance(x, Tensor):
            if x.shape == expected and x.is_floating_point():
                return self._as_samples(ChainState(x, y), "direct")
            returned = f"{tuple(x.shape)} {x.dtype}"
        raise PluginError(
            f"{type(model).__name__}.sample returns {returned}; return images of real "
            f"floating-point numbers, {expected}, within {self.spec.bounds}."
        )

    def _fresh(self, source: Source) -> Samples:
        """Return the ends of new chains. The sampler's state does not change."""
        is_selected = source.steps is None and source.sampler is None and self.steps is not None
        if is_selected:
            source = replace(source, steps=self.steps)

        # the sampler, and its options in the protocol
        data, sampler, named = self.spec, self.sampler, None
        kind, options = "chains", dict[str, Any]()
        if source.sampler:
            named = registry.resolve("samplers", source.sampler)
            sampler = chain.make(named, data, self.holdout.train)
            kind, options = named.name, dict(named.arguments)
        assert sampler is not None
        conditional = self.conditional or getattr(self.model, "chains", "none") == "conditional"
        if source.conditional not in (None, conditional):
            conditional = not conditional
            options["conditional"] = conditional
        steps, n = source.steps, source.images or FRESH_SAMPLES
        if steps is None:
            steps = sampler.steps
        options["steps"] = steps
        name = Spec.of(kind, options)

        def run() -> Tensors:
            generator, y = self.generator(name, self.device), None
            if conditional:
                y = torch.arange(n, device=self.device) % data.num_classes
            state = sampler.start(n, y, generator=generator)
            gradient = predictions.batched(grad_energy(self.model, of_chains=True), data)
            end = chain.run(sampler, state, gradient, generator, steps)
            samples = self._as_samples(end, name)
            if samples.labels is None:
                return {"images": samples.images}
            return {"images": samples.images, "labels": samples.labels}

        drawn = self.once(drawn_name(n, steps, conditional, named), run)
        if is_selected:  # all seeds have one protocol, although their lengths may differ
            name = Spec.of(kind, {**options, "steps": "selected"})
        return Samples(drawn["images"], drawn.get("labels"), name)

    def _as_samples(self, state: ChainState, source: str) -> Samples:
        images = to_uint8(state.x, self.spec.bounds).cpu()
        labels, ages = (part if part is None else part.cpu() for part in (state.y, state.ages))
        return Samples(images, labels, source, ages)

    def part(self, name: str) -> Split:
        """Return test, validation or training images, or an OOD set.

        If validation images are evaluated, they are the test images.

        An OOD set is drawn once for all metrics.

        Raises:
            SpecError: if there is no OOD set or dataset of that name.
        """
        if name in _HELD:
            train, validation = self.holdout
            if len(train.images) == 0:
                raise no_training_images(self.spec.name, "this metric reads training images")
            if name == "train":
                return train
            if validation is None or self.split == name:
                raise no_validation(len(train.images), pretrained=self.pretrained, split=self.split)
            return validation
        if name == "test":
            if name not in self.parts:
                evaluated = self.holdout.validation
                if self.split == "test":
                    evaluated = self.dataset.split("test")
                assert evaluated is not None, "the plan was checked"
                self.parts[name] = limited(evaluated, self.limit)
            return self.parts[name]
        ood_set = resolve(name)
        self.used.add(ood_set.component.component)
        if name not in self.parts:
            drawn = ood_set.make().draw(self.test, self.spec)
            if not isinstance(drawn, Split):
                drawn = Split(drawn, None)
            self.parts[name] = drawn
        return self.parts[name]

    def images(self, name: str) -> Tensor:
        """Return the images of a part or an OOD set."""
        return self.part(name).images

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """Return a quantity of images.

        For test images and OOD sets, the same pass computes all quantities that the metrics of the
        run need. If that pass fails, only this quantity is read.

        Raises:
            Diverged: if the quantity of an image is not finite.
        """
        pixels = self._pixels(images)
        content = _cache_name("", pixels, noise)
        values = self.readings.setdefault(content, {})
        if quantity not in values:
            values.update(cast(dict[Quantity, Tensor], self.cache.recall(content)))
        if quantity not in values:
            wanted = {quantity}
            if isinstance(images, str) and images not in _HELD:
                wanted |= self.wanted - values.keys()
            shown = pixels
            if noise:
                shown = predictions.noisy(pixels, noise, self.spec.bounds)
            seed = seeds.derive(self.seed, f"evaluation/{content}")
            read = partial(predictions.read, self.model, shown, self.spec, self.device, seed=seed)
            try:
                new = read(wanted=wanted)
            except Exception:  # perhaps of another quantity, whose own metrics will fail
                if len(wanted) == 1:
                    raise
                new = read(wanted={quantity})
            values.update(new)
            self.cache.keep(content, cast(Tensors, values))

        shown_as = f"{images} images" if isinstance(images, str) else "images"
        require_finite(values[quantity], _IN_WORDS[quantity], shown_as, _REMEDY)
        return values[quantity]

    def _pixels(self, images: str | Tensor) -> Tensor:
        if isinstance(images, str):
            return self.images(images)
        return images

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        """Return E(x) of images after ``steps`` of the model's own chain."""
        pixels, bounds = self._pixels(images), self.spec.bounds
        # the chains of all images share their random numbers
        check_small(pixels, "Refinement")
        pixels = loaded(pixels)
        sampler = chain.require_chains(self.sampler)

        def refine() -> Tensors:
            generator = self.generator(f"refined:steps={steps}", self.device)
            begin = predictions.noisy(pixels, noise, bounds) if noise else to_float(pixels, bounds)
            gradient = predictions.batched(grad_energy(self.model, of_chains=True), self.spec)
            start = ChainState(begin.to(self.device))
            end = chain.run(sampler, start, gradient, generator, steps)
            return {"energy": gradient(end.x, None)[0].cpu()}

        energy = self.once(_cache_name(f"refined-{steps}-", pixels, noise), refine)["energy"]
        require_finite(energy, "refined energies", "images", _REMEDY)
        return energy

    def features(self, spec: str) -> FeatureNetwork:
        """Return the feature network of a spec, ready for use."""
        self.used.add(registry.resolve("features", spec).component)
        return self.bank.network(spec)

    def features_of(self, spec: str, images: Literal["train", "test"] | Tensor) -> Features:
        """Return features of a part of the dataset, or of any images."""
        self.features(spec)
        if not isinstance(images, Tensor):
            part = self.test if images == "test" else self.dataset.split(images)
            images = part.images
        return self.bank.of_images(spec, images)

    def remembered(self, name: str, compute: Callable[[], Tensors]) -> Tensors:
        """Return the result of ``compute``, cached on disk.

        The key is the name with, for a metric without a version, the hash of its code.
        """
        if self.code:
            name = f"{name}-{self.code}"
        return self.once(name, compute)

    def out_of_time(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.time() >= self.deadline


def _cache_name(prefix: str, images: Tensor, noise: float) -> str:
    """Return the cache name of a quantity of images."""
    name = prefix + content_hash(images)
    if noise:
        name += f"-noise={noise:g}"
    return name


def limited(test: Split, limit: int | None) -> Split:
    """Return the test images under evaluation.

    These are all, or ``limit`` chosen at random, the same for every model and seed.
    """
    if limit is None:
        return test
    generator = seeds.generator(0, "evaluation/limit")
    chosen, labels = torch.randperm(len(test.images), generator=generator)[:limit], None
    if test.labels is not None:
        labels = test.labels[chosen]
    return Split(taken(test.images, chosen), labels)


def no_validation(
    train: int,
    *,
    pretrained: bool,
    split: Evaluated = "test",
    because: str = "nothing may be fitted on test images",
) -> NotApplicable:
    """Return the error for a model without validation images, or whose images are evaluated."""
    if split == "validation":
        return NotApplicable(
            "The validation images are evaluated, and nothing may be fitted on them. Measure this "
            "on test images, without --split."
        )
    if pretrained:
        return NotApplicable(
            "The model was trained elsewhere, so that its validation images are unknown, and "
            f"{because}."
        )
    return NotApplicable(
        f"The model is trained without validation images, and {because}. Train it with validation "
        f"images: --set data.validation={max(train // 10, 1)}, or by a recipe that holds some out."
    )
