"""Intervals, paired tests and rank statistics of all results."""

from jembench.stats.intervals import Indices as Indices
from jembench.stats.intervals import Interval as Interval
from jembench.stats.intervals import Statistic as Statistic
from jembench.stats.intervals import bootstrap_interval as bootstrap_interval
from jembench.stats.intervals import mean_of as mean_of
from jembench.stats.intervals import multiplicities as multiplicities
from jembench.stats.intervals import wilson as wilson
