"""What outlives a sampler's chains: its state, the chains that it keeps, and how processes divide them.

Legend: N kept chains, C channels, H height, W width.
"""

from __future__ import annotations

from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from jembench.errors import SpecError
from jembench.interfaces import ChainState, NeedsTrainingData, Sampler, Shardable
from jembench.testing.checks import DoesNotApply, only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.samplers.subject import CHAINS, SamplerSubject, alike, copied, described, require_images, seeded


@promise("samplers")
def state_is_tensors(subject: SamplerSubject) -> None:
    """The state is a dictionary of tensors, as checkpoints can hold.

    Checkpoints hold tensors alone: torch.tensor(...) makes one.
    """
    sampler = subject.make()
    for when in ("before the first chain", "after an iteration"):
        state = sampler.state_dict()
        wrong = [f"{key} is a {type(value).__name__}" for key, value in state.items() if not isinstance(value, Tensor)]
        require(not wrong, f"In state_dict, {when}, {'; '.join(wrong)}.")
        safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in state.items()})
        subject.iteration(sampler, subject.labels)


@promise("samplers")
def resumes(subject: SamplerSubject) -> None:
    """A sampler that loads the state of another goes on as that one does, bit for bit.

    state_dict must hold everything that outlives a chain: otherwise a resumed training is another one.
    """
    subject.require_deterministic()
    for y in subject.kinds:
        first, second = subject.make(), subject.make()
        subject.iteration(first, y)
        second.load_state_dict(copied(first.state_dict()))
        require(same(first.kept(), second.kept()), "What is kept is lost on the way through state_dict.")
        for seed in (10, 20):
            ends = [subject.iteration(sampler, y, seed) for sampler in (first, second)]
            goes_on = same(*ends) and same(first.kept(), second.kept())
            require(goes_on, "Chains do not go on as they would have after load_state_dict.")


def _kept_after(subject: SamplerSubject, sampler: Sampler, y: Tensor | None) -> tuple[ChainState, ChainState]:
    """The ends of an iteration's chains, and the kept chains; skips the check if the sampler keeps none."""
    ended, kept = subject.iteration(sampler, y), sampler.kept()
    if kept is None:
        raise DoesNotApply("The sampler keeps no chains.")
    return ended, kept


@promise("samplers")
def kept_are_chains(subject: SamplerSubject) -> None:
    """What is kept are chains: images with labels and ages, or without."""
    for y in subject.kinds:
        _, kept = _kept_after(subject, subject.make(), y)
        n = len(kept.x)
        require_images(kept.x, (n, *subject.data.shape), "kept")
        for name, values in {"y": kept.y, "ages": kept.ages}.items():
            right = values is None or (values.dtype == torch.int64 and tuple(values.shape) == (n,))
            require(right, f"kept gives {described(values)} for {name}; it must be torch.int64 ({n},), or None.")
        require(kept.ages is None or int(kept.ages.min()) >= 0, "kept gives chains of a negative age.")


@promise("samplers")
def ends_are_kept(subject: SamplerSubject) -> None:
    """A sampler that keeps chains keeps those that have reached their end.

    Write the chains back in finish: the next ones start from there.
    """
    for y in subject.kinds:
        ended, kept = _kept_after(subject, subject.make(), y)
        lost = sum(not _among(x, kept.x) for x in ended.x)
        require(lost == 0, f"After finish, the ends of {lost} of {CHAINS} chains are not in kept().")


@promise("samplers")
def goes_on(subject: SamplerSubject) -> None:
    """A sampler that keeps chains goes on with them.

    Where all chains are meant to begin anew, declare it.
    """
    sampler = subject.make()
    _, kept = _kept_after(subject, sampler, None)
    begun = [x for seed in range(20) for x in sampler.init(CHAINS, generator=seeded(seed)).x]
    continued = any(_among(x, kept.x) for x in begun)
    require(continued, "The sampler keeps chains, and its init goes on with none of them.")


def _among(x: Tensor, many: Tensor) -> bool:
    return bool(alike(x, many).any())


@promise("samplers")
def kept_is_a_copy(subject: SamplerSubject) -> None:
    """Changing what kept gives does not change the chains.

    Give out copies.
    """
    sampler = subject.make()
    _, kept = _kept_after(subject, sampler, subject.labels)
    before = copied(kept)
    for values in (kept.x, kept.y, kept.ages):
        if values is not None:
            values.add_(1)
    require(same(sampler.kept(), before), "Changing what kept gives changes the chains.")


@promise("samplers")
def informing(subject: SamplerSubject) -> None:
    """Informing changes no training image, and may be done again."""
    sampler = subject.build()
    only_if(isinstance(sampler, NeedsTrainingData), "The sampler does not look at the training images.")
    shown = copied(subject.train)
    for _ in range(2):  # as after resuming
        sampler.inform(shown)
    require(same(shown, subject.train), "inform changes the training images in place.")
    subject.require_deterministic()
    ends = [subject.iteration(each, subject.labels) for each in (sampler, subject.make())]
    require(same(*ends), "A sampler that was informed twice, as after resuming, draws other chains.")


@promise("samplers")
def sharing(subject: SamplerSubject) -> None:
    """What processes keep apart is together the whole, and each finds its part in it.

    whole gets the parts in the order of their ranks, and load_state_dict of a part takes its own out of the whole.
    """
    for y in subject.kinds:
        parts = [_part(subject, y, rank) for rank in (0, 1)]
        states = [copied(part.state_dict()) for part in parts]
        whole = parts[0].whole(states)
        together = subject.make()
        together.load_state_dict(copied(whole))
        both = _rows(together) == sorted(row for part in parts for row in _rows(part))
        require(both, "A sampler that loads the whole of two parts does not keep the chains of both.")
        for rank, state in enumerate(states):
            again = subject.make()
            again.share(rank, 2)
            again.load_state_dict(copied(whole))
            require(same(again.state_dict(), state), f"From the whole, part {rank} is not loaded as it was.")


def _part(subject: SamplerSubject, y: Tensor | None, rank: int) -> Any:
    """The sampler of one of two processes, after an iteration; skips the check if its chains cannot be divided."""
    sampler = subject.make()
    only_if(isinstance(sampler, Shardable), "The sampler's memory cannot be divided, or it has none.")
    try:
        sampler.share(rank, 2)
        subject.iteration(sampler, y, seed=10 * rank)
    except SpecError as error:
        raise DoesNotApply(str(error)) from error
    return sampler


def _rows(sampler: Sampler) -> list[bytes]:
    kept = sampler.kept()
    return [] if kept is None else sorted(image.tobytes() for image in kept.x.numpy())
