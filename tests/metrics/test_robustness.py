import numpy as np
import pytest
import torch
from hyperplane import DATA, Linear, grey
from scipy.stats import norm as normal

from jembench.attacks.threat import distance
from jembench.data.pixels import to_float
from jembench.metrics.attacks import BUDGETS, CURVE, Budget, is_robust
from jembench.metrics.pgd import PGD
from jembench.metrics.shards import choose
from jembench.stats.intervals import wilson


def test_a_change_by_whole_levels_is_of_that_size():
    """Between 8-bit images of the pointwise attack, float32 adds 6e-8 to k/255."""
    levels = torch.arange(240, dtype=torch.uint8)[:, None, None, None]
    image, moved = (to_float(images, (0.0, 1.0)) for images in (levels, levels + 16))
    far = distance(image, moved, "linf").numpy()
    arrays = {"image": levels.numpy(), "found": np.ones(240, dtype=bool), "distance-linf": far}
    assert 0 < (far > 16 / 255).sum() < 240
    assert not is_robust(arrays, "linf", 16 / 255).any()
    assert is_robust(arrays, "linf", 15.999 / 255).all()


@pytest.fixture
def evaluation(fake):
    """130 grey images, which the model classifies rightly but for every tenth."""
    images, labels = grey(130, 110, 146)
    return fake.Evaluation(sets={"test": images}, labels=labels, model=Linear(), spec=DATA)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_median_and_curve_are_those_of_the_exact_distances(evaluation, norm):
    measured = PGD(norm=norm, images=120, restarts=2).compute(evaluation)
    chosen = choose(evaluation, 120)
    right = evaluation.model.classes(chosen.images) == chosen.labels
    distances = np.where(right, evaluation.model.exact(chosen.images / 255, norm), 0.0)
    median = measured.values[f"pgd-{norm}"]
    assert median.value == pytest.approx(255 * np.median(distances), rel=0.011)
    assert (median.unit, median.n, median.better) == ("1/255", 120, "higher")
    assert median.low < median.value < median.high
    for eps in CURVE[norm]:
        at = measured.values[f"pgd-{norm}@{eps}"]
        level = float(eps.partition("/")[0]) / 255
        assert at.value * 120 / 100 == pytest.approx((distances > level).sum())
        low, high = wilson(round(at.value * 1.2), 120)
        assert (at.low, at.high) == pytest.approx((100 * low, 100 * high))


def test_the_arrays_say_it_again(evaluation):
    metric = PGD(images=60, restarts=1)
    measured = metric.compute(evaluation)
    arrays = measured.arrays
    original = arrays["image"].astype(np.float64) / 255
    change = np.abs(arrays["adversarial"] - original).reshape(60, -1)
    np.testing.assert_allclose(arrays["distance-linf"], change.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(arrays["distance-l2"], np.linalg.norm(change, axis=1), atol=1e-5)
    x = torch.from_numpy(arrays["adversarial"])
    predicted = evaluation.model.logits(2 * x - 1).argmax(dim=1).numpy()
    assert (predicted == arrays["predicted"]).all()
    assert (predicted != arrays["label"]).all()
    assert arrays["found"].all()
    assert (arrays["index"] == choose(evaluation, 60).index.numpy()).all()


def test_of_random_answers_the_expected_accuracy_stands_beside_that_by_the_rule(evaluation):
    """One noisy copy of a linear classifier is right with the probability Phi(distance / sigma)."""
    metric = PGD(norm="l2", images=40, restarts=2, steps=8, smooth=0.2, eot=1, eps="16/255")
    measured = metric.compute(evaluation)
    arrays = measured.arrays
    assert "eot=1" in measured.protocol
    assert "smooth=0.2" in measured.protocol
    assert "sure=5/5" in measured.protocol
    assert "verified=6/10" in measured.protocol
    x = torch.from_numpy(arrays["adversarial"])
    side = np.where(
        evaluation.model.logits(2 * x - 1).argmax(dim=1).numpy() == arrays["label"], 1, -1
    )
    right = normal.cdf(side * evaluation.model.exact(x, "l2").numpy() / 0.2)
    value = measured.values["pgd-l2@16/255-expected"]
    assert value.value == pytest.approx(100 * (1 - arrays["wrong"]).mean())
    assert value.value == pytest.approx(100 * right.mean(), abs=100 * 4 * 0.5 / np.sqrt(400))
    assert measured.values["pgd-l2@16/255"].value > value.value + 5  # the rule favours the defender
    standing = ~arrays["found"] & ~arrays["unverified"]
    near = np.linalg.norm((arrays["adversarial"] - arrays["image"] / 255).reshape(40, -1), axis=1)
    assert near[standing] == pytest.approx(
        np.full(standing.sum(), 16 / 255), rel=0.1
    )  # what was tried is kept, not the image


def test_of_a_search_the_expected_accuracy_is_of_the_nearest_images(evaluation):
    measured = PGD(norm="l2", images=20, restarts=1, steps=5, smooth=0.05, eot=2).compute(
        evaluation
    )
    arrays = measured.arrays
    within = arrays["found"] & (arrays["distance-l2"] <= 64 / 255)
    often = np.where(within, arrays["wrong"], arrays["wrong-as-it-is"])
    assert measured.values["pgd-l2@64/255-expected"].value == pytest.approx(
        100 * (1 - often).mean()
    )
    assert not any("expected" in label for label in PGD(images=5).compute(evaluation).values)


def test_an_eps_of_its_own(evaluation):
    measured = PGD(images=130, restarts=2, eps="8/255").compute(evaluation)
    chosen = choose(evaluation, 130)
    right = evaluation.model.classes(chosen.images) == chosen.labels
    standing = float(
        (right & (evaluation.model.exact(chosen.images / 255, "linf") > 8 / 255)).double().mean()
    )
    assert set(measured.values) == {"pgd-linf@8/255"}
    assert measured.values["pgd-linf@8/255"].value == pytest.approx(100 * standing)
    assert 0 < standing < 0.9
    assert "eps=8/255" in measured.protocol


def test_fewer_images_are_the_first_of_more_and_the_same_for_every_model(evaluation, fake):
    few, more = choose(evaluation, 20), choose(evaluation, 50)
    assert torch.equal(few.index, more.index[:20])
    assert len(set(more.index.tolist())) == 50
    assert len(choose(evaluation, 1000).images) == 130
    without_model = fake.Evaluation(
        sets=evaluation.sets, labels=evaluation.labels, model=None, spec=DATA, seed=7
    )
    assert torch.equal(choose(without_model, 50).index, more.index)


def test_the_size_of_a_shard_changes_nothing(evaluation, monkeypatch):
    metric = PGD(images=20, restarts=3, steps=10)
    whole = metric.compute(evaluation)
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 7)
    evaluation.memory.clear()
    parts = metric.compute(evaluation)
    np.testing.assert_allclose(
        parts.arrays["distance-linf"], whole.arrays["distance-linf"], atol=1e-6
    )
    assert parts.protocol == whole.protocol


def test_shards_are_remembered_and_told(evaluation):
    metric = PGD(images=120, restarts=1, steps=3)
    metric.compute(evaluation)
    assert evaluation.told == [(0, 120), (50, 120), (100, 120)]
    seen = evaluation.model.seen
    again = metric.compute(evaluation)
    assert evaluation.model.seen == seen
    assert again.values == metric.compute(evaluation).values
    PGD(images=120, restarts=1, steps=2).compute(evaluation)
    assert evaluation.model.seen > seen  # another attack has other shards


def test_when_the_time_is_up_there_is_a_number_of_what_is_done(evaluation):
    metric = PGD(images=120, restarts=1, steps=3)
    evaluation.shards_left = 2
    partial = metric.compute(evaluation)
    assert partial.details["partial"] == "100 of 120 images"
    assert partial.values["pgd-linf"].n == 100
    assert "images=100" in partial.protocol
    evaluation.shards_left = None
    seen = evaluation.model.seen
    whole = metric.compute(evaluation)
    assert "partial" not in whole.details
    assert evaluation.model.seen - seen < 20 * 1000  # of the third shard alone
    np.testing.assert_array_equal(
        whole.arrays["distance-linf"][:100], partial.arrays["distance-linf"]
    )


def test_a_refined_model_needs_chains():
    plain, refined = PGD(), PGD(refine=10, grad="bpda")
    assert plain.requires == {"logits", "labels", "gradients"}
    assert refined.requires == plain.requires | {"energy", "samples", "chains"}


def test_the_numbers_behind_a_name_never_change():
    """Results in stores go by the name: a budget of other numbers needs another one."""
    assert {
        "paper": Budget(images=300, restarts=20, steps=40, tolerance=0.01, eot=5, queries=25_000),
        "quick": Budget(images=25, restarts=2, steps=10, tolerance=0.05, eot=1, queries=1_000),
    } == BUDGETS
