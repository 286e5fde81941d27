"""What a training would cost, from a few of its iterations, and what an attack would, from a few network passes.

The images are random: no time depends on what they show, and a dataset need not be there for it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from jembench import devices, readings, seeds
from jembench.attacks.target import Target
from jembench.execution import lay_out
from jembench.fits import make_model
from jembench.interfaces import Dataset, Split
from jembench.plan import FitPlan
from jembench.training.loop import Trainer

SHORT, LONG = 1, 3
"""The chain lengths that are timed; longer ones follow, since every step of a chain takes the same time."""

QUICK = 2.0
"""Seconds; an iteration that takes longer is timed once, others a few times."""


class Estimate(NamedTuple):
    """The cost of one fit on one device."""

    seconds: float  # an iteration
    iterations: int  # of the whole recipe
    memory: int  # bytes at the peak: on a GPU of tensors, on a CPU of the process; 0 if not known
    passes: float  # forward and backward passes of a batch in an iteration

    @property
    def hours(self) -> float:
        """The whole recipe."""
        return self.seconds * self.iterations / 3600


class _Probe(Trainer):
    """A trainer whose chains are as long as is asked for."""

    length: int | None = None

    @property
    def sampling_steps(self) -> int:
        return super().sampling_steps if self.length is None or self.sampler is None else self.length


def estimate(fit: FitPlan, dataset: Dataset, device: torch.device) -> Estimate:
    """Run a few iterations with short chains and say what the whole training would take.

    Raises:
        Unavailable: if the number of training images is known to nobody but the files, and they are missing.
    """
    with devices.threads_for(dataset.spec, device):
        trainer = _Probe(
            make_model(fit, dataset), dataset.spec, random_images(dataset), fit.recipe, seed=fit.seed, device=device
        )
        steps, passes = trainer.sampling_steps, trainer.passes
        _reset_peak(device)
        trainer.length = SHORT
        warm_up = _timed(trainer, device)
        repeats = 5 if warm_up < QUICK else 1
        short = statistics.median(_timed(trainer, device) for _ in range(repeats))
        seconds = short
        if steps > SHORT:
            trainer.length = LONG
            long = statistics.median(_timed(trainer, device) for _ in range(repeats))
            seconds = short + (steps - SHORT) * max(long - short, 0) / (LONG - SHORT)
        return Estimate(seconds, trainer.iterations, _peak(device), passes)


def seconds_a_pass(fit: FitPlan, dataset: Dataset, device: torch.device) -> float:
    """How long one image takes forward and back through the network, in the batches that attacks make."""
    model = make_model(fit, dataset).to(device)
    lay_out(model, dataset.spec)
    target = Target(model, dataset.spec)
    count = readings.CPU_BATCH if device.type == "cpu" else readings.GPU_BATCH
    x = torch.rand(count, *dataset.spec.shape, generator=seeds.generator(0, "estimate", device), device=device)
    y = torch.zeros(count, dtype=torch.long, device=device)

    def once() -> float:
        start = time.perf_counter()
        target.slope(x, y)[0].sum().item()  # an answer that is read is there
        return time.perf_counter() - start

    with devices.threads_for(dataset.spec, device):
        warm_up = once()
        return statistics.median(once() for _ in range(5 if warm_up < QUICK else 1)) / count


def random_images(dataset: Dataset) -> Split:
    """Noise with labels, as many as the dataset's training images."""
    count = getattr(dataset, "train_size", None) or len(dataset.split("train").images)
    generator = seeds.generator(0, "estimate")
    images = torch.randint(256, (count, *dataset.spec.shape), dtype=torch.uint8, generator=generator)
    labels: Tensor = torch.arange(count) % dataset.spec.num_classes
    return Split(images, labels)


def _timed(trainer: Trainer, device: torch.device) -> float:
    start = time.perf_counter()
    trainer.iterate()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5")  # the process's peak is that from now on


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if not _STATUS.exists():
        return 0
    (line,) = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
