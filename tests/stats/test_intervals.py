from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from jembench.interfaces import Resampling
from jembench.stats import intervals
from jembench.stats.intervals import (
    bootstrap_interval,
    multiplicities,
    score_interval,
    score_p,
    wilson,
)


def mean_of(values):
    return lambda indices: values[indices].mean(axis=1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(
    st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.sampled_from([0.9, 0.95]),
)
def test_wilson_agrees_with_scipy_and_contains_the_proportion(case, level):
    successes, n = case
    expected = scipy.stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    interval = wilson(successes, n, level)
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= interval.low <= successes / n <= interval.high <= 1


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_what_is_no_proportion(successes, n):
    with pytest.raises(ValueError, match="successes of"):
        wilson(successes, n)


def test_the_interval_of_a_mean_agrees_with_scipy():
    sample = rng().exponential(size=80)
    expected = scipy.stats.bootstrap(
        (sample,), np.mean, n_resamples=20_000, method="percentile", rng=rng(1)
    )
    low, high = bootstrap_interval(
        sample.mean(), Resampling(mean_of(sample), (80,)), rng=rng(2), resamples=20_000
    )
    width = high - low
    assert low == pytest.approx(expected.confidence_interval.low, abs=0.03 * width)
    assert high == pytest.approx(expected.confidence_interval.high, abs=0.03 * width)


def test_the_interval_of_a_difference_of_two_means_agrees_with_scipy():
    first, second = rng().normal(1, 2, size=60), rng(1).normal(0, 1, size=90)
    expected = scipy.stats.bootstrap(
        (first, second),
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        rng=rng(2),
    ).confidence_interval
    a, b = mean_of(first), mean_of(second)
    low, high = bootstrap_interval(
        first.mean() - second.mean(),
        Resampling(lambda i, j: a(i) - b(j), (60, 90)),
        rng=rng(3),
        resamples=20_000,
    )
    width = high - low
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.03 * width)


def test_intervals_of_a_mean_cover_it_as_often_as_they_say():
    data = rng().normal(size=(600, 50))
    streams = rng(1).spawn(len(data))
    covered = 0
    for sample, stream in zip(data, streams, strict=True):
        low, high = bootstrap_interval(
            sample.mean(), Resampling(mean_of(sample), (50,)), rng=stream, resamples=400
        )
        covered += low <= 0 <= high
    # 95 % nominal; a bootstrap of 50 observations has about 94 %, and 600 trials a standard error
    # of 1 %.
    assert 0.91 < covered / len(data) < 0.97


def test_the_interval_contains_an_estimate_that_every_resample_misses():
    """The number of distinct values: a resample always has fewer."""
    n = 100

    def distinct(indices):
        return (multiplicities(indices, n) > 0).sum(axis=1)

    assert distinct(rng().integers(n, size=(500, n))).max() < n
    low, high = bootstrap_interval(float(n), Resampling(distinct, (n,)), rng=rng(), resamples=500)
    assert low < n < high


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12), st.integers(0, 2**32))
def test_the_interval_of_a_median_always_contains_it(values, seed):
    sample = np.array(values)
    median = float(np.median(sample))
    bounds = bootstrap_interval(
        median,
        Resampling(lambda i: np.median(sample[i], axis=1), (len(sample),)),
        rng=rng(seed),
        resamples=50,
    )
    assert bounds is None or bounds.low <= median <= bounds.high


def test_the_interval_is_clipped_to_the_range():
    sample = np.array([0.0, 0.0, 0.0, 1.0])
    interval = bootstrap_interval(0.25, Resampling(mean_of(sample), (4,), (0.0, 0.3)), rng=rng())
    assert interval == (0, 0.3)


def test_the_same_generator_gives_the_same_interval_however_the_resamples_are_cut(monkeypatch):
    first, second = rng().normal(size=31), rng(1).normal(size=17)

    def interval(seed):
        return bootstrap_interval(
            first.mean() - second.mean(),
            Resampling(lambda i, j: first[i].mean(axis=1) - second[j].mean(axis=1), (31, 17)),
            rng=rng(seed),
            resamples=101,
        )

    whole, shifted = interval(5), interval(6)
    monkeypatch.setattr(intervals, "_CHUNK_ELEMENTS", 7 * (31 + 17) + 1)
    assert interval(5) == whole != shifted


def test_clipping_never_puts_the_estimate_outside():
    below = np.array([-2e-12, 0.0])
    interval = bootstrap_interval(-1e-12, Resampling(mean_of(below), (2,), (0.0, 1.0)), rng=rng())
    assert interval.low <= -1e-12 <= interval.high


@pytest.mark.parametrize("constant", [0.0, 0.1, 97.7])
def test_resamples_that_all_agree_give_no_interval(constant):
    assert (
        bootstrap_interval(constant, Resampling(mean_of(np.full(7, constant)), (7,)), rng=rng())
        is None
    )


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_with_the_binomial_deviation_the_score_interval_is_wilson_s(case):
    successes, n = case
    share = successes / n
    expected = scipy.stats.binomtest(successes, n).proportion_ci(method="wilson")
    bounds = score_interval(share, (share * (1 - share) / n) ** 0.5, n)
    assert bounds == pytest.approx((expected.low, expected.high), abs=1e-12)
    in_percent = score_interval(
        100 * share, 100 * (share * (1 - share) / n) ** 0.5, n, within=(0.0, 100.0)
    )
    assert in_percent == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-9)


@given(
    st.integers(2, 2000),
    st.floats(0, 1),
    st.floats(0, 0.5),
    st.floats(0, 1),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-50.0, 50.0)]),
)
def test_the_p_value_is_that_of_the_score_interval_which_ends_at_the_null(
    n, share, sd, end, within
):
    lowest, width = within[0], within[1] - within[0]
    value, null = lowest + share * width, lowest + end * width
    p = score_p(value, sd * width, n, null, within)
    assert 0 <= p <= 1
    if 1e-9 < p < 1 - 1e-6:
        low, high = score_interval(value, sd * width, n, 1 - p, within)
        assert min(abs(null - low), abs(null - high)) <= 1e-6 * width


def test_the_end_of_the_range_is_no_cliff():
    """A value that misses 1 by little has about the interval of 1."""
    at, near = score_interval(1.0, 0.0, 397), score_interval(0.99998, 1e-5, 397)
    assert at == pytest.approx(wilson(397, 397))
    assert near.low == pytest.approx(at.low, abs=1e-4)


@pytest.mark.parametrize(("size", "resamples"), [(1, 100), (10, 0)])
def test_an_interval_that_cannot_be_known_is_absent(size, resamples):
    assert (
        bootstrap_interval(
            0.0, Resampling(mean_of(np.zeros(size)), (size,)), rng=rng(), resamples=resamples
        )
        is None
    )


def test_a_statistic_that_is_not_finite_is_never_averaged_away():
    sample = np.array([1.0, 2.0, np.nan])
    with pytest.raises(ValueError, match=r"not finite in [1-9]\d* resamples"):
        bootstrap_interval(1.5, Resampling(mean_of(sample), (3,)), rng=rng())


def test_multiplicities_count_each_observation():
    counts = multiplicities(np.array([[0, 0, 2], [1, 1, 1]]), 4)
    assert counts.tolist() == [[2, 0, 1, 0], [0, 3, 0, 0]]
