"""What the shared training loop relies on.

Legend: B batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from jembench.interfaces import Chains, Energies, Loss
from jembench.models.capabilities import is_fitted
from jembench.testing.checks import CheckFailed, DoesNotApply, explained, is_count, only_if, promise, require
from jembench.testing.comparing import different, same, untouched_randomness
from jembench.testing.models.subject import ModelSubject

STEPS = 20
RATES = (1e-3, 1e-4, 1e-5)
"""Learning rates, from the common one to those of models that begin steeply."""

ROUNDING = 1e-5
"""What a loss may change by, relative to itself, if its terms are summed up in another order."""

UNPAIRED = 0.01
"""Where x is mixed into x_labelled, both count. Labels are taken for those of x if x_labelled counts this much less."""


@promise("models")
def chains_are_known(subject: ModelSubject) -> None:
    """``chains`` is none, marginal or conditional.

    It says which samples the loss needs.
    """
    chains, known = subject.trained.chains, get_args(Chains)
    require(chains in known, f"chains is {chains!r}; it must be one of {', '.join(known)}.")


@promise("models")
def passes_are_counted(subject: ModelSubject) -> None:
    """passes_per_loss, if the model has it, is a whole number of at least 1.

    It says how often the loss takes each image through the network, forward and back.
    """
    count = getattr(subject.trained, "passes_per_loss", None)
    only_if(count is not None, "It does not say how often its loss passes through the network: once.")
    require(is_count(count), f"passes_per_loss is {count!r}; it must be a whole number of at least 1.")


@promise("models")
def loss_is_a_number(subject: ModelSubject) -> None:
    """training_loss gives a Loss whose total is one finite number with a gradient.

    Return jembench.interfaces.Loss(total, parts). Make it one finite number, a mean over the batch; leave out
    detach and no_grad on the way to it.
    """
    loss = subject.loss(subject.trained)
    require(isinstance(loss, Loss), f"training_loss gives a {type(loss).__name__}.")
    require(loss.total.shape == () and bool(loss.total.isfinite()), f"The total of the loss is {loss.total}.")
    require(loss.total.requires_grad, "The total of the loss has no gradient.")


@promise("models")
def parts_are_numbers(subject: ModelSubject) -> None:
    """The parts of the loss are numbers to be logged: scalars by name, detached.

    Give at least one, {'nll': total.detach()}, and log its mean, detached: part.mean().detach().
    """
    parts = subject.loss(subject.trained).parts
    require(isinstance(parts, Mapping) and len(parts) > 0, "The loss has no parts to be logged.")
    for name, part in parts.items():
        scalar = isinstance(part, Tensor) and part.shape == () and not part.requires_grad
        require(scalar, f"The part {name!r} of the loss is {part!r}.")


@promise("models")
def energies_of_the_loss(subject: ModelSubject) -> None:
    """The energies of a loss, if it gives any, are of data and of samples, a number each, with gradients.

    Return them as (B,), finite and attached: the recipe's penalty of large energies acts through them.
    """
    for name, energies in _energies(subject.loss(subject.trained))._asdict().items():
        right = energies.ndim == 1 and bool(energies.isfinite().all()) and energies.requires_grad
        gradients = "" if energies.requires_grad else " and no gradients"
        require(right, f"The energies of the {name} have the shape {tuple(energies.shape)}{gradients}.")


@promise("models")
def loss_pulls_energies_apart(subject: ModelSubject) -> None:
    """The loss falls with the energies of the data against those of the samples, if it gives any.

    Lower energy = likelier: it is mean E(data) - mean E(samples), to be minimised, and made of Energies(data,
    samples).
    """
    loss = subject.loss(subject.trained)
    energies = _energies(loss)
    with explained("The loss cannot be differentiated by its energies", "Leave them attached."):
        data, samples = torch.autograd.grad(loss.total, energies, allow_unused=True)
    apart = data is not None and samples is not None and float(data.mean()) > float(samples.mean())
    require(apart, "A lower energy of the data, or a higher one of the samples, does not lower the loss.")


@promise("models")
def every_parameter_is_trained(subject: ModelSubject) -> None:
    """training_loss gives every parameter that is to be trained a finite gradient.

    Use it in the loss without detach, or say that it is not trained: parameter.requires_grad_(False), or a buffer.
    """
    model = subject.trained
    torch.autograd.backward(subject.loss(model).total)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    without = [name for name, parameter in trained.items() if parameter.grad is None]
    found = f"No gradient reaches {', '.join(without[:3]) or 'any parameter'}."
    require(bool(trained) and not without, found)
    wild = [name for name, parameter in trained.items() if not bool(parameter.grad.isfinite().all())]
    require(not wild, f"The gradient of {', '.join(wild[:3])} is not finite, at the first step already.")


@promise("models")
def loss_by_seed(subject: ModelSubject) -> None:
    """The randomness in training_loss, as of dropout, comes from torch alone: the same seed, the same loss.

    Draw noise from torch's generator, or from one that the model's state determines.
    """
    first = subject.trained
    second = subject.make().train()
    second.load_state_dict(first.state_dict())
    with untouched_randomness("training_loss"):
        losses = [subject.loss(model).total.detach() for model in (first, second)]
    found = f"Two models made alike have the losses {losses[0].tolist()} and {losses[1].tolist()} under the same seed."
    require(same(*losses), found)


@promise("models")
def labels_belong_to_x_labelled(subject: ModelSubject) -> None:
    """The loss pairs the labels of a batch with x_labelled, which they are of, and not with x.

    batch.x is another draw of the data, of unknown classes: write logits(batch.x_labelled) wherever
    batch.y_labelled is.
    """
    subject.needs_classes()
    with_x, with_labelled = _changes_by_rolling_labels(subject)
    found = f"Other labels change the loss by {with_x:.2g} through x, and by {with_labelled:.2g} through x_labelled."
    require(with_x <= 0 or with_labelled >= UNPAIRED * with_x, found)


def _changes_by_rolling_labels(subject: ModelSubject) -> list[float]:
    """Change in the loss if labels change places, when only x varies, and when only x_labelled does.

    The images of the other kind, and the samples, are copies of one image.
    """
    _ = subject.trained
    model = subject.shaken.train()
    subject.loss(model)  # sets what the first batch sets
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
    return changes


def _repeated(images: Tensor) -> Tensor:
    return images[:1].expand_as(images).clone()


@promise("models")
def training_lowers_the_loss(subject: ModelSubject) -> None:
    """A few steps of gradient descent on one batch lower its loss, if they are small enough.

    The loss is minimised: see to its sign, and that its gradient reaches what it depends on.
    """
    _ = subject.trained
    for rate in RATES:
        totals = _totals(subject, rate)
        if any(total < totals[0] for total in totals[-3:]):
            return
    last, first = totals[-1], totals[0]
    raise CheckFailed(f"{STEPS} steps of Adam on one batch take the loss from {first:.4g} to {last:.4g} at every rate.")


def _energies(loss: Loss) -> Energies:
    if loss.energies is None:
        raise DoesNotApply("Its loss gives no energies: no penalty and no divergence guard act on it.")
    return loss.energies


def _totals(subject: ModelSubject, learning_rate: float) -> list[float]:
    """The loss before each step on the same batch, until it is not finite."""
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


@promise("models")
def fitted_by_generator(subject: ModelSubject) -> None:
    """fit leaves the same under equal generators, and draws from nothing else.

    Give scikit-learn a number from the generator: random_state=int(torch.randint(2**31, (), generator=generator)).
    """
    fitted = _fitted(subject)
    with untouched_randomness("fit"):
        first = {name: value.clone() for name, value in fitted.state_dict().items()}
        subject.fit(fitted)
    others = different(fitted.state_dict(), first)
    require(not others, f"Fitted twice to the same images, it differs in {', '.join(others[:3])}.")


@promise("models")
def fitted_to_the_images(subject: ModelSubject) -> None:
    """fit leaves what it learns in buffers, which depend on the images.

    Register a buffer in __init__, of any shape, and assign to it in fit.
    """
    fitted = _fitted(subject)
    first = {name: value.clone() for name, value in fitted.state_dict().items()}
    subject.fit(fitted, purpose="other training")
    learnt = different(fitted.state_dict(), first)
    require(bool(learnt), "Fitted to other images, its buffers are the same: what it learns is not stored.")


def _fitted(subject: ModelSubject) -> Any:
    only_if(is_fitted(subject.model), "It is not fitted at once: it has no fit.")
    return subject.model
