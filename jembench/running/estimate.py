"""The cost of a training, from a few of its iterations with short chains, or from its floating-point operations.

The images are random: no time depends on what they show, and a dataset need not be there.
"""

from __future__ import annotations

import dataclasses
import resource
import statistics
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from jembench import seeds
from jembench.data.datasets import unread
from jembench.errors import SpecError
from jembench.experiment.plan import FitPlan
from jembench.experiment.recipe import Compute
from jembench.interfaces import Dataset, Split
from jembench.models import devices
from jembench.models.capabilities import is_fitted
from jembench.running.fits import make_model
from jembench.sampling.sgld import Langevin, ShortRun
from jembench.training.loop import Trainer

SHORT, LONG = 1, 3
"""The lengths of the chains that are timed; longer ones follow, since every step of a chain takes the same time."""

QUICK = 2.0
"""Seconds; an iteration that takes longer is timed once, others three times."""

DIFFERENT = 1000
"""Number of the random images that differ."""

WARM_UP = 4
"""Untimed iterations where the network is compiled or chains are captured: one as it is written, one that compiles, and
two in which CUDA graphs warm up and are captured. Otherwise one is enough."""


class Estimate(NamedTuple):
    """The cost of one fit on one device."""

    recipe: str
    model: str
    seconds: float  # an iteration
    iterations: int  # of the whole recipe
    hours: float  # of the whole recipe
    memory: int  # bytes at the peak: on a GPU of tensors, on a CPU of the process so far; 0 if not known
    operations: int  # floating-point, an iteration; 0 if they cannot be counted


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of the floating-point operations of convolutions and matrix products.

    A multiplication and an addition are two.
    PyTorch's ``FlopCounterMode`` also notes in which module they are, which fails within ``autograd.grad``.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to skip this mode PyTorch would import its compiler, which takes seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if operations := flop_registry.get(function.overloadpacket):
            self.count += operations(*args, **(kwargs or {}), out_val=result)
        return result


class _Probe(Trainer):
    """A trainer whose chains are as long as is asked for."""

    length: int | None = None

    @property
    def sampling_steps(self) -> int:
        return super().sampling_steps if self.length is None or self.sampler is None else self.length


def estimate(fit: FitPlan, device: torch.device, *, rate: float | None = None) -> Estimate:
    """Estimate the cost of a training.

    Args:
        fit: the training; its dataset's files need not be there.
        device: where a few iterations are timed.
        rate: floating-point operations a second of hardware that is not here; nothing is timed then.

    Raises:
        SpecError: if the model is not trained in iterations, or has no operations that could be counted for ``rate``.
        Unavailable: if only the files give the number of training images, and they are missing.
    """
    if fit.is_pretrained:
        raise SpecError(f"{fit.key.model} was trained elsewhere: there is no training to estimate.")
    dataset, memory = unread(fit.dataset), 0
    if is_fitted(make_model(fit, dataset)):
        raise SpecError(f"{fit.key.model} is fitted to all images at once: there are no iterations to estimate.")
    plain = dataclasses.replace(fit.recipe, compute=Compute(precision="float32", layout="contiguous", compile="off"))
    operations = _operations(_probe(dataclasses.replace(fit, recipe=plain), dataset, torch.device("cpu")))
    with devices.threads_for(dataset.spec, device):
        trainer = _probe(fit, dataset, device)
        if rate is None:
            on_gpu = device.type == "cuda"
            if on_gpu:
                torch.cuda.reset_peak_memory_stats(device)
            seconds = _seconds(trainer)
            kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            memory = torch.cuda.max_memory_allocated(device) if on_gpu else 1024 * kib
        elif operations:
            seconds = operations / rate
        else:
            raise SpecError(
                f"The operations of {fit.key.model} cannot be counted: its loss depends on numbers that must be "
                "computed first. Leave --rate out, and estimate on the device that is meant."
            )
    hours = seconds * trainer.iterations / 3600
    return Estimate(fit.key.recipe, fit.key.model, seconds, trainer.iterations, hours, memory, operations)


def _probe(fit: FitPlan, dataset: Dataset, device: torch.device) -> _Probe:
    images = random_images(dataset)
    return _Probe(make_model(fit, dataset), dataset.spec, images, fit.recipe, seed=fit.seed, device=device)


def random_images(dataset: Dataset) -> Split:
    """Return noise with labels, as many images as the dataset has for training.

    The images are copies of a few: drawing 50,000 of them would take longer than what is timed.
    """
    count = getattr(dataset, "train_size", None) or len(dataset.split("train").images)
    generator, numbers = seeds.generator(0, "estimate"), torch.arange(count)
    few = torch.randint(256, (DIFFERENT, *dataset.spec.shape), dtype=torch.uint8, generator=generator)
    labels: Tensor = numbers % dataset.spec.num_classes
    return Split(few[numbers % DIFFERENT], labels)


def _operations(trainer: _Probe) -> int:
    """Count the floating-point operations of an iteration, on tensors that have shapes and no content.

    Returns:
        their number; 0 if the loss depends on numbers that must be computed.
    """
    steps, counts = trainer.sampling_steps, []
    for length in (1, 2) if steps else (0,):
        if steps:  # a chain whose start depends on nothing that must be computed
            trainer.sampler = ShortRun(trainer.data, Langevin(steps=length, step_size=1.0, noise=0.0))
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), OperationCounter() as counter:
                trainer.iterate()
        except (DataDependentOutputException, DynamicOutputShapeException):
            return 0
        counts.append(counter.count)
    return int(counts[0] + max(steps - 1, 0) * (counts[-1] - counts[0]))


def _seconds(trainer: _Probe) -> float:
    """Time iterations with short and with longer chains, and return the seconds of one of the recipe."""
    steps, times = trainer.sampling_steps, []
    untimed = WARM_UP if trainer.execution.compiled or trainer.execution.captured else 1
    for length in (SHORT, LONG)[: 1 + (steps > SHORT)]:
        trainer.length = length
        warm_up = [_timed(trainer) for _ in range(untimed)][-1]
        times.append(statistics.median(_timed(trainer) for _ in range(3 if warm_up < QUICK else 1)))
    return times[0] + max(steps - SHORT, 0) * max(times[-1] - times[0], 0) / (LONG - SHORT)


def _timed(trainer: Trainer) -> float:
    """Return the seconds of one iteration, with all that the device was asked to do."""
    device = torch.get_device_module(trainer.device)
    device.synchronize()
    start = time.perf_counter()
    trainer.iterate()
    device.synchronize()
    return time.perf_counter() - start
