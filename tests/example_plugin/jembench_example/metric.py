"""A metric that needs logits alone."""

from __future__ import annotations

from jembench.interfaces import Capability, Evaluation, Measurement, Value


class Confidence:
    """The mean of max_y p(y|x) over the test images; neither high nor low is good in itself."""

    name = "confidence"
    requires: frozenset[Capability] = frozenset({"logits"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """In %, without an interval."""
        confidences = evaluation.predictions.read("logits").softmax(dim=1).amax(dim=1)  # (N,)
        value = Value(100 * confidences.mean().item(), None, None, len(confidences), "%")
        return Measurement(
            protocol=f"confidence:data={evaluation.data.spec.name},images={len(confidences)}",
            values={"confidence": value},
            arrays={"confidence": confidences.numpy()},
        )
