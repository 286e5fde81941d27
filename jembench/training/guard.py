"""The guard against divergence: what it watches, and the ladder of remedies that it climbs.

A buffer sample whose energy lies far above that of a random start is the cause that Grathwohl et al. (2020, Appendix
H.3) name. Left alone, it throws the energies of data and samples thousands of nats apart within a few iterations. So
the guard looks, at the end of each window of iterations, at

- the loss: not finite, or beyond 1e8, where the reference implementation stops;
- the gap |mean E(data) - mean E(samples)| over the window, and three times it in any one iteration: it also grows
  where an energy penalty keeps the loss finite while the model has collapsed;
- the outliers: the highest energy of a sample, against the highest of as many random starts.

It takes one forward pass a window, and the host waits for the device only where it waits anyway.

Imports no torch: a fit's interventions are read by reports as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

from jembench.records import Fields
from jembench.training.recipe import Guard, Recipe, Remedy

LARGEST_LOSS = 1e8
"""A loss beyond it is divergence, as in the reference implementation (wgrathwohl/JEM)."""

SPIKE = 3
"""The gap of one batch may be so many times the limit on that of a window: it varies more."""

HIGHEST = "highest_sample"
"""The column of a window that holds the highest energy of a sample."""

HIGHEST_START = "highest_start"
"""The column that holds the highest energy of a random start."""

STEPS, RATE, ENERGY_L2 = 2, 0.3, 0.1
"""What the rungs do: so many times the sampling steps, the learning rate, and that weight of the energy penalty."""


class Intervention(NamedTuple):
    """One remedy that was applied: it stands in the fit's record and beside its results."""

    iteration: int  # at whose end the guard spoke
    reason: str
    returned_to: int  # the iteration of the state that training went back to
    remedy: Remedy

    def __str__(self) -> str:
        return f"at iteration {self.iteration} {self.reason}; back to {self.returned_to} with {_DONE[self.remedy]}"


def from_json(record: Fields) -> Intervention:
    """Read back ``_asdict`` of an intervention.

    Raises:
        DamagedError: if a field is missing or of the wrong type.
    """
    return Intervention(
        iteration=record.integer("iteration", least=0),
        reason=record.text("reason"),
        returned_to=record.integer("returned_to", least=0),
        remedy=record.choice("remedy", get_args(Remedy)),
    )


_DONE: Mapping[Remedy, str] = {
    "seed": "a new seed",
    "steps": f"{STEPS} times the sampling steps",
    "rate": f"{RATE} times the learning rate",
    "energy_l2": f"energy_l2 = {ENERGY_L2}",
}


class Adjustment(NamedTuple):
    """What all remedies so far come to."""

    seeds: int = 0  # how often randomness was begun anew
    steps: int = 1  # times the sampling steps
    rate: float = 1.0  # times the learning rate
    energy_l2: float = 0.0  # at least this weight


def adjustment(interventions: Sequence[Intervention]) -> Adjustment:
    """Remedies add up, and each one also begins randomness anew: the same numbers would lead to the same end."""
    remedies = [intervention.remedy for intervention in interventions]
    return Adjustment(
        seeds=len(remedies),
        steps=STEPS ** remedies.count("steps"),
        rate=RATE ** remedies.count("rate"),
        energy_l2=ENERGY_L2 if "energy_l2" in remedies else 0.0,
    )


def remedies(recipe: Recipe, *, chains: bool) -> tuple[Remedy, ...]:
    """The recipe's ladder, without the rungs that do nothing for a model that is trained without chains."""
    return tuple(remedy for remedy in recipe.guard.ladder if chains or remedy in ("seed", "rate"))


def verdict(rows: Sequence[Mapping[str, float]], highest_start: float | None, guard: Guard) -> str | None:
    """What is wrong with a window of iterations, in a few words; None if nothing is.

    Args:
        rows: the loss and its parts of each iteration.
        highest_start: the highest energy of a batch of random starts, now; None if the model has no chains.
        guard: the limits.
    """
    for row in rows:
        for name, value in row.items():
            if not abs(value) <= LARGEST_LOSS:  # also true of NaN
                return f"{name} was {value:.3g}"
    for prefix in ("", "joint_"):
        if f"{prefix}energy_data" in rows[0]:
            energies = [(row[f"{prefix}energy_data"], row[f"{prefix}energy_samples"]) for row in rows]
            mean = statistics.fmean(data for data, _ in energies), statistics.fmean(samples for _, samples in energies)
            for limit, (data, samples) in [(guard.gap, mean), *((SPIKE * guard.gap, pair) for pair in energies)]:
                if abs(data - samples) > limit:
                    return f"E(data) was {data:.1f} and E(samples) {samples:.1f}"
    highest = rows[-1].get(HIGHEST)
    if highest is not None and highest_start is not None and not highest - highest_start <= guard.outlier:
        return f"a sample had an energy of {highest:.1f}, and no random start above {highest_start:.1f}"
    return None
