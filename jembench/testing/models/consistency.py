"""Promises of outputs that must agree: energies, densities and logits, classes, gradients.

Legend: B images, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jembench.models import predictions
from jembench.models.capabilities import is_differentiable
from jembench.models.energies import marginal_energy
from jembench.testing.checks import DoesNotApply, only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.models.subject import IMAGES, ModelSubject, close, distance, has, needs, sampling

TOLERANCE = 1e-4
"""Of equations between outputs, relative to the largest: float32 sums over pixels and classes."""

STEPS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
"""Lengths of a finite difference: the larger meet kinks and curvature, the smaller rounding."""

AGREEMENT = 0.03
"""The largest difference of a finite difference, relative to the derivatives; networks have kinks."""


@promise("models")
def energy_is_minus_log_density(subject: ModelSubject) -> None:
    """Where there are both, energy(x) = -log_prob(x) + one constant.

    Lower energy = likelier: E(x) is -log p(x). Derive one from the other.
    """
    energy, log_prob = subject.answer("energy"), subject.answer("log_prob")
    _require_constant("energy(x) + log_prob(x)", energy + log_prob, energy, log_prob)


@promise("models")
def energy_sums_over_classes(subject: ModelSubject) -> None:
    """Where there is energy(x, y), energy(x) = -logsumexp over y of -energy(x, y), up to one constant.

    Energies are of one joint p(x, y): jembench.parts.marginal_energy computes E(x) from the logits -E(x, y).
    """
    energy, joint = subject.answer("energy"), subject.each_class("energy")
    _require_constant("energy(x) + logsumexp_y(-energy(x, y))", energy + (-joint).logsumexp(dim=1), energy, joint)


@promise("models")
def energy_follows_from_logits(subject: ModelSubject) -> None:
    """Where the model says so, energy(x) is -logsumexp of logits(x): one is then computed from the other.

    Leave out the attribute energy_follows_from_logits, or return jembench.parts.marginal_energy(logits).
    """
    follows = predictions.energy_follows_from_logits(needs(subject.shaken, "energy"))
    only_if(bool(follows), "It does not say that its energy follows from its logits.")
    energy, expected = subject.answer("energy"), marginal_energy(subject.answer("logits"))
    found = f"energy(x) differs from -logsumexp(logits(x)) by {distance(energy, expected)}."
    require(close(energy, expected), found)


@promise("models")
def class_energies_agree_with_logits(subject: ModelSubject) -> None:
    """Where there are both, softmax over y of -energy(x, y) is softmax of logits(x).

    Lower energy = likelier: E(x, y) = -f(x)[y], up to what does not depend on y.
    """
    logits, joint = subject.answer("logits"), subject.each_class("energy")
    ours, theirs = logits.softmax(dim=1), (-joint).softmax(dim=1)
    found = f"p(y|x) by softmax of logits and by softmax of -energy(x, y) differs by {distance(theirs, ours)}."
    require(close(theirs, ours, TOLERANCE), found)


@promise("models")
def class_densities_agree_with_logits(subject: ModelSubject) -> None:
    """Where there are both, logits(x) and log_prob(x, y) give the same p(y|x) by Bayes' rule, for some p(y).

    Return log p(x|y) + log p(y), or p(y|x) of the same joint density.
    """
    logits, densities = subject.answer("logits"), subject.each_class("log_prob")
    prior = logits - densities  # log p(y) + c(x)
    interaction = prior - prior.mean(dim=1, keepdim=True) - prior.mean(dim=0) + prior.mean()
    worst = float(interaction.abs().max())
    found = f"logits(x) - log_prob(x, y) varies by {worst:.2g} nats over classes and images, which no p(y) explains."
    require(worst <= TOLERANCE * _scale(logits, densities), found)


@promise("models")
def density_within_its_classes(subject: ModelSubject) -> None:
    """Where there is log_prob(x, y), log_prob(x) lies between its smallest and its largest value over y.

    A mixture lies between its parts: return logsumexp_y(log p(x|y) + log p(y)), where log p(y) is -log K for
    classes of equal size.
    """
    marginal, by_class = subject.answer("log_prob"), subject.each_class("log_prob")
    slack = TOLERANCE * _scale(by_class)
    outside = (marginal < by_class.amin(dim=1) - slack) | (marginal > by_class.amax(dim=1) + slack)
    require(not bool(outside.any()), "log_prob(x) lies outside of log_prob(x, y) over all y.")


def _require_constant(name: str, values: Tensor, *terms: Tensor) -> None:
    """Fail the check unless the values are equal, as far as the size of their terms allows."""
    worst = float((values - values.mean()).abs().max())
    require(worst <= TOLERANCE * _scale(*terms), f"{name} varies by {worst:.2g} nats from image to image.")


def _scale(*values: Tensor) -> float:
    return max(1.0, *(float(value.abs().max()) for value in values))


@promise("models")
def depends_on_the_class(subject: ModelSubject) -> None:
    """Where labels are taken, energy(x, y), log_prob(x, y) and sample(n, y) are not the same whatever y is.

    Let them depend on y; a model without classes raises jembench.plugin.SpecError for labels, and its chains and
    samples are then of p(x).
    """
    methods = [method for method in ("energy", "log_prob", "sample") if subject.takes_labels(method)]
    only_if(bool(methods) and subject.data.num_classes >= 2, "It has nothing that could be asked by class.")
    for method in methods:
        first, *others = _by_class(subject, method)
        low, high = subject.data.bounds
        clamped = method == "sample" and bool(((first == low) | (first == high)).all())  # as some models begin
        found = f"{method} with y is the same for all {subject.data.num_classes} classes, with other weights too."
        require(clamped or not all(same(first, other) for other in others), found)


@torch.no_grad()
def _by_class(subject: ModelSubject, method: str) -> list[Tensor]:
    if method != "sample":
        return list(subject.each_class(method).unbind(dim=1))
    classes = [torch.full((IMAGES,), k) for k in range(subject.data.num_classes)]
    return [subject.shaken.sample(IMAGES, y, generator=sampling()) for y in classes]


@promise("models")
def energy_has_a_gradient(subject: ModelSubject) -> None:
    """dE/dx, or -d log p(x)/dx, exists, is finite, and is not zero everywhere.

    Leave out detach, no_grad, item and rounding on the way from x to the energy, and clamps or saturated layers;
    look for square roots and logarithms of 0, and for where().
    """
    _needs_energy(subject.model)
    for model in (subject.model, subject.shaken):
        gradient = subject.gradient(model)
        require(bool(gradient.isfinite().all()), "dE/dx is not finite.")
    require(bool(gradient.any()), "dE/dx is zero everywhere, with other weights too: no chain would move.")


@promise("models")
def gradient_is_of_the_energy(subject: ModelSubject) -> None:
    """dE/dx is how the energy changes: along a direction it agrees with a finite difference.

    Something on the way from x to the energy is detached, rounded, or has a backward pass of its own.
    """
    model = _needs_energy(subject.shaken)
    try:
        gradient = subject.gradient(model)
    except RuntimeError as error:
        raise DoesNotApply("It cannot be differentiated: see the check energy-has-a-gradient.") from error
    direction = _scale_to_unit(_scale_to_unit(gradient) + _scale_to_unit(subject.images("direction") - subject.x))
    slopes = (gradient * direction).flatten(1).sum(dim=1)
    with torch.no_grad():
        ends = [[subject.energies(model, subject.x + s * direction) for s in (step, -step)] for step in STEPS]
    differences = [(end - start) / (2 * step) for (end, start), step in zip(ends, STEPS, strict=True)]
    off = min(float((difference - slopes).norm()) for difference in differences)
    expected, found = float(slopes[0]), float(differences[2][0])
    message = f"Along a direction dE/dx is {expected:.3g} for the first image, and the energy changes by {found:.3g}."
    require(off <= AGREEMENT * float(slopes.norm()), message)


def _needs_energy(model: Any) -> Any:
    """Return the model. Skip the check if it has no gradients, or neither energies nor densities."""
    only_if(is_differentiable(model), "It says that it cannot be differentiated.")
    return model if has(model, "energy") else needs(model, "log_prob")


def _scale_to_unit(direction: Tensor) -> Tensor:
    """Scale each image to length 1; zero stays zero."""
    length: Tensor = direction.flatten(1).norm(dim=1).clamp(min=1e-30)
    return direction / length.view(-1, 1, 1, 1)
