"""Scores that tell test images from outliers, checked against scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from jembench.catalog import discovery
from jembench.errors import NotApplicable
from jembench.metrics.ood import OutOfDistribution
from jembench.stats.intervals import wilson

SHAPE = (1, 4, 4)
SCORES = [
    component.name
    for component in discovery.components("scores")
    if component.module == "jembench.metrics.ood_scores"
]


def pictures(n, seed):
    return torch.randint(
        256, (n, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


def normal(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def evaluation(fake):
    """40 test images, 30 outliers and 50 validation images, whose readings are random."""
    readings = {}
    for name, n, seed in (("test", 40, 0), ("inverted", 30, 10), ("validation", 50, 20)):
        readings["logits", name] = 3 * normal(n, 3, seed=seed + 1)
        readings["energy", name] = 200 * normal(n, seed=seed + 2) - 500
        readings["grad-norm", name] = normal(n, seed=seed + 3).abs()
    return fake.Evaluation(
        labels=torch.arange(40) % 3,
        sets={"test": pictures(40, 1), "inverted": pictures(30, 2), "validation": pictures(50, 3)},
        set_labels={"validation": None},
        readings=readings,
        refinements={
            name: readings["energy", name] - normal(n, seed=5).abs()
            for name, n in (("test", 40), ("inverted", 30))
        },
    )


def by_hand(evaluation, score, name):
    logits, energy = (
        evaluation.readings["logits", name].double(),
        evaluation.readings["energy", name].double(),
    )
    return {
        "log-px": -energy,
        "max-py": torch.special.logit(torch.softmax(logits, 1).max(1).values),
        "grad-norm": -evaluation.readings["grad-norm", name].double(),
        "max-logit": logits.max(1).values,
        "refinement": evaluation.refinements[name].double() - energy,
    }[score].numpy()


def fpr95_of_openood(scores, is_inside):
    """The share of test images at or below the lowest threshold under which 95 % of the outliers
    lie.
    """
    outliers = np.sort(scores[is_inside == 0])
    threshold = outliers[int(np.ceil(0.95 * len(outliers))) - 1]
    return (scores[is_inside == 1] <= threshold).mean()


@pytest.mark.parametrize("score", SCORES)
def test_the_values_are_scikit_learns(evaluation, score):
    """In float64, with either class as the positive one; energies of hundreds are ranked as they
    are.
    """
    inside, outside = (by_hand(evaluation, score, name) for name in ("test", "inverted"))
    truth, scores = np.r_[np.ones(40), np.zeros(30)], np.r_[inside, outside]
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    measured = OutOfDistribution(set="inverted", score=score).compute(evaluation)
    assert measured.values["auroc"].value == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert measured.values["aupr-in"].value == pytest.approx(
        average_precision_score(truth, scores), abs=1e-12
    )
    assert measured.values["aupr-out"].value == pytest.approx(
        average_precision_score(1 - truth, -scores), abs=1e-12
    )
    assert measured.values["fpr95-in"].value == pytest.approx(false[true >= 0.95].min(), abs=1e-12)
    assert measured.values["fpr95-out"].value == pytest.approx(
        fpr95_of_openood(scores, truth), abs=1e-12
    )
    assert np.allclose(measured.arrays["inside"], inside, atol=1e-12)
    assert np.allclose(measured.arrays["outside"], outside, atol=1e-12)
    for value in measured.values.values():
        assert 0 <= value.low <= value.value <= value.high <= 1


def test_sets_that_do_not_overlap_have_an_interval_all_the_same(evaluation):
    """All resamples agree, which proves nothing: 30 pairs without a common image are 30 trials, for
    all values.
    """
    evaluation.readings["energy", "inverted"] = (
        evaluation.readings["energy", "test"].max() + 1 + torch.rand(30)
    )
    values = OutOfDistribution(set="inverted").compute(evaluation).values
    assert (values["auroc"].value, values["fpr95-in"].value, values["aupr-out"].value) == (
        1.0,
        0.0,
        1.0,
    )
    assert (values["auroc"].better, values["fpr95-out"].better) == ("higher", "lower")
    for label, value in values.items():
        assert value[1:3] == pytest.approx(
            wilson(0, 30) if label.startswith("fpr95") else wilson(30, 30)
        ), label


def test_the_protocol_says_which_images_they_were(evaluation):
    first = OutOfDistribution(set="inverted").compute(evaluation).protocol
    for part in ("score=log-px", "set=inverted", "images=40", "outliers=30", "content="):
        assert part in first
    assert (
        "score=refinement:steps=10"
        in OutOfDistribution(set="inverted", score="refinement").compute(evaluation).protocol
    )
    evaluation.sets["inverted"] = pictures(30, 3)
    assert OutOfDistribution(set="inverted").compute(evaluation).protocol != first


def test_a_score_may_be_of_a_user_with_options_of_its_own(evaluation):
    path = "outlier_metrics:shifted_energy"
    measured = OutOfDistribution(set="inverted", score=f"{path}:by=2.0").compute(evaluation)
    assert np.allclose(
        measured.arrays["inside"], 2 - evaluation.readings["energy", "test"].double().numpy()
    )
    assert (
        f'score="{path}:by=2.0"' in measured.protocol or f"score={path}:by=2.0" in measured.protocol
    )
    metric = OutOfDistribution(set="inverted", score="refinement:steps=3")
    assert metric.protocol_options == {"score": "refinement:steps=3"}
    assert metric.scorer.steps == 3


@pytest.mark.parametrize(
    ("name", "times"), [("inverted", 1), ("interp", (1 / 4 + 1 / 4 + 1) ** 0.5)]
)
def test_the_noise_of_outliers_is_that_of_the_authors_code(evaluation, monkeypatch, name, times):
    """A mean of two noisy images with noise once more has the variance s^2 / 4 + s^2 / 4 + s^2."""
    evaluation.sets["interp"], evaluation.readings["energy", "interp"] = (
        pictures(30, 3),
        normal(30, seed=4),
    )
    asked, metric = {}, OutOfDistribution(set=name, data_noise=0.03, resamples=0)
    scores = type(metric.scorer).scores
    monkeypatch.setattr(
        type(metric.scorer),
        "scores",
        lambda self, of, images, s: asked.update({images: s}) or scores(self, of, images, 0),
    )
    metric.compute(evaluation)
    assert asked == {"test": 0.03, name: pytest.approx(0.03 * times)}


def keep_classes(evaluation, number, factor=1.0):
    """Leave the logits of the first classes, times a factor."""
    for key, values in evaluation.readings.items():
        if key[0] == "logits":
            evaluation.readings[key] = factor * values[:, :number]


def test_confidences_that_round_to_1_are_ranked(evaluation):
    """With two classes, a factor of the logits changes no rank, though it makes most p(y|x) 1.0."""
    metric = OutOfDistribution(set="inverted", score="max-py")
    keep_classes(evaluation, 2)
    plain = metric.compute(evaluation).values
    keep_classes(evaluation, 2, factor=1e4)
    confidence = evaluation.readings["logits", "test"].double().softmax(1).amax(1)
    assert (confidence == 1).double().mean() > 0.9
    scaled = metric.compute(evaluation).values
    for label, value in plain.items():
        assert scaled[label].value == pytest.approx(value.value, abs=1e-12)


def test_one_class_ranks_nothing(evaluation):
    keep_classes(evaluation, 1)
    with pytest.raises(NotApplicable, match="one class"):
        OutOfDistribution(set="inverted", score="max-py").compute(evaluation)
