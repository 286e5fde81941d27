"""Checks of what a sampler's chains are: how they begin, and what a step does.

Legend: n chains, C channels, H height, W width.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from jembench.interfaces import ChainState, StepInfo
from jembench.testing.asking import promises, require, same
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.sampler_checks.subject import (
    CHAINS,
    STEPS,
    Subject,
    alike,
    copied,
    flat,
    move,
    require_images,
    seeded,
)

STEEPNESS = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""Of the bowls that chains must go down into; which of them suits a sampler depends on the size of its steps."""

DOWNHILL_STEPS = 200
DOWNHILL_SHARE = 0.2
"""The share of the energy at the start that may be left after so many steps."""


# --- shapes -----------------------------------------------------------------------------------------------------------


def all_parts(subject: Subject) -> None:
    """It has every part of jembench.interfaces.Sampler."""
    sampler = subject.resolved.make(subject.data)
    missing = [name for name in _PARTS if not hasattr(sampler, name)]
    require(not missing, f"The sampler has no {', '.join(missing)}: see jembench.interfaces.Sampler.")


_PARTS = ("steps", "start", "init", "step", "finish", "kept", "state_dict", "load_state_dict")


def length(subject: Subject) -> None:
    """The length of its chains is a whole number of at least 1."""
    steps = subject.make().steps
    good = isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
    require(good, f"steps is {steps!r}; it must be a whole number of at least 1, the length of a chain in training.")


def _begun(subject: Subject) -> list[tuple[str, ChainState]]:
    """Chains as they begin, in all ways, each with how."""
    ways = []
    for y in subject.kinds:
        on = "E(x)" if y is None else "E(x, y)"
        sampler = subject.make()
        ways.append((f"start, for chains on {on},", sampler.start(CHAINS, y, generator=seeded())))
        ways.append((f"init, for chains on {on},", sampler.init(CHAINS, y, generator=seeded())))
    return ways


def begins_as_images(subject: Subject) -> None:
    """Chains begin as float32 (n, C, H, W) on the generator's device."""
    for how, state in _begun(subject):
        require(isinstance(state, ChainState), f"{how} gives a {type(state).__name__}, not a ChainState.")
        require_images(state.x, (CHAINS, *subject.data.shape), how)


def starts_within_bounds(subject: Subject) -> None:
    """New chains start within the pixels' bounds."""
    low, high = subject.data.bounds
    for y in subject.kinds:
        x = subject.make().start(CHAINS, y, generator=seeded()).x
        require(
            float(x.min()) >= low and float(x.max()) <= high,
            f"start gives pixels from {float(x.min()):.3g} to {float(x.max()):.3g}; images are within {low:g} to "
            f"{high:g} (DataSpec.bounds). Scale them, or clamp them.",
        )


def step_keeps_shapes(subject: Subject) -> None:
    """A step gives images, energies and gradients in their shapes."""
    shape = (CHAINS, *subject.data.shape)
    for y in subject.kinds:
        sampler = subject.make()
        state, info = sampler.step(sampler.init(CHAINS, y, generator=seeded()), subject.bowl(), seeded())
        require(
            isinstance(state, ChainState) and isinstance(info, StepInfo),
            f"step gives a {type(state).__name__} and a {type(info).__name__}, not a ChainState and a StepInfo.",
        )
        require_images(state.x, shape, "step")
        require_images(info.grad, shape, "step, as StepInfo.grad,")
        require_images(info.energy, (CHAINS,), "step, as StepInfo.energy,")


def steps_are_counted(subject: Subject) -> None:
    """A state knows how many steps its chains have moved."""
    sampler = subject.make()
    begun = sampler.init(CHAINS, generator=seeded())
    ended = move(sampler, begun, subject.bowl())
    require(
        begun.steps == 0 and ended.steps == STEPS,
        f"ChainState.steps is {begun.steps} at the beginning and {ended.steps} after {STEPS} steps; it must count them "
        "from 0. Let step give state._replace(x=..., steps=state.steps + 1).",
    )


def labels_stay(subject: Subject) -> None:
    """Chains on E(x, y) keep the labels that they were given; those on E(x) have none."""
    y = subject.labels
    if y is None:
        raise DoesNotApply(f"{subject.data.name} has no classes.")
    sampler = subject.make()
    for begin in (sampler.start, sampler.init):
        state = begin(CHAINS, y.clone(), generator=seeded())
        require(same(state.y, y), f"{begin.__name__} is given the labels y and gives others, or none, in ChainState.y.")
        moved = move(sampler, state, subject.bowl())
        require(same(moved.y, y), "step changes the labels of its chains, or loses them. Give on state.y.")
    unconditional = sampler.start(CHAINS, generator=seeded())
    require(unconditional.y is None, "start gives labels to chains on E(x). Of these, ChainState.y is None.")


# --- what a step does -------------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    x: Tensor
    y: Tensor | None


def asks_grad_energy(subject: Subject) -> None:
    """A step asks grad_energy(x, y) alone, of images and their own labels: of all chains, or of a part at a time."""
    asked: list[_Asked] = []

    def grad_energy(x: Tensor, y: Tensor | None, /) -> tuple[Tensor, Tensor]:
        asked.append(_Asked(x, y))
        return subject.bowl()(x, y)

    for y in subject.kinds:
        sampler = subject.make()
        asked.clear()
        state = sampler.init(CHAINS, y, generator=seeded())
        require(not asked, "init asks for energies.")
        begun = state.x.clone()
        sampler.step(state, grad_energy, seeded())
        require(bool(asked), "step does not ask grad_energy(x, y) for the gradient.")
        for each in asked:
            require_images(each.x, (_part_size(each.x), *subject.data.shape), "To grad_energy, step")
            require(
                _are_their_own(each, begun, y),
                f"step asks for the gradient of {'E(x)' if each.y is None else 'E(x, y)'} with other labels than those "
                "of its chains. Call grad_energy(state.x, state.y), or of a part grad_energy(state.x[i], state.y[i]).",
            )


def _part_size(x: Tensor) -> int:
    """How many chains are asked about, if they can be so many: all of them, or fewer."""
    return len(x) if isinstance(x, Tensor) and x.ndim and 1 <= len(x) < CHAINS else CHAINS


def _are_their_own(asked: _Asked, begun: Tensor, y: Tensor | None) -> bool:
    """Whether the labels are those of the chains that are asked about.

    In a part, a chain is known by the image that it began with. Of one that has moved, it is known only that as many
    chains have that label.
    """
    if y is None or asked.y is None or len(asked.x) == CHAINS:
        return same(asked.y, y)
    if asked.y.dtype != y.dtype or len(asked.y) != len(asked.x) or Counter(asked.y.tolist()) - Counter(y.tolist()):
        return False
    those = [y[alike(image, begun)] for image in asked.x]
    return all(not len(labels) or bool((labels == label).any()) for labels, label in zip(those, asked.y, strict=True))


def leaves_its_arguments(subject: Subject) -> None:
    """The state that is handed in is not changed in place."""
    for y in subject.kinds:
        sampler = subject.make()
        state = sampler.init(CHAINS, y, generator=seeded())
        before = copied(state)
        ended, _ = sampler.step(state, subject.bowl(), seeded())
        require(same(state, before), "step changes the state that it is given. Make a new one: state._replace(x=...).")
        before = copied(ended)
        sampler.finish(ended)
        require(same(ended, before), "finish changes the state that it is given. Keep a copy.")


def keeps_no_graph(subject: Subject) -> None:
    """No gradient flows from one step into another."""
    for y in subject.kinds:
        sampler = subject.make()
        with torch.enable_grad():
            begun = sampler.init(CHAINS, y, generator=seeded())
            ended, info = sampler.step(begun, subject.bowl(), seeded())
        tensors = {"init": begun.x, "step": ended.x, "StepInfo.energy": info.energy, "StepInfo.grad": info.grad}
        hanging = [name for name, tensor in tensors.items() if tensor.requires_grad]
        require(
            not hanging,
            f"Gradients would flow through what {', '.join(hanging)} gives: the graph grows with every step. Work "
            "on detached tensors.",
        )


def stays_finite(subject: Subject) -> None:
    """Chains stay finite where the energy is flat."""
    sampler = subject.make()
    state = move(sampler, sampler.init(CHAINS, generator=seeded()), flat, steps=10)
    require(
        bool(state.x.isfinite().all()),
        "Where the energy is flat, chains become NaN or infinite. A gradient may be 0: never divide by its size alone.",
    )


def goes_downhill(subject: Subject) -> None:
    """Chains go down into a bowl: where energy is low, images are likely."""
    found = []
    for steepness in STEEPNESS:
        bowl = subject.bowl(steepness)
        sampler = subject.make()
        state = sampler.start(CHAINS, generator=seeded())._replace(y=None)
        start = float(bowl(state.x, None)[0].mean())
        end = float(bowl(move(sampler, state, bowl, steps=DOWNHILL_STEPS).x, None)[0].mean())
        if end < DOWNHILL_SHARE * start:
            return
        found.append(f"{start:.3g} to {end:.3g}")
    raise CheckFailed(
        f"In bowls c |x - m|^2 / 2 with c = {', '.join(f'{c:g}' for c in STEEPNESS)}, {DOWNHILL_STEPS} steps take the "
        f"mean energy from {', from '.join(found)}. Lower energy is likelier, and grad_energy gives dE/dx: move "
        "against it, in steps that a bowl of some steepness bears."
    )


PROMISES = promises(
    all_parts,
    length,
    begins_as_images,
    starts_within_bounds,
    step_keeps_shapes,
    steps_are_counted,
    labels_stay,
    asks_grad_energy,
    leaves_its_arguments,
    keeps_no_graph,
    stays_finite,
    goes_downhill,
)
"""What chains promise."""
