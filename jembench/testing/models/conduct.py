"""How a model behaves: random numbers come from a seed or a generator, and calls have no side effects."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jembench.interfaces import Batch, Trainable
from jembench.testing.checks import promise, require
from jembench.testing.comparing import different, global_states, known_randomness, same, untouched_randomness
from jembench.testing.models.subject import ModelSubject, needs, require_equal


@promise("models")
def weights_by_seed(subject: ModelSubject) -> None:
    """Made twice under the same seed, the model has the same weights.

    Draw weights from torch's global generator, which is seeded when a model is made: not from numpy's or Python's,
    the clock or a generator of its own that goes on.
    """
    first, second = subject.model.state_dict(), subject.make().state_dict()
    others = different(first, second)
    found = f"Made twice under one seed, it differs in {', '.join(others[:3]) or 'what it has'}."
    require(not others and len(first) == len(second), found)


@promise("models")
def making_sets_no_seed(subject: ModelSubject) -> None:
    """Making the model seeds no global generator: torch's or numpy's.

    Leave that out: the model is made under the seed of the run, and would be the same under every one.
    """
    _ = subject.model
    first, second = (_generators_after_making(subject, seed) for seed in (1, 2))
    seeded = [name for name in first if same(first[name], second[name])]
    require(not seeded, f"Making it seeds the global generator of {' and '.join(seeded)}.")


def _generators_after_making(subject: ModelSubject, seed: int) -> dict[str, Any]:
    with known_randomness():
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global generator is what is watched
        subject.resolved.make(subject.data)
        return global_states()


@promise("models")
def same_answer_twice(subject: ModelSubject) -> None:
    """In evaluation mode two calls with the same images give the same answers, bit for bit.

    Switch dropout and noise off in evaluation mode, or draw the noise from a generator that is seeded at every
    call.
    """
    require_equal(subject.answers(subject.model), subject.answers(subject.model), "asked twice")


@promise("models")
def samples_by_generator(subject: ModelSubject) -> None:
    """sample gives the same images under equal generators, and others under others.

    Pass the generator to every function that draws: torch.randn(..., generator=generator).
    """
    model = needs(subject.model, "sample")
    first, again, other = (subject.drawn(model, seed) for seed in (0, 0, 1))
    require_equal(first, again, "under two equal generators")
    for name, images in first.items():
        require(not same(images, other[name]), f"{name} gives the same images under another generator.")


@promise("models")
def global_randomness(subject: ModelSubject) -> None:
    """In evaluation mode no answer and no sample draws from a global generator: torch's or numpy's."""
    for name, ask in subject.everything(subject.model).items():
        with untouched_randomness(name), torch.no_grad():
            ask()


@promise("models")
def mode_left_alone(subject: ModelSubject) -> None:
    """No method changes the mode of a module, in training or in evaluation.

    Call neither train() nor eval() in it: the caller chose the mode.
    """
    for training in (False, True):
        model = subject.model.train(training)
        calls = subject.everything(model)
        if isinstance(model, Trainable):
            calls["training_loss"] = partial(model.training_loss, subject.batch, subject.negatives(model))
        for name, call in calls.items():
            before = _modes(model)
            call()
            changed = different(before, _modes(model))
            mode = "evaluation" if training else "training"
            require(not changed, f"{name} puts {', '.join(changed[:3])} into {mode} mode.")


def _modes(model: Any) -> dict[str, bool]:
    return {name or "the model": module.training for name, module in model.named_modules()}


@promise("models")
def images_left_alone(subject: ModelSubject) -> None:
    """No method changes the images or labels that it is given.

    Write x = x + 1 in place of x += 1, and ask for gradients of x.detach().requires_grad_().
    """
    for name, ask in subject.questions(subject.model).items():
        x, y = subject.x, subject.y
        with torch.no_grad():
            ask(x, y)
        _check_unchanged(name, {"x": (x, subject.x), "y": (y, subject.y)})
    if isinstance(subject.model, Trainable):
        batch = subject.batch
        subject.trained.training_loss(batch, subject.negatives(subject.model))
        pairs = zip(Batch._fields, batch, subject.batch, strict=True)
        _check_unchanged("training_loss", {name: (a, b) for name, a, b in pairs if a is not None and b is not None})


def _check_unchanged(method: str, inputs: dict[str, tuple[Tensor, Tensor]]) -> None:
    for name, (after, before) in inputs.items():
        require(same(after, before) and not after.requires_grad, f"{method} changes {name} in place.")


@promise("models")
def state_left_alone(subject: ModelSubject) -> None:
    """In evaluation mode no answer and no sample changes a parameter or a buffer.

    Update buffers only if self.training: otherwise results would depend on earlier calls.
    """
    before = copy.deepcopy(subject.model.state_dict())
    for name, ask in subject.everything(subject.model).items():
        with torch.no_grad():
            ask()
        changed = different(before, subject.model.state_dict())
        require(not changed, f"{name} changes {', '.join(changed[:3])} in evaluation mode.")


@promise("models")
def no_gradients_left(subject: ModelSubject) -> None:
    """No method leaves gradients in the parameters, or changes which of them are trained.

    The next step of training would add them to its own: use torch.autograd.grad(energy.sum(), x) in place of
    backward(). Put requires_grad back: jembench.plugin.frozen.
    """
    parameters = list(subject.model.parameters())
    before = [parameter.requires_grad for parameter in parameters]
    for name, ask in subject.everything(subject.model).items():
        ask()
        left = any(parameter.grad is not None for parameter in parameters)
        require(not left, f"{name} leaves gradients in the parameters.")
        after = [parameter.requires_grad for parameter in parameters]
        require(after == before, f"{name} changes requires_grad of parameters.")
