"""Values as statistics of images: shares in %, numbers of classes, and their intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import entropy

from jembench.metrics.base import mean, share, value_of
from jembench.metrics.log_density import among_highest, effective_classes
from jembench.stats.intervals import wilson

RNG = np.random.default_rng(0)


@given(arrays(np.int64, st.integers(1, 30), elements=st.integers(0, 7)))
def test_the_effective_number_of_classes_is_exp_of_the_entropy(classes):
    (number,) = effective_classes(classes, 8).resampling.statistic(np.arange(len(classes))[None])
    assert number == pytest.approx(np.exp(entropy(np.bincount(classes))), abs=1e-12)


def test_a_share_is_in_percent_with_wilsons_interval():
    flags = np.arange(40) < 30
    estimate, (low, high) = share(flags, "higher"), wilson(30, 40)
    assert value_of(estimate, RNG, 0) == pytest.approx(
        (75.0, 100 * low, 100 * high, 40, "%", "higher")
    )
    drawn = np.array([np.arange(40), np.zeros(40, int)])
    assert estimate.resampling.statistic(drawn).tolist() == [75, 100]


@given(
    scores=arrays(np.int64, st.integers(1, 12), elements=st.integers(0, 5)),
    n=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_the_highest_of_each_resample(scores, n, seed):
    n = min(n, len(scores))
    order = np.argsort(-scores, kind="stable")
    indices = np.random.default_rng(seed).integers(len(scores), size=(5, len(scores)))
    means = among_highest(mean(scores), order, n).resampling.statistic(indices)
    assert means == pytest.approx([np.mean(sorted(scores[row])[-n:]) for row in indices])


def test_a_bootstrapped_value_is_the_statistic_of_all():
    estimate = effective_classes(np.repeat([0, 1, 2], [50, 30, 20]), 4)._replace(
        unit="classes", n=7
    )
    value = value_of(estimate, np.random.default_rng(0), 500)
    assert value.value == pytest.approx(np.exp(entropy([5, 3, 2])))
    assert 1 < value.low < value.value < value.high < 4
    assert (value.n, value.unit) == (7, "classes")
    assert value_of(estimate._replace(n=None), RNG, 0)[1:4] == (None, None, 100)


@pytest.mark.parametrize("observations", [[2.0, 2.0, 2.0], [2.0]])
def test_resamples_that_agree_tell_nothing_of_an_interval(observations):
    assert value_of(mean(np.array(observations)), RNG, 200)[:3] == (2.0, None, None)
