"""A whole iteration of a training as one CUDA graph: a prototype, to be measured on a GPU.

The graph holds the batch with its augmentation, the starts of chains, their steps, the loss, the
gradients, the optimisers, the buffer and the averaged weights. What the plain loop passes as a
number of Python (the iteration, the learning rates, the weight of the average) or draws on the CPU
(the order of the images) is a tensor here, which is written before each replay. The generators take
part in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from jembench import seeds
from jembench.interfaces import ChainState
from jembench.models import execution
from jembench.sampling.graph import WARM_UP
from jembench.sampling.starts import DrawnStart
from jembench.training.batches import IndexStream
from jembench.training.loop import Trainer


class FixedIndices:
    """A stream of indices whose batches lie at one address of the device.

    Args:
        stream: draws the indices on the CPU.
        device: where the batches lie.
    """

    def __init__(self, stream: IndexStream, device: torch.device) -> None:
        self.stream = stream
        self.indices = torch.zeros(stream.batch_size, dtype=torch.int64, device=device)

    def advance(self) -> None:
        """Copy the next batch to the device, without waiting for it."""
        indices = next(self.stream)
        if self.indices.is_cuda:
            indices = indices.pin_memory()
        self.indices.copy_(indices, non_blocking=True)

    def __next__(self) -> FixedIndices:
        return self

    def pin_memory(self) -> FixedIndices:
        """Return the stream, as the batch is on the device."""
        return self

    def to(self, device: torch.device, *, non_blocking: bool) -> Tensor:
        """Return the batch that was copied last."""
        return self.indices


def without_graphs(trainer: Trainer) -> None:
    """Let a trainer capture neither its chains nor its losses, which may still be compiled."""
    trainer.functions.graph = None
    if trainer.functions.execution.compiled:
        for name, phase in trainer.phases.items():
            compiled = execution.compiled(phase.loss, trainer.functions.given_up, captured=False)
            trainer.functions.losses[name] = compiled


class WholeIteration:
    """Runs a trainer's iterations, each as one CUDA graph from the third on.

    On a CPU each replay is a call of the function that a GPU captures. Values are those of the
    trainer's own ``iterate``, apart from learning rates, which fused steps on a GPU read in
    float32.

    Starts that make the host wait, such as those at Gaussians of the classes, are drawn before the
    graph.

    Args:
        trainer: before its first iteration, of one process. Only this object may run its iterations
            from now on.

    Raises:
        ValueError: if such starts are of classes that the iteration draws.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        device = trainer.device
        without_graphs(trainer)
        streams = trainer.batches.streams
        self.streams = {kind: FixedIndices(stream, device) for kind, stream in streams.items()}
        trainer.batches.streams = self.streams  # type: ignore[assignment]
        self.number, self.weight = torch.zeros((2,), device=device).unbind()
        self._fix_rates()

        self.starts: ChainState | None = None
        waits = not isinstance(getattr(trainer.chains.sampler, "starts", None), DrawnStart)
        self.starts_before = trainer.chains.sampler is not None and waits
        if self.starts_before:
            self._fix_starts()
        self.stream = torch.cuda.Stream(device) if device.type != "cpu" else None
        self.runs = 0
        self._replay: Callable[[], Tensor] | None = None

    def _fix_starts(self) -> None:
        """Let the iteration read the starts of its chains from tensors."""
        trainer = self.trainer
        if trainer.model.chains == "conditional" or trainer.recipe.chains.conditional:
            raise ValueError("The classes of chains that start before the graph are not known.")
        self._draw_starts = trainer.chains.sampler.init
        trainer.chains.sampler.init = lambda *_, **__: self.starts

    def _fix_rates(self) -> None:
        """Let the optimisers read their learning rates from tensors."""
        trainer = self.trainer
        self.learning_rate = trainer.learning_rate
        kind = torch.float32 if trainer.device.type == "cuda" else torch.float64
        device = trainer.device
        self.rates = {name: torch.zeros((), dtype=kind, device=device) for name in trainer.phases}
        trainer.learning_rate = self.rates.__getitem__  # type: ignore[method-assign, assignment]

    def iterate(self) -> dict[str, Tensor]:
        """Take a step of each optimiser, and return the losses and parts, still on the device."""
        trainer = self.trainer
        self._write_inputs()
        # a replay draws from PyTorch's own generators as well, whose seed is set before it
        with seeds.drawing(trainer.seed, trainer._chance("network"), trainer.device):
            values = self._run()
        trainer.iteration += 1
        self.runs += 1
        return dict(zip(self.names, values.unbind(), strict=True))

    def _write_inputs(self) -> None:
        """Write what differs between two iterations to its place."""
        trainer = self.trainer
        self.number.fill_(trainer.iteration)
        for name, rate in self.rates.items():
            rate.fill_(self.learning_rate(name))
        if trainer.average:
            count = trainer.iteration + 1
            self.weight.fill_(1 - min(trainer.average.decay, count / (count + 9)))
        for stream in self.streams.values():
            stream.advance()
        if self.starts_before:
            drawn = self._draw_starts(trainer.chains.count, generator=trainer.chains.generator)
            if self.starts is None:
                self.starts = drawn
            for fixed, value in zip(self.starts, drawn, strict=True):
                if isinstance(fixed, Tensor):
                    fixed.copy_(value)

    def _run(self) -> Tensor:
        """Run the iteration, at first step by step on the stream of the capture."""
        if self.stream is None:
            return self._work()
        if self.runs < WARM_UP:
            here = torch.cuda.current_stream(self.trainer.device)
            self.stream.wait_stream(here)
            with torch.cuda.stream(self.stream):
                values = self._work()
            here.wait_stream(self.stream)
            return values
        self._replay = self._replay or self._captured()
        return self._replay().clone()  # the next replay overwrites them

    def _captured(self) -> Callable[[], Tensor]:
        """Capture an iteration, which draws no random numbers and changes no values."""
        for optimizer in self.trainer.optimizers.values():
            for group in optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators():
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            values = self._work()

        def replay() -> Tensor:
            graph.replay()
            return values

        return replay

    def _generators(self) -> list[Generator]:
        """Return the device's generators that an iteration draws from, beside PyTorch's own."""
        trainer = self.trainer
        held = [*vars(trainer.chains).values(), *vars(trainer.batches).values()]
        generators = [value for value in held if isinstance(value, Generator)]
        return [one for one in generators if one.device.type == trainer.device.type]

    def _work(self) -> Tensor:
        """Do what ``Trainer.iterate`` does between its seeds, and update the average."""
        trainer, values = self.trainer, dict[str, Tensor]()
        whole = trainer.batches.draw()
        batch = trainer.group.cut(whole)._replace(iteration=self.number)
        trainer.model.train()
        first = batch
        if trainer.functions.pass_first:
            with execution.autocast(trainer.functions.execution.precision, trainer.device):
                first = batch._replace(logits=trainer.functions.pass_first(batch.x))
        negatives = trainer.chains.negatives(
            whole, trainer.functions, trainer.sampling_steps, trainer._chance
        )
        for phase in trainer.phases:
            values |= trainer._step(phase, first, batch, negatives)
            first = batch
        if trainer.average:
            self._update_average(trainer.average.state)
        self.names = list(values)
        return torch.stack(list(values.values()))

    @torch.no_grad()
    def _update_average(self, average: dict[str, Any]) -> None:
        """Move the averaged weights towards the present ones."""
        current = self.trainer.model.state_dict()
        for name, value in average.items():
            if value.is_floating_point():
                value.lerp_(current[name], self.weight)
            else:
                value.copy_(current[name])
