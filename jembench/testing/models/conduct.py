"""Promises of a model's behaviour: reproducibility, side effects, its state."""

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
    first = subject.outputs(subject.model)
    require_equal(first, subject.outputs(subject.model), "computed twice")


@promise("models")
def samples_by_generator(subject: ModelSubject) -> None:
    """sample returns other images for another generator.

    Pass the generator to every function that draws: torch.randn(..., generator=generator).
    """
    model = needs(subject.model, "sample")
    draws, draws_anew = subject.draws(model), subject.draws(model, seed=1)
    for name, draw in draws.items():
        with torch.no_grad():
            is_same = same(draw(), draws_anew[name]())
        require(not is_same, f"{name} returns the same images for another generator.")


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

    def watched() -> dict[str, Any]:
        return _modes(model) | _values(model) | {"x": x.detach(), "y": y}

    for name, method in subject.calls(model).items():
        _require_unchanged(name, partial(method, x, y), watched)
    for name, draw in subject.draws(model).items():
        _require_unchanged(name, draw, watched)
    if isinstance(model, Trainable):
        batch, trained = subject.batch, subject.trained
        loss = partial(subject.loss, trained, batch)
        _require_unchanged("training_loss", loss, lambda: _modes(trained) | batch._asdict())


def _require_unchanged(
    name: str, call: Callable[[], Any], watch: Callable[[], dict[str, Any]]
) -> None:
    before = {}
    for key, value in watch().items():
        before[key] = value.clone() if isinstance(value, Tensor) else value
    call()
    changed = different(before, watch())
    require(not changed, f"{name} changes {', '.join(changed[:3])}.")


def _modes(model: Any) -> dict[str, bool]:
    modules = model.named_modules()
    return {f"the mode of {name or 'the model'}": module.training for name, module in modules}


def _values(model: Any) -> dict[str, Any]:
    gradients, frozen = dict[str, bool](), dict[str, bool]()
    for name, parameter in model.named_parameters():
        gradients[f"the gradient of {name}"] = parameter.grad is None
        frozen[f"requires_grad of {name}"] = parameter.requires_grad
    return {**gradients, **frozen, **model.state_dict()}


@promise("models")
def saved_and_loaded(subject: ModelSubject) -> None:
    """The state, saved and loaded into a model of another seed, gives the same outputs, samples and
    losses.

    A part of the state is neither a parameter nor a buffer: call register_buffer. The state may
    only hold tensors, each once, with shapes that are determined by the spec and the data, unless
    the model has fit.
    """
    model: Any = _compute_losses(subject)
    loaded = subject.build(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        checkpoint.write(path, dict(model.state_dict()))
        checkpoint.load_weights(loaded, checkpoint.read(path))
    require_equal(subject.outputs(loaded), subject.outputs(model), "after saving and loading")
    is_trainable = isinstance(model, Trainable)
    if is_trainable:
        uninterrupted = subject.loss(model.train()).total.detach()
        again = subject.loss(_compute_losses(replace(subject)).train()).total.detach()
        resumed = subject.loss(loaded.train()).total.detach()
        only_if(
            same(uninterrupted, again), "Its loss is not deterministic: see the check loss-by-seed."
        )
        require(
            same(uninterrupted, resumed),
            f"After {LOSSES} losses the next is {uninterrupted.tolist()}, and after loading "
            f"{resumed.tolist()}: a resumed training would differ.",
        )


def _compute_losses(subject: ModelSubject) -> Any:
    """Return the model after some losses, which may change its state."""
    model = subject.perturbed.train()
    if isinstance(model, Trainable):
        for _ in range(LOSSES):
            subject.loss(model)
    return model.eval()
