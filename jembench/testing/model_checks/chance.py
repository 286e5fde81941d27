"""Where chance comes from: a seed when a model is made, a generator when it samples, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from jembench.testing.asking import global_states, known_randomness, same, untouched_randomness
from jembench.testing.checks import CheckFailed
from jembench.testing.model_checks.subject import Subject, distance, needs


def weights_by_seed(subject: Subject) -> None:
    """Made twice under the same seed, the model has the same weights."""
    first, second = subject.model.state_dict(), subject.make().state_dict()
    different = [name for name in first if not same(first[name], second.get(name))]
    if different or len(first) != len(second):
        raise CheckFailed(
            f"Made twice under one seed, it differs in {', '.join(different[:3]) or 'what it has'}. Draw weights from "
            "torch's global generator, which is seeded when a model is made: not from numpy's or Python's, the clock "
            "or a generator of its own that goes on."
        )


def making_sets_no_seed(subject: Subject) -> None:
    """Making the model seeds no global generator: torch's or numpy's."""
    subject.check_made()
    first, second = (_generators_after_making(subject, seed) for seed in (1, 2))
    seeded = [name for name in first if same(first[name], second[name])]
    if seeded:
        raise CheckFailed(
            f"Making it seeds the global generator of {' and '.join(seeded)}. Leave that out: the model is made under "
            "the seed of the run, and would be the same under every one."
        )


def same_answer_twice(subject: Subject) -> None:
    """In evaluation mode two calls with the same images give the same answers, bit for bit."""
    first = subject.answers(subject.model)
    second = subject.answers(subject.model)
    for name, answer in first.items():
        if not same(answer, second[name]):
            raise CheckFailed(
                f"{name}, asked twice, differs by {distance(answer, second[name])}. Switch dropout and noise off in "
                "evaluation mode, or draw the noise from a generator that is seeded at every call."
            )


def samples_by_generator(subject: Subject) -> None:
    """sample gives the same images under equal generators, and others under others."""
    model = needs(subject.model, "sample")
    first, again, other = (subject.drawn(model, seed) for seed in (0, 0, 1))
    for name, images in first.items():
        if not same(images, again[name]):
            raise CheckFailed(
                f"{name} under two equal generators gives images that differ by {distance(images, again[name])}. Hand "
                "the generator to every function that draws: torch.randn(..., generator=generator)."
            )
        if same(images, other[name]):
            raise CheckFailed(f"{name} gives the same images under another generator. Draw from the one handed in.")


def global_chance_left_alone(subject: Subject) -> None:
    """In evaluation mode no answer and no sample draws from a global generator: torch's or numpy's."""
    for name, ask in subject.everything(subject.model).items():
        with untouched_randomness(name), torch.no_grad():
            ask()


def _generators_after_making(subject: Subject, seed: int) -> dict[str, Any]:
    """The states that the global generators are left in, if they begin with a seed."""
    with known_randomness():
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global generator is what is watched
        subject.resolved.make(subject.data)
        return global_states()
