"""What a training asks of hardware that is not here: operations and memory, counted without computing anything.

One iteration runs on tensors that have shapes and no content. Its chain is short: every step of a chain asks the same.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from jembench.errors import Unavailable
from jembench.experiment.plan import FitPlan
from jembench.experiment.recipe import Compute
from jembench.interfaces import Dataset, Split
from jembench.models import devices
from jembench.running.fits import make_model
from jembench.sampling.sgld import Langevin, ShortRun
from jembench.training.loop import Trainer

CPU = torch.device("cpu")


class Counted(NamedTuple):
    """The cost of one fit on any device."""

    step: int  # floating-point operations of a step of all chains, 0 without chains
    iteration: int  # floating-point operations of an iteration, chains included
    iterations: int  # of the whole recipe
    memory: int  # bytes of tensors at the peak


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of convolutions and matrix products, and the bytes of tensors that are alive."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch asks; to skip the compiler it would import it, which takes seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.bytes = self.peak = 0
        self._alive: set[int] = set()  # storages, by id

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if count := flop_registry.get(function.overloadpacket):
            self.operations += count(*args, **(kwargs or {}), out_val=found)
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor) and id(storage := leaf.untyped_storage()) not in self._alive:
                self._alive.add(id(storage))
                self.bytes += storage.nbytes()
                weakref.finalize(storage, self._gone, id(storage), storage.nbytes()).atexit = False
        self.peak = max(self.peak, self.bytes)
        return found

    def _gone(self, storage: int, size: int) -> None:
        self._alive.discard(storage)
        self.bytes -= size


def operations(work: Callable[[], object]) -> int:
    """The floating-point operations of a call: a multiplication and an addition are two."""
    with Counter() as counter:
        work()
    count: int = counter.operations
    return count


def counted(fit: FitPlan, dataset: Dataset, images: Split) -> Counted:
    """Count an iteration of a training, in the precision that GPUs compute it in.

    Args:
        fit: the training.
        dataset: its images are not read.
        images: as many as it trains on.

    Raises:
        Unavailable: if what the loss does depends on numbers that only a device can compute.
    """
    precision = fit.recipe.compute.precision
    if precision == "auto":
        precision = "float32" if dataset.spec.dimensions <= devices.SMALL else "bfloat16"
    how = Compute(precision=precision, layout="contiguous", compile="off")
    recipe = dataclasses.replace(fit.recipe, compute=how)
    trainer = Trainer(make_model(fit, dataset), dataset.spec, images, recipe, seed=fit.seed, device=CPU)
    steps = trainer.sampling_steps
    held = _size([images, trainer.state_dict()])
    counts = []
    try:
        for length in (1, 2) if steps else (0,):
            if steps:
                trainer.sampler = ShortRun(dataset.spec, Langevin(steps=length, step_size=1.0, noise=0.0))
            with FakeTensorMode(allow_non_fake_inputs=True), Counter() as counter:
                trainer.iterate()
            counts.append(counter.operations)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Unavailable(
            f"The operations of {fit.key.model} cannot be counted: its loss depends on numbers that must be computed "
            "first. Leave --rate out, and estimate on the device that is meant."
        ) from error
    step = counts[-1] - counts[0]
    iteration = counts[0] + max(steps - 1, 0) * step
    return Counted(step, iteration, trainer.iterations, held + counter.peak)


def _size(tree: Any) -> int:
    return sum(leaf.untyped_storage().nbytes() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))
