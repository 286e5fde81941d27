"""Promises of training, on which the training loop relies.

Legend: B batch.
"""

import math
from typing import get_args

import torch
from torch import Tensor

from jembench.interfaces import Chains, Loss
from jembench.models.capabilities import is_fitted
from jembench.testing.checks import CheckFailed, DoesNotApply, only_if, promise, require
from jembench.testing.comparing import different, same, untouched_randomness
from jembench.testing.models.subject import ModelSubject
from jembench.training.optimizers import phases_of

STEPS = 20
RATES = (1e-3, 1e-4, 1e-5)
"""Learning rates: a common one, and smaller ones for models with large initial gradients."""

ROUNDING = 1e-5
"""The largest relative change of a loss by rounding."""

UNPAIRED = 0.01
"""Labels count as paired with x if they change the loss through x_labelled by less than this share
of the change through x. A loss that mixes x and x_labelled passes the check.
"""


@promise("models")
def loss_is_a_number(subject: ModelSubject) -> None:
    """training_loss, and the loss of each phase, returns a Loss whose total is a finite number with
    a gradient.

    Return jembench.interfaces.Loss(total, parts), with the mean over the batch as total; do not use
    detach and no_grad in its computation.
    """
    chains, names = subject.trained.chains, get_args(Chains)
    require(chains in names, f"chains is {chains!r}; it must be one of {', '.join(names)}.")
    for phase in phases_of(subject.trained):
        loss = subject.loss(subject.trained, phase=phase)
        require(
            isinstance(loss, Loss), f"{phase or 'training_loss'} returns a {type(loss).__name__}."
        )
        require(
            loss.total.shape == () and bool(loss.total.isfinite()),
            f"The total of the loss is {loss.total}.",
        )
        require(loss.total.requires_grad, "The total of the loss has no gradient.")


@promise("models")
def energies_of_the_loss(subject: ModelSubject) -> None:
    """The loss increases with the data's energies, (B,), and decreases with the samples' energies,
    (B,), if any.

    The loss is mean E(data) - mean E(samples), to be minimised: compute it from Energies(data,
    samples), finite and with gradients.
    """
    loss = subject.loss(subject.trained)
    if loss.energies is None:
        raise DoesNotApply(
            "Its loss has no energies, which only the energy penalty and the divergence guard need."
        )
    for name, energies in loss.energies._asdict().items():
        right = energies.ndim == 1 and bool(energies.isfinite().all())
        require(
            right,
            f"The energies of the {name} have the shape {tuple(energies.shape)}, or are not "
            "finite.",
        )
    data, samples = torch.autograd.grad(loss.total, loss.energies, allow_unused=True)
    apart = data is not None and samples is not None and float(data.mean()) > float(samples.mean())
    require(
        apart,
        "Lower energies of the data, or higher energies of the samples, do not lower the loss.",
    )


@promise("models")
def every_parameter_is_trained(subject: ModelSubject) -> None:
    """training_loss, or the loss of its phase, has a finite gradient for every parameter that
    requires one.

    Use the parameter in the loss without detach; or call parameter.requires_grad_(False), or make
    it a buffer.
    """
    model = subject.trained
    for name, phase in phases_of(model).items():
        inputs = [parameter for parameter in phase.parameters if parameter.requires_grad]
        torch.autograd.backward(subject.loss(model, phase=name).total, inputs=inputs)
    trained, without, bad = 0, list[str](), list[str]()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        trained += 1
        if parameter.grad is None:
            without.append(name)
        elif not bool(parameter.grad.isfinite().all()):
            bad.append(name)
    unreached = ", ".join(without[:3]) or "any parameter"
    require(trained > 0 and not without, f"No gradient reaches {unreached}.")
    require(not bad, f"The gradient of {', '.join(bad[:3])} is not finite at the first step.")


@promise("models")
def loss_by_seed(subject: ModelSubject) -> None:
    """Random numbers in training_loss come from seeded generators: equal seeds give equal losses.

    Draw noise from the global generators of torch, Python or NumPy, or from a generator that the
    model's state determines.
    """
    first = subject.trained
    second = subject.build().train()
    second.load_state_dict(first.state_dict())
    with untouched_randomness("training_loss"):
        losses = [subject.loss(model).total.detach() for model in (first, second)]
    require(
        same(*losses),
        f"Two models made alike have the losses {losses[0].tolist()} and {losses[1].tolist()} "
        "under the same seed.",
    )


@promise("models")
def labels_belong_to_x_labelled(subject: ModelSubject) -> None:
    """The loss pairs the labels of a batch with x_labelled and not with x.

    batch.x are other images, of unknown classes: use logits(batch.x_labelled) with
    batch.y_labelled.
    """
    _ = subject.trained
    only_if(subject.data.num_classes >= 2, f"{subject.data.name} has fewer than two classes.")
    with_x, with_labelled = _changes_by_rolling_labels(subject)
    require(
        with_x <= 0 or with_labelled >= UNPAIRED * with_x,
        f"Other labels change the loss by {with_x:.2g} through x, and by {with_labelled:.2g} "
        "through x_labelled.",
    )


def _changes_by_rolling_labels(subject: ModelSubject) -> list[float]:
    """Return the changes of the loss by exchanging labels.

    For the first only x varies, for the second only x_labelled. All other images and samples are
    copies of one image.
    """
    model = subject.perturbed.train()
    subject.loss(model)  # initialises models by their first batch
    model.eval()
    batch, negatives = subject.batch, subject.negatives(model)
    if negatives is not None:
        negatives = negatives._replace(x=_repeat_first(negatives.x))
    changes = []
    for constant in ("x_labelled", "x"):
        images = batch._replace(**{constant: _repeat_first(getattr(batch, constant))})
        rolled = images._replace(y_labelled=images.y_labelled.roll(1))
        before = subject.loss(model, images, negatives).total.item()
        after = subject.loss(model, rolled, negatives).total.item()
        change = abs(after - before)
        changes.append(change if change > ROUNDING * max(1.0, abs(before)) else 0.0)
    return changes


def _repeat_first(images: Tensor) -> Tensor:
    return images[:1].expand_as(images).clone()


@promise("models")
def training_lowers_the_loss(subject: ModelSubject) -> None:
    """A few small steps of gradient descent on one batch lower its loss.

    The loss is minimised: check its sign and its gradients.
    """
    _ = subject.trained
    for rate in RATES:
        totals = _train(subject, rate)
        if any(total < totals[0] for total in totals[-3:]):
            return
    first, last = totals[0], totals[-1]
    raise CheckFailed(
        f"{STEPS} steps of Adam on one batch take the loss from {first:.4g} to {last:.4g} at "
        "every rate."
    )


def _train(subject: ModelSubject, learning_rate: float) -> list[float]:
    """Return the loss before each step on one batch, while finite."""
    model = subject.build().train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
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
    """fit stores its result in buffers, and equal generators give equal results.

    Register a buffer in __init__, of any shape, and assign to it in fit. Draw only from the
    generator; for scikit-learn: random_state=int(torch.randint(2**31, (), generator=generator)).
    """
    model = subject.model
    only_if(is_fitted(model), "It is not fitted at once: it has no fit.")
    first = {name: value.clone() for name, value in model.state_dict().items()}
    with untouched_randomness("fit"):
        subject.fit(model)
    others = different(model.state_dict(), first)
    require(not others, f"Fitted twice to the same images, it differs in {', '.join(others[:3])}.")
    subject.fit(model, purpose="other training")
    learnt = different(model.state_dict(), first)
    require(
        bool(learnt),
        "Fitted to other images, its buffers are the same, so that the result of fit is not "
        "stored.",
    )
