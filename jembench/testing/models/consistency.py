"""Equations between the outputs of a model: energies, densities and classes.

    E(x) = -log p(x) + c,   E(x) = -logsumexp_y -E(x, y) + c,   p(y|x) = softmax_y -E(x, y) = softmax_y f(x)
    min_y log p(x|y) <= log p(x) <= max_y log p(x|y),   f(x)[y] - log p(x|y) = log p(y) + c(x)

whatever the proportions of the classes. Lower energy = likelier.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jembench.models import predictions
from jembench.models.energies import marginal_energy
from jembench.testing.checks import only_if, promise, require
from jembench.testing.models.subject import ModelSubject, close, distance, needs

TOLERANCE = 1e-4
"""Of equations between outputs, relative to the largest: float32 sums over pixels and classes."""


@promise("models")
def energy_is_minus_log_density(subject: ModelSubject) -> None:
    """Where there are both, energy(x) = -log_prob(x) + one constant.

    Lower energy = likelier: E(x) is -log p(x). Derive one from the other.
    """
    model = needs(subject.shaken, "energy", "log_prob")
    with torch.no_grad():
        energy, log_prob = model.energy(subject.x), model.log_prob(subject.x)
    worst = _variation(energy + log_prob)
    found = f"energy(x) + log_prob(x) varies by {worst:.2g} nats from image to image."
    require(worst <= TOLERANCE * _scale(energy, log_prob), found)


@promise("models")
def energy_sums_over_classes(subject: ModelSubject) -> None:
    """Where there is energy(x, y), energy(x) = -logsumexp over y of -energy(x, y), up to one constant.

    Energies are of one joint p(x, y): jembench.plugin.marginal_energy computes E(x) from the logits -E(x, y).
    """
    model = needs(subject.shaken, "energy")
    joint = subject.each_class("energy", model)
    with torch.no_grad():
        energy = model.energy(subject.x)
    worst = _variation(energy + (-joint).logsumexp(dim=1))
    found = f"energy(x) + logsumexp_y(-energy(x, y)) varies by {worst:.2g} nats from image to image."
    require(worst <= TOLERANCE * _scale(energy, joint), found)


@promise("models")
def energy_follows_from_logits(subject: ModelSubject) -> None:
    """Where the model says so, energy(x) is -logsumexp of logits(x): one is then computed from the other.

    Leave out the attribute energy_follows_from_logits, or return jembench.plugin.marginal_energy(logits).
    """
    model = needs(subject.shaken, "energy")
    only_if(
        bool(predictions.energy_follows_from_logits(model)), "It does not say that its energy follows from its logits."
    )
    with torch.no_grad():
        energy, expected = model.energy(subject.x), marginal_energy(model.logits(subject.x))
    found = f"energy(x) differs from -logsumexp(logits(x)) by {distance(energy, expected)}."
    require(close(energy, expected), found)


@promise("models")
def class_energies_agree_with_logits(subject: ModelSubject) -> None:
    """Where there are both, softmax over y of -energy(x, y) is softmax of logits(x).

    Lower energy = likelier: E(x, y) = -f(x)[y], up to what does not depend on y.
    """
    model = needs(subject.shaken, "logits", "energy")
    joint = subject.each_class("energy", model)
    with torch.no_grad():
        logits = model.logits(subject.x)
    ours, theirs = logits.softmax(dim=1), (-joint).softmax(dim=1)
    found = f"p(y|x) by softmax of logits and by softmax of -energy(x, y) differs by {distance(theirs, ours)}."
    require(close(theirs, ours, TOLERANCE), found)


@promise("models")
def class_densities_agree_with_logits(subject: ModelSubject) -> None:
    """Where there are both, logits(x) and log_prob(x, y) give the same p(y|x) by Bayes' rule, for some p(y).

    Return log p(x|y) + log p(y), or p(y|x) of the same joint density.
    """
    model = needs(subject.shaken, "logits", "log_prob")
    densities = subject.each_class("log_prob", model)
    with torch.no_grad():
        logits = model.logits(subject.x)
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
    needs(subject.shaken, "log_prob")
    only_if(bool(subject.takes_labels("log_prob")), "It has no log_prob(x, y).")
    require(lie_within_their_classes(subject), "log_prob(x) lies outside of log_prob(x, y) over all y.")


def lie_within_their_classes(subject: ModelSubject) -> bool:
    """Whether densities lie between those of the classes, if there are any."""
    if not subject.takes_labels("log_prob"):
        return True
    by_class = subject.each_class("log_prob", subject.shaken)
    with torch.no_grad():
        marginal = subject.shaken.log_prob(subject.x)
    slack = TOLERANCE * _scale(by_class)
    outside = (marginal < by_class.amin(dim=1) - slack) | (marginal > by_class.amax(dim=1) + slack)
    return not bool(outside.any())


def _variation(values: Tensor) -> float:
    return float((values - values.mean()).abs().max())


def _scale(*values: Tensor) -> float:
    return max(1.0, *(float(value.abs().max()) for value in values))
