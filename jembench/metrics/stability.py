"""Whether and when a training diverged, as the guard saw it.

Grathwohl et al. (2020), Appendices H.2 and H.3, compare samplers and regularisers by how stably they train. With
``guard.mode=watch`` the number is that of the recipe as it stands; with ``repair`` training goes on with other settings
after the first divergence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from jembench.errors import NotApplicable
from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Value
from jembench.metrics.protocol import protocol_id


@dataclass(frozen=True, kw_only=True, slots=True)
class StabilityOfTraining:
    """Iterations before divergence was first seen, all of them if it never was, and the number of interventions.

    Both are of one training, so they have no interval. The details say at which iteration it was seen and how, how
    often each remedy was tried, and what training ended with.
    """

    name: ClassVar[str] = "stability"
    requires: ClassVar[frozenset[Capability]] = frozenset()

    def check(self, planned: Planned) -> None:
        """Whether there will be a training to speak of."""
        if planned.pretrained:
            raise NotApplicable("The model was trained elsewhere: its training was not watched.")

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = evaluation.stability
        if found is None:
            raise NotApplicable(
                "The record of the training does not say whether it diverged: it ran with guard.mode=off, or an "
                "earlier version wrote it. Train again with guard.mode=watch, in another --store."
            )
        stable = found.iterations if found.diverged_at is None else found.diverged_at
        return Measurement(
            protocol=protocol_id(self.name, evaluation, criterion=found.criterion),
            values={
                "stable-iterations": Value(float(stable), None, None, found.iterations, "", "higher"),
                "interventions": Value(float(len(found.remedies)), None, None, found.iterations, "", "lower"),
            },
            details={
                "diverged-at": found.diverged_at,
                "reason": found.reason,
                "remedies": dict(Counter(found.remedies)),
                "ended-with": found.ended_with,
            },
        )
