"""One trained model under evaluation: what several metrics need is computed once; and one cell's outcome.

Legend: N examples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Generator, Tensor

from jembench import registry, seeds
from jembench.data.pixels import to_float, to_uint8
from jembench.energies import grad_energy
from jembench.errors import StoreError, Unavailable
from jembench.interfaces import (
    Capability,
    Classifier,
    Dataset,
    DataSpec,
    Density,
    Energy,
    FeatureNetwork,
    Features,
    Generative,
    Metric,
    Sampler,
    Samples,
    Split,
    Trainable,
)
from jembench.outcome import Outcome
from jembench.sampling import chain
from jembench.training.loop import logits_of

FRESH_SAMPLES = 1000
"""How many images are drawn from a model that keeps none."""

BATCH = 500
"""Images a network pass. No value depends on it."""


def capabilities(model: Any) -> frozenset[Capability]:
    """What a model can do, by what it has. One that is trained by chains can be sampled by them."""
    has: dict[Capability, bool] = {
        "logits": isinstance(model, Classifier),
        "energy": isinstance(model, Energy | Density),
        "log_prob": isinstance(model, Density),
        "samples": isinstance(model, Generative) or (isinstance(model, Trainable) and model.chains != "none"),
    }
    return frozenset(capability for capability, present in has.items() if present)


def not_applicable(metric: Metric, has: frozenset[Capability], model: str) -> str:
    """Why the metric cannot be computed for the model; empty if it can."""
    missing = metric.requires - has
    if not missing:
        return ""
    given = " and ".join(capability for capability in get_args(Capability) if capability in has) or "nothing"
    return f"needs {' and '.join(sorted(missing))}: {model} gives {given} only"


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
    feature_cache: Path
    _features: dict[tuple[str, str], Features] = field(default_factory=dict)
    _networks: dict[str, FeatureNetwork] = field(default_factory=dict)

    def test(self) -> Split:
        """The test images under evaluation."""
        return self._part("test")

    def _part(self, name: Literal["train", "test"]) -> Split:
        images, labels = self.dataset.split(name)
        limit = self.limit if name == "test" else None
        return Split(images[:limit], None if labels is None else labels[:limit])

    def logits(self) -> Tensor:
        """f(x) of the test images: float32 (N, K) on the CPU."""
        return self._logits

    @cached_property
    def _logits(self) -> Tensor:
        return logits_of(self.model, self.test().images, self.data, self.device)

    def energies(self) -> Tensor:
        """E(x) of the test images: float32 (N,) on the CPU."""
        return self._energies

    @cached_property
    def _energies(self) -> Tensor:
        with torch.no_grad():
            parts = [self._energy(images) for images in torch.split(self.test().images, BATCH)]
        return torch.cat(parts)

    def _energy(self, images: Tensor) -> Tensor:
        x = to_float(images.to(self.device), self.data.bounds)
        energy = self.model.energy(x) if isinstance(self.model, Energy) else -self.model.log_prob(x)
        on_cpu: Tensor = energy.float().cpu()
        return on_cpu

    def samples(self) -> Samples:
        """The model's own images: drawn directly, or the sampler's kept chains, or fresh ones."""
        return self._samples

    @cached_property
    def _samples(self) -> Samples:
        generator = seeds.generator(self.seed, "evaluation/samples", self.device)
        if isinstance(self.model, Generative):
            with torch.no_grad():
                x = self.model.sample(FRESH_SAMPLES, generator=generator)
            return Samples(to_uint8(x, self.data.bounds).cpu(), None, "direct")
        assert self.sampler is not None
        kept = self.sampler.kept()
        if kept is not None:
            return self._as_samples(kept.x, kept.y, "buffer")
        return self.fresh_samples(self.sampler.steps)

    def fresh_samples(self, steps: int, n: int = FRESH_SAMPLES) -> Samples:
        """n images at the end of new chains of so many steps. The sampler's memory stays as it is."""
        assert self.sampler is not None
        generator = seeds.generator(self.seed, f"evaluation/chains:steps={steps}", self.device)
        batches = []
        for start in range(0, n, BATCH):
            state = self.sampler.start(min(BATCH, n - start), generator=generator)
            batches.append(chain.run(self.sampler, state, grad_energy(self.model), generator, steps).x)
        return self._as_samples(torch.cat(batches), None, f"chains:steps={steps}")

    def _as_samples(self, x: Tensor, y: Tensor | None, source: str) -> Samples:
        return Samples(to_uint8(x, self.data.bounds).cpu(), None if y is None else y.cpu(), source)

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, ready for use."""
        if spec not in self._networks:
            network: FeatureNetwork = registry.resolve("features", spec).make()
            network.prepare(self.dataset, self.feature_cache, self.device)
            self._networks[spec] = network
        return self._networks[spec]

    def features_of(self, spec: str, images: Literal["samples", "train", "test"]) -> Features:
        """The features of the samples or of a part of the dataset."""
        if (spec, images) not in self._features:
            pixels = self.samples().images if images == "samples" else self._part(images).images
            self._features[spec, images] = self.features(spec).features(pixels)
        return self._features[spec, images]

    def generator(self, purpose: str) -> Generator:
        """A CPU generator of its own for each purpose, derived from the fit's seed."""
        return seeds.generator(self.seed, f"evaluation/{purpose}")


class Measured(NamedTuple):
    """A cell's outcome, and the per-example values behind it."""

    outcome: Outcome
    arrays: Mapping[str, np.ndarray[Any, Any]]


def measure(metric: Metric, evaluation: FitEvaluation) -> Measured:
    """Compute one metric. What goes wrong is an outcome: a cell's failure stops no other cell.

    Raises:
        StoreError: if the disk is full or the store cannot be written, which concerns every cell.
    """
    start = time.perf_counter()
    try:
        measurement = metric.compute(evaluation)
    except StoreError:
        raise
    except Unavailable as error:
        return Measured(Outcome(status="na", reason=str(error), seconds=time.perf_counter() - start), {})
    except Exception as error:
        return Measured(failed(error, time.perf_counter() - start), {})
    seconds = time.perf_counter() - start
    wild = [label for label, value in measurement.values.items() if not math.isfinite(value.value)]
    outcome = Outcome(
        status="failed" if wild else "ok",
        reason=f"{', '.join(wild)} is not a finite number" if wild else "",
        protocol=measurement.protocol,
        values=measurement.values,
        details=measurement.details,
        seconds=seconds,
    )
    return Measured(outcome, measurement.arrays)


def failed(error: BaseException, seconds: float = 0.0) -> Outcome:
    """The outcome of a cell in which something went wrong."""
    return Outcome(
        status="failed",
        reason=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
        seconds=seconds,
    )
