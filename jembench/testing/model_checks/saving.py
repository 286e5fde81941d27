"""What is kept of a model: its parameters and buffers, and nothing else."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from jembench.interfaces import Trainable
from jembench.store import checkpoint
from jembench.testing.asking import same
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.model_checks.subject import Answers, Subject, distance

LOSSES = 3
"""Computed before a model is saved."""


def saved_and_loaded(subject: Subject) -> None:
    """Its state, saved and loaded into a model of another seed, gives the same answers, samples and losses."""
    model = _used(subject)
    loaded = subject.make(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        try:
            checkpoint.write(path, dict(model.state_dict()))
            checkpoint.load_weights(loaded, checkpoint.read(path))
        except Exception as error:
            raise CheckFailed(
                f"Its state_dict cannot be written and loaded: {error} Hold tensors in it alone, each once, with "
                "shapes that follow from the spec and the data."
            ) from error
    _check_same(_all(subject, model), _all(subject, loaded), f"after it was saved and loaded. {_HIDDEN}")
    _check_same_loss(subject, model, loaded)


_HIDDEN = "Something that counts is neither a parameter nor a buffer: register_buffer makes it a part of the state."


def _check_same_loss(subject: Subject, model: Any, loaded: Any) -> None:
    """A training that was interrupted goes on as if it had not been."""
    if not isinstance(model, Trainable):
        return
    alike = _used(dataclasses.replace(subject))
    uninterrupted, as_well, resumed = (_loss(subject, each) for each in (model, alike, loaded))
    if not same(uninterrupted, as_well):
        raise DoesNotApply("Its loss is another one each time: see the check loss-by-seed.")
    if not same(uninterrupted, resumed):
        raise CheckFailed(
            f"After {LOSSES} losses the next one is {uninterrupted:.6g}, and after saving and loading {resumed:.6g}: a "
            f"training that is interrupted becomes another one. {_HIDDEN}"
        )


def _loss(subject: Subject, model: Any) -> Tensor:
    """The next training loss."""
    return subject.loss(model.train()).total.detach()


def deep_copy(subject: Subject) -> None:
    """A deep copy gives the same answers, and training it leaves the original as it was."""
    model = subject.model
    try:
        twin = copy.deepcopy(model)
    except Exception as error:
        raise CheckFailed(
            f"It cannot be copied: {type(error).__name__}: {error}. Keep no generators, files, locks or tensors with "
            "a history on the model."
        ) from error
    _check_same(
        _all(subject, model), _all(subject, twin), "in a deep copy. Define no __deepcopy__ that leaves something out."
    )
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for value in twin.state_dict().values():
        value.fill_(1)
    shared = [name for name, value in model.state_dict().items() if not same(value, state[name])]
    if shared:
        raise CheckFailed(
            f"Whoever changes a deep copy changes the original, in {', '.join(shared[:3])}. The two share tensors: "
            "define no __deepcopy__ that hands out what is there."
        )


def _used(subject: Subject) -> Any:
    """The model after some losses, if it is trained here: what these move must be saved as well."""
    model = subject.shaken.train()
    if isinstance(model, Trainable):
        for _ in range(LOSSES):
            subject.loss(model)
    return subject.shaken.eval()


def _all(subject: Subject, model: Any) -> Answers:
    return {**subject.answers(model), **subject.drawn(model)}


def _check_same(expected: Answers, found: Answers, when: str) -> None:
    for name, answer in expected.items():
        if not same(answer, found[name]):
            raise CheckFailed(f"{name} differs by {distance(answer, found[name])} {when}")
