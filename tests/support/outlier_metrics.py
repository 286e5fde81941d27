"""Metrics as far as planning and reports can tell: their options; and a score for
out-of-distribution detection.
"""

from typing import Literal

from jembench.plugin import PredictionScore


def ood(
    *,
    set: str,
    score: Literal["log-px", "max-py", "grad-norm"] = "log-px",
    images: int | None = None,
):
    """The metric by which a score tells test images from an OOD set."""


def inception(
    *, selection: Literal["none", "model"] = "none", top: float = 1.0, pooling: str = "one"
):
    """A score of generated images."""


def shifted_energy(*, by: float = 0.0):
    """A user's score: minus the energy, and a constant."""
    return PredictionScore("energy", "energy", lambda energy: by - energy)
