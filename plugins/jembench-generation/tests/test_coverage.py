"""Precision, recall, density and coverage against their definitions, written out with
scikit-learn's neighbours.
"""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Generator

from jembench_generation import balls as module
from jembench_generation.balls import Balls, OpenBalls, precision_recall


def features(n, seed, shift=0.0, dimensions=4):
    generator = Generator().manual_seed(seed)
    x = torch.randn(n, dimensions, generator=generator, dtype=torch.float64)
    return x + shift


def coverage_in_sklearn(judged, manifold, k):
    # without the point itself
    neighbours = NearestNeighbors().fit(manifold)
    distances, _ = neighbours.kneighbors(n_neighbors=k)
    balls = distances[:, -1]
    distance = torch.cdist(judged, manifold).numpy()
    return (distance <= balls).any(axis=1).mean()


@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall_agree_with_scikit_learns_neighbours(k):
    generated = features(80, 0, shift=0.5)
    real = features(120, 1)
    expected = coverage_in_sklearn(generated, real, k), coverage_in_sklearn(real, generated, k)
    # torch-fidelity: float32 mean
    assert precision_recall(generated, real, k) == pytest.approx(expected, abs=1e-7)


def test_the_same_images_are_precise_and_complete_and_far_ones_neither():
    real = features(50, 0)
    assert precision_recall(real, real, 3) == (1.0, 1.0)
    assert precision_recall(real + 100, real, 3) == (0.0, 0.0)


@pytest.mark.parametrize("k", [1, 3])
def test_copies_in_a_resample_do_not_shrink_the_balls(k, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 32)
    judged = features(40, 0)
    manifold = features(60, 1)
    drawn = np.random.default_rng(0).integers(60, size=60)
    distinct = np.unique(drawn)
    expected = 100 * coverage_in_sklearn(judged, manifold[distinct], k)
    precision = Balls(judged, manifold, k).precision()
    measured = precision(np.arange(40)[None], drawn[None])
    assert measured == pytest.approx([expected])


def test_a_resample_of_fewer_images_than_neighbours_takes_the_furthest_ball():
    manifold = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    judged = torch.tensor([[4.5], [9.5]], dtype=torch.float64)
    only_the_first = np.zeros((1, 3), dtype=int)
    precision = Balls(judged, manifold, 2).precision()
    assert precision(np.array([[0, 1]]), only_the_first).tolist() == [50]


def density_coverage(generated, real, k):
    """Naeem et al.'s definitions: open balls up to the k-th nearest real image."""
    neighbours = NearestNeighbors().fit(real)
    distances, _ = neighbours.kneighbors(n_neighbors=k)
    radii = distances[:, -1]
    inside = torch.cdist(generated, real).numpy() < radii
    density = inside.sum(axis=1).mean() / k
    return density, 100 * inside.any(axis=0).mean()


def values(generated, real, k):
    balls = OpenBalls(generated, real, k)
    whole = [np.arange(len(images))[None] for images in (generated, real)]
    density = balls.density()(*whole)
    coverage = balls.coverage()(*whole)
    return float(density[0]), float(coverage[0])


@pytest.mark.parametrize("k", [1, 5])
def test_density_and_coverage_agree_with_their_definitions(k):
    generated = features(80, 0, shift=0.5)
    real = features(120, 1)
    expected = density_coverage(generated, real, k)
    assert values(generated, real, k) == pytest.approx(expected)


def of_the_resample(generated, real, drawn, drawn_real, k):
    """Precision, density and coverage by their definitions, with copies of images."""
    distinct = np.unique(drawn_real)
    radii = np.zeros(len(real))
    neighbours = NearestNeighbors().fit(real[distinct])
    distances, _ = neighbours.kneighbors(n_neighbors=k)
    radii[distinct] = distances[:, -1]
    distance = torch.cdist(generated[drawn], real[drawn_real])
    inside = distance.numpy() < radii[drawn_real]
    share = len(distinct) / len(drawn_real)
    density = inside.sum(axis=1).mean() * share / k
    return 100 * inside.any(axis=1).mean(), density, 100 * inside.any(axis=0).mean()


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_resamples_agree_with_the_definitions_where_points_are_inside_most_balls_and_few(
    scale, monkeypatch
):
    monkeypatch.setattr(module, "_BLOCK", 32)
    generated = scale * features(80, 0, dimensions=8)
    real = features(120, 1, dimensions=8)
    rng = np.random.default_rng(0)
    drawn = rng.integers(80, size=(5, 80))
    drawn_real = rng.integers(120, size=(5, 120))
    balls = OpenBalls(generated, real, 3)
    assert balls.always.any(), "some pairs are inside in every resample"
    assert len(balls.point) > 0, "and some in a part of them"
    statistics = (balls.precision(), balls.density(), balls.coverage())
    columns = [statistic(drawn, drawn_real) for statistic in statistics]
    measured = np.stack(columns, axis=1)
    resamples = zip(drawn, drawn_real, strict=True)
    expected = [of_the_resample(generated, real, *both, 3) for both in resamples]
    assert measured == pytest.approx(np.array(expected), rel=1e-12)


def test_density_and_coverage_of_copies_are_full_and_of_far_images_nothing():
    real = features(50, 0)
    assert values(real, real, 5) == pytest.approx((1, 100))
    _, coverage = values(real[:1].expand(50, -1), real, 5)
    assert coverage < 40
    assert values(real + 100, real, 5) == (0, 0)
    # open balls of radius 0 are empty
    copies = real[:1].expand(10, -1)
    assert values(copies, copies, 5) == (0, 0)


def test_rounding_errors_of_float32_features_move_no_copy_into_a_ball():
    real = features(300, 0, dimensions=64)
    rng = np.random.default_rng(0)
    jitter = 2e-7 * torch.from_numpy(rng.uniform(-1, 1, real.shape))
    moved = values(real + jitter, real, 5)
    assert moved == values(real, real, 5) == pytest.approx((1, 100))


@pytest.mark.parametrize("value", ["precision", "density", "coverage"])
def test_the_spread_of_resamples_is_that_of_independent_sets(value):
    whole = (np.arange(100)[None], np.arange(120)[None])
    rng = np.random.default_rng(0)
    statistics = []
    for seed in range(100):
        generated = features(100, 3 * seed, 0.5, 8)
        balls = OpenBalls(generated, features(120, 3 * seed + 1, 0.0, 8), 3)
        statistics.append(getattr(balls, value)())
    drawn = rng.integers(100, size=(100, 100)), rng.integers(120, size=(100, 120))
    spreads = [statistic(*drawn).std() for statistic in statistics[:5]]
    of_sets = [statistic(*whole) for statistic in statistics]
    assert np.mean(spreads) == pytest.approx(np.std(of_sets), rel=0.25)
