"""The guard against divergence: what counts as divergence, and the remedies.

The cause of divergence that Grathwohl et al. (2020, Appendix H.3) name is a sample whose energy
lies above the energy of a random start. A chain begins at a random start and goes downhill, so that
the samples of a working sampler do not lie above random starts. The guard finds divergence at the
end of a window of iterations in

- a value of the loss or its parts that is not finite, or beyond 1e8, where the reference
  implementation stops;
- a cross-entropy beyond ``LARGEST_CROSS_ENTROPY``: the energies explode, and with them the energies
  of random starts;
- samples above the random starts: the mean sample lies more than ``MEAN_LIMIT`` times as far above
  the data as the mean random start does, or the highest sample of a batch more than
  ``HIGHEST_LIMIT`` times as far as the highest of as many random starts;
- samples below the data: the mean sample lies ``MEAN_LIMIT`` times as far below the data as random
  starts lie above;
- chains that lost contact with the data: the mean sample was ``NEAR`` the data, above or below, in
  ``CONTACT`` windows or more, and then ``FAR`` above it in each of the last ``LOST`` windows, or in
  the last window of the training. The unit is the distance of the highest training image of a
  batch. A collapse under an energy penalty begins so, and a slow one in which the energies of
  random starts grow together with the energies of the samples. The last window of a training that
  was repaired is judged without earlier contact, since the rest of the training may be too short
  for it;
- samples of a generator, which has no random starts: the mean sample lies above the highest
  training image of a batch, or as far below the data, in each of ``LOST`` windows, or above it in
  the last window of the training. A training of fewer windows is not judged;
- energies without information: all images and samples have the same energy.

A cross-entropy or a distance counts only if it is that large both in the mean over the window and
in the window's last iteration, so that a short rise causes no repair. Where a training image lies
higher above the mean of the data than the random starts do, as when chains start at Gaussians of
the classes, the image takes the starts' place.

The distances are differences of energies that are compared with one another. A shift of the
energies or a positive factor does not change the result, so that the limits suit every network. A
collapse whose loss an energy penalty keeps finite is found too. A large gap between data and
samples is no divergence by itself: at the start of a healthy training the chains are still where
they began, and random starts lie as far above the data as the samples. Contact with the data is
required only of chains that have had contact before.

The guard takes one forward pass a window, and the host waits for the device only where it waits
anyway.

Imports no torch: reports read a fit's interventions too.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jembench.experiment.recipe import Count, Recipe, Remedy

TRAINING = "training"
"""The name of the phase of a training in events and on the display."""

CRITERION, GENERATED = "random-starts@5", "highest-image@1"
"""The names of the criterion in records and protocols, for chains and for samples that no chain
drew.

The versions after ``@`` change with the limits below.
"""

LARGEST_LOSS = 1e8
"""A loss beyond this value is divergence, as in the reference implementation (wgrathwohl/JEM)."""

LARGEST_CROSS_ENTROPY = 10.0
"""In nats: a uniform guess among 22,000 classes has this cross-entropy. Healthy windows on digits
have at most 2.4.
"""

MEAN_LIMIT, HIGHEST_LIMIT = 1.5, 3.0
"""The largest distance of samples from the data, in units of the distance of random starts from the
data.

Chains that are stuck at their starts have a distance of 1. The highest sample of a batch varies
more than the mean, above all at the start, when the energies of a small network hardly differ.
``benchmarks/results/2026-11-22-guard.md`` has the measured values.
"""

NEAR, FAR, CONTACT, LOST = 0.25, 0.75, 10, 5
"""Distances of the mean sample from the data, in units of the highest training image's distance;
and numbers of windows.

In 60 healthy trainings on digits no window after ten windows ``NEAR`` the data was further than .5.
With .5 for ``FAR``, repairs of fits a little above .5 made calibration worse and samples no better.
"""

OUTSIDE = 1.0
"""The distance, in the same unit, at which a generator's samples count as diverged: in ``LOST``
windows, or above the data in the last window.

In healthy trainings of VERA on digits no window after the first was further above the data than
.33, and two of the first windows lay further below it. ``benchmarks/results/2026-11-28-door.md``
has the measured values.
"""

ROUNDING = 2**-21
"""The largest difference of energies that count as equal, relative to their size: four times the
step of float32.
"""

HIGHEST = "highest_sample"
"""The column of a window that holds the highest energy of a sample."""

HIGHEST_DATA = "highest_data"
"""The column that holds the highest energy of a training image."""

HIGHEST_START = "highest_start"
"""The column that holds the highest energy of random starts."""

STEPS, RATE, ENERGY_L2 = 2, 0.3, 0.1
"""The remedies' factor of the sampling steps, factor of the learning rate, and weight of the energy
penalty.
"""


class Divergence(NamedTuple):
    """The iteration of a divergence, and the reason."""

    iteration: int  # at whose end it was found
    reason: str

    def __str__(self) -> str:
        return f"at iteration {self.iteration} ({self.reason})"


class Intervention(NamedTuple):
    """A remedy that was applied.

    It is part of the fit's record and shown beside the fit's results.
    """

    iteration: Count  # at whose end divergence was found
    reason: str
    returned_to: Count  # the iteration of the state that training went back to
    remedy: Remedy

    def __str__(self) -> str:
        divergence = Divergence(self.iteration, self.reason)
        return (
            f"{divergence}: it went back to iteration {self.returned_to} with the remedy "
            f"{self.remedy}"
        )


class Adjustment(NamedTuple):
    """The combined effect of all remedies so far."""

    seeds: int = 0  # number of times that the random streams were reset
    steps: int = 1  # factor of the sampling steps
    rate: float = 1.0  # factor of the learning rate
    energy_l2: float = 0.0  # smallest weight of the energy penalty


def adjustment(interventions: Sequence[Intervention]) -> Adjustment:
    """Return the combined effect of interventions.

    Each of them also resets the random streams.
    """
    remedies = [intervention.remedy for intervention in interventions]
    return Adjustment(
        seeds=len(remedies),
        steps=STEPS ** remedies.count("steps"),
        rate=RATE ** remedies.count("rate"),
        energy_l2=ENERGY_L2 if "energy_l2" in remedies else 0.0,
    )


def describe(adjustment: Adjustment, recipe: Recipe, sampling_steps: int) -> str:
    """Describe the differences from the recipe in words.

    An example is "20 sampling steps, 0.3 times the learning rate".
    """
    differences = {
        f"{sampling_steps} sampling steps": adjustment.steps > 1,
        f"{adjustment.rate:.3g} times the learning rate": adjustment.rate < 1,
        f"energy_l2 = {adjustment.energy_l2}": adjustment.energy_l2 > recipe.energy_l2,
    }
    return ", ".join(text for text, differs in differences.items() if differs)


def remedies(recipe: Recipe, *, chains: bool) -> tuple[Remedy, ...]:
    """Return the remedies to try in turn.

    There are none if the guard only watches, and none that change chains without ``chains``.
    """
    if recipe.guard.mode != "repair":
        return ()
    return tuple(remedy for remedy in recipe.guard.ladder if chains or remedy in ("seed", "rate"))


class Starts(NamedTuple):
    """The energies of a batch of random starts."""

    highest: float
    mean: float


def verdict(rows: Sequence[Mapping[str, float]], starts: Starts | None) -> str | None:
    """Return why a window of iterations has diverged, or None.

    The reason has a few words.

    Args:
        rows: the loss, its parts, and the highest energies of samples and data, of each iteration.
        starts: random starts after the last iteration; None: the energies are not judged.
    """
    for row in rows:
        for name, value in row.items():
            if not abs(value) <= LARGEST_LOSS:  # also true of NaN
                return f"{name} was {value:.3g}"
    surprise = _lasting([row.get("cross_entropy", 0.0) for row in rows])
    if surprise > LARGEST_CROSS_ENTROPY:
        return f"the cross-entropy was {surprise:.3g} nats"
    prefix = _prefix(rows[0])
    if starts is None or not rows[0].keys() >= _columns(rows[0]) | {HIGHEST}:
        return None
    if not all(map(math.isfinite, starts)):
        return f"the energy of a random start was {starts.highest:.3g}"
    return _misplaced(rows, starts, f"{prefix}energy_data", f"{prefix}energy_samples")


def _prefix(row: Mapping[str, float]) -> str:
    """Return the column prefix of the chains' energy, E(x, y) or E(x)."""
    return "joint_" if "joint_energy_data" in row else ""


def _misplaced(
    rows: Sequence[Mapping[str, float]], starts: Starts, data: str, samples: str
) -> str | None:
    """Return the reason if samples lie too far from the data.

    ``data`` and ``samples`` name the columns of mean energies.
    """
    image = max(row[HIGHEST_DATA] - row[data] for row in rows)
    highest_start = max(starts.highest - rows[-1][data], image)
    mean_start = max(starts.mean - rows[-1][data], image)
    highest = _lasting([row[HIGHEST] - row[data] for row in rows])
    distances = [row[samples] - row[data] for row in rows]
    above, below = _lasting(distances), _lasting([-distance for distance in distances])
    if highest > HIGHEST_LIMIT * highest_start > 0:
        sample = f"the highest sample lay {highest:.3g} above the data in energy"
        return f"{sample}, the highest random start {highest_start:.3g}"
    if above > MEAN_LIMIT * mean_start > 0:
        return f"samples lay {above:.3g} above the data in energy, random starts {mean_start:.3g}"
    if below > MEAN_LIMIT * mean_start > 0:
        return (
            f"samples lay {below:.3g} below the data in energy, random starts {mean_start:.3g} "
            "above"
        )
    return None


def lost_contact(
    history: Sequence[Mapping[str, float]], *, ended: bool = False, chains: bool = True
) -> str | None:
    """Return the reason if samples left the data, or None.

    Args:
        history: the logged windows, each with the means over its iterations.
        ended: whether the last window is the last of the training.
        chains: whether the samples are those of chains, which must have been near the data before.
    """
    rows = _path(history)
    if rows and _is_flat(rows[-1]) and not all(map(_is_flat, rows)):
        return f"all images and samples had the energy {rows[-1][HIGHEST_DATA]:.3g}"
    distances = _distances(history, chains=chains)
    limit, judged = OUTSIDE, len(distances) >= LOST
    if chains:
        limit, judged = FAR, _near(distances) >= CONTACT or (ended and _repaired(history))
    if not judged or not distances:
        return None
    last, windows = distances[-LOST:], f"{LOST} windows"
    if ended:
        last, windows = distances[-1:], "the last window"
    much = f"by {abs(last[-1]):.2g} times as much as the highest training image"
    if min(last) >= limit:
        return f"samples lay above the data for {windows}, {much}"
    if not chains and max(distances[-LOST:]) <= -limit:
        return f"samples lay below the data for {LOST} windows, {much}"
    return None


def is_doubtful(history: Sequence[Mapping[str, float]], *, chains: bool = True) -> bool:
    """Return whether samples lie above the data in the last window.

    Chains must have been near the data before.

    Training does not go back to such a state. After an intervention one window near the data is
    enough, since training may go back from its last window.
    """
    distances = _distances(history, chains=chains)
    contact = 0
    if chains:
        contact = 1 if _repaired(history) else CONTACT
    return bool(distances) and _near(distances) >= contact and distances[-1] >= NEAR


def is_judged(history: Sequence[Mapping[str, float]], *, chains: bool) -> bool:
    """Return whether enough windows reported energies that differ.

    ``chains`` is the same as for :func:`lost_contact`.
    """
    telling = [row for row in _path(history) if not _is_flat(row)]
    return len(telling) >= (1 if chains else LOST)


def _near(distances: Sequence[float]) -> int:
    return sum(abs(distance) < NEAR for distance in distances)


def _repaired(history: Sequence[Mapping[str, float]]) -> bool:
    return bool(history) and history[-1].get("attempt", 0) > 0


def _distances(history: Sequence[Mapping[str, float]], *, chains: bool) -> list[float]:
    """Return each window's distance of the mean sample above the data.

    The unit is that of ``NEAR``.

    Where all training images have the same energy, the distance is 0 for chains, and infinite for a
    generator whose samples have another energy.
    """
    distances = []
    for row in _path(history):
        data = row[f"{_prefix(row)}energy_data"]
        gap, spread = row[f"{_prefix(row)}energy_samples"] - data, row[HIGHEST_DATA] - data
        distance = 0.0
        if spread > 0:
            distance = gap / spread
        elif not (chains or _is_flat(row)):
            distance = math.copysign(math.inf, gap)
        distances.append(distance)
    return distances


def _path(history: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Return the windows with energies, without those that training went back from."""
    path: list[Mapping[str, float]] = []
    for row in history:
        while path and path[-1]["iteration"] >= row["iteration"]:
            path.pop()
        path.append(row)
    return [row for row in path if row.keys() >= _columns(row)]


def _columns(row: Mapping[str, float]) -> set[str]:
    """Return the names of the judged columns of energies."""
    return {f"{_prefix(row)}energy_data", f"{_prefix(row)}energy_samples", HIGHEST_DATA}


def _is_flat(row: Mapping[str, float]) -> bool:
    """Return whether images and samples have the same energy."""
    energies = [row[name] for name in (*_columns(row), HIGHEST) if name in row]
    largest = max(map(abs, energies))
    return max(energies) - min(energies) <= ROUNDING * largest


def _lasting(distances: Sequence[float]) -> float:
    """Return the smaller of a window's mean distance and its last distance."""
    return min(statistics.fmean(distances), distances[-1])
