"""Tests of memorisation against scipy, brute force and images that are copies."""

import numpy as np
import pytest
from fake_evaluation import FakeEvaluation, PixelFeatures, random_images
from scipy.stats import mannwhitneyu, norm
from sklearn.cluster import KMeans

from jembench.errors import Unavailable
from jembench_generation.memorisation import Memorisation, data_copying, rank_score


def nearest(images, train):
    difference = images[:, None] - train[None]
    distance = np.linalg.norm(difference, axis=2)
    return distance.min(axis=1), distance.argmin(axis=1)


def test_the_score_of_ranks_is_scipys():
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 9, 30)
    test = rng.integers(0, 9, 50)  # with ties
    u = mannwhitneyu(samples, test).statistic
    deviation = np.sqrt(30 * 50 * 81 / 12)
    expected = (u - (30 * 50 / 2 - 0.5)) / deviation
    assert rank_score(samples, test) == pytest.approx(expected)
    samples = rng.random(30)
    test = rng.random(50)
    p = mannwhitneyu(samples, test, alternative="less", method="asymptotic").pvalue
    assert norm.cdf(rank_score(samples, test)) == pytest.approx(p)


def test_c_t_is_the_mean_of_the_cells_by_test_images_without_cells_of_few_samples():
    rng = np.random.default_rng(0)
    distance = rng.random(100)
    of_test = rng.random(80)
    cell = np.repeat([0, 1, 2], [50, 30, 20])
    test_cell = np.repeat([0, 1, 2], [20, 40, 20])
    scores = []
    for number in (0, 1):
        samples = distance[cell == number]
        scores.append(rank_score(samples, of_test[test_cell == number]))
    statistic = data_copying(distance, cell, of_test, test_cell)
    drawn = rng.integers(100, size=(1, 100))
    drawn_test = rng.integers(80, size=(1, 80))
    whole = (np.arange(100)[None], np.arange(80)[None])
    assert statistic(*whole) == pytest.approx([(scores[0] + 2 * scores[1]) / 3])
    samples = (distance[drawn[0]], cell[drawn[0]])
    tests = (of_test[drawn_test[0]], test_cell[drawn_test[0]])
    resample = data_copying(*samples, *tests)
    assert statistic(drawn, drawn_test) == resample(*whole)
    # 21 samples in the first cell
    barely = data_copying(distance[29:51], cell[29:51], of_test, test_cell)
    samples = np.array([[*range(20), 21, 21]] * 2)
    tests = np.stack([np.arange(80), np.full(80, 79)])
    score = rank_score(distance[29:49], of_test[:20])
    assert barely(samples, tests) == pytest.approx([score, 0])
    with pytest.raises(Unavailable, match="No cell with test images has more than 20 samples"):
        data_copying(distance[:20], cell[:20], of_test, test_cell)


def c_t_from_the_definition(train, test, samples, cells, components):
    """Distances within the cells of k-means, in principal components, scored by scipy."""
    centre = train.mean(axis=0)
    _, _, directions = np.linalg.svd(train - centre, full_matrices=False)
    axes = directions[:components].T
    train = (train - centre) @ axes
    test = (test - centre) @ axes
    samples = (samples - centre) @ axes
    partition = KMeans(cells, n_init=10, random_state=0).fit(train)
    scores, weights = [], []
    for cell in range(cells):
        in_train = train[partition.predict(train) == cell]
        in_test = test[partition.predict(test) == cell]
        in_samples = samples[partition.predict(samples) == cell]
        if len(in_samples) <= 20:
            continue
        of_samples, _ = nearest(in_samples, in_train)
        of_test, _ = nearest(in_test, in_train)
        n = len(of_samples)
        m = len(of_test)
        u = mannwhitneyu(of_samples, of_test, alternative="less").statistic
        deviation = np.sqrt(n * m * (n + m + 1) / 12)
        scores.append((u - (n * m / 2 - 0.5)) / deviation)
        weights.append(m)
    return np.average(scores, weights=weights)


def test_copies_are_seen_and_new_samples_are_not():
    sets = {"train": random_images(300, 0), "test": random_images(200, 1)}
    sampled = random_images(150, 2)
    network = PixelFeatures("net", 8)
    evaluation = FakeEvaluation(sets=sets, sampled=sampled, network=network)
    metric = Memorisation(resamples=50)
    new = metric.compute(evaluation)
    assert new.protocol == (
        "memorisation:cells=3,components=64,data=toy,features=net@0,images=150,"
        "implementation=jembench,pooling=one-buffer,selection=none,source=direct,test_images=200,train_images=300"
    )
    assert list(new.values) == ["ct-net", "authentic-net"]
    assert new.values["ct-net"].low < 0 < new.values["ct-net"].high
    order = np.lexsort(evaluation.sampled.flatten(1).numpy().T[::-1])
    sets = (evaluation.sampled[order], *evaluation.sets.values())
    pools = [evaluation.network.features(images).pool for images in sets]
    samples, train, test = (pool.double().numpy() for pool in pools)
    distance, which = nearest(samples, train)
    between = np.linalg.norm(train[:, None] - train[None], axis=2)
    between += np.diag(np.full(300, np.inf))
    authentic = between.min(axis=0)[which] < distance
    percent = 100 * np.mean(authentic)
    assert new.values["authentic-net"].value == pytest.approx(percent)
    whole = Memorisation(cells=1, resamples=0).compute(evaluation).values["ct-net"]
    of_test, _ = nearest(test, train)
    assert whole.value == pytest.approx(rank_score(distance, of_test))
    coarse = Memorisation(components=3, resamples=0)
    in_cells = coarse.compute(evaluation).values["ct-net"]
    expected = c_t_from_the_definition(train, test, samples, 3, 3)
    assert in_cells.value == pytest.approx(expected)
    evaluation.sampled = evaluation.sets["train"][100:250]
    copies = metric.compute(evaluation)
    assert copies.values["authentic-net"].value == 0
    assert copies.values["ct-net"].high < -5
    with pytest.raises(
        Unavailable,
        match="memorisation needs at least 61 generated images, more than 20 in one of 3",
    ):
        metric.compute(evaluation.but(sampled=evaluation.sampled[:60]))
