"""Accuracy, ECE and AUROC on shifted images, against loops over images, bins and pairs."""

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation

from jembench.catalog.discovery import Component
from jembench.catalog.registry import Resolved
from jembench.errors import NotApplicable
from jembench_robustness.shift_metric import Shift

SETS = [f"corrupted:by=fog,severity={severity}" for severity in range(1, 6)]
TEST, SHIFTED, CLASSES, BINS = 30, 40, 3, 4


@pytest.fixture
def evaluation():
    """Random logits and energies of five sets, each with labels of its own."""
    rng, shape = torch.Generator().manual_seed(0), (SHIFTED, CLASSES)
    labels = {name: torch.randint(CLASSES, (SHIFTED,), generator=rng) for name in SETS}
    readings = {("logits", name): torch.randn(shape, generator=rng) for name in SETS}
    readings |= {
        ("energy", name): torch.randn(SHIFTED, generator=rng).mul(4).round() for name in SETS
    }
    pictures = {
        name: torch.full((SHIFTED, 1, 4, 4), place, dtype=torch.uint8)
        for place, name in enumerate(SETS)
    }
    energies = torch.randn(TEST, generator=rng).mul(4).round()
    readings["logits", "test"] = torch.randn(TEST, CLASSES, generator=rng)
    return FakeEvaluation(
        test_energies=energies, sets=pictures, set_labels=labels, readings=readings
    )


def by_hand(evaluation, inside, shifted):
    """The means over sets of the three values on the images of these places."""
    found = []
    for name in SETS:
        logits, labels = (
            evaluation.readings["logits", name][shifted].double(),
            evaluation.set_labels[name][shifted],
        )
        gaps, hits = [0.0] * BINS, (logits.argmax(dim=1) == labels).tolist()
        for confidence, hit in zip(logits.softmax(dim=1).amax(dim=1).tolist(), hits, strict=True):
            gaps[int(BINS * confidence)] += hit - confidence
        outside = (-evaluation.readings["energy", name][shifted]).tolist()
        wins = [
            (a > b) + (a == b) / 2
            for a in (-evaluation.test_energies[inside]).tolist()
            for b in outside
        ]
        found.append([100 * np.mean(hits), 100 * sum(map(abs, gaps)) / len(hits), np.mean(wins)])
    return pytest.approx(np.mean(found, axis=0))


def test_values_are_means_over_the_parts_of_a_set_and_a_resample_draws_an_image_in_all_of_them(
    evaluation,
):
    metric = Shift(set="corrupted:by=fog", bins=BINS)
    found = metric.compute(evaluation)
    assert [found.values[label].value for label in ("accuracy", "ece", "auroc")] == by_hand(
        evaluation, range(TEST), range(SHIFTED)
    )
    assert all(value.low < value.value < value.high for value in found.values.values())
    inside, shifted = (
        np.random.default_rng(1).integers(size, size=(1, size)) for size in (TEST, SHIFTED)
    )
    resampled = {label: one.statistic for label, one in metric.resamplings(found.arrays).items()}
    drawn = [
        resampled["accuracy"](shifted),
        resampled["ece"](shifted),
        resampled["auroc"](inside, shifted),
    ]
    assert np.concatenate(drawn) == by_hand(evaluation, inside[0], shifted[0])
    assert f"set=corrupted:by=fog,shifted={SHIFTED},split=test" in found.protocol
    evaluation.sets[SETS[2]] = evaluation.sets[SETS[2]] + 1
    changed = metric.compute(evaluation).protocol
    evaluation.set_labels[SETS[4]] = evaluation.set_labels[SETS[4]].flip(0)
    assert len({found.protocol, changed, metric.compute(evaluation).protocol}) == 3


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
    monkeypatch.setattr(
        Shift, "adaptation", Resolved(component, Brighter, "brighter", {}, frozenset())
    )
    torch.manual_seed(0)
    evaluation.model = model = torch.nn.Linear(16, CLASSES)
    bias = model.bias.detach().clone()
    found = Shift(set="corrupted:by=fog").compute(evaluation)
    assert torch.equal(model.bias, bias)
    assert list(found.values) == ["accuracy", "ece"]
    flat = [evaluation.sets[name].flatten(1) / 127.5 - 1 for name in SETS]
    logits = [x @ model.weight.T + bias + 1 for x in flat]
    right = [
        (of.argmax(1) == evaluation.set_labels[name]).tolist()
        for of, name in zip(logits, SETS, strict=True)
    ]
    assert found.arrays["correct"].T.tolist() == right
    assert found.arrays["confidence"].T.ravel() == pytest.approx(
        torch.cat(logits).softmax(1).amax(1).tolist()
    )
