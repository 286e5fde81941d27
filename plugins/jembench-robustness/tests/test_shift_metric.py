"""Accuracy, ECE and AUROC on shifted images, against loops over images, bins and pairs."""

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation
from torch import Generator

from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.errors import NotApplicable
from jembench_robustness.shift_metric import Shift

SETS = [f"corrupted:by=fog,severity={severity}" for severity in range(1, 6)]
TEST, SHIFTED, CLASSES, BINS = 30, 40, 3, 4


@pytest.fixture
def evaluation():
    """Draw logits, energies and labels of five sets."""
    rng = Generator().manual_seed(0)
    shape = (SHIFTED, CLASSES)
    labels = {name: torch.randint(CLASSES, (SHIFTED,), generator=rng) for name in SETS}
    readings = {("logits", name): torch.randn(shape, generator=rng) for name in SETS}
    for name in SETS:
        energies = torch.randn(SHIFTED, generator=rng).mul(4).round()
        readings["energy", name] = energies
    shape = (SHIFTED, 1, 4, 4)
    pictures = {}
    for place, name in enumerate(SETS):
        pictures[name] = torch.full(shape, place, dtype=torch.uint8)
    energies = torch.randn(TEST, generator=rng).mul(4).round()
    readings["logits", "test"] = torch.randn(TEST, CLASSES, generator=rng)
    return FakeEvaluation(
        test_energies=energies, sets=pictures, set_labels=labels, readings=readings
    )


def by_hand(evaluation, inside, shifted):
    """Return the means over sets of the three values."""
    values = []
    for name in SETS:
        logits = evaluation.readings["logits", name][shifted].double()
        labels = evaluation.set_labels[name][shifted]
        gaps = [0.0] * BINS
        hits = (logits.argmax(dim=1) == labels).tolist()
        confidences = logits.softmax(dim=1).amax(dim=1).tolist()
        pairs = zip(confidences, hits, strict=True)
        for confidence, hit in pairs:
            gaps[int(BINS * confidence)] += hit - confidence
        outside = (-evaluation.readings["energy", name][shifted]).tolist()
        wins = []
        for score in (-evaluation.test_energies[inside]).tolist():
            wins += [
                (score > shifted_score) + (score == shifted_score) / 2 for shifted_score in outside
            ]
        error = 100 * sum(map(abs, gaps)) / len(hits)
        values.append([100 * np.mean(hits), error, np.mean(wins)])
    return pytest.approx(np.mean(values, axis=0))


def test_values_are_means_over_the_parts_of_a_set_and_a_resample_draws_an_image_in_all_of_them(
    evaluation,
):
    metric = Shift(set="corrupted:by=fog", bins=BINS)
    measurement = metric.compute(evaluation)
    values = [measurement.values[label].value for label in ("accuracy", "ece", "auroc")]
    assert values == by_hand(evaluation, range(TEST), range(SHIFTED))
    for value in measurement.values.values():
        assert value.low < value.value < value.high
    inside = np.random.default_rng(1).integers(TEST, size=(1, TEST))
    shifted = np.random.default_rng(1).integers(SHIFTED, size=(1, SHIFTED))
    resamplings = metric.resamplings(measurement.arrays)
    drawn = [resamplings[label].statistic(shifted) for label in ("accuracy", "ece")]
    drawn.append(resamplings["auroc"].statistic(inside, shifted))
    assert np.concatenate(drawn) == by_hand(evaluation, inside[0], shifted[0])
    assert f"set=corrupted:by=fog,shifted={SHIFTED},split=test" in measurement.protocol
    name = SETS[2]
    evaluation.sets[name] = evaluation.sets[name] + 1
    changed = metric.compute(evaluation).protocol
    name = SETS[4]
    evaluation.set_labels[name] = evaluation.set_labels[name].flip(0)
    again = metric.compute(evaluation).protocol
    assert len({measurement.protocol, changed, again}) == 3


def test_images_without_labels_are_refused(evaluation):
    evaluation.set_labels["interp"] = None
    evaluation.sets["interp"] = evaluation.sets[SETS[0]]
    with pytest.raises(
        NotApplicable, match="images of interp have no labels of the classes of toy"
    ):
        Shift(set="interp").compute(evaluation)


class Brighter:
    """An adaptation that moves the model's bias further with each call."""

    def logits(self, model, x, data, *, generator):
        model.bias.data += 1
        return model(x.flatten(1))


def test_each_shift_is_classified_by_an_adapted_copy_of_the_trained_model(evaluation, monkeypatch):
    component = Component("adaptations", "brighter", "", "", __name__, "Brighter")
    adaptation = Resolved(component, Brighter, "brighter", {}, frozenset())
    monkeypatch.setattr(Shift, "adaptation", adaptation)
    torch.manual_seed(0)
    evaluation.model = model = torch.nn.Linear(16, CLASSES)
    bias = model.bias.detach().clone()
    measurement = Shift(set="corrupted:by=fog").compute(evaluation)
    assert torch.equal(model.bias, bias)
    assert list(measurement.values) == ["accuracy", "ece"]
    flat = [evaluation.sets[name].flatten(1) / 127.5 - 1 for name in SETS]
    logits = [x @ model.weight.T + bias + 1 for x in flat]
    right = []
    for of_set, name in zip(logits, SETS, strict=True):
        right.append((of_set.argmax(1) == evaluation.set_labels[name]).tolist())
    assert measurement.arrays["correct"].T.tolist() == right
    confidence = torch.cat(logits).softmax(1).amax(1)
    measured = measurement.arrays["confidence"].T.ravel()
    assert measured == pytest.approx(confidence.tolist())
