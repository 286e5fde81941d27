"""One trained model under evaluation: what several metrics need is computed once; and one cell's outcome.

Legend: N examples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Generator, Tensor

from jembench import seeds
from jembench.data.pixels import to_float, to_uint8
from jembench.energies import grad_energy
from jembench.errors import StoreError, Unavailable
from jembench.features import FeatureBank
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
    GradEnergy,
    Measurement,
    Metric,
    Sampler,
    Samples,
    Split,
    Trainable,
    Value,
)
from jembench.outcome import Outcome, encode
from jembench.sampling import chain
from jembench.training.loop import logits_of

FRESH_SAMPLES = 1000
"""How many images are drawn from a model that keeps none."""

BATCH = 100
"""Images a network pass: on CPUs faster than 500, whose maps leave the caches. No value depends on it."""


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
    given = " and ".join(capability for capability in get_args(Capability) if capability in has)
    return f"needs {' and '.join(sorted(missing))}: {model} gives {f'{given} only' if given else 'nothing'}"


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
    bank: FeatureBank
    conditional: bool = False  # whether the model was trained with chains on E(x, y), whatever its loss
    _features: dict[str, Features] = field(default_factory=dict)  # of the samples, by the network's spec

    def test(self) -> Split:
        """The test images under evaluation."""
        return self._test

    @cached_property
    def _test(self) -> Split:
        images, labels = self.dataset.split("test")
        if self.limit is None:
            return Split(images, labels)
        draw = seeds.generator(0, "evaluation/limit")  # the same images whatever the model and its seed
        chosen = torch.randperm(len(images), generator=draw)[: self.limit]
        return Split(images[chosen], None if labels is None else labels[chosen])

    def logits(self) -> Tensor:
        """f(x) of the test images: float32 (N, K) on the CPU."""
        return self._logits

    @cached_property
    def _logits(self) -> Tensor:
        return logits_of(self.model, self.test().images, self.data, self.device, BATCH)

    def energies(self) -> Tensor:
        """E(x) of the test images: float32 (N,) on the CPU."""
        return self._energies

    @cached_property
    def _energies(self) -> Tensor:
        return self.energies_of(self.test().images)

    @torch.no_grad()
    def energies_of(self, images: Tensor) -> Tensor:
        """E(x), or -log p(x), of any images: uint8 (N, C, H, W) -> float32 (N,) on the CPU."""
        return torch.cat([self._energy(batch.to(self.device)) for batch in torch.split(images, BATCH)])

    def _energy(self, images: Tensor) -> Tensor:
        x = to_float(images, self.data.bounds)
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
        """n images at the end of new chains of so many steps. The sampler's memory stays as it is.

        A model that was trained by chains on E(x, y) gets the same ones, as many for each class.
        """
        assert self.sampler is not None
        generator = seeds.generator(self.seed, f"evaluation/chains:steps={steps}", self.device)
        conditional = self.conditional or self.model.chains == "conditional"
        y = torch.arange(n, device=self.device) % self.data.num_classes if conditional else None
        state = self.sampler.start(n, y, generator=generator)
        state = chain.run(self.sampler, state, _in_batches(grad_energy(self.model)), generator, steps)
        return self._as_samples(state.x, state.y, f"chains:steps={steps}")

    def _as_samples(self, x: Tensor, y: Tensor | None, source: str) -> Samples:
        return Samples(to_uint8(x, self.data.bounds).cpu(), None if y is None else y.cpu(), source)

    def features(self, spec: str) -> FeatureNetwork:
        """The feature network of that spec, ready for use."""
        return self.bank.network(spec)

    def features_of(self, spec: str, images: Literal["samples", "train", "test"]) -> Features:
        """The features of the samples or of a part of the dataset."""
        if images != "samples":
            return self.bank.of_real(spec, (self.test() if images == "test" else self.dataset.split(images)).images)
        if spec not in self._features:
            self._features[spec] = self.features(spec).features(self.samples().images)
        return self._features[spec]

    def generator(self, purpose: str) -> Generator:
        """A CPU generator of its own for each purpose, derived from the fit's seed."""
        return seeds.generator(self.seed, f"evaluation/{purpose}")


def _in_batches(grad_energy: GradEnergy) -> GradEnergy:
    """The same, with BATCH images a network pass. The chains go on as one, so that no random number depends on it."""

    def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        labels = [None] * len(x) if y is None else torch.split(y, BATCH)
        energies, grads = zip(*map(grad_energy, torch.split(x, BATCH), labels), strict=True)
        return torch.cat(energies), torch.cat(grads)

    return evaluate


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
        measurement = _checked(metric.compute(evaluation))
    except StoreError:
        raise
    except Unavailable as error:
        return Measured(Outcome(status="na", reason=str(error), seconds=time.perf_counter() - start), {})
    except Exception as error:
        return Measured(failed(error, time.perf_counter() - start), {})
    seconds = time.perf_counter() - start
    wild = [label for label, value in measurement.values.items() if not _is_finite(value)]
    outcome = Outcome(
        status="failed" if wild else "ok",
        reason=f"{', '.join(wild)} is not a finite number" if wild else "",
        protocol=measurement.protocol,
        values=measurement.values,
        details=measurement.details,
        seconds=seconds,
    )
    return Measured(outcome, measurement.arrays)


def _checked(measurement: Measurement) -> Measurement:
    """The measurement in plain numbers, as the store can write it.

    Raises:
        TypeError, ValueError: if it cannot be: this is the metric's failure, and must not become the store's.
    """
    if not measurement.values:
        raise ValueError("the metric measured nothing")
    json.dumps(encode(measurement.details))
    arrays = {label: np.asarray(array) for label, array in measurement.arrays.items()}
    for label, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"the array {label} holds objects, not numbers")
    values = {label: _plain(value) for label, value in measurement.values.items()}
    return dataclasses.replace(measurement, values=values, arrays=arrays)


def _plain(value: Value) -> Value:
    low, high = (None if end is None else float(end) for end in (value.low, value.high))
    return Value(float(value.value), low, high, int(value.n), value.unit, value.better)


def _is_finite(value: Value) -> bool:
    return all(math.isfinite(number) for number in (value.value, value.low, value.high) if number is not None)


def failed(error: BaseException, seconds: float = 0.0) -> Outcome:
    """The outcome of a cell in which something went wrong."""
    return Outcome(
        status="failed",
        reason=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
        seconds=seconds,
    )
