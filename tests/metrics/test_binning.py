from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from jembench.metrics import binning


def whole(statistic, n):
    """The statistic of the examples themselves."""
    return statistic(np.arange(n)[None])[0]


pairs = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50)
tied = st.lists(
    st.tuples(st.sampled_from([0.2, 0.5, 0.7, 1.0]), st.booleans()), min_size=1, max_size=50
)


def columns(pairs):
    confidence, correct = zip(*pairs, strict=True)
    return np.array(confidence), np.array(correct)


def drawn(n, seed):
    return np.random.default_rng(seed).integers(n, size=(3, n))


def test_a_confidence_of_exactly_one_belongs_to_the_last_bin():
    assert binning.equal_width(np.array([1.0]), bins=20).tolist() == [19]
    # one bin: accuracy 1/2, confidence .98
    confidence, correct = np.array([1.0, 0.96]), np.array([False, True])
    assert whole(binning.binned_error(confidence, correct, 20), 2) == pytest.approx(0.98 - 0.5)
    assert binning.reliability(confidence, correct, 20).counts[-1] == 2


def test_bins_are_closed_below_and_open_above():
    assert binning.equal_width(np.array([0.0, 0.2499, 0.25, 0.5, 0.75]), bins=4).tolist() == [
        0,
        0,
        1,
        2,
        3,
    ]


@given(pairs, st.integers(1, 30))
def test_ece_is_the_weighted_gap_between_confidence_and_accuracy(pairs, bins):
    confidence, correct = columns(pairs)
    # an edge may round differently there
    assume(not np.isin(confidence, np.arange(1, bins) / bins).any())
    expected = 0.0
    for b in range(bins):
        inside = (confidence >= b / bins) & ((confidence < (b + 1) / bins) | (b == bins - 1))
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    assert whole(binning.binned_error(confidence, correct, bins), len(pairs)) == pytest.approx(
        expected, abs=1e-12
    )


@given(pairs | tied, st.integers(1, 30), st.integers(0, 99))
def test_the_error_of_a_resample_is_that_of_the_examples_drawn(pairs, bins, seed):
    confidence, correct = columns(pairs)
    indices = drawn(len(pairs), seed)
    expected = [
        whole(binning.binned_error(confidence[row], correct[row], bins), len(pairs))
        for row in indices
    ]
    assert np.allclose(
        binning.binned_error(confidence, correct, bins)(indices),
        expected,
        rtol=0,
        atol=1e-12,
    )


def test_a_reliability_diagram_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    confidence = 0.3 + 0.7 * rng.random(500)
    correct = rng.random(500) < confidence
    diagram = binning.reliability(confidence, correct, 20)
    accuracy, mean = calibration_curve(correct, confidence, n_bins=20)
    assert np.allclose(diagram.accuracy[diagram.counts > 0], accuracy, rtol=0, atol=1e-12)
    assert np.allclose(diagram.confidence[diagram.counts > 0], mean, rtol=0, atol=1e-12)


@given(pairs, st.integers(1, 30))
def test_a_reliability_diagram_holds_what_ece_sums(pairs, bins):
    confidence, correct = columns(pairs)
    edges, counts, accuracy, mean = binning.reliability(confidence, correct, bins)
    assert counts.sum() == len(pairs)
    assert np.array_equal(np.isnan(accuracy), counts == 0)
    expected = np.nansum(counts * np.abs(accuracy - mean)) / len(pairs)
    assert whole(binning.binned_error(confidence, correct, bins), len(pairs)) == pytest.approx(
        expected, abs=1e-12
    )
    filled = counts > 0
    assert (edges[:-1][filled] <= mean[filled] + 1e-12).all()
    assert (mean[filled] <= edges[1:][filled] + 1e-12).all()


def adaptive_by_hand(confidence, correct, bins):
    """Bin ceil(F M) of each example, F being the share of examples that are no more confident."""
    n = len(confidence)
    where = np.array([-(-int((confidence <= value).sum()) * bins // n) for value in confidence])
    return (
        sum(abs((correct[where == b] - confidence[where == b]).sum()) for b in set(where.tolist()))
        / n
    )


@given(pairs | tied, st.integers(1, 30), st.integers(0, 99))
def test_each_resample_has_bins_of_equal_mass_of_its_own(pairs, bins, seed):
    confidence, correct = columns(pairs)
    indices = drawn(len(pairs), seed)
    expected = [adaptive_by_hand(confidence[row], correct[row], bins) for row in indices]
    assert np.allclose(
        binning.adaptive_error(confidence, correct, bins)(indices),
        expected,
        rtol=0,
        atol=1e-12,
    )


@given(tied | pairs, st.integers(1, 30), st.integers(0, 99))
def test_the_debiased_error_is_kumar_s_of_each_bin(given_pairs, bins, seed):
    confidence, correct = columns(given_pairs)
    n = len(confidence)
    indices = np.vstack([np.arange(n), drawn(n, seed)])
    expected = []
    for row in indices:
        where = np.minimum(
            (confidence[row, None] >= np.linspace(0, 1, bins + 1)).sum(axis=1) - 1, bins - 1
        )
        of_bins = [(correct[row] - confidence[row])[where == place] for place in range(bins)]
        expected.append(
            sum(
                len(r) / n * (r.mean() ** 2 - r.var(ddof=1) / len(r)) for r in of_bins if len(r) > 1
            )
        )
    errors = binning.debiased_squared_error(confidence, correct, bins)(indices)
    assert errors == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_the_debiased_error_is_the_true_one_on_average_and_ece_is_not(gap):
    rng, n = np.random.default_rng(0), 200
    debiased, squared = [], []
    for _ in range(400):
        confidence = rng.uniform(0.55, 1, n)
        correct = rng.random(n) < confidence - gap
        debiased.append(whole(binning.debiased_squared_error(confidence, correct, 20), n))
        squared.append(whole(binning.binned_error(confidence, correct, 20), n) ** 2)
    error = np.std(debiased) / len(debiased) ** 0.5
    assert np.mean(debiased) == pytest.approx(gap**2, abs=4 * error)
    assert np.mean(squared) > gap**2 + 8 * error
