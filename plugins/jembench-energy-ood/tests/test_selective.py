import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation

from jembench_energy_ood.selective import Selective

LABELS = ("aurc", "augrc")


def values_of(score, correct, **options):
    arrays = {"score": np.asarray(score), "correct": np.asarray(correct)}
    estimates = Selective(**options).estimates(arrays)
    every = np.arange(len(score))[None]
    values = {}
    for label, estimate in estimates.items():
        values[label] = estimate.resampling.statistic(every)[0]
    return values


def by_thresholds(score, correct, least):
    """Return AURC, AUGRC and the risk at a coverage of ``least``.

    At each image's threshold, images with as high a score are kept.
    """
    points = {}
    for threshold in score:
        is_kept = np.asarray(score) >= threshold
        kept = np.asarray(correct)[is_kept]
        errors = (~kept).sum()
        points[len(kept) / len(score)] = (errors / len(kept), errors / len(score))
    points = sorted((coverage, *risks) for coverage, risks in points.items())
    aurc = 0.0
    augrc = 0.0
    before = (0.0, points[0][1], 0.0)
    for point in points:
        width = point[0] - before[0]
        aurc += width * (point[1] + before[1]) / 2
        augrc += width * (point[2] + before[2]) / 2
        before = point
    at_least = [risk for coverage, risk, _ in points if coverage >= least]
    return 100 * aurc, 100 * augrc, 100 * at_least[0]


@pytest.mark.parametrize("levels", [2, 5, 10_000])
@pytest.mark.parametrize("least", [0.001, 0.5, 0.8, 1.0])
def test_it_is_the_brute_force_over_thresholds_where_images_of_equal_score_share_a_point(
    levels, least
):
    rng = np.random.default_rng(levels)
    score = rng.integers(levels, size=50) / levels
    correct = rng.random(50) < 0.7
    measured_values = values_of(score, correct, coverage=least)
    expected = by_thresholds(score.tolist(), correct.tolist(), least)
    values = [measured_values[label] for label in (*LABELS, f"selective-risk@{least:g}")]
    assert values == pytest.approx(expected, abs=1e-12)
    order = np.sort(correct).tolist()
    best = by_thresholds(list(range(50)), order, least)
    for label, value, optimum in zip(LABELS, expected, best, strict=False):
        assert measured_values[f"excess-{label}"] == pytest.approx(value - optimum, abs=1e-12)
        assert measured_values[f"excess-{label}"] >= 0


def test_a_perfect_ranking_has_no_excess_and_ties_have_the_error_rate_at_every_coverage():
    correct = np.arange(1000) >= 200
    perfect = values_of(np.arange(1000), correct)
    assert perfect["excess-aurc"] == 0
    assert perfect["excess-augrc"] == 0
    assert perfect["selective-risk@0.8"] == 0
    assert perfect["augrc"] == pytest.approx(100 * 0.2**2 / 2)  # e^2 / 2, e the error rate
    # the integral of 1 - .8 / c
    area = 100 * (0.2 + 0.8 * np.log(0.8))
    assert perfect["aurc"] == pytest.approx(area, abs=1e-3)
    tied = values_of(np.zeros(1000), correct)
    values = [tied[label] for label in (*LABELS, "selective-risk@0.8")]
    assert values == pytest.approx([20, 10, 20])


def test_an_order_of_the_scores_is_all_that_counts_and_a_resample_has_the_values_of_its_images():
    rng = np.random.default_rng(1)
    score = rng.normal(size=60).round(1)
    correct = rng.random(60) < 0.8
    drawn = rng.integers(60, size=(1, 60))
    estimates = Selective().estimates({"score": np.exp(score), "correct": correct})
    expected = values_of(score[drawn[0]], correct[drawn[0]])
    values = {}
    for label, estimate in estimates.items():
        values[label] = estimate.resampling.statistic(drawn)[0]
    assert values == pytest.approx(expected)


def test_of_a_model_it_withdraws_by_the_score_and_counts_the_predicted_class():
    logits = torch.tensor([[4.0, 0.0], [0.0, 3.0], [2.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 1, 0, 0])
    evaluation = FakeEvaluation(test_logits=logits, labels=labels)
    measurement = Selective(coverage=0.5).compute(evaluation)
    correct = measurement.arrays["correct"].tolist()
    assert correct == [True, True, True, False]
    assert measurement.values["excess-aurc"].value == 0
    risk = measurement.values["selective-risk@0.5"]
    assert risk.value == 0
    assert risk.low == 0
    assert risk.unit == "%"
    assert risk.better == "lower"
    assert "coverage=0.5" in measurement.protocol
    assert "score=max-py" in measurement.protocol
    labels = torch.tensor([0, 1, 0, 1])
    evaluation = FakeEvaluation(test_logits=logits, labels=labels)
    without_error = Selective(coverage=0.5).compute(evaluation).values["selective-risk@0.5"]
    # Wilson's, of none of the two that are kept
    assert without_error.high == pytest.approx(65.8, abs=0.1)


def test_images_whose_confidence_rounds_to_1_are_withdrawn_in_the_order_of_their_logits():
    logits = torch.tensor([[90.0, 0.0], [0.0, 80.0], [0.0, 60.0], [50.0, 0.0]])
    confidences = logits.double().softmax(1).amax(1)
    assert (confidences == 1).all()
    labels = torch.tensor([0, 1, 0, 1])
    evaluation = FakeEvaluation(test_logits=logits, labels=labels)
    measurement = Selective(coverage=0.5).compute(evaluation)
    assert measurement.values["selective-risk@0.5"].value == 0
    assert measurement.values["excess-aurc"].value == 0
