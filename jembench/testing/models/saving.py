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
from jembench.testing.checks import explained, only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.models.subject import Answers, ModelSubject, distance

LOSSES = 3
"""Computed before a model is saved."""


@promise("models")
def saved_and_loaded(subject: ModelSubject) -> None:
    """Its state, saved and loaded into a model of another seed, gives the same answers, samples and losses.

    Something that counts is neither a parameter nor a buffer: register_buffer makes it a part of the state. Hold
    tensors in it alone, each once, with shapes that follow from the spec and the data.
    """
    model = _used(subject)
    loaded = subject.build(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        with explained("Its state_dict cannot be written and loaded"):
            checkpoint.write(path, dict(model.state_dict()))
            checkpoint.load_weights(loaded, checkpoint.read(path))
    _check_same(subject.outputs(model), subject.outputs(loaded), "after it was saved and loaded")
    _check_same_loss(subject, model, loaded)


def _check_same_loss(subject: ModelSubject, model: Any, loaded: Any) -> None:
    """The next loss is the same, so that an interrupted training resumes exactly."""
    if not isinstance(model, Trainable):
        return
    alike = _used(dataclasses.replace(subject))
    uninterrupted, as_well, resumed = (_loss(subject, each) for each in (model, alike, loaded))
    only_if(same(uninterrupted, as_well), "Its loss differs each time: see the check loss-by-seed.")
    found = f"After {LOSSES} losses the next is {uninterrupted.tolist()}, and after loading {resumed.tolist()}"
    require(same(uninterrupted, resumed), f"{found}: a training that is interrupted becomes another one.")


def _loss(subject: ModelSubject, model: Any) -> Tensor:
    """The next training loss."""
    return subject.loss(model.train()).total.detach()


@promise("models")
def deep_copy(subject: ModelSubject) -> None:
    """A deep copy gives the same answers, and training it leaves the original as it was.

    Keep no generators, files, locks or tensors with a history on the model, and define no __deepcopy__ that leaves
    something out or hands out what is there.
    """
    model = subject.model
    with explained("It cannot be copied"):
        twin = copy.deepcopy(model)
    _check_same(subject.outputs(model), subject.outputs(twin), "in a deep copy")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for value in twin.state_dict().values():
        value.fill_(1)
    shared = [name for name, value in model.state_dict().items() if not same(value, state[name])]
    require(
        not shared, f"Changing a deep copy changes the original, in {', '.join(shared[:3])}. The two share tensors."
    )


def _used(subject: ModelSubject) -> Any:
    """The model after some losses, if it is trained here: its state must include what they change."""
    model = subject.shaken.train()
    if isinstance(model, Trainable):
        for _ in range(LOSSES):
            subject.loss(model)
    return subject.shaken.eval()


def _check_same(expected: Answers, found: Answers, when: str) -> None:
    for name, answer in expected.items():
        require(same(answer, found[name]), f"{name} differs by {distance(answer, found[name])} {when}.")
