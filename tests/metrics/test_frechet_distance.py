from __future__ import annotations

import fidelity
import numpy as np
import pytest
import scipy.linalg
import torch

from jembench.metrics import feature_scores
from jembench.metrics.feature_scores import (
    Moments,
    fid,
    frechet_distance,
    resampled_fid,
    weighted_moments,
)
from jembench.metrics.generation import FID


def features(n, seed, dimensions=12, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dimensions, dimensions, generator=torch.Generator().manual_seed(99))
    return (torch.randn(n, dimensions, generator=generator) @ mixing) * scale + shift


def fid_in_scipy(first, second):
    """From the definition, with a matrix square root, in float64."""
    a, b = first.double().numpy(), second.double().numpy()
    covariance_a, covariance_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = scipy.linalg.sqrtm(covariance_a @ covariance_b).real
    return ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(covariance_a + covariance_b - 2 * root)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1.5, 0.3), (1.0, 1000.0)])
def test_fid_agrees_with_a_float64_computation(scale, shift):
    first, second = features(200, 0), features(300, 1, scale=scale, shift=shift)
    assert fid(first, second) == pytest.approx(fid_in_scipy(first, second), rel=1e-9)


@pytest.mark.parametrize("dimensions", [2, 12, 64])
@pytest.mark.parametrize("n", [2, 40, 200])  # fewer images than features have singular covariances
def test_fid_is_torch_fidelitys_to_the_last_bit(n, dimensions):
    first, second = features(n, 0, dimensions), features(300, 1, dimensions, scale=1.2, shift=0.1)
    assert fid(first, second) == fidelity.frechet_distance(first, second)


def test_the_distance_of_two_normal_distributions_is_the_closed_form():
    def normal(mean, variance):
        return Moments(np.array([float(mean)]), np.array([[float(variance)]]))

    assert frechet_distance(normal(0, 4), normal(1, 9)) == pytest.approx(1 + (3 - 2) ** 2)


@pytest.mark.parametrize("dimensions", [12, 64])
def test_the_eigenvalue_form_equals_torch_fidelitys_value(dimensions):
    first, second = features(200, 0, dimensions), features(300, 1, dimensions, scale=1.2)
    everything = np.arange(200)[None], np.arange(300)[None]
    assert resampled_fid(first, second)(*everything) == pytest.approx(
        [fid(first, second)], rel=1e-9
    )


@pytest.mark.parametrize(("shift", "shift_of_second"), [(0.0, 0.0), (0.0, 0.5), (1000.0, 1001.0)])
def test_the_resampled_fid_is_the_fid_of_the_resample(shift, shift_of_second):
    first, second = (
        features(100, 0, shift=shift),
        features(150, 1, scale=1.2, shift=shift_of_second),
    )
    rng = np.random.default_rng(0)
    i, j = rng.integers(100, size=(3, 100)), rng.integers(150, size=(3, 150))
    expected = [fid_in_scipy(first[a], second[b]) for a, b in zip(i, j, strict=True)]
    assert resampled_fid(first, second)(i, j) == pytest.approx(expected, rel=1e-9)


def test_a_resample_of_fewer_different_images_than_features_has_a_distance():
    """Its covariance is singular; the trace of the root is the sum of the singular values of the
    features' product.
    """
    first, second = features(15, 0).double().numpy(), features(40, 1, scale=1.2).double().numpy()
    drawn, drawn_of_second = np.arange(15)[None] % 8, np.arange(40)[None]
    a = first[drawn[0]] - first[drawn[0]].mean(axis=0)
    b = second - second.mean(axis=0)
    shared = np.linalg.svd(a @ b.T, compute_uv=False).sum() / np.sqrt(14 * 39)
    apart = first[drawn[0]].mean(axis=0) - second.mean(axis=0)
    expected = apart @ apart + (a * a).sum() / 14 + (b * b).sum() / 39 - 2 * shared
    distances = resampled_fid(torch.from_numpy(first), torch.from_numpy(second))
    assert distances(drawn, drawn_of_second) == pytest.approx([expected], rel=1e-6)


def test_weighted_moments_are_those_of_the_repeated_features():
    x, weights = features(20, 0).double().numpy(), np.arange(20)
    repeated = x.repeat(weights, axis=0)
    mean, covariance = weighted_moments(x, weights.astype(float))
    np.testing.assert_allclose(mean, repeated.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(repeated, rowvar=False), rtol=1e-10)


def test_a_feature_that_never_changes_does_no_harm():
    first, second = features(100, 0), features(100, 1)
    first[:, 3] = second[:, 3] = 2.0
    everything = np.arange(100)[None]
    assert resampled_fid(first, second)(everything, everything) == pytest.approx(
        [fid(first, second)], rel=1e-6
    )


@pytest.mark.parametrize(("dimensions", "has_interval"), [(4, True), (5, False)])
def test_resampling_large_matrices_must_be_asked_for(
    dimensions, has_interval, generation, fake, monkeypatch
):
    monkeypatch.setattr(feature_scores, "SMALL", 4)
    generation.network = fake.Features(dimensions=dimensions)
    by_default = FID().compute(generation).values["fid-pixels"]
    assert (by_default.low is not None) == has_interval
    asked = FID(resamples=10).compute(generation).values["fid-pixels"]
    assert asked.low <= asked.value <= asked.high
