"""Metrics as far as planning and reports can tell: their options. Nothing here computes anything."""

from typing import Literal


def ood(*, set: str, score: Literal["log-px", "max-py", "grad-norm"] = "log-px", images: int | None = None):
    """Whether a score tells test images from an OOD set."""


def inception(*, selection: Literal["none", "model"] = "none", top: float = 1.0, pooling: str = "one"):
    """A score of generated images."""
