"""Tests of memorisation against scipy, brute force and images that are copies."""

import numpy as np
import pytest
from fake_evaluation import FakeEvaluation, PixelFeatures, random_images
from scipy.stats import mannwhitneyu, norm
from sklearn.cluster import KMeans

from jembench.errors import Unavailable
from jembench_generation.memorisation import Memorisation, data_copying, rank_score


def nearest(images, train):
    distance = np.linalg.norm(images[:, None] - train[None], axis=2)
    return distance.min(axis=1), distance.argmin(axis=1)


def test_the_score_of_ranks_is_scipys():
    rng = np.random.default_rng(0)
    samples, test = rng.integers(0, 9, 30), rng.integers(0, 9, 50)  # with ties
    u = mannwhitneyu(samples, test).statistic
    assert rank_score(samples, test) == pytest.approx(
        (u - (30 * 50 / 2 - 0.5)) / np.sqrt(30 * 50 * 81 / 12)
    )
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
    scores = [
        rank_score(distance[cell == number], of_test[test_cell == number]) for number in (0, 1)
    ]
    found = data_copying(distance, cell, of_test, test_cell)
    drawn = rng.integers(100, size=(1, 100)), rng.integers(80, size=(1, 80))
    assert found(np.arange(100)[None], np.arange(80)[None]) == pytest.approx(
        [(scores[0] + 2 * scores[1]) / 3]
    )
    resample = data_copying(
        *(values[drawn[0][0]] for values in (distance, cell)),
        *(v[drawn[1][0]] for v in (of_test, test_cell)),
    )
    assert found(*drawn) == resample(np.arange(100)[None], np.arange(80)[None])
    # 21 samples in the first cell
    barely = data_copying(distance[29:51], cell[29:51], of_test, test_cell)
    samples = np.array([[*range(20), 21, 21]] * 2)
    tests = np.stack([np.arange(80), np.full(80, 79)])
    assert barely(samples, tests) == pytest.approx([rank_score(distance[29:49], of_test[:20]), 0])
    with pytest.raises(Unavailable, match="No cell with test images has more than 20 samples"):
        data_copying(distance[:20], cell[:20], of_test, test_cell)(
            np.arange(20)[None], np.arange(80)[None]
        )


def c_t_from_the_definition(train, test, samples, cells, components):
    """Distances within the cells of k-means, in principal components, scored by scipy."""
    centre = train.mean(axis=0)
    axes = np.linalg.svd(train - centre, full_matrices=False)[2][:components].T
    train, test, samples = ((points - centre) @ axes for points in (train, test, samples))
    partition = KMeans(cells, n_init=10, random_state=0).fit(train)
    scores, weights = [], []
    for cell in range(cells):
        in_train, in_test, in_samples = (
            points[partition.predict(points) == cell] for points in (train, test, samples)
        )
        if len(in_samples) <= 20:
            continue
        of_samples, of_test = (nearest(points, in_train)[0] for points in (in_samples, in_test))
        n = len(of_samples)
        m = len(of_test)
        u = mannwhitneyu(of_samples, of_test, alternative="less").statistic
        scores.append((u - (n * m / 2 - 0.5)) / np.sqrt(n * m * (n + m + 1) / 12))
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
    samples, train, test = (
        evaluation.network.features(images).pool.double().numpy()
        for images in (evaluation.sampled[order], *evaluation.sets.values())
    )
    distance, which = nearest(samples, train)
    between = np.linalg.norm(train[:, None] - train[None], axis=2) + np.diag(np.full(300, np.inf))
    assert new.values["authentic-net"].value == pytest.approx(
        100 * np.mean(between.min(axis=0)[which] < distance)
    )
    whole = Memorisation(cells=1, resamples=0).compute(evaluation).values["ct-net"]
    assert whole.value == pytest.approx(rank_score(distance, nearest(test, train)[0]))
    in_cells = Memorisation(components=3, resamples=0).compute(evaluation).values["ct-net"]
    assert in_cells.value == pytest.approx(c_t_from_the_definition(train, test, samples, 3, 3))
    evaluation.sampled = evaluation.sets["train"][100:250]
    copies = metric.compute(evaluation)
    assert copies.values["authentic-net"].value == 0
    assert copies.values["ct-net"].high < -5
    with pytest.raises(
        Unavailable,
        match="memorisation needs at least 61 generated images, more than 20 in one of 3",
    ):
        metric.compute(evaluation.but(sampled=evaluation.sampled[:60]))
