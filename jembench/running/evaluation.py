"""One trained model under evaluation: what several metrics need is computed once.

Legend: N examples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Generator, Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.catalog.discovery import Component
from jembench.data.holdout import Holdout
from jembench.data.ood_sets.resolve import resolve
from jembench.data.pixels import content_hash, to_float, to_uint8
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import (
    KEPT,
    ChainState,
    Dataset,
    DataSpec,
    FeatureNetwork,
    Features,
    Generative,
    GradEnergy,
    Quantity,
    Sampler,
    Samples,
    Source,
    Split,
    Stability,
)
from jembench.models import predictions
from jembench.models.capabilities import capabilities
from jembench.models.energies import grad_energy
from jembench.running.features import FeatureBank
from jembench.running.prediction_cache import Memory
from jembench.sampling import chain
from jembench.training import snapshots

FRESH_SAMPLES = 1000
"""How many images are drawn from a model that keeps none."""


@dataclass(kw_only=True)
class FitEvaluation:
    """The :class:`~jembench.interfaces.Evaluation` of a trained model."""

    model: Any  # the nn.Module, on the device, in evaluation mode
    sampler: Sampler | None  # as training left it
    data: DataSpec
    dataset: Dataset
    device: torch.device
    seed: int
    limit: int | None  # test images
    iteration_seconds: Sequence[float]
    other_load: float | None = None  # of the machine while the model was trained; None: not known
    stability: Stability | None = None
    bank: FeatureBank
    data_content: str = ""  # a hash of the files that the dataset is made of, if it is made of the user's own
    conditional: bool = False  # whether the model was trained with chains on E(x, y), whatever its loss
    held: Holdout | None = None  # what the recipe trained on, and what it held out
    buffers: Callable[[], Sequence[Samples]] = tuple  # those of the last epochs of training, the last one last
    memory: Memory | None = None
    pretrained: bool = False  # trained elsewhere: its training data and buffers are unknown
    wanted: frozenset[Quantity] = frozenset()  # what the metrics will read of test images and outliers
    until: float | None = None  # a value of ``time.monotonic()`` at which long metrics stop
    on_progress: Callable[[int, int], None] = lambda done, total: None  # called by long metrics
    used: set[Component] = field(default_factory=set)  # feature networks and outliers that metrics have asked for
    metric_code: str = ""  # a hash of the code of the current metric, if it has no version
    _images: dict[str, Tensor] = field(default_factory=dict)  # by name
    _readings: dict[str, dict[Quantity, Tensor]] = field(default_factory=dict)  # by the content of the images
    _samples: dict[Source, Samples] = field(default_factory=dict)

    # --- images -------------------------------------------------------------------------------------------------------

    def test(self) -> Split:
        """The test images under evaluation."""
        return self._test

    @cached_property
    def _test(self) -> Split:
        return limited(self.dataset.split("test"), self.limit)

    def images(self, name: str) -> Tensor:
        """The images of ``test``, ``validation`` or ``train`` (without validation), or an OOD set by its spec.

        Raises:
            Unavailable: if they are missing, with the remedy.
            SpecError: if no OOD set and no dataset has that name.
        """
        if name in _PARTS:
            return self._part(name).images
        outliers = resolve(name)
        self.used.add(outliers.component.component)
        if name not in self._images:
            self._images[name] = outliers.make().draw(self.test(), self.data)
        return self._images[name]

    def labels_of(self, name: Literal["test", "validation", "train"]) -> Tensor:
        """The labels of a part of the dataset, int64 (N,).

        Raises:
            Unavailable: if the dataset has none, or the part does not exist.
        """
        labels = self._part(name).labels
        if labels is None:
            raise NotApplicable(f"The dataset {self.data.name} has no labels.")
        return labels

    def _part(self, name: str) -> Split:
        if name == "test":
            return self.test()
        held = self.held or Holdout(self.dataset.split("train"), None)
        if name == "train":
            return held.train
        if held.validation is None:
            raise no_validation(len(held.train.images), pretrained=self.pretrained)
        return held.validation

    # --- what the network says of them --------------------------------------------------------------------------------

    def logits(self) -> Tensor:
        """f(x) of the test images: float32 (N, K) on the CPU."""
        return self.read("logits")

    def energies(self) -> Tensor:
        """E(x) of the test images: float32 (N,) on the CPU."""
        return self.read("energy")

    def energies_of(self, images: Tensor) -> Tensor:
        """E(x), or -log p(x), of any images: uint8 (N, C, H, W) -> float32 (N,) on the CPU."""
        return self.read("energy", images)

    def read(self, quantity: Quantity, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """What the model says of images, by name or given: float32 (N, K) or (N,) on the CPU.

        ``noise`` is the standard deviation of Gaussian noise on them, on [-1, 1].

        Of test images and outliers, all that the metrics of this run will ask for is computed in the same pass.
        """
        named = isinstance(images, str)
        pixels = self.images(images) if isinstance(images, str) else images
        content = content_hash(pixels)
        content += f"-noise={noise:g}" if noise else ""
        known = self._readings.setdefault(content, {})
        if quantity not in known and self.memory:
            known.update(cast(dict[Quantity, Tensor], self.memory.recall(content)))
        if quantity not in known:
            wanted = {quantity} | (self.wanted & self._readable if named and images not in _NEVER_OUTLIERS else set())
            shown = predictions.noisy(pixels, noise, self.data.bounds) if noise else pixels
            known.update(predictions.read(self.model, shown, self.data, self.device, wanted - known.keys()))
            if self.memory:
                self.memory.keep(content, cast(dict[str, Tensor], known))
        return known[quantity]

    @cached_property
    def _readable(self) -> frozenset[Quantity]:
        has = capabilities(self.model)
        logits: frozenset[Quantity] = frozenset({"logits"} if "logits" in has else set())
        energies: frozenset[Quantity] = frozenset({"energy", "grad-norm"} if "energy" in has else set())
        return logits | energies

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        """E(x) after ``steps`` of the model's own chain that were started at the images: float32 (N,) on the CPU.

        ``noise`` as for :meth:`read`.

        Raises:
            Unavailable: if the model has no chains.
        """
        chain.require_chains(self.sampler)
        pixels = self.images(images) if isinstance(images, str) else images
        name = f"refined-{steps}-{content_hash(pixels)}" + (f"-noise={noise:g}" if noise else "")
        return self._kept(name, lambda: {"energy": self._refine(pixels, steps, noise)})["energy"]

    def _refine(self, images: Tensor, steps: int, noise: float) -> Tensor:
        assert self.sampler is not None
        generator = seeds.generator(self.seed, f"evaluation/refined:steps={steps}", self.device)
        bounds = self.data.bounds
        begin = predictions.noisy(images, noise, bounds) if noise else to_float(images, bounds)
        state = ChainState(begin.to(self.device))
        gradient = _in_batches(grad_energy(self.model))
        end = chain.run(self.sampler, state, gradient, generator, steps)
        return gradient(end.x, None)[0].cpu()

    def remembered(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What ``compute`` gives, kept on the CPU and, where there is a memory, from run to run.

        What was computed by other code of the metric is another thing.
        """
        return self._kept(f"{name}-{self.metric_code}" if self.metric_code else name, compute)

    def _kept(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        known = self.memory.recall(name) if self.memory else {}
        if not known:
            known = compute()
            if self.memory:
                self.memory.keep(name, known)
        return known

    def out_of_time(self) -> bool:
        """Whether the time ``until`` has passed."""
        return self.until is not None and time.monotonic() >= self.until

    def progress(self, done: int, total: int) -> None:
        """Report the progress of a metric."""
        self.on_progress(done, total)

    # --- samples ------------------------------------------------------------------------------------------------------

    def samples(self, source: Source = KEPT) -> Samples:
        """The model's own images: drawn directly, or the sampler's kept chains, or the ends of new ones.

        Raises:
            Unavailable: if it has no such images.
        """
        if source not in self._samples:
            self._samples[source] = self._draw(source)
        return self._samples[source]

    def _draw(self, source: Source) -> Samples:
        buffers = self.buffers() if source.pooling != "one" else ()
        check_source(source, chains=self.sampler is not None, pretrained=self.pretrained, buffers=len(buffers))
        if source.chains == "fresh":
            return self.fresh_samples(source.steps, source.images, source.conditional)
        if source.pooling != "one":
            return (snapshots.together if source.pooling == "five" else snapshots.pixelwise_mean)(buffers)
        if isinstance(self.model, Generative):
            return self._drawn_directly(self.model)
        kept = self.sampler.kept() if self.sampler else None
        return self.fresh_samples() if kept is None else self._as_samples(kept, "buffer")

    @torch.no_grad()
    def _drawn_directly(self, model: Generative) -> Samples:
        """Images of every class, each as often; of a model without classes, images."""
        generator = seeds.generator(self.seed, "evaluation/samples", self.device)
        classes = self.data.num_classes
        y = torch.arange(FRESH_SAMPLES, device=self.device) % classes if classes else None
        try:
            x = model.sample(FRESH_SAMPLES, y, generator=generator)
        except SpecError:  # what a model without classes answers to labels
            x, y = model.sample(FRESH_SAMPLES, generator=generator), None
        return Samples(to_uint8(x, self.data.bounds).cpu(), None if y is None else y.cpu(), "direct")

    def fresh_samples(self, steps: int | None = None, n: int | None = None, conditional: bool | None = None) -> Samples:
        """The last images of n new chains. The sampler's state does not change.

        Args:
            steps: steps per chain; by default as many as in training.
            n: by default FRESH_SAMPLES.
            conditional: whether on E(x, y), each class as often; by default as the model was trained.
        """
        assert self.sampler is not None
        steps = self.sampler.steps if steps is None else steps
        as_trained = self.conditional or self.model.chains == "conditional"
        conditional = as_trained if conditional is None else conditional
        unusual = "" if conditional == as_trained else f"conditional={conditional},".lower()
        name = f"chains:{unusual}steps={steps}"
        drawn = self._kept(
            f"samples-{n or FRESH_SAMPLES}-{steps}-{conditional}",
            lambda: self._run_chains(steps, n or FRESH_SAMPLES, conditional, name),
        )
        return Samples(drawn["images"], drawn.get("labels"), name)

    def _run_chains(self, steps: int, n: int, conditional: bool, name: str) -> dict[str, Tensor]:
        assert self.sampler is not None
        generator = seeds.generator(self.seed, f"evaluation/{name}", self.device)
        y = torch.arange(n, device=self.device) % self.data.num_classes if conditional else None
        state = self.sampler.start(n, y, generator=generator)
        end = chain.run(self.sampler, state, _in_batches(grad_energy(self.model)), generator, steps)
        images, labels, *_ = self._as_samples(end, name)
        return {"images": images} | ({} if labels is None else {"labels": labels})

    def _as_samples(self, state: ChainState, source: str) -> Samples:
        labels, ages = (None if part is None else part.cpu() for part in (state.y, state.ages))
        return Samples(to_uint8(state.x, self.data.bounds).cpu(), labels, source, ages)

    # --- features -----------------------------------------------------------------------------------------------------

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, ready for use."""
        self.used.add(registry.resolve("features", spec).component)
        return self.bank.network(spec)

    def features_of(self, spec: str, images: Literal["samples", "train", "test"] | Tensor) -> Features:
        """The features of the samples, of a part of the dataset (``train``: with validation), or of any images."""
        self.features(spec)
        if isinstance(images, Tensor):
            return self.bank.of_images(spec, images)
        if images == "samples":
            return self.bank.of_images(spec, self.samples().images)
        return self.bank.of_images(spec, (self.test() if images == "test" else self.dataset.split(images)).images)

    def generator(self, purpose: str) -> Generator:
        """A CPU generator of its own for each purpose, derived from the fit's seed."""
        return seeds.generator(self.seed, f"evaluation/{purpose}")


def limited(test: Split, limit: int | None) -> Split:
    """The test images under evaluation: all, or ``limit`` drawn at random, the same for every model and seed."""
    if limit is None:
        return test
    chosen = torch.randperm(len(test.images), generator=seeds.generator(0, "evaluation/limit"))[:limit]
    return Split(test.images[chosen], None if test.labels is None else test.labels[chosen])


def no_validation(train: int, *, pretrained: bool) -> NotApplicable:
    """The error of asking for validation images where there are none; ``train``: of how many some could be held out."""
    if pretrained:
        return NotApplicable(
            "The model was trained elsewhere: it is not known which images it has not seen, and nothing may be "
            "fitted on test images."
        )
    return NotApplicable(
        "The model is trained without validation images, and nothing may be fitted on test images. Train it with some "
        f"held out: --set data.validation={max(train // 10, 1)}, or a recipe that does."
    )


def check_source(source: Source, *, chains: bool, pretrained: bool, buffers: int) -> None:
    """Whether a model can have such images.

    Args:
        source: which ones.
        chains: whether it has chains.
        pretrained: whether it was trained elsewhere.
        buffers: of the last epochs of its training, that are kept.

    Raises:
        NotApplicable: if it cannot.
    """
    if source.chains == "fresh" and not chains:
        raise NotApplicable("The model draws its images directly, without a chain, so there are no new chains.")
    if source.pooling == "one":
        return
    if not chains:
        raise NotApplicable("The model draws its images directly, without a chain, so it keeps none to pool.")
    if pretrained:
        raise NotApplicable("The model was trained elsewhere: the buffers of its last epochs are not available.")
    snapshots.require_five(buffers)


_PARTS = ("test", "validation", "train")
_NEVER_OUTLIERS = ("validation", "train")


def _in_batches(grad_energy: GradEnergy) -> GradEnergy:
    """The same, with a few images a network pass. The chains go on as one, so that no random number depends on it."""
    parts = predictions.Parts()

    def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        found = parts(len(x), x.device, lambda part: grad_energy(x[part], None if y is None else y[part]))
        energies, grads = zip(*found, strict=True)
        return torch.cat(energies), torch.cat(grads)

    return evaluate
