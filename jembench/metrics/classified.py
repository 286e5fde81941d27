"""How a model classifies images: its class for each, and how sure it is.

Legend: N images, K classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from jembench.errors import Diverged
from jembench.metrics.selection import log_odds


class Classified(NamedTuple):
    """What a model says of each image."""

    predicted: NDArray[np.int64]  # (N,) the class of the largest logit
    confidence: NDArray[np.float64]  # (N,) its p(y|x)
    log_odds: NDArray[np.float64]  # (N,) log(p / (1 - p)) of the same, distinct even where p rounds to 1

    def arrays(self) -> dict[str, NDArray[np.int64] | NDArray[np.float64]]:
        """The same, as a metric keeps it."""
        return {"predicted": self.predicted, "confidence": self.confidence, "log-odds": self.log_odds}


def classified(logits: Float[Tensor, "N K"], what: str) -> Classified:
    """Read the logits, in float64; ``what`` they are of, for the error.

    Raises:
        Diverged: if a logit is not finite.
    """
    logits = logits.cpu().double()
    require_finite(logits, what)
    confidence = logits.softmax(dim=1).amax(dim=1)
    return Classified(logits.argmax(dim=1).numpy(), confidence.numpy(), log_odds(logits).numpy())


def require_finite(logits: Float[Tensor, "N K"], what: str) -> None:
    """Refuse logits of which some are not finite: what is made from the others would hide it.

    Raises:
        Diverged: with how many images' they are.
    """
    bad = int((~logits.isfinite()).any(dim=1).sum())
    if bad:
        raise Diverged(
            f"The logits of {bad} of {len(logits)} {what} are not finite (NaN or infinite): the model has diverged. "
            "Train it again with another seed or a lower learning rate."
        )
