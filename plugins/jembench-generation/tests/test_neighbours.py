"""Distances to training images, against brute force and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation, PixelFeatures, random_images
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.neighbors import NearestNeighbors

from jembench.errors import Unavailable
from jembench.stats import intervals
from jembench_generation import neighbours as module
from jembench_generation import neighbours_figure
from jembench_generation.neighbours import Neighbours, memorised, nearest

CPU = torch.device("cpu")
METRIC = Neighbours(resamples=50)


@pytest.fixture
def evaluation():
    """Return 300 training and 200 test images, and 150 fresh samples."""
    sets = {"train": random_images(300, 0), "test": random_images(200, 1)}
    sampled = random_images(150, 2)
    return FakeEvaluation(sets=sets, sampled=sampled, network=PixelFeatures("net", 8))


def brute_force(images, train):
    difference = images[:, None].astype(float) - train[None].astype(float)
    distance = np.linalg.norm(difference, axis=2)
    return distance.min(axis=1), distance.argmin(axis=1)


@pytest.mark.parametrize("block", [7, 1024])
@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_the_nearest_agree_with_brute_force_and_with_scikit_learn(kind, block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    images = random_images(60, 0, 100, 140).flatten(1)
    train = random_images(90, 1, 100, 140).flatten(1)
    if kind == "features":
        images = images.double() / 255 + 1000
        train = train.double() / 255 + 1000
    measurement = nearest(images, train, CPU)
    distance, which = brute_force(images.numpy(), train.numpy())
    assert_allclose(measurement.distance.numpy(), distance, rtol=1e-12)
    assert_array_equal(measurement.position.numpy(), which)
    by_tree = NearestNeighbors(n_neighbors=1, algorithm="kd_tree")
    by_tree.fit(train.double().numpy())
    distances, _ = by_tree.kneighbors(images.double().numpy())
    expected = distances[:, 0]
    assert_allclose(measurement.distance.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("block", [2, 1024])
def test_of_equal_training_images_the_first_is_named(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    train = torch.tensor([[9], [5], [5], [1], [5]], dtype=torch.uint8)
    images = torch.tensor([[5], [2]], dtype=torch.uint8)
    measurement = nearest(images, train, CPU)
    assert measurement.position.tolist() == [1, 3]
    assert measurement.distance.tolist() == [0.0, 1.0]


def test_copies_of_training_images_are_memorised(evaluation):
    evaluation.sampled = evaluation.sets["train"][100:250]
    measurement = METRIC.compute(evaluation)
    for space in ("net", "pixels"):
        assert measurement.values[f"memorised-{space}"].value == 100
        assert measurement.values[f"memorised-{space}"].low > 90
        assert measurement.values[f"nearest-ratio-{space}"].value == 0
        assert (measurement.arrays[f"distance-{space}"] == 0).all()
    assert_array_equal(measurement.arrays["images"], measurement.arrays["neighbours"])


def test_values_arrays_and_id_of_fresh_samples(evaluation):
    measurement = METRIC.compute(evaluation)
    assert list(measurement.values) == [
        "memorised-net",
        "nearest-ratio-net",
        "memorised-pixels",
        "nearest-ratio-pixels",
    ]
    for label, value in measurement.values.items():
        assert value.low <= value.value <= value.high
        assert value.n == 150
        if label.startswith("memorised"):
            assert value.unit == "%"
            assert value.better == "lower"
        else:
            assert value.unit == value.better == ""
    assert 0.8 < measurement.values["nearest-ratio-pixels"].value < 1.25
    order = np.lexsort(evaluation.sampled.flatten(1).numpy().T[::-1])
    sets = (evaluation.sampled[order], *evaluation.sets.values())
    samples, train, test = (images.flatten(1).numpy() for images in sets)
    distance, which = brute_force(samples, train)
    assert_allclose(measurement.arrays["distance-pixels"], distance, rtol=1e-12)
    assert_array_equal(measurement.arrays["nearest-pixels"], which)
    of_test = brute_force(test, train)[0]
    share = 100 * np.mean(distance <= np.sort(of_test)[1])  # two of 200 are 1 %
    assert measurement.values["memorised-pixels"].value == pytest.approx(share)
    ratio = np.median(distance) / np.median(of_test)
    assert measurement.values["nearest-ratio-pixels"].value == pytest.approx(ratio)
    assert measurement.protocol == (
        "neighbours:data=toy,features=net@0,images=150,implementation=jembench,percentile=1,pooling=one-buffer,"
        "selection=none,source=direct,test_images=200,train_images=300"
    )


def test_the_pairs_that_are_shown_are_the_nearest_by_features(evaluation):
    measurement = METRIC.compute(evaluation)
    images = measurement.arrays["images"]
    neighbours = measurement.arrays["neighbours"]
    assert images.shape == neighbours.shape == (32, 1, 4, 4)
    assert images.dtype == neighbours.dtype == np.uint8
    features = images.reshape(32, 16)[:, :8] / 255
    of_neighbours = neighbours.reshape(32, 16)[:, :8] / 255
    of_pairs = np.linalg.norm(features - of_neighbours, axis=1)
    expected = np.sort(measurement.arrays["distance-net"])[:32]
    assert_allclose(of_pairs, expected, atol=1e-6)


def test_of_fresh_samples_the_interval_nearly_always_holds_one_percent():
    """Wilson's interval alone misses it more often than not.

    It takes the threshold as known, and samples are many.
    """
    rng = np.random.default_rng(0)
    held = alone = 0
    for _ in range(200):
        distance = rng.random(5000)
        of_test = rng.random(400)
        statistic = memorised(distance, of_test)
        whole = (np.arange(5000)[None], np.arange(400)[None])
        share = float(statistic(*whole)[0])
        sizes = (5000, 400)
        resampling = intervals.Resampling(statistic, sizes, (0.0, 100.0), 5000)
        low, high = intervals.bootstrap_interval(share, resampling, rng=rng, resamples=100)
        held += low <= 1 <= high
        low, high = intervals.wilson(round(50 * share), 5000)
        alone += low <= 0.01 <= high
    assert held >= 180
    assert alone < 100


def test_few_test_images_or_copies_of_training_images_are_refused(evaluation):
    test = evaluation.sets["test"][:99]
    few = evaluation.but(sets={**evaluation.sets, "test": test})
    with pytest.raises(
        Unavailable, match="neighbours needs at least 100 test images, whose nearest 1 %"
    ):
        METRIC.compute(few)
    evaluation.sets["test"] = evaluation.sets["train"][:200]
    with pytest.raises(
        Unavailable, match="More than half of the test images are copies of training images"
    ):
        METRIC.compute(evaluation)


# --- its figures ----------------------------------------------------------------------------------


@pytest.fixture
def arrays():
    """60 samples with distances by features and by pixels, and five pictures."""
    rng = np.random.default_rng(4)
    measurement = {}
    for name in ("images", "neighbours"):
        measurement[name] = rng.integers(0, 256, (5, 1, 8, 8), dtype=np.uint8)
    for space in ("-digits-cnn", "-pixels"):
        measurement[f"distance{space}"] = rng.uniform(1, 3, 60)
        measurement[f"test-distance{space}"] = rng.uniform(1, 2, 30)
        measurement[f"nearest{space}"] = rng.integers(0, 1000, 60)
    return measurement


def test_pairs_are_those_that_are_nearest_by_the_features(arrays):
    rows = neighbours_figure.pairs("", arrays).rows
    distance = arrays["distance-digits-cnn"]
    assert [row["distance-digits-cnn"] for row in rows] == sorted(distance)[:5]
    indices = [row["index"] for row in rows]
    assert indices == np.argsort(distance)[:5].tolist()
    nearest_pixels = arrays["nearest-pixels"][indices]
    assert [row["nearest-pixels"] for row in rows] == nearest_pixels.tolist()


def test_distances_of_samples_and_test_images_are_counted_in_every_space(arrays):
    rows = neighbours_figure.distances("", arrays).rows
    totals = {}
    for row in rows:
        panel = (row["space"], row["images"])
        totals[panel] = totals.get(panel, 0) + row["count"]
    assert totals == {
        ("features of digits CNN", "test images"): 30,
        ("features of digits CNN", "samples"): 60,
        ("pixels", "test images"): 30,
        ("pixels", "samples"): 60,
    }
