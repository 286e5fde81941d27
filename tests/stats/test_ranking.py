"""AUROC, FPR at 95 % TPR and average precision, resample by resample against scikit-learn."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from jembench.stats import ranking
from jembench.stats.intervals import bootstrap_interval

LABELS = ["auroc", "fpr95-in", "aupr-in", "fpr95-out", "aupr-out"]
coarse = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=30)  # full of ties
fine = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def by_scikit_learn(inside, outside, tpr=0.95):
    inside, outside = np.asarray(inside, dtype=float), np.asarray(outside, dtype=float)
    is_inside, scores = np.r_[np.ones(len(inside)), np.zeros(len(outside))], np.r_[inside, outside]
    false, true, _ = roc_curve(is_inside, scores, drop_intermediate=False)
    false_out, true_out, _ = roc_curve(1 - is_inside, -scores, drop_intermediate=False)
    return {
        "auroc": roc_auc_score(is_inside, scores),
        "fpr95-in": false[true >= tpr].min(),
        "aupr-in": average_precision_score(is_inside, scores),
        "fpr95-out": false_out[true_out >= tpr].min(),
        "aupr-out": average_precision_score(1 - is_inside, -scores),
    }


@settings(max_examples=60, deadline=None)
@given(inside=coarse | fine, outside=coarse | fine, seed=st.integers(0, 99))
def test_each_resample_is_what_scikit_learn_says_of_it(inside, outside, seed):
    inside, outside = np.array(inside), np.array(outside)
    rng = np.random.default_rng(seed)
    i, j = (
        rng.integers(len(inside), size=(3, len(inside))),
        rng.integers(len(outside), size=(3, len(outside))),
    )
    resamplings = ranking.resamplings(inside, outside)
    assert list(resamplings) == LABELS
    expected = [by_scikit_learn(inside[a], outside[b]) for a, b in zip(i, j, strict=True)]
    for label, resampling in resamplings.items():
        assert resampling.sizes == (len(inside), len(outside))
        assert np.allclose(
            resampling.statistic(i, j), [of_resample[label] for of_resample in expected], atol=1e-12
        )


@settings(max_examples=40, deadline=None)
@given(inside=coarse, outside=coarse, tpr=st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.9, 1.0]))
def test_the_threshold_may_be_another(inside, outside, tpr):
    inside, outside = np.array(inside), np.array(outside)
    (rate,) = ranking.fpr_resampling(inside, outside, tpr=tpr).statistic(
        *as_they_are(inside, outside)
    )
    assert rate == by_scikit_learn(inside, outside, tpr)["fpr95-in"]


def as_they_are(*samples):
    return [np.arange(len(sample))[None] for sample in samples]


@pytest.mark.parametrize("label", LABELS)
def test_indices_are_of_the_images_in_their_order(label):
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(1, 1, 40).round(1), rng.normal(0, 1, 50).round(1)
    i, j = rng.integers(40, size=(9, 40)), rng.integers(50, size=(9, 50))
    first, second = rng.permutation(40), rng.permutation(50)
    expected = ranking.resamplings(inside, outside)[label].statistic(first[i], second[j])
    drawn = ranking.resamplings(inside[first], outside[second])[label].statistic(i, j)
    assert np.array_equal(drawn, expected)


@pytest.mark.parametrize("label", LABELS)
def test_whole_numbers_and_single_precision_are_scores_too(label):
    rng = np.random.default_rng(2)
    inside, outside = rng.integers(3, 9, 20), rng.integers(0, 6, 30)
    expected = by_scikit_learn(inside, outside)[label]
    for kind in (np.uint8, np.float32):
        (value,) = ranking.resamplings(inside.astype(kind), outside)[label].statistic(
            *as_they_are(inside, outside)
        )
        assert value == pytest.approx(expected)


@pytest.mark.parametrize("label", LABELS)
def test_memory_does_not_grow_with_the_resamples(label):
    rng = np.random.default_rng(3)
    statistic = ranking.resamplings(rng.normal(size=500), rng.normal(size=500))[label].statistic
    i, j = rng.integers(500, size=(2, 2000, 500))  # 8 MB each
    tracemalloc.start()
    try:
        statistic(i, j)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000


def values_of(inside, outside):
    resamplings = ranking.resamplings(inside, outside)
    return {
        label: resampling.statistic(*as_they_are(inside, outside))[0]
        for label, resampling in resamplings.items()
    }


@settings(max_examples=60, deadline=None)
@given(inside=coarse | fine, outside=coarse | fine)
def test_values_and_what_must_hold_of_them(inside, outside):
    inside, outside = np.array(inside), np.array(outside)
    values = values_of(inside, outside)
    assert values == pytest.approx(by_scikit_learn(inside, outside), abs=1e-12)
    assert values["auroc"] + values_of(-inside, -outside)["auroc"] == pytest.approx(1)
    assert values_of(2 * inside, 2 * outside) == pytest.approx(values)  # of the ranks alone


def test_energies_of_hundreds_are_ranked_as_they_are():
    """A sigmoid would round all of them to 1."""
    assert values_of(np.array([900.0, 800.0]), np.array([700.0, 600.0]))["auroc"] == 1.0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_rank(wrong):
    with pytest.raises(ValueError, match="1 of 2 scores outside are not finite"):
        ranking.resamplings(np.zeros(2), np.array([0.0, wrong]))
    with pytest.raises(ValueError, match="there are no scores inside"):
        ranking.resamplings(np.zeros(0), np.zeros(2))


def test_the_interval_covers_the_true_value_as_often_as_it_says():
    """AUROC of N(1, 1) against N(0, 1) is Phi(1 / sqrt 2) = .7602."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        inside, outside = rng.normal(1, 1, 80), rng.normal(0, 1, 120)
        resampling = ranking.auroc_resampling(inside, outside)
        (value,) = resampling.statistic(*as_they_are(inside, outside))
        low, high = bootstrap_interval(value, resampling, rng=rng, resamples=300)
        hits += low <= 0.760250 <= high
    # 95 % nominal, and 200 trials have a standard error of 1.5 %
    assert 0.90 <= hits / 200 <= 0.99


@pytest.mark.parametrize("label", LABELS)
def test_the_interval_contains_the_value_within_0_and_1(label):
    rng = np.random.default_rng(4)
    for shift in (0, 1, 10):
        inside, outside = rng.normal(shift, 1, 50), rng.normal(0, 1, 70)
        value = values_of(inside, outside)[label]
        low, high = bootstrap_interval(
            value, ranking.resamplings(inside, outside)[label], rng=rng, resamples=200
        )
        assert 0 <= low <= value <= high <= 1
