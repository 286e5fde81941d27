"""log p(x) of the test images, and its two ends, checked by sorting and against scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

from jembench.interfaces import DataSpec, Samples, Source
from jembench.metrics.log_density import LogDensity, size_of_end
from jembench.stats.intervals import wilson

N = 60


class Classifier:
    """Only says that there are logits; a test sets down which."""

    def logits(self, x): ...


@pytest.fixture
def evaluation(fake):
    """60 images of 3 classes, of which the likelier are more often classified rightly, and more
    often of class 0.
    """
    generator = torch.Generator().manual_seed(0)
    energies = 50 * torch.randn(N, generator=generator) - 400
    likely = -(energies + 400) / 50
    labels = (torch.randn(N, generator=generator) - 0.7 * likely).add(1).clamp(0, 2).long()
    margin = torch.randn(N, generator=generator) + likely + 1
    logits = torch.randn(N, 3, generator=generator)
    logits[torch.arange(N), labels] = logits.amax(1) + margin
    return fake.Evaluation(
        model=Classifier(),
        test_energies=energies,
        test_logits=logits,
        labels=labels,
        sets={"test": fake.images(N, 1)},
    )


def shown(arrays, grid):
    chosen = arrays[grid] if isinstance(grid, str) else grid
    return arrays["shown"][chosen[chosen >= 0]]


def test_values_are_those_of_sorted_images(evaluation):
    log_px = -evaluation.test_energies.double().numpy()
    labels, predicted = evaluation.labels.numpy(), evaluation.test_logits.argmax(1).numpy()
    right = labels == predicted
    order = np.argsort(-log_px)
    top, bottom = order[:15], order[-15:]
    values = LogDensity().compute(evaluation).values
    assert values["log-px-spread"].value == pytest.approx(np.std(log_px), abs=1e-9)
    assert values["classes-top"].value == pytest.approx(
        np.exp(entropy(np.bincount(labels[top], minlength=3)))
    )
    assert values["auroc-correct"].value == pytest.approx(roc_auc_score(right, log_px), abs=1e-12)
    assert values["auroc-correct"].value > 0.6
    assert values["auroc-correct"].n == min(right.sum(), N - right.sum())
    for label, members in (("accuracy-top", top), ("accuracy-bottom", bottom)):
        hits = int(right[members].sum())
        assert values[label][:4] == pytest.approx(
            (100 * hits / 15, *(100 * end for end in wilson(hits, 15)), 15)
        )
    assert values["accuracy-top"].value > values["accuracy-bottom"].value
    for value in values.values():
        assert value.low <= value.value <= value.high
    assert [values[label].unit for label in ("log-px-spread", "accuracy-top")] == ["nats", "%"]


@pytest.mark.parametrize("source", ["kept", "fresh"])
def test_samples_have_their_predicted_classes_in_place_of_labels(fake, source):
    """The model's logits are three pixels, and its log p(x) the sum of all: found again from the
    pixels themselves.
    """

    class Model:
        def logits(self, x):
            return x.flatten(1)[:, :3]

        def energy(self, x):
            return -x.flatten(1).sum(dim=1)

    images = fake.images(N, 2)
    drawn = {Source(chains=source): Samples(images, torch.zeros(N, dtype=torch.int64), "buffer")}
    measured = LogDensity(source=source).compute(
        fake.Evaluation(
            model=Model(), by_source=drawn, labels=torch.zeros(5), sets={"test": fake.images(5, 1)}
        )
    )
    pixels = images.flatten(1).double().numpy() / 127.5 - 1
    classes, log_px = pixels[:, :3].argmax(axis=1), pixels.sum(axis=1)
    top = np.argsort(-log_px)[:15]
    expected = {
        "log-px-spread": np.std(log_px),
        "classes-top": np.exp(entropy(np.bincount(classes[top], minlength=3))),
    }
    values = {label: value.value for label, value in measured.values.items()}
    assert values == pytest.approx(
        {f"{label}-{source}": value for label, value in expected.items()}, rel=1e-5
    )
    assert np.array_equal(shown(measured.arrays, "top"), top)
    assert set(classes[shown(measured.arrays, measured.arrays["lowest"][1])]) == {1}
    assert f"images={N}" in measured.protocol
    assert "source=buffer" in measured.protocol
    assert LogDensity().requires == {"energy"}
    assert LogDensity(source=source).requires == {"energy", "samples"}


def test_sheets_show_the_ends_in_their_order(evaluation):
    arrays = LogDensity().compute(evaluation).arrays
    for grid, scores in (
        ("top", -arrays["log-px"]),
        ("bottom", arrays["log-px"]),
        ("top-confidence", -arrays["confidence"]),
        ("bottom-confidence", arrays["confidence"]),
    ):
        assert arrays[grid].shape == (10, 10)
        assert (arrays[grid].ravel()[15:] == -1).all()
        assert np.array_equal(shown(arrays, grid), np.argsort(scores)[:15])
    assert np.array_equal(arrays["images"], evaluation.sets["test"].numpy()[arrays["shown"]])
    assert arrays["images"].dtype == np.uint8


def test_every_class_shows_its_highest_lowest_and_random_ones(evaluation):
    arrays = LogDensity().compute(evaluation).arrays
    for number in range(3):
        members = np.flatnonzero(arrays["labels"] == number)
        ordered = members[np.argsort(-arrays["log-px"][members])]
        assert np.array_equal(shown(arrays, arrays["highest"][number]), ordered[:10])
        assert np.array_equal(shown(arrays, arrays["lowest"][number]), ordered[::-1][:10])
        chosen = shown(arrays, arrays["random"][number])
        assert set(chosen) <= set(members)
        assert len(set(chosen)) == min(10, len(members))


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 1), (3, 1), (60, 15), (397, 99), (400, 100), (10_000, 100)]
)
def test_an_end_is_100_images_and_never_more_than_a_quarter(n, expected):
    assert size_of_end(n) == expected


def test_without_labels_only_the_spread_and_the_ends_are_left(evaluation):
    evaluation.labels, evaluation.spec = None, DataSpec(name="bare", shape=(1, 4, 4), num_classes=0)
    evaluation.model = None
    measured = LogDensity().compute(evaluation)
    assert measured.values.keys() == {"log-px-spread"}
    assert measured.arrays.keys() == {"log-px", "images", "shown", "top", "bottom"}


def test_a_density_that_does_not_classify_has_ends_by_label(evaluation):
    evaluation.model = None
    measured = LogDensity().compute(evaluation)
    assert measured.values.keys() == {"log-px-spread", "classes-top"}
    assert not {"predicted", "confidence", "log-odds", "top-confidence"} & measured.arrays.keys()
    assert {"labels", "highest", "random", "lowest"} <= measured.arrays.keys()


@pytest.mark.parametrize("wrong", [False, True])
def test_where_all_are_right_or_none_is_nothing_is_to_be_detected(evaluation, wrong):
    predicted = evaluation.test_logits.argmax(1)
    evaluation.labels = (predicted + 1) % 3 if wrong else predicted
    measured = LogDensity().compute(evaluation)
    assert "auroc-correct" not in measured.values
    assert (
        "images are classified correctly, or none is"
        in measured.details["undefined"]["auroc-correct"]
    )
    assert measured.values["accuracy-top"].value == (0 if wrong else 100)


def test_one_image_classified_wrongly_gives_a_value_without_an_interval(evaluation):
    evaluation.labels = evaluation.test_logits.argmax(1)
    worst = int(evaluation.test_energies.argmax())
    evaluation.labels[worst] = (evaluation.labels[worst] + 1) % 3
    value = LogDensity().compute(evaluation).values["auroc-correct"]
    assert value[:4] == (1.0, None, None, 1)
