"""Metrics of trained models, and functions that compute them from one's own tensors (``jembench.metrics.ece``)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jembench.metrics.functional import (
        accuracy,
        adaptive_ece,
        auroc,
        brier,
        classwise_ece,
        ece,
        nll,
    )

__all__ = [
    "accuracy",
    "adaptive_ece",
    "auroc",
    "brier",
    "classwise_ece",
    "ece",
    "nll",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("jembench.metrics.functional"), name)
    raise AttributeError(f"module 'jembench.metrics' has no attribute {name!r}")
