"""Metrics of trained models, and functions that compute them from one's own tensors
(``jembench.metrics.ece``).
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
