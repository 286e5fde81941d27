"""Checks of a sampler's random numbers: all from the generator that is handed in."""

from __future__ import annotations

from collections.abc import Callable

from jembench.interfaces import ChainState, Sampler
from jembench.testing.asking import known_randomness, promises, require, same, untouched_randomness
from jembench.testing.sampler_checks.subject import CHAINS, Subject, iteration, seeded


def same_generator(subject: Subject) -> None:
    """Equal generators give equal chains, bit for bit."""
    require(
        subject.is_deterministic,
        "Equal generators give different chains. Draw every random number from the generator that is handed in.",
    )


def other_generator(subject: Subject) -> None:
    """Other generators start other chains."""
    with known_randomness():
        first = subject.make().start(CHAINS, generator=seeded(0))
    with known_randomness():
        second = subject.make().start(CHAINS, generator=seeded(1))
    require(
        not same(first.x, second.x),
        "Other generators start the same chains: start does not draw from the generator that is handed in. Where "
        "chains are meant to begin all the same, declare it.",
    )


def global_randomness(subject: Subject) -> None:
    """The global generators of random numbers are left alone."""
    with untouched_randomness("The sampler"):
        subject.life()


def _two_iterations(subject: Subject, between: Callable[[Sampler], None]) -> list[ChainState]:
    sampler = subject.make()
    ends = []
    for number in (0, 1):
        between(sampler)
        with known_randomness():
            ends.append(iteration(subject, sampler, subject.labels, number))
    return ends


def _look(subject: Subject, sampler: Sampler) -> None:
    sampler.kept()
    sampler.state_dict()
    sampler.start(CHAINS, subject.labels, generator=seeded(7))


def looking(subject: Subject) -> None:
    """Looking at a sampler does not change its next chains."""
    subject.require_deterministic()
    unseen = _two_iterations(subject, lambda sampler: None)
    seen = _two_iterations(subject, lambda sampler: _look(subject, sampler))
    require(
        same(seen, unseen),
        "kept, state_dict or start changes what the next init gives. They are to be looked at, as a diagnostic does, "
        "without a trace.",
    )


PROMISES = promises(
    same_generator,
    other_generator,
    global_randomness,
    looking,
)
"""What random numbers promise."""
