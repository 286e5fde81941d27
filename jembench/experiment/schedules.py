"""Learning-rate schedules: factors of the learning rate by iteration. Imports no torch.

A schedule is a function of the iteration (from 0), the iterations per epoch and all iterations. A recipe multiplies
those of its fields and the one of ``schedule.name``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Schedule = Callable[[int, int, int], float]


def warmup(*, iterations: int) -> Schedule:
    """Linear warm-up: iteration i of W has i / W of the rate, the first one 0, as in the code of JEM and JEM++."""
    return lambda i, per_epoch, total: min(1.0, i / iterations) if iterations else 1.0


def steps(*, decay: float, epochs: str) -> Schedule:
    """A factor ``decay`` at each milestone; ``epochs`` lists them, "60,90,120"."""
    return milestones(decay, [float(epoch) for epoch in epochs.split(",") if epoch])


def milestones(decay: float, epochs: Sequence[float], *, warmup: int = 0) -> Schedule:
    """Return a schedule with a factor ``decay`` from each of ``epochs`` on, except those within the warm-up.

    In the code of JEM, JEM++ and SADA-JEM an iteration i <= W of a warm-up sets the rate after the milestone of its
    epoch, so that a decay at W or before has no effect.
    """
    end = warmup or -1
    return lambda i, per_epoch, total: float(decay ** sum(end / per_epoch < epoch <= i / per_epoch for epoch in epochs))


def linear(*, start: float = 0.0) -> Schedule:
    """Constant until the fraction ``start`` of the training, then linear decay to 0."""
    return lambda i, per_epoch, total: min(1.0, (1 - i / total) / (1 - start)) if start < 1 else 1.0


def cosine() -> Schedule:
    """Half a cosine, from 1 at the first iteration to 0 after the last."""
    return lambda i, per_epoch, total: (1 + math.cos(math.pi * i / total)) / 2
