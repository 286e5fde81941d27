"""Metrics of a training: how long an iteration takes, and whether it was stable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jembench.errors import NotApplicable
from jembench.interfaces import Capability
from jembench.metrics.base import Bootstrapped, Metric

if TYPE_CHECKING:
    from jembench.interfaces import Planned


@dataclass(frozen=True, kw_only=True)
class IterationTime(Bootstrapped):
    """Median seconds of a training iteration.

    The median of the logged windows' means, because a window in which the machine was busy with something else is an
    outlier upwards. The time is taken during training; where other processes were busy then, the value is marked.
    """

    name: ClassVar[str] = "iteration-time"
    computed_by: ClassVar[str] = "jembench.metrics.timing"
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def check(self, planned: Planned) -> None:
        """Whether there will be timings."""
        if planned.pretrained:
            raise NotApplicable(NO_TIMINGS)


NO_TIMINGS = "The model was trained elsewhere: no timings of its training are known."


@dataclass(frozen=True, kw_only=True)
class StabilityOfTraining(Metric):
    """Iterations before training diverged, and interventions of the guard.

    All iterations, if divergence was never seen. Both are of one training, so they have no interval. The details say at
    which iteration it was seen and how, how often each remedy was tried, and what training ended with. With
    ``guard.mode=watch`` the number is that of the recipe as it stands; with ``repair`` training goes on with other
    settings after the first divergence. Grathwohl et al. (2020), Appendices H.2 and H.3, compare samplers and
    regularisers by how stably they train.
    """

    name: ClassVar[str] = "stability"
    computed_by: ClassVar[str] = "jembench.metrics.stability"
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def check(self, planned: Planned) -> None:
        """Whether the training will be known."""
        if planned.pretrained:
            raise NotApplicable("The model was trained elsewhere: its training was not watched.")
