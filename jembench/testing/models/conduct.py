"""Promises of a model's behaviour: reproducibility, no side effects, and a complete state."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jembench.interfaces import Trainable
from jembench.store import checkpoint
from jembench.testing.checks import only_if, promise, require
from jembench.testing.comparing import different, same, untouched_randomness
from jembench.testing.models.subject import ModelSubject, needs, require_equal

LOSSES = 3
"""The number of losses that are computed before a model is saved."""


@promise("models")
def weights_by_seed(subject: ModelSubject) -> None:
    """Made twice under the same seed, the model has the same weights.

    Draw weights from torch's global generator, which is seeded when a model is made, not from
    numpy's or Python's, the clock or a generator that is shared between models.
    """
    first, second = subject.model.state_dict(), subject.build().state_dict()
    others = different(first, second)
    require(not others, f"Made twice under one seed, it differs in {', '.join(others[:3])}.")


@promise("models")
def same_output_twice(subject: ModelSubject) -> None:
    """In evaluation mode two calls with the same images, or equal generators, give the same
    outputs, bit for bit.

    Switch dropout and noise off in evaluation mode, or draw the noise from a generator that is
    seeded at every call. Pass the generator of sample to every function that draws:
    torch.randn(..., generator=generator).
    """
    first, second = (subject.outputs(subject.model) for _ in range(2))
    require_equal(first, second, "computed twice")


@promise("models")
def samples_by_generator(subject: ModelSubject) -> None:
    """sample returns other images for another generator.

    Pass the generator to every function that draws: torch.randn(..., generator=generator).
    """
    model = needs(subject.model, "sample")
    with torch.no_grad():
        first, other = (
            {name: draw() for name, draw in subject.draws(model, seed).items()} for seed in (0, 1)
        )
    for name, images in first.items():
        require(
            not same(images, other[name]), f"{name} returns the same images for another generator."
        )


@promise("models")
def global_randomness(subject: ModelSubject) -> None:
    """In evaluation mode no output and no sample uses a global generator, torch's or numpy's."""
    _ = subject.model, subject.takes_labels("energy")
    with untouched_randomness("It"):
        subject.outputs(subject.model)


@promise("models")
def nothing_changed(subject: ModelSubject) -> None:
    """No method changes a mode or its arguments; in evaluation mode none changes weights, buffers
    or gradients.

    Call neither train() nor eval(). Write x = x + 1 instead of x += 1. Update buffers only if
    self.training. Use torch.autograd.grad(energy.sum(), x) instead of backward(), and
    jembench.parts.execution.frozen, which restores requires_grad.
    """
    model, x, y = subject.model, subject.x, subject.y
    calls: dict[str, Callable[[], Any]] = {
        **{name: partial(method, x, y) for name, method in subject.calls(model).items()},
        **subject.draws(model),
    }
    for name, call in calls.items():
        _require_unchanged(
            name, call, lambda: _modes(model) | _values(model) | {"x": x.detach(), "y": y}
        )
    if isinstance(model, Trainable):
        batch, trained = subject.batch, subject.trained
        loss = partial(subject.loss, trained, batch)
        _require_unchanged("training_loss", loss, lambda: _modes(trained) | batch._asdict())


def _require_unchanged(
    name: str, call: Callable[[], Any], watch: Callable[[], dict[str, Any]]
) -> None:
    before = {
        key: value.clone() if isinstance(value, Tensor) else value for key, value in watch().items()
    }
    call()
    changed = different(before, watch())
    require(not changed, f"{name} changes {', '.join(changed[:3])}.")


def _modes(model: Any) -> dict[str, bool]:
    return {
        f"the mode of {name or 'the model'}": module.training
        for name, module in model.named_modules()
    }


def _values(model: Any) -> dict[str, Any]:
    parameters = list(model.named_parameters())
    gradients = {
        f"the gradient of {name}": parameter.grad is None for name, parameter in parameters
    }
    frozen = {f"requires_grad of {name}": parameter.requires_grad for name, parameter in parameters}
    return {**gradients, **frozen, **model.state_dict()}


@promise("models")
def saved_and_loaded(subject: ModelSubject) -> None:
    """The state, saved and loaded into a model of another seed, gives the same outputs, samples and
    losses.

    A part of the state is neither a parameter nor a buffer: call register_buffer. The state may
    only hold tensors, each once, with shapes that are determined by the spec and the data, unless
    the model has fit.
    """
    model, loaded = _compute_losses(subject), subject.build(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        checkpoint.write(path, dict(model.state_dict()))
        checkpoint.load_weights(loaded, checkpoint.read(path))
    require_equal(subject.outputs(loaded), subject.outputs(model), "after saving and loading")
    if isinstance(model, Trainable):
        models: tuple[Any, ...] = (model, _compute_losses(replace(subject)), loaded)
        uninterrupted, again, resumed = (
            subject.loss(each.train()).total.detach() for each in models
        )
        only_if(
            same(uninterrupted, again), "Its loss is not deterministic: see the check loss-by-seed."
        )
        found = (
            f"After {LOSSES} losses the next is {uninterrupted.tolist()}, and after loading "
            f"{resumed.tolist()}"
        )
        require(same(uninterrupted, resumed), f"{found}: a resumed training would differ.")


def _compute_losses(subject: ModelSubject) -> Any:
    """Return the model after some losses, if it is trainable, since losses may change its state."""
    model = subject.perturbed.train()
    for _ in range(LOSSES if isinstance(model, Trainable) else 0):
        subject.loss(model)
    return model.eval()
