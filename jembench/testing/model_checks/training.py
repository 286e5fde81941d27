"""What the shared training loop relies on.

Legend: B batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from jembench.interfaces import Chains, Energies, Loss
from jembench.testing.asking import same, untouched_randomness
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.model_checks.subject import Subject

STEPS = 20
RATES = (1e-3, 1e-4, 1e-5)
"""Learning rates, from the common one to those of models that begin steeply."""

ROUNDING = 1e-5
"""What a loss may change by, relative to itself, if its terms are summed up in another order."""

UNPAIRED = 0.01
"""Where x is mixed into x_labelled, both count. Labels are taken for those of x if x_labelled counts this much less."""


def chains_are_known(subject: Subject) -> None:
    """``chains`` is none, marginal or conditional."""
    chains, known = subject.trained.chains, get_args(Chains)
    if chains not in known:
        raise CheckFailed(f"chains is {chains!r}. Set it to one of {', '.join(known)}: which samples the loss needs.")


def passes_are_counted(subject: Subject) -> None:
    """passes_per_loss, if the model has it, is a whole number of at least 1."""
    count = getattr(subject.trained, "passes_per_loss", None)
    if count is None:
        raise DoesNotApply("It does not say how often its loss passes through the network: once.")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise CheckFailed(
            f"passes_per_loss is {count!r}; it must be a whole number of at least 1: how often the loss takes each "
            "image through the network, forward and back."
        )


def loss_is_a_number(subject: Subject) -> None:
    """training_loss gives a Loss whose total is one finite number with a gradient."""
    loss = subject.loss(subject.trained)
    if not isinstance(loss, Loss):
        raise CheckFailed(
            f"training_loss gives a {type(loss).__name__}. Return jembench.interfaces.Loss(total, parts)."
        )
    if loss.total.shape != () or not bool(loss.total.isfinite()):
        raise CheckFailed(f"The total of the loss is {loss.total}. Make it one finite number: a mean over the batch.")
    if not loss.total.requires_grad:
        raise CheckFailed("The total of the loss has no gradient. Leave out detach and no_grad on the way to it.")


def parts_are_numbers(subject: Subject) -> None:
    """The parts of the loss are numbers to be logged: scalars by name, detached."""
    parts = subject.loss(subject.trained).parts
    if not isinstance(parts, Mapping) or not parts:
        raise CheckFailed("The loss has no parts to be logged. Give at least one: {'nll': total.detach()}.")
    for name, part in parts.items():
        if not isinstance(part, Tensor) or part.shape != () or part.requires_grad:
            raise CheckFailed(
                f"The part {name!r} of the loss is {part!r}. Log its mean, detached: part.mean().detach()."
            )


def energies_of_the_loss(subject: Subject) -> None:
    """The energies of a loss, if it gives any, are of data and of samples, a number each, with gradients."""
    for name, energies in _energies(subject.loss(subject.trained))._asdict().items():
        if energies.ndim != 1 or not bool(energies.isfinite().all()) or not energies.requires_grad:
            raise CheckFailed(
                f"The energies of the {name} have the shape {tuple(energies.shape)}"
                f"{'' if energies.requires_grad else ' and no gradients'}. Return them as (B,), finite and attached: "
                "the recipe's penalty of large energies acts through them."
            )


def every_parameter_is_trained(subject: Subject) -> None:
    """training_loss gives every parameter that is to be trained a finite gradient."""
    model = subject.trained
    torch.autograd.backward(subject.loss(model).total)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    without = [name for name, parameter in trained.items() if parameter.grad is None]
    if without or not trained:
        raise CheckFailed(
            f"No gradient reaches {', '.join(without[:3]) or 'any parameter'}. Use it in the loss without detach, or "
            "say that it is not trained: parameter.requires_grad_(False), or a buffer."
        )
    wild = [name for name, parameter in trained.items() if not bool(parameter.grad.isfinite().all())]
    if wild:
        raise CheckFailed(f"The gradient of {', '.join(wild[:3])} is not finite, at the first step already.")


def loss_by_seed(subject: Subject) -> None:
    """The chance in training_loss, as of dropout, comes from torch alone: the same seed, the same loss."""
    first = subject.trained
    second = subject.make().train()
    second.load_state_dict(first.state_dict())
    with untouched_randomness("training_loss"):
        losses = [subject.loss(model).total.detach() for model in (first, second)]
    if not same(*losses):
        raise CheckFailed(
            f"Two models made alike have the losses {losses[0]:.6g} and {losses[1]:.6g} under the same seed. Draw "
            "noise from torch's generator, or from one that the model's state determines."
        )


def labels_belong_to_x_labelled(subject: Subject) -> None:
    """The loss pairs the labels of a batch with x_labelled, which they are of, and not with x."""
    subject.needs_classes()
    with_x, with_labelled = _changes_by_rolling_labels(subject)
    if with_x > 0 and with_labelled < UNPAIRED * with_x:
        raise CheckFailed(
            f"If the labels change places among the images, the loss changes by {with_x:.2g} on account of x, and by "
            f"{with_labelled:.2g} on account of x_labelled. batch.x is another draw of the data, of unknown classes: "
            "write logits(batch.x_labelled) wherever batch.y_labelled is."
        )


class _Changes(NamedTuple):
    """What labels that change places change the loss by, if they can be paired with images of one kind alone."""

    with_x: float
    with_labelled: float


def _changes_by_rolling_labels(subject: Subject) -> _Changes:
    """The images of the other kind, and the samples, are one image many times: it is the same whatever its label."""
    _ = subject.trained
    model = subject.shaken.train()
    subject.loss(model)  # what is set by the first batch is set by a common one
    model.eval()
    batch, negatives = subject.batch, subject.negatives(model)
    samples = None if negatives is None else negatives._replace(x=_repeated(negatives.x))
    changes = []
    for one in ("x_labelled", "x"):
        images = batch._replace(**{one: _repeated(getattr(batch, one))})
        rolled = images._replace(y_labelled=images.y_labelled.roll(1))
        before, after = (subject.loss(model, batch=shown, negatives=samples).total.item() for shown in (images, rolled))
        change = abs(after - before)
        changes.append(change if change > ROUNDING * max(1.0, abs(before)) else 0.0)
    return _Changes(*changes)


def _repeated(images: Tensor) -> Tensor:
    return images[:1].expand_as(images).clone()


def training_lowers_the_loss(subject: Subject) -> None:
    """A few steps of gradient descent on one batch lower its loss, if they are small enough."""
    _ = subject.trained
    for rate in RATES:
        totals = _totals(subject, rate)
        if any(total < totals[0] for total in totals[-3:]):
            return
    raise CheckFailed(
        f"After {STEPS} steps of Adam on one batch the loss is {totals[-1]:.4g}, and it was {totals[0]:.4g}, at every "
        "learning rate tried. The loss is minimised: see to its sign, and that its gradient reaches what it depends on."
    )


def loss_pulls_energies_apart(subject: Subject) -> None:
    """The loss falls with the energies of the data against those of the samples, if it gives any."""
    loss = subject.loss(subject.trained)
    energies = _energies(loss)
    try:
        data, samples = torch.autograd.grad(loss.total, energies, allow_unused=True)
    except RuntimeError as error:
        raise CheckFailed(
            f"The loss cannot be differentiated by its energies: {error}. Leave them attached."
        ) from error
    if data is None or samples is None or not float(data.mean()) > float(samples.mean()):
        raise CheckFailed(
            "A lower energy of the data, or a higher one of the samples, does not lower the loss. Lower energy = "
            "likelier: it is mean E(data) - mean E(samples), to be minimised, and made of Energies(data, samples)."
        )


def _energies(loss: Loss) -> Energies:
    if loss.energies is None:
        raise DoesNotApply("Its loss gives no energies: neither a penalty nor the guard against divergence acts on it.")
    return loss.energies


def _totals(subject: Subject, learning_rate: float) -> list[float]:
    """The loss before each step on the same batch, up to where it is no number."""
    model = subject.make().train()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=learning_rate)
    totals: list[float] = []
    while len(totals) < STEPS and all(map(math.isfinite, totals)):
        loss = subject.loss(model)
        optimizer.zero_grad()
        torch.autograd.backward(loss.total)
        optimizer.step()
        totals.append(loss.total.item())
    return totals
