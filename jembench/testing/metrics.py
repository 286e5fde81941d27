"""The checks of metrics, on a model known exactly."""

from __future__ import annotations

from jembench.testing.checks import Check, checks_of
from jembench.testing.metric_checks import conduct, measurement
from jembench.testing.metric_checks.subject import Subject

PROMISES = (*measurement.PROMISES, *conduct.PROMISES)
"""What every metric promises."""


def checks(spec: str) -> list[Check]:
    """All checks of the metric of that spec."""
    return checks_of("metrics", spec, PROMISES, Subject)
