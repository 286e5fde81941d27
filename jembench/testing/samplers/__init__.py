"""Promises of samplers. Importing the modules registers their checks, in this order."""

from jembench.testing.samplers import chains, randomness, memory  # noqa: F401, I001
from jembench.testing.samplers.subject import SamplerSubject as SamplerSubject
