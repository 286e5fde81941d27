"""Checks of what outlives a sampler's chains: its state, what it keeps, and how processes share it.

Legend: N kept chains, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import safetensors.torch
import torch
from torch import Tensor

from jembench.errors import SpecError
from jembench.interfaces import ChainState, NeedsTrainingData, Sampler, Shardable
from jembench.testing.asking import known_randomness, promises, require, same
from jembench.testing.checks import DoesNotApply
from jembench.testing.sampler_checks.subject import (
    CHAINS,
    Subject,
    alike,
    copied,
    described,
    iteration,
    require_images,
    seeded,
)


def state_is_tensors(subject: Subject) -> None:
    """The state is a dictionary of tensors, as checkpoints can hold."""
    sampler = subject.make()
    for when in ("before the first chain", "after an iteration"):
        state = sampler.state_dict()
        wrong = [f"{key} is a {type(value).__name__}" for key, value in state.items() if not isinstance(value, Tensor)]
        require(
            not wrong,
            f"In state_dict, {when}, {'; '.join(wrong)}. Checkpoints hold tensors alone: torch.tensor(...) makes one.",
        )
        safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in state.items()})
        iteration(subject, sampler, subject.labels)


def resumes(subject: Subject) -> None:
    """A sampler that loads the state of another goes on as that one does, bit for bit."""
    subject.require_deterministic()
    for y in subject.kinds:
        first, second = subject.make(), subject.make()
        iteration(subject, first, y)
        second.load_state_dict(copied(first.state_dict()))
        require(same(first.kept(), second.kept()), "What is kept is lost on the way through state_dict.")
        for seed in (10, 20):
            ends = []
            for sampler in (first, second):
                with known_randomness():
                    ends.append(iteration(subject, sampler, y, seed))
            require(
                same(*ends) and same(first.kept(), second.kept()),
                "Chains do not go on as they would have after load_state_dict: a resumed training is another one. "
                "state_dict must hold all that outlives a chain.",
            )


def _kept_after(subject: Subject, sampler: Sampler, y: Tensor | None) -> tuple[ChainState, ChainState]:
    """The ends of an iteration's chains, and what the sampler keeps then.

    Raises:
        DoesNotApply: if it keeps nothing.
    """
    ended = iteration(subject, sampler, y)
    kept = sampler.kept()
    if kept is None:
        raise DoesNotApply("The sampler keeps no chains.")
    return ended, kept


def kept_are_chains(subject: Subject) -> None:
    """What is kept are chains: images with labels and ages, or without."""
    for y in subject.kinds:
        _, kept = _kept_after(subject, subject.make(), y)
        n = len(kept.x)
        require_images(kept.x, (n, *subject.data.shape), "kept")
        for name, values in {"y": kept.y, "ages": kept.ages}.items():
            require(
                values is None or (values.dtype == torch.int64 and tuple(values.shape) == (n,)),
                f"kept gives {described(values)} for {name}; for {n} chains it must be torch.int64 ({n},), or None.",
            )
        require(kept.ages is None or int(kept.ages.min()) >= 0, "kept gives chains of a negative age.")


def ends_are_kept(subject: Subject) -> None:
    """A sampler that keeps chains keeps those that have reached their end."""
    for y in subject.kinds:
        ended, kept = _kept_after(subject, subject.make(), y)
        lost = sum(not _among(x, kept.x) for x in ended.x)
        require(
            lost == 0,
            f"After finish, the ends of {lost} of {CHAINS} chains are not in kept(). Write the chains back: the next "
            "ones start from there.",
        )


def goes_on(subject: Subject) -> None:
    """A sampler that keeps chains goes on with them."""
    sampler = subject.make()
    _, kept = _kept_after(subject, sampler, None)
    begun = [x for seed in range(20) for x in sampler.init(CHAINS, generator=seeded(seed)).x]
    require(
        any(_among(x, kept.x) for x in begun),
        "The sampler keeps chains, and its init goes on with none of them. Where all are meant to begin anew, declare "
        "it.",
    )


def _among(x: Tensor, many: Tensor) -> bool:
    return bool(alike(x, many).any())


def kept_is_a_copy(subject: Subject) -> None:
    """Changing what kept gives does not change the chains."""
    sampler = subject.make()
    _, kept = _kept_after(subject, sampler, subject.labels)
    before = copied(kept)
    for values in (kept.x, kept.y, kept.ages):
        if values is not None:
            values.add_(1)
    require(same(sampler.kept(), before), "Whoever changes what kept gives changes the chains. Give out copies.")


# --- what only some samplers do ---------------------------------------------------------------------------------------


def informing(subject: Subject) -> None:
    """Informing changes no training image, and may be done again."""
    sampler: Sampler = subject.resolved.make(subject.data)
    if not isinstance(sampler, NeedsTrainingData):
        raise DoesNotApply("The sampler does not look at the training images.")
    shown = copied(subject.train)
    for _ in range(2):  # as after resuming
        sampler.inform(shown)
    require(same(shown, subject.train), "inform changes the training images in place.")
    subject.require_deterministic()
    with known_randomness():
        twice = iteration(subject, cast(Sampler, sampler), subject.labels)
    with known_randomness():
        once = iteration(subject, subject.make(), subject.labels)
    require(same(twice, once), "A sampler that was informed twice, as after resuming, draws other chains.")


def sharing(subject: Subject) -> None:
    """What processes keep apart is together the whole, and each finds its part in it."""
    for y in subject.kinds:
        parts = _two_parts(subject, y)
        states = [copied(part.state_dict()) for part in parts]
        whole = cast(Shardable, parts[0]).whole(states)
        together, each = _kept_of(subject.make(), whole), [part.kept() for part in parts]
        require(
            together is not None and sorted(_rows(together.x)) == sorted(row for p in each if p for row in _rows(p.x)),
            "A sampler that loads the whole of two parts does not keep the chains of both.",
        )
        for rank, state in enumerate(states):
            again = _part(subject, rank)
            again.load_state_dict(copied(whole))
            require(
                same(again.state_dict(), state),
                f"From the whole of two parts, part {rank} is not loaded as it was. whole gets the parts in the order "
                "of their ranks, and load_state_dict of a part takes its own out of the whole.",
            )


def _two_parts(subject: Subject, y: Tensor | None) -> list[Sampler]:
    """The samplers of two processes, after an iteration.

    Raises:
        DoesNotApply: if they cannot be shared out evenly.
    """
    parts = []
    for rank in (0, 1):
        try:
            parts.append(_part(subject, rank))
            iteration(subject, parts[-1], y, seed=10 * rank)
        except SpecError as error:
            raise DoesNotApply(str(error)) from error
    return parts


def _part(subject: Subject, rank: int) -> Sampler:
    sampler = subject.make()
    if not isinstance(sampler, Shardable):
        raise DoesNotApply("The sampler's memory cannot be shared out, or it has none.")
    sampler.share(rank, 2)
    return sampler


def _kept_of(sampler: Sampler, state: Mapping[str, Tensor]) -> ChainState | None:
    sampler.load_state_dict(copied(state))
    return sampler.kept()


def _rows(x: Tensor) -> list[bytes]:
    return [image.tobytes() for image in x.numpy()]


PROMISES = promises(
    state_is_tensors,
    resumes,
    kept_are_chains,
    ends_are_kept,
    goes_on,
    kept_is_a_copy,
    informing,
    sharing,
)
"""What memory promises."""
