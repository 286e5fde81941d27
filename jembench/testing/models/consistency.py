"""Promises of the consistency of a model's energies, densities, logits and gradients.

Legend: B images, K classes.
"""

from typing import Any

import torch
from torch import Tensor

from jembench.models import predictions
from jembench.models.capabilities import is_differentiable
from jembench.models.energies import marginal_energy
from jembench.testing.checks import DoesNotApply, only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.models.subject import (
    IMAGES,
    ModelSubject,
    close,
    distance,
    has,
    needs,
    sampling,
)

TOLERANCE = 1e-4
"""The largest error of an equation between outputs, relative to the largest output, by rounding
float32 sums.
"""

STEPS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
"""Steps of a finite difference: kinks and curvature limit large steps, rounding small steps."""

AGREEMENT = 0.03
"""The largest error of a finite difference, relative to the derivatives; networks have kinks."""


@promise("models")
def energy_is_minus_log_density(subject: ModelSubject) -> None:
    """A model with energy and log_prob has energy(x) = -log_prob(x) + constant.

    E(x) is -log p(x), so that a lower energy means a higher density. Compute one from the other.
    """
    energy, log_prob = subject.output("energy"), subject.output("log_prob")
    _require_constant("energy(x) + log_prob(x)", energy + log_prob, energy, log_prob)


@promise("models")
def energy_sums_over_classes(subject: ModelSubject) -> None:
    """A model with energy(x, y) has energy(x) = -logsumexp over y of -energy(x, y), up to a
    constant.

    Both energies are of one joint density p(x, y): jembench.parts.marginal_energy computes E(x)
    from the logits -E(x, y).
    """
    energy, joint = subject.output("energy"), subject.each_class("energy")
    _require_constant(
        "energy(x) + logsumexp_y(-energy(x, y))", energy + (-joint).logsumexp(dim=1), energy, joint
    )


@promise("models")
def energy_follows_from_logits(subject: ModelSubject) -> None:
    """A model with energy_follows_from_logits has energy(x) = -logsumexp of logits(x), and is
    evaluated in one pass.

    Leave out the attribute energy_follows_from_logits, or return
    jembench.parts.marginal_energy(logits).
    """
    follows = predictions.energy_follows_from_logits(needs(subject.perturbed, "energy"))
    only_if(bool(follows), "It does not set energy_follows_from_logits.")
    energy, expected = subject.output("energy"), marginal_energy(subject.output("logits"))
    difference = distance(energy, expected)
    message = f"energy(x) differs from -logsumexp(logits(x)) by {difference}."
    require(close(energy, expected), message)


@promise("models")
def class_energies_agree_with_logits(subject: ModelSubject) -> None:
    """Over y, softmax of -energy(x, y) and of logits(x) agree in a model that has both.

    Return E(x, y) = -f(x)[y], up to a term that does not depend on y.
    """
    logits, joint = subject.output("logits"), subject.each_class("energy")
    by_logits, by_energies = logits.softmax(dim=1), (-joint).softmax(dim=1)
    difference = distance(by_energies, by_logits)
    require(
        close(by_energies, by_logits, TOLERANCE),
        f"p(y|x) by softmax of logits and by softmax of -energy(x, y) differs by {difference}.",
    )


@promise("models")
def class_densities_agree_with_logits(subject: ModelSubject) -> None:
    """A model with logits(x) and log_prob(x, y) has the same p(y|x) by both, by Bayes' rule and
    some p(y).

    Return log p(x|y) + log p(y), or p(y|x) of the same joint density.
    """
    logits, densities = subject.output("logits"), subject.each_class("log_prob")
    prior = logits - densities  # log p(y) + c(x)
    interaction = prior - prior.mean(dim=1, keepdim=True) - prior.mean(dim=0) + prior.mean()
    worst = float(interaction.abs().max())
    require(
        worst <= TOLERANCE * _scale(logits, densities),
        f"logits(x) - log_prob(x, y) varies by {worst:.2g} nats over classes and images, which no "
        "p(y) explains.",
    )


@promise("models")
def density_within_its_classes(subject: ModelSubject) -> None:
    """A model with log_prob(x, y) has log_prob(x) between its smallest and largest value over y.

    Return logsumexp_y(log p(x|y) + log p(y)), with log p(y) = -log K for classes of equal size.
    """
    marginal, by_class = subject.output("log_prob"), subject.each_class("log_prob")
    slack = TOLERANCE * _scale(by_class)
    outside = (marginal < by_class.amin(dim=1) - slack) | (marginal > by_class.amax(dim=1) + slack)
    require(not bool(outside.any()), "log_prob(x) lies outside of log_prob(x, y) over all y.")


def _require_constant(name: str, values: Tensor, *terms: Tensor) -> None:
    """Fail the check unless values are equal, up to rounding."""
    worst = float((values - values.mean()).abs().max())
    require(
        worst <= TOLERANCE * _scale(*terms),
        f"{name} varies by {worst:.2g} nats from image to image.",
    )


def _scale(*values: Tensor) -> float:
    return max(1.0, *(float(value.abs().max()) for value in values))


@promise("models")
def depends_on_the_class(subject: ModelSubject) -> None:
    """A model that takes labels has energy(x, y), log_prob(x, y) and sample(n, y) that depend on y.

    Use y; or raise jembench.plugin.SpecError for labels if the model has no classes: its chains and
    samples are then of p(x).
    """
    methods = list(filter(subject.takes_labels, ("energy", "log_prob", "sample")))
    classes = subject.data.num_classes
    only_if(bool(methods) and classes >= 2, "It has no method that takes labels.")
    for method in methods:
        first, *rest = _by_class(subject, method)
        low, high = subject.data.bounds
        # some initial weights give only clamped samples
        clamped = method == "sample" and bool(((first == low) | (first == high)).all())
        differs = not all(same(first, outputs) for outputs in rest)
        require(
            clamped or differs,
            f"{method} with y is the same for all {classes} classes, with other weights too.",
        )


@torch.no_grad()
def _by_class(subject: ModelSubject, method: str) -> list[Tensor]:
    if method != "sample":
        return list(subject.each_class(method).unbind(dim=1))
    classes = [torch.full((IMAGES,), k) for k in range(subject.data.num_classes)]
    return [subject.perturbed.sample(IMAGES, y, generator=sampling()) for y in classes]


@promise("models")
def energy_has_a_gradient(subject: ModelSubject) -> None:
    """dE/dx, or -d log p(x)/dx, exists, is finite, and is not zero everywhere.

    Do not use detach, no_grad, item, rounding, clamps or saturated layers between x and the energy;
    look for square roots and logarithms of 0, and for where().
    """
    _needs_energy(subject.model)
    for model in (subject.model, subject.perturbed):
        gradient = subject.gradient(model)
        require(bool(gradient.isfinite().all()), "dE/dx is not finite.")
    require(
        bool(gradient.any()),
        "dE/dx is zero everywhere, with other weights too, so that no chain moves.",
    )


@promise("models")
def gradient_is_of_the_energy(subject: ModelSubject) -> None:
    """dE/dx along a direction agrees with a finite difference of the energy.

    An operation between x and the energy is detached, rounded, or has a backward pass of its own.
    """
    model = _needs_energy(subject.perturbed)
    try:
        gradient = subject.gradient(model)
    except RuntimeError as error:
        raise DoesNotApply(
            "It cannot be differentiated: see the check energy-has-a-gradient."
        ) from error
    # neither parallel nor orthogonal to the gradient
    away = _scale_to_unit(subject.images("direction") - subject.x)
    direction = _scale_to_unit(_scale_to_unit(gradient) + away)
    slopes = (gradient * direction).flatten(1).sum(dim=1)
    differences = []
    with torch.no_grad():
        for step in STEPS:
            end = subject.energies(model, subject.x + step * direction)
            start = subject.energies(model, subject.x - step * direction)
            differences.append((end - start) / (2 * step))
    off = min(float((difference - slopes).norm()) for difference in differences)
    expected, measured = float(slopes[0]), float(differences[2][0])
    require(
        off <= AGREEMENT * float(slopes.norm()),
        f"Along a direction dE/dx is {expected:.3g} for the first image, and the energy changes "
        f"by {measured:.3g}.",
    )


def _needs_energy(model: Any) -> Any:
    """Return the model; skip the check if it has no gradients or energies."""
    only_if(is_differentiable(model), "It sets differentiable = False.")
    return model if has(model, "energy") else needs(model, "log_prob")


def _scale_to_unit(direction: Tensor) -> Tensor:
    """Scale each image to L2 norm 1; leave zero unchanged."""
    length: Tensor = direction.flatten(1).norm(dim=1).clamp(min=1e-30)
    return direction / length.view(-1, 1, 1, 1)
