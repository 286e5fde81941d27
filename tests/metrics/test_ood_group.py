import numpy as np
import pytest
import torch
from sklearn import metrics

from jembench.interfaces import DataSpec
from jembench.metrics.ood import OutOfDistributionGroup

SETS = ("halves", "interp", "flipped")


@pytest.fixture
def evaluation(fake):
    generator = torch.Generator().manual_seed(0)
    sizes = {"test": 40, "halves": 30, "interp": 50, "flipped": 20}
    readings = {
        ("energy", name): (torch.randn(n, generator=generator) + (name != "test")).round(decimals=1)
        for name, n in sizes.items()
    }
    sets = {name: fake.images(n, n) for name, n in sizes.items()}
    spec = DataSpec(name="digits", shape=(1, 4, 4), num_classes=3)
    return fake.Evaluation(
        sets=sets, readings=readings, labels=torch.zeros(40, dtype=torch.long), spec=spec
    )


def by_openood(inside, outside):
    """Outliers are the positive class, and areas are trapezoids."""
    scores, is_out = np.r_[inside, outside], np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    false, true, _ = metrics.roc_curve(is_out, -scores, drop_intermediate=False)
    precision_in, recall_in, _ = metrics.precision_recall_curve(1 - is_out, scores)
    precision_out, recall_out, _ = metrics.precision_recall_curve(is_out, -scores)
    return {
        "auroc": metrics.auc(false, true),
        "fpr95-out": false[np.argmax(true >= 0.95)],
        "aupr-in-trapezoid": metrics.auc(recall_in, precision_in),
        "aupr-out-trapezoid": metrics.auc(recall_out, precision_out),
    }


def test_the_values_are_the_means_of_openood_over_the_sets(evaluation):
    measured = OutOfDistributionGroup(group="near").compute(evaluation)
    scores = {
        name: -evaluation.readings["energy", name].double().numpy() for name in ("test", *SETS)
    }
    of_sets = [by_openood(scores["test"], scores[name]) for name in SETS]
    for label in of_sets[0]:
        value = measured.values[label]
        assert value.value == pytest.approx(
            np.mean([of_set[label] for of_set in of_sets]), abs=1e-12
        ), label
        assert value.low < value.value < value.high
        assert (value.better, value.n) == ("lower" if label.startswith("fpr95") else "higher", 20)
    assert measured.values["aupr-in"] != measured.values["aupr-in-trapezoid"]
    assert "group=near" in measured.protocol
    assert "outliers=30+50+20" in measured.protocol


def test_a_resample_of_the_test_images_is_the_same_for_all_sets(evaluation):
    metric = OutOfDistributionGroup(group="near", resamples=0)
    arrays = metric.compute(evaluation).arrays
    rng = np.random.default_rng(0)
    drawn = rng.integers(40, size=(3, 40))
    of_sets = {name: rng.integers(len(arrays[name]), size=(3, len(arrays[name]))) for name in SETS}
    for label, resampling in metric.resamplings(arrays).items():
        if label in ("fpr95-in", "aupr-in", "aupr-out"):
            continue
        expected = [
            np.mean(
                [
                    by_openood(arrays["inside"][drawn[r]], arrays[name][of_sets[name][r]])[label]
                    for name in SETS
                ]
            )
            for r in range(3)
        ]
        assert np.allclose(resampling.statistic(drawn, *of_sets.values()), expected, atol=1e-12), (
            label
        )


def test_the_sets_are_those_of_openood_on_cifar_and_made_ones_on_other_data():
    far = tuple(f"openood:name={name}" for name in ("mnist", "svhn", "texture", "places365"))
    expected = {
        "cifar10": {"near": ("openood:name=cifar100", "openood:name=tin"), "far": far},
        "cifar100": {"near": ("openood:name=cifar10", "openood:name=tin"), "far": far},
        "imagenet": {
            "near": ("openood:name=ssb_hard", "openood:name=ninco"),
            "far": tuple(
                f"openood:name={name}" for name in ("inaturalist", "textures", "openimage_o")
            ),
        },
        "mine": {"near": SETS, "far": ("permuted", "uniform", "constant")},
    }
    for name, groups in expected.items():
        data = DataSpec(name=name, shape=(1, 4, 4), num_classes=3)
        assert {group: OutOfDistributionGroup(group=group).sets(data) for group in groups} == groups
