import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from jembench.interfaces import Resampling
from jembench.stats.intervals import wilson
from jembench.stats.paired import (
    bootstrap_difference,
    from_intervals,
    holm,
    mcnemar,
    seed_difference,
)


def mean_of(values):
    return lambda indices: values[indices].mean(axis=1)


@settings(max_examples=60, deadline=None)
@given(
    only_a=st.integers(0, 25),
    only_b=st.integers(0, 25),
    both=st.integers(0, 5),
    neither=st.integers(0, 5),
)
def test_mcnemar_counts_the_divisions_that_are_as_uneven(only_a, only_b, both, neither):
    a = np.array([True] * (only_a + both) + [False] * (only_b + neither), dtype=bool)
    b = np.array([False] * only_a + [True] * both + [True] * only_b + [False] * neither, dtype=bool)
    p = mcnemar(a, b)
    n, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n
    assert p == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(b, a) == pytest.approx(p)


def test_numbers_0_and_1_are_right_and_wrong_too():
    a, b = np.array([1, 1, 0, 1], np.uint8), np.array([0, 1, 1, 0], np.uint8)
    assert mcnemar(a, b) == mcnemar(a == 1, b == 1)


def test_two_classifiers_that_are_right_on_the_same_images_do_not_differ():
    right = np.array([True, False, True])
    assert mcnemar(right, right) == 1.0


def test_images_must_be_the_same():
    with pytest.raises(ValueError, match="3 images and 4"):
        mcnemar(np.ones(3, bool), np.ones(4, bool))
    with pytest.raises(ValueError, match="cannot be paired"):
        bootstrap_difference(mean(np.ones(3)), mean(np.ones(4)), 0.0, paired=True, seed=0)


def mean(values):
    return Resampling(mean_of(values), (len(values),))


def compare(a, b, paired=True, resamples=2000, seed=0):
    return bootstrap_difference(
        mean(a), mean(b), a.mean() - b.mean(), paired=paired, seed=seed, resamples=resamples
    )


def test_what_all_images_share_is_no_noise_where_they_are_paired():
    rng = np.random.default_rng(1)
    a = rng.normal(0, 10, 200)
    difference = compare(a + rng.normal(0.5, 0.01, 200), a)
    assert difference.value == pytest.approx(0.5, abs=0.01)
    assert difference.high - difference.low < 0.01
    assert difference.p == pytest.approx(1 / 2001)
    apart = compare(a + 0.5, a, paired=False)
    assert apart.low < 0 < apart.high
    assert apart.p > 0.3


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_resamples_that_all_agree_are_no_interval(shift):
    a = np.random.default_rng(2).normal(size=100)
    with pytest.raises(ValueError, match="all resamples agree"):
        compare(a + shift, a)


def share(flags):
    return mean(np.array(flags, float))._replace(within=(0.0, 1.0), trials=len(flags))


def number(value, beside):
    return beside._replace(
        statistic=lambda drawn: np.full(len(drawn), value), within=(value, value)
    )


@pytest.mark.parametrize("right", [397, 396, 200, 0])
def test_a_share_beside_a_number_has_wilson_s_interval_in_claims_too(right):
    right_share = share(np.arange(397) < right)
    difference = bootstrap_difference(
        right_share,
        number(0.5, right_share),
        right / 397 - 0.5,
        paired=True,
        seed=0,
        resamples=4000,
    )
    low, high = wilson(right, 397)
    assert difference.low <= low - 0.5 + 1e-3
    assert difference.high >= high - 0.5 - 1e-3
    assert (difference.low, difference.high) == pytest.approx((low - 0.5, high - 0.5), abs=0.005)


def test_models_that_are_always_right_may_differ_on_other_images():
    """If .01 of all images are wrong, 397 without a wrong one are as rare as .02."""
    all_right = share(np.ones(397, bool))
    difference = bootstrap_difference(
        all_right, all_right, 0.0, paired=True, seed=0, resamples=100, null=-0.01
    )
    assert (difference.low, difference.high) == pytest.approx((-0.0096, 0.0096), abs=1e-4)
    assert 0.01 < difference.p < 0.05
    nearer = bootstrap_difference(
        all_right, all_right, 0.0, paired=True, seed=0, resamples=100, null=-0.005
    )
    assert nearer.p > 0.1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 10))
def test_p_is_below_05_where_the_interval_leaves_the_null_out(only_a, only_b, both_wrong):
    right_a = np.array([1] * only_a + [0] * only_b + [0] * both_wrong + [1] * 100)
    right_b = np.array([0] * only_a + [1] * only_b + [0] * both_wrong + [1] * 100)
    a, b = share(right_a), share(right_b)
    value = right_a.mean() - right_b.mean()
    difference = bootstrap_difference(a, b, value, paired=True, seed=0, resamples=1000)
    if difference.p < 0.03:
        assert not difference.low <= 0 <= difference.high
    if not difference.low <= 0 <= difference.high:
        assert difference.p < 0.07


def test_two_intervals_add_in_quadrature():
    difference = from_intervals((5.0, 2.0, 6.0), (1.0, 0.0, 5.0))
    assert difference[:3] == (4.0, 4 - 5.0, 4 + 2**0.5)
    assert difference.p == pytest.approx(2 * scipy_stats.norm.sf(1.959964 * 4 / 5))
    back = from_intervals((1.0, 0.0, 5.0), (5.0, 2.0, 6.0))
    assert back[:3] == (-4.0, -4 - 2**0.5, 1.0)
    assert back.p == pytest.approx(difference.p)
    assert from_intervals((5.0, 2.0, 6.0), (1.0, 0.0, 5.0), null=4.0).p == 1


def test_the_interval_is_that_of_the_mean_difference():
    """For many images it is the normal one."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 2000))
    difference = compare(a, b, resamples=4000)
    error = (a - b).std(ddof=1) / math.sqrt(2000)
    assert difference.high - difference.low == pytest.approx(2 * 1.96 * error, rel=0.06)
    assert difference.p == pytest.approx(
        2 * scipy_stats.norm.sf(abs(difference.value) / error), abs=0.04
    )


def test_false_alarms_are_as_rare_as_they_should_be():
    rng = np.random.default_rng(4)
    alarms = [
        compare(*rng.normal(size=(2, 60)), resamples=200, seed=seed).p < 0.05 for seed in range(300)
    ]
    # 5 % nominal; 300 trials have a standard error of 1.3 %
    assert 0.02 < np.mean(alarms) < 0.09


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_a_difference_cover_it_as_often_as_they_say(paired):
    """Both are means over images that both models find as hard."""
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(300):
        shared = rng.normal(size=60) if paired else 0
        a, b = rng.normal(0.3, 1, 60) + shared, rng.normal(0, 1, 60) + shared
        difference = compare(a, b, paired, resamples=300, seed=seed)
        hits += difference.low <= 0.3 <= difference.high
    assert 0.91 < hits / 300 < 0.98


def test_deviations_as_large_as_the_difference_count_whatever_the_last_digits_say():
    """One of six images differs: it is in a resample k times, k binomial of median 1, and deviates
    unless k is 1.
    """
    # sixths of 100 are not exact in binary
    a, b = 100 * np.array([[1.0, 1, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0]])
    never_but_once = 1 - scipy_stats.binom.pmf(1, 6, 1 / 6)
    assert compare(a, b, resamples=10_000).p == pytest.approx(never_but_once, abs=0.02)


def test_swapping_the_models_turns_the_difference_round():
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(2, 50))
    there, back = compare(a, b), compare(b, a)
    assert there[:3] == pytest.approx((-back.value, -back.high, -back.low))
    assert there.p == back.p


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("size", "resamples"), [(1, 100), (10, 0)])
def test_what_cannot_be_resampled_has_no_interval(paired, size, resamples):
    with pytest.raises(ValueError, match=f"{resamples} resamples of .* give no p value"):
        compare(np.zeros(size), np.ones(size), paired, resamples=resamples)


def test_models_on_other_images_may_be_of_other_numbers():
    rng = np.random.default_rng(7)
    a, b = rng.normal(1, 1, 80), rng.normal(0, 1, 50)
    difference = compare(a, b, paired=False)
    expected = scipy_stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (difference.low, difference.high) == pytest.approx(tuple(expected), abs=0.1)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p_values):
    """A hypothesis falls only if every set of hypotheses that it belongs to does, each tested by
    its smallest p.
    """
    n = len(p_values)
    sets = [s for size in range(1, n + 1) for s in itertools.combinations(range(n), size)]
    expected = [
        max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets if index in s)
        for index in range(n)
    ]
    assert holm(p_values) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_holm_keeps_the_order_of_p_values_and_their_places(p_values, random):
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    ordered = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert ordered == sorted(adjusted)
    places = random.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[place] for place in places]) == [adjusted[place] for place in places]


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_holm_of_nothing_is_nothing():
    assert holm([]) == []


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1])
def test_what_is_no_p_value_is_not_adjusted(wrong):
    with pytest.raises(ValueError, match=r"within 0\.\.1"):
        holm([0.5, wrong])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=2, max_size=8))
def test_paired_seeds_are_student_s(pairs):
    a, b = map(np.array, zip(*pairs, strict=True))
    if (a - b).std() < 1e-6:
        return
    expected = scipy_stats.ttest_rel(a, b)
    difference = seed_difference(a, b)
    assert difference.p == pytest.approx(expected.pvalue, abs=1e-9)
    assert (difference.low, difference.high) == pytest.approx(
        tuple(expected.confidence_interval()), abs=1e-6
    )


def test_one_seed_says_nothing_of_seeds():
    assert seed_difference([1.0], [2.0]) is None


def test_seeds_are_paired_one_by_one():
    with pytest.raises(ValueError, match="2 seeds and 3 cannot be paired"):
        seed_difference([1.0, 2.0], [1.0, 2.0, 3.0])


def test_a_seed_that_diverged_is_never_averaged():
    with pytest.raises(ValueError, match="finite"):
        seed_difference([1.0, math.nan], [1.0, 2.0])


def test_seeds_that_all_differ_by_the_same_leave_no_width():
    assert seed_difference([1.0, 1.0], [0.5, 0.5]) == (0.5, 0.5, 0.5, 0.0)
