"""Promises of a sampler's chains: their starts and steps.

Legend: n chains, C channels, H height, W width.
"""

import torch
from torch import Tensor

from jembench.interfaces import ChainState
from jembench.testing.checks import CheckFailed, only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.samplers.subject import (
    CHAINS,
    STEPS,
    SamplerSubject,
    copy_tensors,
    move,
    require_tensor,
    seeded,
)

STEEPNESS = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The steepnesses c of the quadratic energies that chains descend; a sampler's step size suits some
of them.
"""

DOWNHILL_STEPS = 200
DOWNHILL_SHARE = 0.2
"""The largest share of the initial energy that may remain after ``DOWNHILL_STEPS``."""


@promise("samplers")
def begins_as_images(subject: SamplerSubject) -> None:
    """Chains begin as float32 (n, C, H, W) on the generator's device.

    Chains of ``start`` lie within the bounds: scale or clamp them to DataSpec.bounds.
    """
    low, high = subject.data.bounds
    for y in subject.kinds:
        for begin in ("start", "init"):
            state = getattr(subject.build(), begin)(CHAINS, y, generator=seeded())
            require(
                isinstance(state, ChainState),
                f"{begin} returns a {type(state).__name__}, not a ChainState.",
            )
            require_tensor(state.x, (CHAINS, *subject.data.shape), begin)
            least, most = float(state.x.min()), float(state.x.max())
            within = begin == "init" or (least >= low and most <= high)
            require(within, f"start returns pixels from {least:.3g} to {most:.3g}.")


@promise("samplers")
def step_gives_images(subject: SamplerSubject) -> None:
    """A step returns images in their shape, detached, and increments the number of steps.

    Return state._replace(x=..., steps=state.steps + 1) of detached tensors.
    """
    shape = (CHAINS, *subject.data.shape)
    for y in subject.kinds:
        sampler = subject.build()
        with torch.enable_grad():
            begun = sampler.init(CHAINS, y, generator=seeded())
            state = sampler.step(begun, subject.bowl(), seeded())
        require(
            isinstance(state, ChainState),
            f"step returns a {type(state).__name__}, not a ChainState.",
        )
        require_tensor(state.x, shape, "step")
        steps = begun.steps, move(sampler, begun, subject.bowl()).steps
        require(
            steps == (0, STEPS),
            f"ChainState.steps is {steps[0]} at first and {steps[1]} after {STEPS} steps.",
        )


@promise("samplers")
def labels_stay(subject: SamplerSubject) -> None:
    """Chains on E(x, y) keep their labels; chains on E(x) have none.

    Pass state.y on; for chains on E(x), ChainState.y is None.
    """
    only_if(subject.labels is not None, f"{subject.data.name} has no classes.")
    for y in subject.kinds:
        sampler = subject.build()
        for begin in (sampler.start, sampler.init):
            state = begin(CHAINS, copy_tensors(y), generator=seeded())
            require(
                same(state.y, y), f"{begin.__name__} gets the labels {y} and returns {state.y}."
            )
            moved = move(sampler, state, subject.bowl())
            require(same(moved.y, y), "step changes the labels of its chains, or loses them.")


@promise("samplers")
def asks_grad_energy(subject: SamplerSubject) -> None:
    """Only a step calls grad_energy(x, y), with images and their own labels.

    Call grad_energy(state.x, state.y) in step, or for a part grad_energy(state.x[i], state.y[i]).
    """
    asked: list[tuple[Tensor, Tensor | None]] = []

    def grad_energy(x: Tensor, y: Tensor | None, /) -> tuple[Tensor, Tensor]:
        asked.append((x.clone(), y))
        return subject.bowl(1.0)(x, y)

    for y in subject.kinds:
        asked.clear()
        sampler = subject.build()
        state = sampler.init(CHAINS, y, generator=seeded())
        require(not asked, "init asks for energies.")
        sampler.step(state, grad_energy, seeded())
        require(bool(asked), "step does not ask for the gradient.")
        x, labels = asked[0]
        require(
            x.shape[1:] == subject.data.shape and len(x) > 0,
            f"step asks for the gradient of {tuple(x.shape)}.",
        )
        if len(x) == CHAINS:
            require(
                same(labels, y),
                "step asks for the gradient with other labels than those of its chains.",
            )


@promise("samplers")
def leaves_its_arguments(subject: SamplerSubject) -> None:
    """States and training images that are arguments are not changed in place.

    Return state._replace(x=...), and copy the images that you keep.
    """
    for y in subject.kinds:
        sampler = subject.build()
        if hasattr(sampler, "inform"):
            shown = copy_tensors(subject.train)
            sampler.inform(shown)
            require(same(shown, subject.train), "inform changes the training images in place.")
        state = sampler.init(CHAINS, y, generator=seeded())
        before = copy_tensors(state)
        ended = sampler.step(state, subject.bowl(), seeded())
        require(same(state, before), "step changes the state that it is given.")
        before = copy_tensors(ended)
        sampler.finish(ended)
        require(same(ended, before), "finish changes the state that it is given.")


@promise("samplers")
def stays_finite(subject: SamplerSubject) -> None:
    """Chains stay finite if the energy is constant.

    A gradient may be 0: do not divide by its norm alone.
    """
    sampler = subject.build()
    state = move(sampler, sampler.init(CHAINS, generator=seeded()), subject.bowl(0), steps=10)
    require(
        bool(state.x.isfinite().all()), "Chains become NaN or infinite if the energy is constant."
    )


@promise("samplers")
def goes_downhill(subject: SamplerSubject) -> None:
    """Chains decrease a quadratic energy, since images of low energy are likely.

    A lower energy means a higher density, and grad_energy returns dE/dx: move against it.
    """
    changes = []
    for steepness in STEEPNESS:
        bowl = subject.bowl(steepness)
        sampler = subject.build()
        state = sampler.start(CHAINS, generator=seeded())._replace(y=None)
        start = float(bowl(state.x, None)[0].mean())
        end = float(bowl(move(sampler, state, bowl, steps=DOWNHILL_STEPS).x, None)[0].mean())
        if end < DOWNHILL_SHARE * start:
            return
        changes.append(f"from {start:.3g} to {end:.3g} with c = {steepness:g}")
    raise CheckFailed(
        f"With E = c |x - m|^2 / 2, {DOWNHILL_STEPS} steps take the mean energy "
        f"{', '.join(changes)}."
    )
