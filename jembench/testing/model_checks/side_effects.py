"""What a model may not change by being asked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from jembench.interfaces import Batch, Trainable
from jembench.testing.asking import same
from jembench.testing.checks import CheckFailed
from jembench.testing.model_checks.subject import Subject


def mode_left_alone(subject: Subject) -> None:
    """No method changes the mode of a module, in training or in evaluation."""
    for training in (False, True):
        model = subject.model.train(training)
        for name, call in _calls(subject, model):
            before = {part: module.training for part, module in model.named_modules()}
            call()
            changed = [part or "the model" for part, module in model.named_modules() if module.training != before[part]]
            if changed:
                raise CheckFailed(
                    f"{name} puts {', '.join(changed[:3])} into {'evaluation' if training else 'training'} mode. "
                    "Call neither train() nor eval() in it: the caller chose the mode."
                )


def images_left_alone(subject: Subject) -> None:
    """No method changes the images or labels that it is given."""
    for name, ask in subject.questions(subject.model).items():
        x, y = subject.x, subject.y
        with torch.no_grad():
            ask(x, y)
        _check_unchanged(name, {"x": (x, subject.x), "y": (y, subject.y)})
    if isinstance(subject.model, Trainable):
        batch = subject.batch
        subject.trained.training_loss(batch, subject.negatives(subject.model))
        pairs = zip(Batch._fields, batch, subject.batch, strict=True)
        _check_unchanged("training_loss", {name: (a, b) for name, a, b in pairs})


def _check_unchanged(method: str, inputs: dict[str, tuple[Tensor, Tensor]]) -> None:
    for name, (after, before) in inputs.items():
        if not same(after, before) or after.requires_grad:
            raise CheckFailed(
                f"{method} changes {name} in place. Write x = x + 1 in place of x += 1, and ask for gradients of "
                "x.detach().requires_grad_()."
            )


def state_left_alone(subject: Subject) -> None:
    """In evaluation mode no answer and no sample changes a parameter or a buffer."""
    before = copy.deepcopy(subject.model.state_dict())
    for name, ask in subject.everything(subject.model).items():
        with torch.no_grad():
            ask()
        changed = [key for key, value in subject.model.state_dict().items() if not same(value, before[key])]
        if changed:
            raise CheckFailed(
                f"{name} changes {', '.join(changed[:3])} in evaluation mode: an image would be judged by what was "
                "asked before. Update buffers if self.training alone."
            )


def no_gradients_left(subject: Subject) -> None:
    """No method leaves gradients in the parameters, or changes which of them are trained."""
    model = subject.model
    before = [parameter.requires_grad for parameter in model.parameters()]
    for name, ask in subject.everything(model).items():
        ask()
        if any(parameter.grad is not None for parameter in model.parameters()):
            raise CheckFailed(
                f"{name} leaves gradients in the parameters, which the next step of training would add to its own. Use "
                "torch.autograd.grad(energy.sum(), x) in place of backward()."
            )
        if [parameter.requires_grad for parameter in model.parameters()] != before:
            raise CheckFailed(f"{name} changes requires_grad of parameters. Put it back: jembench.plugin.frozen.")


def _calls(subject: Subject, model: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from subject.everything(model).items()
    if isinstance(model, Trainable):
        yield "training_loss", lambda: model.training_loss(subject.batch, subject.negatives(model))
