"""A GPU that is not there: its tensors have values, which lie on the CPU, and say that they are
elsewhere.

A dispatch mode computes everything on the CPU. Like PyTorch on a GPU it refuses operations whose
tensors are on different devices, and generators of the other device. It notes every operation that
a GPU would carry out, and every one that makes the host wait for it.

The device is called ``meta``: a backward pass on ``cuda`` asks for a driver. Autocast, which
``meta`` lacks, is off.
"""

import warnings
from contextlib import contextmanager, nullcontext
from typing import ClassVar
from unittest import mock

import torch
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from jembench import seeds

GPU = torch.device("meta")
CPU = torch.device("cpu")

WAITING = {
    "_local_scalar_dense",
    "equal",
    "masked_select",
    "nonzero",
    "_unique2",
    "unique_dim",
    "repeat_interleave",
}
"""Operations that give a number, or a tensor whose shape depends on values."""

INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


IDLE = {
    "_unsafe_view",
    "empty",
    "empty_like",
    "empty_strided",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
}
"""Operations that give a GPU nothing to do, beside views."""


class MixedDevices(RuntimeError):
    """The error of PyTorch for tensors on different devices."""


class OnGPU(torch.Tensor):
    """Says that it is on ``GPU``; ``held`` is its value, on the CPU."""

    __module__ = "torch"  # by which eagerpy, and so foolbox, knows a tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=GPU, **layout
        )

    def __init__(self, held):
        self.held = held

    def __repr__(self, **_):
        return f"OnGPU({tuple(self.shape)}, {self.dtype})"

    def tolist(self):
        return self.cpu().tolist()

    def data_ptr(self):
        return self.held.data_ptr()

    def __getitem__(self, index):
        return super().__getitem__(_with_tensors(index))

    def __setitem__(self, index, value):
        super().__setitem__(_with_tensors(index), value)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} outside of fake_gpu")


def _with_tensors(index):
    """The index with tensors for its lists: PyTorch would make tensors of ``meta`` of them, which
    have no values.
    """
    return tree_map_only(list, torch.tensor, index, is_leaf=lambda part: isinstance(part, list))


class FakeGenerator(torch.Generator):
    """Of the CPU, but for what it says."""

    device = GPU
    # by the address of the generator: PyTorch hands operations another object for it
    made: ClassVar = {}

    def __init__(self):
        self.made[self._cdata] = self
        self.capturing = False

    def clone_state(self):
        return FakeGenerator().set_state(self.get_state())


class FakeGPU(TorchDispatchMode):
    """The device.

    ``launches`` are the operations that it would have carried out, each by one kernel or a few, in
    their order, and ``waits`` those for which the host would have waited.
    """

    @classmethod
    def _should_skip_dynamo(cls):
        """PyTorch asks; to skip the compiler it would import it, which takes seconds."""
        return False

    def __init__(self):
        super().__init__()
        self.launches, self.waits = [], []
        self.graph = None  # that which is being captured
        self.warns = False  # of what the host waits for

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), function.overloadpacket.__name__
        goal = kwargs.get("device")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        on_gpu = (
            any(isinstance(leaf, OnGPU) for leaf in tensors)
            if goal is None
            else torch.device(goal) == GPU
        )
        if on_gpu and not function.is_view and name not in IDLE and not self.graph:
            self.launches.append(name)
        waited = len(self.waits)
        self._note(name, args, kwargs, on_gpu)
        if len(self.waits) > waited:
            self._wait()
        _check(name, args, kwargs, tensors, on_gpu)
        for generator in (
            one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator) and on_gpu
        ):
            self._draw(FakeGenerator.made[generator._cdata])
        if goal is not None:
            kwargs["device"] = CPU
        held = tree_map_only(OnGPU, lambda tensor: tensor.held, (args, kwargs))
        found = (
            self.graph.record(function, *held)
            if self.graph and on_gpu
            else function(*held[0], **held[1])
        )
        if not on_gpu:
            return found
        changed = {
            id(one): given
            for one, given in zip(tree_leaves(held), tree_leaves((args, kwargs)), strict=True)
        }
        return tree_map_only(
            torch.Tensor, lambda one: changed[id(one)] if id(one) in changed else OnGPU(one), found
        )

    def _wait(self):
        """Warn if PyTorch was asked to, and refuse while a graph is being captured."""
        if self.graph:
            self.graph.is_broken = True
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if self.warns:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)

    def _draw(self, generator):
        """PyTorch refuses generators that a graph does not know, and those that a broken capture
        has left behind.
        """
        if self.graph and generator not in self.graph.generators:
            raise RuntimeError(
                "Attempt to increase offset for a CUDA generator not in capture mode."
            )
        if not self.graph and generator.capturing:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    def _note(self, name, args, kwargs, on_gpu):
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name == "_to_copy" and isinstance(source, OnGPU) != on_gpu:
            self._copied(on_gpu, kwargs.get("non_blocking"))
        elif name == "copy_" and isinstance(args[1], OnGPU) != isinstance(source, OnGPU):
            self._copied(
                on_gpu=isinstance(source, OnGPU), promised=(*args, *kwargs.values(), False)[2]
            )
        elif name in INDEXING and isinstance(source, OnGPU):
            given = [index for index in args[1] if index is not None]
            self.waits += ["a copy of indices"] * any(
                not isinstance(index, OnGPU) for index in given
            )
            is_fill = name != "index" and args[2].numel() == 1  # no mask becomes indices then
            self.waits += ["a mask"] * sum(
                index.dtype == torch.bool for index in given if not is_fill
            )
        elif name in WAITING and isinstance(source, OnGPU) and kwargs.get("output_size") is None:
            self.waits.append(name)

    def _copied(self, on_gpu, promised):
        if not (on_gpu and promised):
            self.waits.append(f"a copy to the {'GPU' if on_gpu else 'CPU'}")


def _check(name, args, kwargs, tensors, on_gpu):
    """Raise what PyTorch would: single numbers and indices alone may be on the CPU."""
    if any(tensor.is_meta and not isinstance(tensor, OnGPU) for tensor in tensors):
        raise AssertionError(
            f"{name}: PyTorch made a tensor of {GPU} that the fake did not see; it has no values"
        )
    for generator in (one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator)):
        if (generator._cdata in FakeGenerator.made) != on_gpu:
            raise MixedDevices(f"{name}: the generator is on the other device")
    if name in ("copy_", "_to_copy"):
        return
    if name in INDEXING and isinstance(args[0], OnGPU):
        tensors = [args[0], *args[2:3]]
    kinds = {
        isinstance(tensor, OnGPU) for tensor in tensors if tensor.dim() or isinstance(tensor, OnGPU)
    }
    if len(kinds) > 1:
        raise MixedDevices(
            f"{name}: {', '.join(f'{tuple(one.shape)} on {one.device}' for one in tensors)}"
        )


@contextmanager
def fake_gpu():
    """``GPU`` can be used meanwhile; gives the :class:`FakeGPU`."""
    tensor = torch.tensor
    # PyTorch keeps this set: it must not be made while functions are replaced
    _device_constructors()

    def make_generator(device="cpu"):
        return FakeGenerator() if torch.device(device) == GPU else torch.Generator(device)

    def make_tensor(data, *, device=None, **options):
        made = tensor(data, **options)
        return made if device is None else made.to(device)

    with (
        mock.patch.object(seeds, "Generator", make_generator),
        mock.patch.object(torch, "tensor", make_tensor),
        mock.patch.object(torch, "autocast", return_value=nullcontext()),
        mock.patch("torch.optim.adam._device_dtype_check_for_fused"),  # it refuses this device
        mock.patch("torch.optim.sgd._device_dtype_check_for_fused"),
        FakeGPU() as device,
    ):
        yield device
    FakeGenerator.made.clear()
