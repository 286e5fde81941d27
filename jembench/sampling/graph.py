"""A chain as one CUDA graph: the host launches all of its steps at once."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from jembench.errors import Fallback
from jembench.interfaces import ChainState, GradEnergy, Sampler
from jembench.models.execution import graphs
from jembench.sampling import chain

WARM_UP = 2
"""Chains that go step by step before one is captured: what a network does once, it does with its first batch, and what
it does from then on is compiled and tuned with the second chain."""

PATIENCE = 8
"""Kinds of chains in a row of which none lasts until it is captured."""


class ChainGraph:
    """Runs chains as :func:`jembench.sampling.chain.run` does, each as one CUDA graph from the third on.

    The steps are captured as they are, whatever sampler takes them. What cannot be captured goes on step by step, with
    one warning: steps that wait for the device or change what the sampler keeps, and whatever else CUDA refuses. The
    numbers are those of the steps: a capture draws nothing, and a replay takes the generators where they are and leaves
    them where the steps would have. The statistics of batch norm are updated in place, so a replay updates them too.

    Args:
        model: what the gradient is of. A graph reads its weights and buffers, and what the sampler keeps, where they
            lay when it was captured; where they lie elsewhere, chains are captured anew.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.given_up: list[str] = []
        """Why chains go step by step; empty while they do not, or are still to be captured."""
        self._graph: torch.cuda.CUDAGraph | None = None
        self._unsettled = 0  # kinds since the last capture
        self.forget()
        graphs.add(self)

    def forget(self) -> None:
        """Let go of the graph and its memory. The next chains warm up again."""
        if self._graph is not None:
            self._graph.reset()
        self._graph = None
        self._inputs: ChainState | None = None
        self._outputs: ChainState | None = None
        self._kind: tuple[Any, ...] = ()
        self._chains = 0  # of that kind

    def run(
        self, sampler: Sampler, state: ChainState, grad_energy: GradEnergy, generator: Generator, steps: int | None
    ) -> ChainState:
        """Move chains by ``steps`` (the sampler's own number if None). The sampler's memory stays as it is."""
        move = functools.partial(chain.run, sampler, grad_energy=grad_energy, generator=generator, steps=steps)
        if self.given_up:
            return move(state)
        kind = self._kind_of(sampler, state, grad_energy, generator, steps)
        if kind != self._kind:
            self._unsettled = self._unsettled + 1 if self._graph is None else 0
            if self._unsettled > PATIENCE:
                self._give_up("chain after chain is of another kind, or finds what the sampler keeps elsewhere")
                return move(state)
            self.forget()
            self._kind, self._stream = kind, torch.cuda.Stream(state.x.device)  # type: ignore[no-untyped-call]
        self._chains += 1
        if self._chains <= WARM_UP:
            return self._warm_up(move, sampler, state)
        if self._graph is None:
            self._capture(move, state, generator)
        return move(state) if self._graph is None else self._replay(state)

    def _kind_of(self, *given: Any) -> tuple[Any, ...]:
        """What one graph is good for, as values that can be compared."""
        sampler, state, grad_energy, generator, steps = given
        leaves = ((x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x for x in state)
        held = (*self.model.parameters(), *self.model.buffers(), *sampler.state_dict().values())
        # numbers on the CPU are part of the code that was captured; larger tensors there cannot be
        seen = (x.data_ptr() if x.device == state.x.device else x.tolist() if x.numel() == 1 else None for x in held)
        same = (_Same(sampler), _Same(grad_energy), _Same(generator))
        return (*same, steps, self.model.training, type(state), *leaves, *seen)

    def _warm_up(self, move: Callable[[ChainState], ChainState], sampler: Sampler, state: ChainState) -> ChainState:
        """Step by step, on the stream of the capture. In the last of these chains it is seen what the steps do."""
        here = torch.cuda.current_stream(state.x.device)
        before = {name: (kept, kept._version) for name, kept in sampler.state_dict().items()}
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream), _noting_waits() as waits:
            end = move(state)
        here.wait_stream(self._stream)
        if self._chains == WARM_UP:
            if waits:
                self._give_up("a step waits for the device")
            elif _changed(before, sampler.state_dict()):
                self._give_up("the steps change what the sampler keeps")
        return end

    def _capture(self, move: Callable[[ChainState], ChainState], state: ChainState, generator: Generator) -> None:
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        inputs = _like(state, map(_own, state))
        gc.collect()  # what is freed meanwhile may ask for what a capture forbids
        torch.cuda.synchronize(state.x.device)
        torch.cuda.empty_cache()
        try:
            with _capturing(graph, generator, self._stream, pool):
                outputs = move(inputs)
        except Exception as error:  # whatever is wrong with a step itself fails again when it is taken
            first = error.__context__ or error
            self._give_up(f"{type(first).__name__}: {str(first).strip().partition(chr(10))[0]}")
            with suppress(Exception):  # of what a capture that failed midway has not done itself
                graph.reset()
                torch._C._cuda_endAllocateToPool(state.x.device.index, pool)
                torch._C._cuda_releasePool(state.x.device.index, pool)
            # it has left the generators capturing, too: a capture that succeeds ends that
            again, other = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
            with suppress(Exception), _capturing(again, generator, self._stream, other):
                torch.zeros((), device=state.x.device)
            return
        self._graph, self._inputs, self._outputs = graph, inputs, outputs

    def _replay(self, state: ChainState) -> ChainState:
        assert self._graph is not None
        assert self._inputs is not None
        assert self._outputs is not None
        for kept, given in zip(self._inputs, state, strict=True):
            if isinstance(kept, Tensor):
                kept.copy_(cast(Tensor, given))
        self._graph.replay()
        ends = zip(self._inputs, self._outputs, state, strict=True)
        # the next replay writes where this one does
        return _like(state, (given if after is before else _own(after) for before, after, given in ends))

    def _give_up(self, cause: str) -> None:
        warnings.warn(f"Chains go step by step, which is slower but gives the same results ({cause}).", Fallback, 1)
        self.given_up.append(cause)


def _like(state: ChainState, leaves: Iterable[Any]) -> ChainState:
    """A state of the same kind, which may be a sampler's own."""
    return type(state)._make(leaves)


def _own(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


class _Same:
    """Equal for one object alone, which it keeps, so that no other can take its place in memory."""

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def _capturing(graph: Any, generator: Generator, stream: Any, pool: Any) -> Iterator[None]:
    graph.register_generator_state(generator)
    with torch.cuda.stream(stream):
        # other threads, such as one that writes a checkpoint, may do what they like meanwhile
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()


@contextmanager
def _noting_waits() -> Iterator[list[str]]:
    """What PyTorch says of operations that make the host wait for a GPU; all other warnings are given afterwards."""
    waits: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode(before)
    for each in given:
        if "synchronizing CUDA operation" in str(each.message):
            waits.append(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _changed(before: dict[str, tuple[Tensor, int]], after: Any) -> bool:
    """Whether a sampler keeps anything else than before."""
    return before.keys() != after.keys() or any(
        kept._version != version if kept is after[name] else not torch.equal(kept, after[name])
        for name, (kept, version) in before.items()
    )
