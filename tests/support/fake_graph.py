"""CUDA graphs of the GPU that is not there: a capture notes the operations, a replay carries them
out again.

As on a GPU, a capture changes nothing: neither tensors that were there before, nor the state of a
generator. One that fails leaves its generators capturing, as PyTorch does, until they take part in
one that succeeds.
"""

import dataclasses
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from jembench.models import devices

UNMARKED = {"native_batch_norm"}
"""Operations that write to their arguments and do not say so."""


class FakeGraph:
    """A ``torch.cuda.CUDAGraph``. ``made`` are all of a test; each notes what is done with it."""

    def __init__(self, device, streams):
        self.device, self.streams = device, streams
        self.generators, self.operations, self.log = [], [], []
        self.is_broken = False
        device.made.append(self)

    def register_generator_state(self, generator):
        self.log.append("register")
        self.generators.append(generator)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        assert self.streams[-1] != "default", (
            "CUDA graphs must be captured on a non-default stream."
        )
        assert capture_error_mode == "thread_local"
        self.log.append("capture")
        self.device.graph, self.written = self, {}
        self.states = [
            generator.get_state() for generator in (*self.generators, torch.default_generator)
        ]
        for generator in self.generators:
            generator.capturing = True

    def capture_end(self):
        self.device.graph = None
        for tensor, value in self.written.values():
            tensor.copy_(value)
        for generator, state in zip(
            (*self.generators, torch.default_generator), self.states, strict=True
        ):
            generator.set_state(state)
        if self.is_broken:
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during capture"
            )
        for generator in self.generators:
            generator.capturing = False

    def record(self, function, args, kwargs):
        arguments = zip(args, function._schema.arguments, strict=False)
        marked = [one for one, said in arguments if said.alias_info and said.alias_info.is_write]
        unmarked = args if function.overloadpacket.__name__ in UNMARKED else []
        for tensor in (
            one for one in tree_leaves([marked, unmarked]) if isinstance(one, torch.Tensor)
        ):
            self.written.setdefault((tensor.data_ptr(), tensor.shape), (tensor, tensor.clone()))
        result = function(*args, **kwargs)
        self.operations.append((function, args, kwargs, result))
        return result

    def replay(self):
        self.log.append("replay")
        self.device.launches.append("graph")
        with _disable_current_modes():
            for function, args, kwargs, result in self.operations:
                if not function.is_view:
                    for old, new in zip(
                        tree_leaves(result), tree_leaves(function(*args, **kwargs)), strict=True
                    ):
                        if isinstance(old, torch.Tensor) and old is not new:
                            old.copy_(new)

    def reset(self):
        self.log.append("reset")
        self.operations.clear()


@contextmanager
def fake_graphs(device):
    """The :class:`FakeGPU` has graphs meanwhile, and trainers use them; gives the list of those
    that are made.
    """
    device.made, streams = [], ["default"]

    @contextmanager
    def on(stream):
        streams.append(stream)
        try:
            yield
        finally:
            streams.pop()

    @contextmanager
    def capture(graph, stream, capture_error_mode):
        with on(stream):
            graph.capture_begin(capture_error_mode=capture_error_mode)
            try:
                yield
            finally:
                graph.capture_end()

    stream = mock.Mock(spec=["wait_stream"])
    replaced = {
        "CUDAGraph": lambda: FakeGraph(device, streams),
        "Stream": lambda place: stream,
        "current_stream": lambda place: stream,
        "stream": on,
        "graph": capture,
    }

    choose = devices.execution

    def capturing(*given, **options):
        return dataclasses.replace(choose(*given, **options), captured=True)

    with ExitStack() as stack:
        # as on a CUDA device
        stack.enter_context(mock.patch.object(devices, "execution", capturing))
        for name, fake in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, fake))
        yield device.made
