"""A chain as one CUDA graph: the host launches all of its steps at once."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Generator, Tensor, nn

from jembench.errors import Fallback
from jembench.interfaces import ChainState, GradEnergy, Sampler
from jembench.sampling import chain

WARM_UP = 2
"""Chains that go step by step before one is captured: what a network does once, it does with its first batch, and what
it does from then on is compiled and tuned with the second chain."""

Move = Callable[[ChainState], ChainState]


class ChainGraph:
    """Runs chains as :func:`jembench.sampling.chain.run` does, each as one CUDA graph from the third on.

    Only a sampler that is ``capturable`` is captured. After any error chains go on step by step, with one warning. The
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
        self.forget()

    def forget(self) -> None:
        """Let go of the graph and its memory. The next chains warm up again."""
        if self._graph is not None:
            self._graph.reset()
        self._graph = None
        self._ends: tuple[ChainState, ChainState] | None = None  # where a replay reads and where it writes
        self._objects: tuple[object, ...] = ()
        self._layout: tuple[Any, ...] = ()
        self._chains = 0  # of that kind

    def run(
        self, sampler: Sampler, state: ChainState, grad_energy: GradEnergy, generator: Generator, steps: int | None
    ) -> ChainState:
        """Move chains by ``steps`` (the sampler's own number if None). The sampler's memory stays as it is."""
        move = functools.partial(chain.run, sampler, grad_energy=grad_energy, generator=generator, steps=steps)
        if not self.given_up and not getattr(sampler, "capturable", False):
            self._give_up("the sampler does not say that it is capturable")
        if self.given_up:
            return move(state)
        objects, layout = (sampler, grad_energy, generator), (steps, *self._layout_of(sampler, state))
        same = len(self._objects) == 3 and all(map(operator.is_, objects, self._objects))
        if not same or layout != self._layout:
            self.forget()
            self._objects, self._layout = objects, layout
            self._stream = torch.cuda.Stream(state.x.device)  # type: ignore[no-untyped-call]
        self._chains += 1
        if self._chains <= WARM_UP:
            return self._warm_up(move, state)
        if self._graph is None:
            self._capture(move, state, generator)
        return move(state) if self._graph is None else self._replay(state)

    def _layout_of(self, sampler: Sampler, state: ChainState) -> tuple[Any, ...]:
        """Return what one graph is good for beside the objects: the mode, shapes, and where tensors lie."""
        leaves = ((x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x for x in state)
        held = (*self.model.parameters(), *self.model.buffers(), *sampler.state_dict().values())
        places = (x.data_ptr() for x in held if x.device == state.x.device)
        return (self.model.training, type(state), *leaves, *places)

    def _warm_up(self, move: Move, state: ChainState) -> ChainState:
        """Go step by step, on the stream of the capture."""
        here = torch.cuda.current_stream(state.x.device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            end = move(state)
        here.wait_stream(self._stream)
        return end

    def _capture(self, move: Move, state: ChainState, generator: Generator) -> None:
        inputs = _copied(state)
        try:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(generator)
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                outputs = move(inputs)
        except Exception as error:  # whatever is wrong with a step itself fails again when it is taken
            first = error.__context__ or error
            self._give_up(f"{type(first).__name__}: {str(first).strip().partition(chr(10))[0]}")
            # it has left the generators capturing: a capture that succeeds ends that
            empty = torch.cuda.CUDAGraph()
            empty.register_generator_state(generator)
            with suppress(Exception), torch.cuda.graph(empty, stream=self._stream, capture_error_mode="thread_local"):
                torch.zeros((), device=state.x.device)
            return
        self._graph, self._ends = graph, (inputs, outputs)

    def _replay(self, state: ChainState) -> ChainState:
        assert self._graph is not None
        assert self._ends is not None
        inputs, outputs = self._ends
        for kept, given in zip(inputs, state, strict=True):
            if isinstance(kept, Tensor) and isinstance(given, Tensor):
                kept.copy_(given)
        self._graph.replay()
        return _copied(outputs)  # the next replay writes where this one does

    def _give_up(self, cause: str) -> None:
        warnings.warn(f"Chains go step by step, which is slower but gives the same results ({cause}).", Fallback, 1)
        self.given_up.append(cause)
        self.forget()


def _copied(state: ChainState) -> ChainState:
    leaves: Iterable[Any] = (x.clone() if isinstance(x, Tensor) else x for x in state)
    return type(state)(*leaves)
