"""Promises of metrics. Importing the modules registers their checks, in this order."""

from jembench.testing.metrics import measurement, conduct  # noqa: F401, I001
from jembench.testing.metrics.subject import MetricSubject as MetricSubject
