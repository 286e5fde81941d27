"""A metric that needs logits alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jembench.interfaces import Evaluation, Need
from jembench.plugin import Estimate, Metric, mean


@dataclass(frozen=True, kw_only=True)
class Confidence(Metric):
    """Mean probability of the predicted class, in %; neither high nor low is good in itself."""

    name: ClassVar[str] = "confidence"
    requires: ClassVar[frozenset[Need]] = frozenset({"logits"})

    def arrays(self, evaluation: Evaluation) -> dict[str, Any]:
        """Return the confidence of each test image."""
        return {
            "confidence": evaluation.predictions.read("logits").softmax(dim=1).amax(dim=1).numpy()
        }

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return the mean."""
        return {"confidence": mean(100 * arrays["confidence"], "%", within=(0.0, 100.0))}
