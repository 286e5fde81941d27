"""Promises of a sampler's state and of the chains that it keeps.

Legend: N kept chains, C channels, H height, W width.
"""

import safetensors.torch
import torch
from torch import Tensor

from jembench.interfaces import ChainState, Sampler
from jembench.testing.checks import DoesNotApply, promise, require
from jembench.testing.comparing import same
from jembench.testing.samplers.subject import (
    CHAINS,
    SamplerSubject,
    copy_tensors,
    require_tensor,
    seeded,
)


@promise("samplers")
def resumes(subject: SamplerSubject) -> None:
    """A sampler that loads another's state continues like the other, bit for bit.

    state_dict must hold everything that outlives a chain: otherwise a resumed training differs.
    Checkpoints only hold tensors: torch.tensor(...) makes one.
    """
    for y in subject.kinds:
        first, second = subject.build(), subject.build()
        subject.iterate(first, y)
        state = first.state_dict()
        wrong, tensors = [], {}
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[key] = value.detach().cpu().contiguous()
            else:
                wrong.append(f"{key} is a {type(value).__name__}")
        require(not wrong, f"In state_dict, {'; '.join(wrong)}.")
        safetensors.torch.save(tensors)
        second.load_state_dict(copy_tensors(state))
        subject.require_deterministic()
        require(same(first.kept(), second.kept()), "The kept chains are not in state_dict.")
        for seed in (10, 20):
            ends = [subject.iterate(sampler, y, seed) for sampler in (first, second)]
            goes_on = same(*ends) and same(first.kept(), second.kept())
            require(goes_on, "After load_state_dict, chains do not continue as they would have.")


@promise("samplers")
def kept_are_chains(subject: SamplerSubject) -> None:
    """kept returns a copy of its chains: images, with labels and ages or without.

    Return a ChainState of clones: x (N, C, H, W); y and ages int64 (N,) of at least 0, or None.
    """
    for y in subject.kinds:
        sampler = subject.build()
        _, kept = _keep(subject, sampler, y)
        n = len(kept.x)
        require_tensor(kept.x, (n, *subject.data.shape), "kept")
        for name, values in {"y": kept.y, "ages": kept.ages}.items():
            right = values is None or (
                values.dtype == torch.int64
                and tuple(values.shape) == (n,)
                and bool((values >= 0).all())
            )
            require(right, f"kept returns {values} for {name}.")
        before = copy_tensors(kept)
        for values in (kept.x, kept.y, kept.ages):
            if values is not None:
                values.add_(1)
        require(same(sampler.kept(), before), "Changing the result of kept changes the chains.")


@promise("samplers")
def goes_on(subject: SamplerSubject) -> None:
    """A sampler that keeps chains keeps the ends of an iteration, and continues some of them.

    Write the chains back in finish, and let init return some of them.
    """
    for y in subject.kinds:
        sampler = subject.build()
        ended, kept = _keep(subject, sampler, y)
        lost = sum(not _is_among(x, kept.x) for x in ended.x)
        require(
            lost == 0, f"After finish, the ends of {lost} of {CHAINS} chains are not in kept()."
        )
        begun = [sampler.init(CHAINS, y, generator=seeded(seed)).x for seed in range(20)]
        continued = any(_is_among(x, kept.x) for x in torch.cat(begun))
        require(continued, "The sampler keeps chains, and its init continues none of them.")


def _keep(
    subject: SamplerSubject, sampler: Sampler, y: Tensor | None
) -> tuple[ChainState, ChainState]:
    """Return the ends of an iteration's chains, and the kept chains.

    Skips the check if the sampler keeps none.
    """
    ended, kept = subject.iterate(sampler, y), sampler.kept()
    if kept is None:
        raise DoesNotApply("The sampler keeps no chains.")
    return ended, kept


def _is_among(image: Tensor, images: Tensor) -> bool:
    return bool((images == image).flatten(1).all(dim=1).any())
