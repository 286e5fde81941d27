"""Training on a device that has no values: all shapes and devices are followed, nothing is computed.

``FakeTensorMode`` of PyTorch refuses operations whose tensors are on different devices, and whatever needs a value, as
``.item()`` and boolean indices do: where a host would wait for a GPU. Its tensors can be said to be on ``cuda:0``, but
without a driver their backward pass fails (autograd asks for a CUDA context), so the device is ``meta``.

What ``meta`` lacks is replaced: autocast (none), generators (one of the CPU that says it is on the device), fused
optimisers (SGD by ``foreach``). ``Module.to`` cannot swap fake weights, which are therefore replaced one by one. Copies
between host and device that make the host wait are noted by a dispatch mode.
"""

from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from jembench import seeds

GPU = torch.device("meta")


class FakeGenerator(torch.Generator):
    """Of the CPU, but for what it says."""

    device = GPU


class Waits(TorchDispatchMode):
    """Notes the copies that make the host wait: to the host, and to the device unless ``non_blocking``."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name == "_to_copy":
            self._copied(args[0].device, torch.device(kwargs.get("device") or args[0].device), kwargs)
        if name == "copy_" and isinstance(args[1], torch.Tensor):
            blocking = {"non_blocking": args[2] if len(args) > 2 else kwargs.get("non_blocking", False)}
            self._copied(args[1].device, args[0].device, blocking)
        return function(*args, **kwargs)

    def _copied(self, source, goal, options):
        if source.type != goal.type and (goal.type == "cpu" or not options.get("non_blocking")):
            self.seen.append(f"a copy from {source.type} to {goal.type}")


@contextmanager
def fake_gpu(monkeypatch):
    """Tensors on ``GPU`` can be made meanwhile; gives the :class:`Waits`."""
    monkeypatch.setattr(seeds, "_global_generators", lambda device: [torch.default_generator])
    monkeypatch.setattr(seeds, "generator", lambda seed, purpose, device="cpu": FakeGenerator())
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    with FakeTensorMode(allow_non_fake_inputs=True), Waits() as waits:
        yield waits


def move(model):
    """The weights and buffers of a model to the GPU."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                module._parameters[name] = nn.Parameter(value.data.to(GPU), value.requires_grad)
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = value.to(GPU)


def move_trainer(trainer):
    """A trainer that was made on the CPU, and has filled its buffer there, to the GPU."""
    trainer.device = GPU
    move(trainer.model)
    trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), 0.1, momentum=0.9, foreach=True)
    trainer.generators = {name: FakeGenerator() for name in trainer.generators}
    for source in trainer.sources.values():
        source._images, source._labels = source._images.to(GPU), source._labels.to(GPU)
    if trainer.sampler:
        sampler, y = trainer.sampler, torch.zeros(1, dtype=torch.int64).to(GPU)
        sampler.finish(sampler.init(1, y, generator=FakeGenerator()))  # its buffer moves with its first chains
