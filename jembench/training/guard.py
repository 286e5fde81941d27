"""The guard against divergence: what counts as divergence, and the remedies.

The cause of divergence that Grathwohl et al. (2020, Appendix H.3) name is a sample whose energy lies above that of a
random start. A chain begins at a random start and goes downhill, so that the samples of a working sampler do not lie
above random starts. The guard finds divergence at the end of a window of iterations in

- a value of the loss or its parts that is not finite, or beyond 1e8, where the reference implementation stops;
- a cross-entropy beyond ``LARGEST_CROSS_ENTROPY``: the energies explode, those of random starts with them;
- samples above the random starts: the mean sample lies more than ``MEAN_LIMIT`` times as far above the data as the mean
  random start does, or the highest sample of a batch more than ``HIGHEST_LIMIT`` times as far as the highest of as many
  random starts;
- samples below the data: the mean sample lies ``MEAN_LIMIT`` times that far below the data;
- chains that lost contact with the data: the mean sample was ``NEAR`` the data, above or below, in ``CONTACT`` windows
  or more, and then ``FAR`` above it in each of the last ``LOST`` windows, or in the last window of the training. The
  unit is the distance of the highest training image of a batch. A collapse under an energy penalty begins so, and a
  slow one in which the energies of random starts grow together with those of the samples. The last window of a training
  that was repaired is judged without former contact, for which the rest of the training may be too short.

A cross-entropy or a distance counts only if it is that large in the mean over the window and still in its last
iteration: one that has closed by itself needs no repair. Where a training image lies higher above the mean of the data
than the random starts do, as when chains start at Gaussians of the classes, it takes their place.

The distances are differences of energies that are compared with one another. Energies that are multiplied by a
positive number, or shifted by a constant, give the same answer, so that the limits suit every network. A collapse
whose loss an energy penalty keeps finite is found as well. A large gap between data and samples is no divergence by
itself: at the start of a healthy training the chains still are where they began, and random starts lie as far above
the data as the samples. They are judged by the data alone once they have been there.

The guard takes one forward pass a window, and the host waits for the device only where it waits anyway.

Imports no torch: reports read a fit's interventions as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jembench.experiment.recipe import Count, Recipe, Remedy

TRAINING = "training"
"""The name of a training's phase, of which the display tells where it began."""

CRITERION = "random-starts@4"
"""What counts as divergence, in records and protocols: its version changes with the limits below."""

LARGEST_LOSS = 1e8
"""A loss beyond it is divergence, as in the reference implementation (wgrathwohl/JEM)."""

LARGEST_CROSS_ENTROPY = 10.0
"""Nats. A uniform guess among 22,000 classes has as much; healthy windows on digits have 2.4 at most."""

MEAN_LIMIT, HIGHEST_LIMIT = 1.5, 3.0
"""How far samples may lie from the data, in distances of random starts from the data.

Chains that are stuck at their starts have 1. The highest of a batch varies more than its mean, above all at the start,
when the energies of a small network are all alike. ``benchmarks/results/2026-11-22-guard.md`` has the measured values.
"""

NEAR, FAR, CONTACT, LOST = 0.25, 0.75, 10, 5
"""Distances of the mean sample from the data, in distances of the highest training image; and numbers of windows.

In 60 healthy trainings on digits no window after ten windows ``NEAR`` the data was further than .5. With that limit for
``FAR``, repairs of fits a little above it made their calibration worse and their samples no better.
"""

HIGHEST = "highest_sample"
"""The column of a window that holds the highest energy of a sample."""

HIGHEST_DATA = "highest_data"
"""The column that holds the highest energy of a training image."""

HIGHEST_START, MEAN_START = "highest_start", "mean_start"
"""The columns that hold the highest and the mean energy of random starts."""

STEPS, RATE, ENERGY_L2 = 2, 0.3, 0.1
"""The rungs: the factors of the sampling steps and of the learning rate, and the weight of the energy penalty."""


class Divergence(NamedTuple):
    """When and how a training was found to have diverged."""

    iteration: int  # at whose end it was found
    reason: str

    def __str__(self) -> str:
        return f"at iteration {self.iteration} ({self.reason})"


class Intervention(NamedTuple):
    """One remedy that was applied: it stands in the fit's record and beside its results."""

    iteration: Count  # at whose end divergence was found
    reason: str
    returned_to: Count  # the iteration of the state that training went back to
    remedy: Remedy

    def __str__(self) -> str:
        found = Divergence(self.iteration, self.reason)
        return f"{found}: it went back to iteration {self.returned_to} with the remedy {self.remedy}"


def describe_event(values: Mapping[str, float | str]) -> str:
    """The values of a ``diverged`` event in words; numbers out of a file are floats."""
    found: dict[str, Any] = {name: int(each) if isinstance(each, float) else each for name, each in values.items()}
    if "remedy" in found:
        return f"diverged and was repaired {Intervention(**found)}"
    return f"diverged {Divergence(**found)}; it goes on unchanged, because the guard only watches"


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


def describe(adjustment: Adjustment, recipe: Recipe, sampling_steps: int) -> str:
    """What remedies made different from the recipe, in words: "20 sampling steps, 0.3 times the learning rate"."""
    differences = {
        f"{sampling_steps} sampling steps": adjustment.steps > 1,
        f"{adjustment.rate:.3g} times the learning rate": adjustment.rate < 1,
        f"energy_l2 = {adjustment.energy_l2}": adjustment.energy_l2 > recipe.energy_l2,
    }
    return ", ".join(text for text, differs in differences.items() if differs)


def remedies(recipe: Recipe, *, chains: bool) -> tuple[Remedy, ...]:
    """The remedies that may be tried: without chains only those that act there; none if nothing is to be repaired."""
    ladder = recipe.guard.ladder if recipe.guard.mode == "repair" else ()
    return tuple(remedy for remedy in ladder if chains or remedy in ("seed", "rate"))


class Starts(NamedTuple):
    """The energies of a batch of random starts."""

    highest: float
    mean: float


def verdict(rows: Sequence[Mapping[str, float]], starts: Starts | None) -> str | None:
    """Return what is wrong with a window of iterations, in a few words; None if nothing is.

    Args:
        rows: the loss, its parts, and the highest energies of samples and data, of each iteration.
        starts: random starts after the last iteration; None: the energies are not to be judged.
    """
    for row in rows:
        for name, value in row.items():
            if not abs(value) <= LARGEST_LOSS:  # also true of NaN
                return f"{name} was {value:.3g}"
    surprise = _lasting([row.get("cross_entropy", 0.0) for row in rows])
    if surprise > LARGEST_CROSS_ENTROPY:
        return f"the cross-entropy was {surprise:.3g} nats"
    prefix = "" if "energy_data" in rows[0] else "joint_"
    if starts is None or not rows[0].keys() >= {f"{prefix}energy_data", HIGHEST, HIGHEST_DATA}:
        return None
    if not all(map(math.isfinite, starts)):
        return f"the energy of a random start was {starts.highest:.3g}"
    return _misplaced(rows, starts, f"{prefix}energy_data", f"{prefix}energy_samples")


def _misplaced(rows: Sequence[Mapping[str, float]], starts: Starts, data: str, samples: str) -> str | None:
    """Whether samples lie too far from the data; ``data`` and ``samples`` are the columns of their mean energies."""
    image = max(row[HIGHEST_DATA] - row[data] for row in rows)
    highest_start, mean_start = (max(start - rows[-1][data], image) for start in starts)
    highest = _lasting([row[HIGHEST] - row[data] for row in rows])
    above = _lasting([row[samples] - row[data] for row in rows])
    below = _lasting([row[data] - row[samples] for row in rows])
    if highest > HIGHEST_LIMIT * highest_start > 0:
        found = f"the highest sample lay {highest:.3g} above the data in energy"
        return f"{found}, the highest random start {highest_start:.3g}"
    if above > MEAN_LIMIT * mean_start > 0:
        return f"samples lay {above:.3g} above the data in energy, random starts {mean_start:.3g}"
    if below > MEAN_LIMIT * mean_start > 0:
        return f"samples lay {below:.3g} below the data in energy, random starts {mean_start:.3g} above"
    return None


def lost_contact(history: Sequence[Mapping[str, float]], *, ended: bool = False) -> str | None:
    """Return in a few words how chains left the data that they had been near, or None if they have not left it.

    Args:
        history: the logged windows, each with the means over its iterations.
        ended: whether the last window is the last of the training.
    """
    distances = _distances(history)
    last = distances[-1 if ended else -LOST :]
    judged = _near(distances) >= CONTACT or (ended and _repaired(history))
    if not judged or len(last) < (1 if ended else LOST) or min(last) < FAR:
        return None
    windows = "the last window" if ended else f"{LOST} windows"
    return f"samples lay above the data for {windows}, by {last[-1]:.2g} times as much as the highest training image"


def is_doubtful(history: Sequence[Mapping[str, float]]) -> bool:
    """Return whether chains that had been near the data lie above it in the last window: a state not to go back to.

    After an intervention one window near the data is enough, since training may go back from its last window.
    """
    distances = _distances(history)
    return _near(distances) >= (1 if _repaired(history) else CONTACT) and distances[-1] >= NEAR


def _near(distances: Sequence[float]) -> int:
    return sum(abs(distance) < NEAR for distance in distances)


def _repaired(history: Sequence[Mapping[str, float]]) -> bool:
    return bool(history) and history[-1].get("attempt", 0) > 0


def _distances(history: Sequence[Mapping[str, float]]) -> list[float]:
    """Return how far the mean sample lay above the data in each window that led to the last one, see ``NEAR``."""
    prefix = "joint_" if history and "joint_energy_data" in history[0] else ""
    data, samples = f"{prefix}energy_data", f"{prefix}energy_samples"
    path: list[Mapping[str, float]] = []
    for row in history:
        while path and path[-1]["iteration"] >= row["iteration"]:  # training went back from there
            path.pop()
        path.append(row)
    rows = [row for row in path if row.keys() >= {data, samples, HIGHEST_DATA}]
    spreads = [row[HIGHEST_DATA] - row[data] for row in rows]
    return [
        (row[samples] - row[data]) / spread if spread > 0 else 0.0 for row, spread in zip(rows, spreads, strict=True)
    ]


def _lasting(distances: Sequence[float]) -> float:
    """The distance of a window that was there in the mean and still is in the last iteration."""
    return min(statistics.fmean(distances), distances[-1])
