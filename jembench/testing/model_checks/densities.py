"""How what a model says of an image hangs together: energies, densities, classes and gradients.

    E(x) = -log p(x) + c,   E(x) = -logsumexp_y -E(x, y) + c,   p(y|x) = softmax_y -E(x, y) = softmax_y f(x)
    min_y log p(x|y) <= log p(x) <= max_y log p(x|y),   f(x)[y] - log p(x|y) = log p(y) + c(x)

whatever the proportions of the classes. Lower energy = likelier.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jembench.models import predictions
from jembench.models.energies import marginal_energy
from jembench.testing.asking import same
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.model_checks.subject import Subject, close, distance, has, needs

TOLERANCE = 1e-4
"""Of equations between answers, relative to the largest: float32 sums over pixels and classes."""

STEPS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
"""Lengths of a finite difference: the larger meet kinks and curvature, the smaller rounding."""

AGREEMENT = 0.03
"""How far a finite difference may be off, relative to the derivatives; networks have kinks."""


def energy_is_minus_log_density(subject: Subject) -> None:
    """Where there are both, energy(x) = -log_prob(x) + one constant."""
    model = needs(needs(subject.shaken, "energy"), "log_prob")
    with torch.no_grad():
        energy, log_prob = model.energy(subject.x), model.log_prob(subject.x)
    worst = _variation(energy + log_prob)
    if not worst <= TOLERANCE * _scale(energy, log_prob):
        raise CheckFailed(
            f"energy(x) + log_prob(x) varies by {worst:.2g} nats from image to image. Lower energy = likelier: E(x) is "
            "-log p(x). Derive one from the other."
        )


def energy_sums_over_classes(subject: Subject) -> None:
    """Where there is energy(x, y), energy(x) = -logsumexp over y of -energy(x, y), up to one constant."""
    model = needs(subject.shaken, "energy")
    joint = subject.each_class("energy", model)
    with torch.no_grad():
        energy = model.energy(subject.x)
    worst = _variation(energy + (-joint).logsumexp(dim=1))
    if not worst <= TOLERANCE * _scale(energy, joint):
        raise CheckFailed(
            f"energy(x) differs from -logsumexp_y(-energy(x, y)) by what varies by {worst:.2g} nats from image to "
            "image. Energies are of one joint p(x, y): jembench.plugin.marginal_energy computes E(x) from "
            "the logits -E(x, y)."
        )


def energy_follows_from_logits(subject: Subject) -> None:
    """Where the model says so, energy(x) is -logsumexp of logits(x): one is then computed from the other."""
    model = needs(subject.shaken, "energy")
    if not predictions.energy_follows_from_logits(model):
        raise DoesNotApply("It does not say that its energy follows from its logits.")
    with torch.no_grad():
        energy, expected = model.energy(subject.x), marginal_energy(model.logits(subject.x))
    if not close(energy, expected):
        raise CheckFailed(
            f"energy(x) differs from -logsumexp(logits(x)) by {distance(energy, expected)}. Leave out the attribute "
            "energy_follows_from_logits, or return jembench.plugin.marginal_energy(logits)."
        )


def class_energies_agree_with_logits(subject: Subject) -> None:
    """Where there are both, softmax over y of -energy(x, y) is softmax of logits(x)."""
    model = needs(needs(subject.shaken, "logits"), "energy")
    joint = subject.each_class("energy", model)
    with torch.no_grad():
        logits = model.logits(subject.x)
    ours, theirs = logits.softmax(dim=1), (-joint).softmax(dim=1)
    if not close(theirs, ours, TOLERANCE):
        raise CheckFailed(
            f"p(y|x) by softmax of logits and by softmax of -energy(x, y) differs by {distance(theirs, ours)}. "
            "Lower energy = likelier: E(x, y) = -f(x)[y], up to what does not depend on y."
        )


def class_densities_agree_with_logits(subject: Subject) -> None:
    """Where there are both, logits(x) and log_prob(x, y) give the same p(y|x) by Bayes' rule, for some p(y)."""
    model = needs(needs(subject.shaken, "logits"), "log_prob")
    densities = subject.each_class("log_prob", model)
    with torch.no_grad():
        logits = model.logits(subject.x)
    prior = logits - densities  # log p(y) + c(x)
    interaction = prior - prior.mean(dim=1, keepdim=True) - prior.mean(dim=0) + prior.mean()
    worst = float(interaction.abs().max())
    if not worst <= TOLERANCE * _scale(logits, densities):
        raise CheckFailed(
            f"logits(x) - log_prob(x, y) has classes that gain {worst:.2g} nats on one image over another, which no "
            "p(y) explains. Return log p(x|y) + log p(y), or p(y|x) of the same joint density."
        )


def density_within_its_classes(subject: Subject) -> None:
    """Where there is log_prob(x, y), log_prob(x) lies between its smallest and its largest value over y."""
    needs(subject.shaken, "log_prob")
    if not subject.takes_labels("log_prob"):
        raise DoesNotApply("It has no log_prob(x, y).")
    if not lie_within_their_classes(subject):
        raise CheckFailed(
            "log_prob(x) lies outside of log_prob(x, y) over all y, and a mixture cannot. Return "
            "logsumexp_y(log p(x|y) + log p(y)), where log p(y) is -log K for classes of equal size."
        )


def lie_within_their_classes(subject: Subject) -> bool:
    """Whether densities lie between those of the classes, if there are any."""
    if not subject.takes_labels("log_prob"):
        return True
    by_class = subject.each_class("log_prob", subject.shaken)
    with torch.no_grad():
        marginal = subject.shaken.log_prob(subject.x)
    slack = TOLERANCE * _scale(by_class)
    outside = (marginal < by_class.amin(dim=1) - slack) | (marginal > by_class.amax(dim=1) + slack)
    return not bool(outside.any())


def answers_depend_on_the_class(subject: Subject) -> None:
    """Where there is energy(x, y) or log_prob(x, y), it is not the same whatever y is."""
    subject.needs_classes()
    methods = [method for method in ("energy", "log_prob") if subject.takes_labels(method)]
    if not methods:
        raise DoesNotApply("It has no energies or densities by class.")
    for method in methods:
        by_class = subject.each_class(method, subject.shaken)
        if bool((by_class == by_class[:, :1]).all()):
            raise CheckFailed(
                f"{method}(x, y) is the same for all {subject.data.num_classes} classes, with weights moved off their "
                "beginning too. Let it depend on y; a model without classes raises jembench.plugin.SpecError for "
                "labels, and its chains and samples are then of p(x)."
            )


def samples_depend_on_the_class(subject: Subject) -> None:
    """Where there is sample(n, y), equal generators do not give the same images whatever y is."""
    subject.needs_classes()
    if not subject.takes_labels("sample"):
        raise DoesNotApply("It has no sample(n, y).")
    first = subject.drawn_of_class(subject.shaken, 0)
    low, high = subject.data.bounds
    if bool(((first == low) | (first == high)).all()):
        raise DoesNotApply("Its samples are clamped everywhere, as it begins.")
    if all(same(first, subject.drawn_of_class(subject.shaken, k)) for k in range(1, subject.data.num_classes)):
        raise CheckFailed(
            f"sample(n, y) gives the same images for each of the {subject.data.num_classes} classes under equal "
            "generators, with weights moved off their beginning too. Draw images of the classes y; a model without "
            "classes raises jembench.plugin.SpecError for labels."
        )


def energy_has_a_gradient(subject: Subject) -> None:
    """dE/dx, or -d log p(x)/dx, exists, is finite, and is not zero everywhere."""
    needs_energy(subject.model)
    for model in (subject.model, subject.shaken):
        try:
            gradient = subject.gradient(model)
        except RuntimeError as error:
            raise CheckFailed(
                f"The energy cannot be differentiated by the image: {error}. Leave out detach, no_grad, item and "
                "rounding on the way from x to the energy."
            ) from error
        if not bool(gradient.isfinite().all()):
            raise CheckFailed("dE/dx is not finite. Look for square roots and logarithms of 0, and for where().")
    if not bool(gradient.any()):
        raise CheckFailed(
            "dE/dx is zero everywhere, with weights moved off their beginning too: no chain would move. See that the "
            "energy depends on x, and that no clamp or saturated layer is in between."
        )


def gradient_is_of_the_energy(subject: Subject) -> None:
    """dE/dx is how the energy changes: along a direction it agrees with a finite difference."""
    model = needs_energy(subject.shaken)
    try:
        gradient = subject.gradient(model)
    except RuntimeError as error:
        raise DoesNotApply("It cannot be differentiated: see energy-has-a-gradient.") from error
    direction = _unit_length(_unit_length(gradient) + _unit_length(subject.images("direction") - subject.x))
    slopes = (gradient * direction).flatten(1).sum(dim=1)
    with torch.no_grad():
        differences = [_slopes(subject, model, step * direction) / step for step in STEPS]
    off = min(float((found - slopes).norm()) for found in differences)
    if not off <= AGREEMENT * float(slopes.norm()):
        raise CheckFailed(
            f"Along a direction dE/dx is {float(slopes[0]):.3g} for the first image, and the energy changes by "
            f"{float(differences[2][0]):.3g}. Something on the way from x to the energy is detached, rounded, or has "
            "a backward pass of its own."
        )


def needs_energy(model: Any) -> Any:
    """The model, if it has energies or densities.

    Raises:
        DoesNotApply: if it has neither.
    """
    if not has(model, "energy"):
        needs(model, "log_prob")
    return model


def _variation(values: Tensor) -> float:
    return float((values - values.mean()).abs().max())


def _scale(*values: Tensor) -> float:
    return max(1.0, *(float(value.abs().max()) for value in values))


def _unit_length(direction: Tensor) -> Tensor:
    """Of length 1 for each image; zero stays zero."""
    length: Tensor = direction.flatten(1).norm(dim=1).clamp(min=1e-30)
    return direction / length.view(-1, 1, 1, 1)


def _slopes(subject: Subject, model: Any, step: Tensor) -> Tensor:
    """Half of what the energy changes by from one side of each image to the other."""
    return (subject.energies(model, subject.x + step) - subject.energies(model, subject.x - step)) / 2
