"""The checks of samplers, on energies known exactly."""

from __future__ import annotations

from jembench.interfaces import DataSpec
from jembench.testing.checks import Check, checks_of
from jembench.testing.exact import DrawnImages, Mixture
from jembench.testing.sampler_checks import chains, independence, memory, randomness
from jembench.testing.sampler_checks.subject import Subject

PROMISES = (*chains.PROMISES, *independence.PROMISES, *randomness.PROMISES, *memory.PROMISES)
"""What every sampler promises."""


def checks(spec: str, data: DataSpec) -> list[Check]:
    """All checks of the sampler of that spec, made for that data."""
    train = DrawnImages(Mixture(data)).split("train")
    return checks_of("samplers", spec, PROMISES, lambda resolved: Subject(resolved, data, train))
