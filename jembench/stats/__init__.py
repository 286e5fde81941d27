"""Intervals, paired tests and rankings. Every number of a report goes through here."""

from jembench.stats.intervals import (
    Indices,
    Interval,
    Statistic,
    bootstrap_interval,
    interval_of,
    mean_of,
    multiplicities,
    wilson,
)

__all__ = [
    "Indices",
    "Interval",
    "Statistic",
    "bootstrap_interval",
    "interval_of",
    "mean_of",
    "multiplicities",
    "wilson",
]
