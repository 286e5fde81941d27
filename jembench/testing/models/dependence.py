"""How outputs depend on the class and on the image: labels count, and gradients are those of the energy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jembench.testing.checks import DoesNotApply, explained, only_if, promise, require
from jembench.testing.comparing import same
from jembench.testing.models.subject import IMAGES, ModelSubject, has, needs, sampling

STEPS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
"""Lengths of a finite difference: the larger meet kinks and curvature, the smaller rounding."""

AGREEMENT = 0.03
"""How far a finite difference may be off, relative to the derivatives; networks have kinks."""


@promise("models")
def answers_depend_on_the_class(subject: ModelSubject) -> None:
    """Where there is energy(x, y) or log_prob(x, y), it is not the same whatever y is.

    Let it depend on y; a model without classes raises jembench.plugin.SpecError for labels, and its chains and
    samples are then of p(x).
    """
    subject.needs_classes()
    methods = [method for method in ("energy", "log_prob") if subject.takes_labels(method)]
    only_if(len(methods) > 0, "It has no energies or densities by class.")
    for method in methods:
        by_class = subject.each_class(method, subject.shaken)
        equal = bool((by_class == by_class[:, :1]).all())
        require(
            not equal, f"{method}(x, y) is the same for all {subject.data.num_classes} classes, with other weights too."
        )


@promise("models")
def samples_depend_on_the_class(subject: ModelSubject) -> None:
    """Where there is sample(n, y), equal generators do not give the same images whatever y is.

    Draw images of the classes y; a model without classes raises jembench.plugin.SpecError for labels.
    """
    subject.needs_classes()
    only_if(bool(subject.takes_labels("sample")), "It has no sample(n, y).")

    def draw(k: int) -> Tensor:
        with torch.no_grad():
            images: Tensor = subject.shaken.sample(IMAGES, torch.full((IMAGES,), k), generator=sampling())
        return images

    first = draw(0)
    low, high = subject.data.bounds
    only_if(not (bool(((first == low) | (first == high)).all())), "Its samples are clamped everywhere, as it begins.")
    classes = range(1, subject.data.num_classes)
    found = (
        f"sample(n, y) gives the same images for each of the {subject.data.num_classes} classes under equal generators."
    )
    require(not all(same(first, draw(k)) for k in classes), found)


@promise("models")
def energy_has_a_gradient(subject: ModelSubject) -> None:
    """dE/dx, or -d log p(x)/dx, exists, is finite, and is not zero everywhere.

    Leave out detach, no_grad, item and rounding on the way from x to the energy, and clamps or saturated layers;
    look for square roots and logarithms of 0, and for where().
    """
    _needs_energy(subject.model)
    for model in (subject.model, subject.shaken):
        with explained("The energy cannot be differentiated by the image"):
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
        raise DoesNotApply("It cannot be differentiated: see energy-has-a-gradient.") from error
    direction = _unit_length(_unit_length(gradient) + _unit_length(subject.images("direction") - subject.x))
    slopes = (gradient * direction).flatten(1).sum(dim=1)
    with torch.no_grad():
        differences = [_slopes(subject, model, step * direction) / step for step in STEPS]
    off = min(float((difference - slopes).norm()) for difference in differences)
    expected, found = float(slopes[0]), float(differences[2][0])
    message = f"Along a direction dE/dx is {expected:.3g} for the first image, and the energy changes by {found:.3g}."
    require(off <= AGREEMENT * float(slopes.norm()), message)


def _needs_energy(model: Any) -> Any:
    """The model, if it has energies or densities; skips the check otherwise."""
    if not has(model, "energy"):
        needs(model, "log_prob")
    return model


def _unit_length(direction: Tensor) -> Tensor:
    """Of length 1 for each image; zero stays zero."""
    length: Tensor = direction.flatten(1).norm(dim=1).clamp(min=1e-30)
    return direction / length.view(-1, 1, 1, 1)


def _slopes(subject: ModelSubject, model: Any, step: Tensor) -> Tensor:
    """Half of the change in energy from one side of each image to the other."""
    return (subject.energies(model, subject.x + step) - subject.energies(model, subject.x - step)) / 2
