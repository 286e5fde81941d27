"""The names of files of samples. Imports no torch."""

from jembench.catalog.registry import Resolved

FRESH_SAMPLES = 1000
"""The default number of new chains, and of images that a model draws directly."""


def drawn_name(n: int, steps: int, conditional: bool, sampler: Resolved | None) -> str:
    """Return the name of n new chains' stored ends.

    ``sampler`` is None for the sampler of training.
    """
    name = f"samples-{n}-{steps}-{conditional}"
    return f"{name}-{sampler.id}" if sampler else name
