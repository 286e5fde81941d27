"""Temperature scaling: the one number that makes a classifier's confidence fit, and changes none of its answers.

Legend: N examples, K classes.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from jembench.errors import NotApplicable

LOWEST, HIGHEST = 0.01, 100.0
"""Between these a temperature is looked for."""


def fit_temperature(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> float:
    """The T in [.01, 100] for which logits / T give the lowest mean NLL.

    The NLL is convex in 1 / T, so its derivative, mean of (E_p[f] - f_y) with p = softmax(f / T), has one root at most.

    Raises:
        NotApplicable: if it has none there. Where all examples are classified right, for one, less temperature is
            always likelier; the infinite confidence that would follow is the examples' fault and not the model's merit.
    """
    from scipy.optimize import brentq

    # Relative to the label's logit: then no rounding hides that where all examples are right every term is negative.
    margins = logits.double() - logits.double().gather(1, labels[:, None])

    def slope(inverse: float) -> float:
        return float(((margins * inverse).softmax(dim=1) * margins).sum(dim=1).mean())

    if slope(1 / LOWEST) <= 0 or slope(1 / HIGHEST) >= 0:
        right = int((logits.argmax(dim=1) == labels).sum())
        raise NotApplicable(
            f"No temperature between {LOWEST} and {HIGHEST:g} is the likeliest one for the {len(labels)} validation "
            f"images, of which {right} are classified right. Train the model with more than these held out "
            "(--set data.validation=...)."
        )
    return 1 / float(brentq(slope, 1 / HIGHEST, 1 / LOWEST, xtol=1e-12))
