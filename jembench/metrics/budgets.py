"""How much an attack may cost, under a name. Imports no torch.

The numbers behind a name never change, since the name is part of what a result goes by: others get another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

BudgetName = Literal["paper", "quick"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What is spent on an attack; each number can be set by itself."""

    images: int
    restarts: int
    steps: int
    tolerance: float  # of the smallest eps, relative to it
    eot: int  # chains that a refined model's answer is the mean of
    queries: int  # of a decision-based attack, an image
    copies: int  # with noise, that certify an image

    def but(self, **numbers: Any) -> Budget:
        """The same with those numbers that are given."""
        return replace(self, **{name: number for name, number in numbers.items() if number is not None})


BUDGETS: Mapping[BudgetName, Budget] = {
    # Grathwohl et al. (2020), arXiv:1912.03263, Appendix G; it does not tell the tolerance and the queries.
    # copies: Cohen et al. (2019), section 4
    "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000, copies=100_000),
    # A look at all of it on a CPU in minutes: distances come out some percent larger, intervals wide.
    "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000, copies=1_000),
}
