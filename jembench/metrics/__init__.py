"""Metrics of trained models, and functions that compute them from tensors.

``jembench.metrics.ece`` is such a function.
"""

from jembench.metrics.functional import (
    accuracy,
    adaptive_ece,
    auroc,
    brier,
    classwise_ece,
    ece,
    nll,
)

__all__ = ["accuracy", "adaptive_ece", "auroc", "brier", "classwise_ece", "ece", "nll"]
