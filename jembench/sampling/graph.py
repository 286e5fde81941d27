"""A chain as one CUDA graph, whose steps the host launches all at once."""

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
"""Chains that run step by step before a chain is captured: in the first the network initialises
itself by its first batch, in the second it is compiled and tuned.
"""

Move = Callable[[ChainState], ChainState]


class ChainGraph:
    """A runner of chains: from the third on, each is one CUDA graph.

    The results are those of :func:`jembench.sampling.chain.run`.

    Only chains of a ``capturable`` sampler are captured. After any error chains run step by step,
    with one warning. A graph gives the same values as single steps: a capture draws no random
    numbers, and a replay advances the generators as the steps would. The statistics of batch norm
    are updated in place, so that a replay updates them too.

    Args:
        model: the model of the gradient. A graph reads its weights and buffers, and the sampler's
            state, from the addresses at the capture; if one of these has moved, chains are captured
            again.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.given_up: list[str] = []
        """Reasons why chains run step by step; empty unless capturing has failed."""
        self._graph: torch.cuda.CUDAGraph | None = None
        self.forget()

    def forget(self) -> None:
        """Release the graph and its memory. The next chains warm up again."""
        if self._graph is not None:
            self._graph.reset()
        self._graph = None
        self._ends: tuple[ChainState, ChainState] | None = None  # inputs and outputs of a replay
        self._objects: tuple[object, ...] = ()
        self._layout: tuple[Any, ...] = ()
        self._chains = 0  # run with these objects and this layout

    def run(
        self,
        sampler: Sampler,
        state: ChainState,
        grad_energy: GradEnergy,
        generator: Generator,
        steps: int | None,
    ) -> ChainState:
        """Move chains by ``steps``; None: the sampler's own number.

        The sampler's buffer is unchanged.
        """
        move = functools.partial(
            chain.run, sampler, grad_energy=grad_energy, generator=generator, steps=steps
        )
        if not self.given_up and not getattr(sampler, "capturable", False):
            self._give_up("the sampler does not say that it is capturable")
        if self.given_up or steps == 0:
            return move(state)
        objects = (sampler, grad_energy, generator)
        layout = (steps, *self._layout_of(sampler, state))
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
        if self._graph is None:
            return move(state)
        return self._replay(state)

    def _layout_of(self, sampler: Sampler, state: ChainState) -> tuple[Any, ...]:
        """Return the mode, and shapes and addresses of tensors.

        A graph is valid while these are the same, and its objects too.
        """
        leaves = (
            (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x for x in state
        )
        held = (*self.model.parameters(), *self.model.buffers(), *sampler.state_dict().values())
        places = (x.data_ptr() for x in held if x.device == state.x.device)
        return (self.model.training, type(state), *leaves, *places)

    def _warm_up(self, move: Move, state: ChainState) -> ChainState:
        """Run the chain without a graph, on the stream that the capture will use."""
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
        # an error of a step itself is raised again when the chain runs step by step
        except Exception as error:
            first = error.__context__ or error
            self._give_up(f"{type(first).__name__}: {str(first).strip().partition(chr(10))[0]}")
            # a failed capture leaves the generators in the capturing state, which a successful
            # capture ends
            empty = torch.cuda.CUDAGraph()
            empty.register_generator_state(generator)
            with (
                suppress(Exception),
                torch.cuda.graph(empty, stream=self._stream, capture_error_mode="thread_local"),
            ):
                torch.zeros((), device=state.x.device)
            return
        self._graph, self._ends = graph, (inputs, outputs)

    def _replay(self, state: ChainState) -> ChainState:
        assert self._graph is not None
        assert self._ends is not None
        inputs, outputs = self._ends
        for place, value in zip(inputs, state, strict=True):
            if isinstance(place, Tensor) and isinstance(value, Tensor):
                place.copy_(value)
        self._graph.replay()
        return _copied(outputs)  # the next replay overwrites them

    def _give_up(self, cause: str) -> None:
        warnings.warn(
            f"Chains run step by step, which is slower but gives the same results ({cause}).",
            Fallback,
            1,
        )
        self.given_up.append(cause)
        self.forget()


def _copied(state: ChainState) -> ChainState:
    leaves: Iterable[Any] = (x.clone() if isinstance(x, Tensor) else x for x in state)
    return type(state)(*leaves)
