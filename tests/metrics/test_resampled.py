"""Values from statistics that can be resampled."""

import numpy as np
import pytest

from jembench.interfaces import Resampling
from jembench.metrics.resampled import bootstrapped
from jembench.stats import mean_of


def value_of(observations):
    resampling = Resampling(mean_of(np.asarray(observations)), (len(observations),))
    return bootstrapped(resampling, np.random.default_rng(0), 200)


def test_an_interval_is_around_the_value():
    found = value_of([0.0, 1.0, 2.0, 3.0])
    assert found.low < found.value == 1.5 < found.high
    assert found.n == 4


@pytest.mark.parametrize("observations", [[2.0, 2.0, 2.0], [2.0]])
def test_resamples_that_agree_tell_nothing_of_an_interval(observations):
    assert value_of(observations)[:3] == (2.0, None, None)
