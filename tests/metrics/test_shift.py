"""Accuracy, ECE and AUROC on shifted images, against loops over images, bins and pairs."""

import numpy as np
import pytest
import torch

from jembench.errors import NotApplicable
from jembench.metrics.shift import Shift

SETS = [f"corrupted:by=fog,severity={severity}" for severity in range(1, 6)]
TEST, SHIFTED, CLASSES, BINS = 30, 40, 3, 4


@pytest.fixture
def evaluation(fake):
    """Random logits and energies of five sets, each with labels of its own."""
    rng = torch.Generator().manual_seed(0)
    labels = {name: torch.randint(CLASSES, (SHIFTED,), generator=rng) for name in SETS}
    readings = {("logits", name): torch.randn(SHIFTED, CLASSES, generator=rng) for name in SETS}
    readings |= {("energy", name): torch.randn(SHIFTED, generator=rng).mul(4).round() for name in SETS}
    pictures = {name: torch.full((SHIFTED, 1, 4, 4), place, dtype=torch.uint8) for place, name in enumerate(SETS)}
    energies, zeros = torch.randn(TEST, generator=rng).mul(4).round(), torch.zeros(TEST, dtype=torch.int64)
    given = {"test_energies": energies, "labels": zeros, "sets": pictures, "set_labels": labels, "readings": readings}
    return fake.Evaluation(**given)


def by_hand(evaluation, name, inside, shifted):
    """The three values on the images of these places, by loops."""
    logits, labels = evaluation.readings["logits", name][shifted].double(), evaluation.set_labels[name][shifted]
    hits, gaps = 0, [0.0] * BINS
    for confidences, label in zip(logits.softmax(dim=1).tolist(), labels.tolist(), strict=True):
        hit = confidences.index(max(confidences)) == label
        hits += hit
        gaps[int(BINS * max(confidences))] += hit - max(confidences)
    outside = (-evaluation.readings["energy", name][shifted]).tolist()
    wins = [(a > b) + (a == b) / 2 for a in (-evaluation.test_energies[inside]).tolist() for b in outside]
    return 100 * hits / len(labels), 100 * sum(map(abs, gaps)) / len(labels), sum(wins) / len(wins)


def test_values_are_means_over_the_sets_that_it_stands_for_and_a_resample_draws_an_image_in_all_of_them(evaluation):
    metric = Shift(set="corrupted:by=fog", bins=BINS)
    found = metric.compute(evaluation)
    each = [by_hand(evaluation, name, range(TEST), range(SHIFTED)) for name in SETS]
    assert [found.values[label].value for label in ("accuracy", "ece", "auroc")] == pytest.approx(np.mean(each, axis=0))
    assert all(value.low < value.value < value.high for value in found.values.values())
    rng = np.random.default_rng(1)
    inside, shifted = rng.integers(TEST, size=(1, TEST)), rng.integers(SHIFTED, size=(1, SHIFTED))
    each = [by_hand(evaluation, name, inside[0], shifted[0]) for name in SETS]
    resampled = metric.resamplings(found.arrays)
    drawn = [resampled[label].statistic(shifted)[0] for label in ("accuracy", "ece")]
    assert [*drawn, resampled["auroc"].statistic(inside, shifted)[0]] == pytest.approx(np.mean(each, axis=0))


def test_one_set_is_measured_alone_and_the_protocol_has_its_images(evaluation):
    found = Shift(set=SETS[2], bins=BINS).compute(evaluation)
    every = by_hand(evaluation, SETS[2], range(TEST), range(SHIFTED))
    assert [value.value for value in found.values.values()] == pytest.approx(every)
    assert f'set="{SETS[2]}",shifted={SHIFTED},split=test' in found.protocol
    evaluation.sets[SETS[2]] = evaluation.sets[SETS[2]] + 1
    assert Shift(set=SETS[2], bins=BINS).compute(evaluation).protocol != found.protocol


def test_images_without_labels_are_refused(evaluation):
    evaluation.sets["interp"], evaluation.set_labels["interp"] = evaluation.sets[SETS[0]], None
    evaluation.readings["energy", "interp"] = evaluation.readings["energy", SETS[0]]
    with pytest.raises(NotApplicable, match="images of interp have no labels of the classes of toy"):
        Shift(set="interp").compute(evaluation)
