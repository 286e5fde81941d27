"""The memory of a training, counted before it starts.

An iteration's losses and gradients are computed on PyTorch's meta device, where tensors have sizes
and no values, and the bytes of all living tensors are followed.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe
from jembench.limits import GIB
from jembench.models import devices
from jembench.models.memory import room
from jembench.training.optimizers import phases_of
from jembench.training.passes import blank_batch
from jembench.training.state import TrainingState

_META = torch.device("meta")
_STATES = {"sgd": 1}
"""The number of moments per weight, of optimisers that do not keep two."""


class Memory(NamedTuple):
    """The memory of a training on one device, in bytes."""

    weights: int  # with the state of the optimiser
    batch: int  # the peak of an iteration, gradients included
    images: int  # number of images of all terms, samples included
    precision: str

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.batch

    def __str__(self) -> str:
        """Return the sum and its parts in words."""
        image = _written(self.batch / self.images)
        return (
            f"about {_written(self.total)}: {_written(self.weights)} for weights and optimiser, "
            f"and {image} for each of {self.images} images of an iteration ({self.precision})"
        )


class _Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that follows the bytes of all tensors made within its context."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.living = self.most = 0
        self._seen = {_key(tensor.untyped_storage()) for tensor in model.state_dict().values()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return made

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = _key(storage)
        if key in self._seen:
            return  # a view
        self._seen.add(key)
        size = storage.nbytes()
        self.living += size
        self.most = max(self.most, self.living)
        weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.living -= size


def _written(size: float) -> str:
    """Return a number of bytes in words."""
    if size < GIB:
        return f"{size / 2**20:.3g} MiB"
    return f"{size / GIB:.3g} GiB"


def _key(storage: torch.UntypedStorage) -> int:
    """Return the address of a storage while it lives."""
    return int(storage._cdata)


def of_training(trainer: TrainingState, device: torch.device) -> Memory | None:
    """Count the memory of an iteration on a device.

    Chains take less than the losses, which hold data and samples. On a GPU, activations in bfloat16
    count half.

    Returns:
        the memory; None: unknown, since the images are small or the loss needs values.
    """
    data, recipe = trainer.data, trainer.recipe
    if data.dimensions <= devices.SMALL:
        return None
    sizes = {"outliers": 0, **trainer.batches.sizes, "samples": trainer.chains.count}
    if recipe.data.shared:
        sizes["marginal"] = 0
    own = {name: size // recipe.processes for name, size in sizes.items()}
    try:
        model = copy.deepcopy(trainer.model).to(_META).train()
        with _Peak(model) as peak:
            batch, negatives = blank_batch(data, own, _META, shared=recipe.data.shared)
            for phase in phases_of(model).values():
                total = phase.loss(batch, negatives).total
                trained = [weight for weight in phase.parameters if weight.requires_grad]
                total.backward(inputs=trained)  # type: ignore[no-untyped-call]
    # the loss itself reports its errors in the first iteration
    except Exception:
        return None
    held = sum(tensor.nbytes for tensor in model.state_dict().values())
    gradients = sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
    moments = _STATES.get(recipe.optimizer.name.partition(":")[0], 2)
    copies = held if recipe.optimizer.average else 0
    precision = devices.execution(data, device, precision=recipe.compute.precision).precision
    most = peak.most
    if precision == "bfloat16":
        most = gradients + (most - gradients) // 2
    return Memory(held + moments * gradients + copies, most, sum(own.values()), precision)


def check(memory: Memory | None, recipe: Recipe, what: str, device: torch.device) -> None:
    """Check that a training fits into a device's memory.

    Args:
        memory: of the training; None: unknown.
        recipe: of the training.
        what: the name of the model, for the error.
        device: of the training.

    Raises:
        SpecError: if it does not fit, with batches that fit.
    """
    where, available = room(device)
    if memory is None or memory.total <= available:
        return
    share = (available - memory.weights) / memory.batch
    batches = {"batch_size": recipe.batch_size, "data.labelled_batch": recipe.data.labelled_batch}
    smaller: list[str] = []
    for name, size in batches.items():
        fitting = int(share * size) // recipe.processes * recipe.processes
        if size and fitting > 0:
            smaller.append(f"--set {name}={fitting}")
    remedy = " ".join(smaller) or "a smaller network, or smaller images"
    raise SpecError(
        f"The training of {what} takes {memory}, and {where} has {_written(available)}. What fits: "
        f"{remedy}."
    )
