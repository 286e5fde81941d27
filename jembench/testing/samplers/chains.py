"""What a sampler's chains are: how they begin, and what a step does.

Legend: n chains, C channels, H height, W width.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from jembench.interfaces import ChainState, StepInfo
from jembench.testing.checks import CheckFailed, DoesNotApply, is_count, promise, require
from jembench.testing.comparing import same
from jembench.testing.samplers.subject import (
    CHAINS,
    STEPS,
    SamplerSubject,
    alike,
    copied,
    flat,
    move,
    require_images,
    seeded,
)

STEEPNESS = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""Of the bowls that chains must descend into; which of them suits a sampler depends on the size of its steps."""

DOWNHILL_STEPS = 200
DOWNHILL_SHARE = 0.2
"""The largest share of the initial energy that may be left after these steps."""


@promise("samplers")
def length(subject: SamplerSubject) -> None:
    """The length of its chains is a whole number of at least 1."""
    steps = subject.make().steps
    require(is_count(steps), f"steps is {steps!r}; it must be a whole number of at least 1, as in training.")


@promise("samplers")
def begins_as_images(subject: SamplerSubject) -> None:
    """Chains begin as float32 (n, C, H, W) on the generator's device."""
    for y in subject.kinds:
        for begin in ("start", "init"):
            name = f"{begin}, for chains on {'E(x)' if y is None else 'E(x, y)'},"
            state = getattr(subject.make(), begin)(CHAINS, y, generator=seeded())
            require(isinstance(state, ChainState), f"{name} gives a {type(state).__name__}, not a ChainState.")
            require_images(state.x, (CHAINS, *subject.data.shape), name)


@promise("samplers")
def starts_within_bounds(subject: SamplerSubject) -> None:
    """New chains start within the pixels' bounds.

    Scale them to DataSpec.bounds, or clamp them.
    """
    low, high = subject.data.bounds
    for y in subject.kinds:
        x = subject.make().start(CHAINS, y, generator=seeded()).x
        least, most = float(x.min()), float(x.max())
        require(least >= low and most <= high, f"start gives pixels from {least:.3g} to {most:.3g}.")


@promise("samplers")
def step_keeps_shapes(subject: SamplerSubject) -> None:
    """A step gives images, energies and gradients in their shapes."""
    shape = (CHAINS, *subject.data.shape)
    for y in subject.kinds:
        sampler = subject.make()
        state, info = sampler.step(sampler.init(CHAINS, y, generator=seeded()), subject.bowl(), seeded())
        types = f"step gives a {type(state).__name__} and a {type(info).__name__}, not a ChainState and a StepInfo."
        require(isinstance(state, ChainState) and isinstance(info, StepInfo), types)
        require_images(state.x, shape, "step")
        require_images(info.grad, shape, "step, as StepInfo.grad,")
        require_images(info.energy, (CHAINS,), "step, as StepInfo.energy,")


@promise("samplers")
def steps_are_counted(subject: SamplerSubject) -> None:
    """A state knows how many steps its chains have moved.

    It must count them from 0. Let step give state._replace(x=..., steps=state.steps + 1).
    """
    sampler = subject.make()
    begun = sampler.init(CHAINS, generator=seeded())
    ended = move(sampler, begun, subject.bowl())
    found = f"ChainState.steps is {begun.steps} at the beginning and {ended.steps} after {STEPS} steps."
    require(begun.steps == 0 and ended.steps == STEPS, found)


@promise("samplers")
def labels_stay(subject: SamplerSubject) -> None:
    """Chains on E(x, y) keep the labels that they were given; those on E(x) have none.

    Pass state.y on; of chains on E(x), ChainState.y is None.
    """
    y = subject.labels
    if y is None:
        raise DoesNotApply(f"{subject.data.name} has no classes.")
    sampler = subject.make()
    for begin in (sampler.start, sampler.init):
        state = begin(CHAINS, y.clone(), generator=seeded())
        require(same(state.y, y), f"{begin.__name__} is given the labels y and gives others, or none.")
        moved = move(sampler, state, subject.bowl())
        require(same(moved.y, y), "step changes the labels of its chains, or loses them.")
    require(sampler.start(CHAINS, generator=seeded()).y is None, "start gives labels to chains on E(x).")


@promise("samplers")
def asks_grad_energy(subject: SamplerSubject) -> None:
    """A step asks grad_energy(x, y) alone, of images and their own labels: of all chains, or of a part at a time.

    Call grad_energy(state.x, state.y) in step, or of a part grad_energy(state.x[i], state.y[i]).
    """
    asked: list[tuple[Tensor, Tensor | None]] = []

    def grad_energy(x: Tensor, y: Tensor | None, /) -> tuple[Tensor, Tensor]:
        asked.append((x, y))
        return subject.bowl()(x, y)

    for y in subject.kinds:
        sampler = subject.make()
        asked.clear()
        state = sampler.init(CHAINS, y, generator=seeded())
        require(not asked, "init asks for energies.")
        begun = state.x.clone()
        sampler.step(state, grad_energy, seeded())
        require(bool(asked), "step does not ask for the gradient.")
        for x, labels in asked:
            n = len(x) if isinstance(x, Tensor) and x.ndim and 1 <= len(x) < CHAINS else CHAINS
            require_images(x, (n, *subject.data.shape), "To grad_energy, step")
            energy = "E(x)" if labels is None else "E(x, y)"
            found = f"step asks for the gradient of {energy} with other labels than those of its chains."
            require(_are_their_own(x, labels, begun, y), found)


def _are_their_own(x: Tensor, labels: Tensor | None, begun: Tensor, y: Tensor | None) -> bool:
    """Whether the labels belong to the chains that are evaluated.

    In a part, a chain is recognised by its initial image. Of a chain that has moved, only the number of chains with
    its label is known.
    """
    if y is None or labels is None or len(x) == CHAINS:
        return same(labels, y)
    if labels.dtype != y.dtype or len(labels) != len(x) or Counter(labels.tolist()) - Counter(y.tolist()):
        return False
    known = [y[alike(image, begun)] for image in x]
    return all(not len(own) or bool((own == label).any()) for own, label in zip(known, labels, strict=True))


@promise("samplers")
def leaves_its_arguments(subject: SamplerSubject) -> None:
    """The state that is handed in is not changed in place.

    Make a new one, state._replace(x=...), and keep copies.
    """
    for y in subject.kinds:
        sampler = subject.make()
        state = sampler.init(CHAINS, y, generator=seeded())
        before = copied(state)
        ended, _ = sampler.step(state, subject.bowl(), seeded())
        require(same(state, before), "step changes the state that it is given.")
        before = copied(ended)
        sampler.finish(ended)
        require(same(ended, before), "finish changes the state that it is given.")


@promise("samplers")
def keeps_no_graph(subject: SamplerSubject) -> None:
    """No gradient flows from one step into another.

    Work on detached tensors: otherwise the graph grows with every step.
    """
    for y in subject.kinds:
        sampler = subject.make()
        with torch.enable_grad():
            begun = sampler.init(CHAINS, y, generator=seeded())
            ended, info = sampler.step(begun, subject.bowl(), seeded())
        tensors = {"init": begun.x, "step": ended.x, "StepInfo.energy": info.energy, "StepInfo.grad": info.grad}
        attached = [name for name, tensor in tensors.items() if tensor.requires_grad]
        require(not attached, f"Gradients would flow through {', '.join(attached)}.")


@promise("samplers")
def stays_finite(subject: SamplerSubject) -> None:
    """Chains stay finite where the energy is flat.

    A gradient may be 0: never divide by its size alone.
    """
    sampler = subject.make()
    state = move(sampler, sampler.init(CHAINS, generator=seeded()), flat, steps=10)
    require(bool(state.x.isfinite().all()), "Where the energy is flat, chains become NaN or infinite.")


@promise("samplers")
def goes_downhill(subject: SamplerSubject) -> None:
    """Chains go down into a bowl: where energy is low, images are likely.

    Lower energy is likelier, and grad_energy gives dE/dx: move against it, in steps that suit a bowl of some steepness.
    """
    found = []
    for steepness in STEEPNESS:
        bowl = subject.bowl(steepness)
        sampler = subject.make()
        state = sampler.start(CHAINS, generator=seeded())._replace(y=None)
        start = float(bowl(state.x, None)[0].mean())
        end = float(bowl(move(sampler, state, bowl, steps=DOWNHILL_STEPS).x, None)[0].mean())
        if end < DOWNHILL_SHARE * start:
            return
        found.append(f"from {start:.3g} to {end:.3g} with c = {steepness:g}")
    raise CheckFailed(f"In bowls c |x - m|^2 / 2, {DOWNHILL_STEPS} steps take the mean energy {', '.join(found)}.")
