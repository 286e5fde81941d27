from __future__ import annotations

import numpy as np
import pytest
import torch

from jembench.metrics import feature_scores
from jembench.metrics.feature_scores import kid, resampled_kid, standardised
from jembench.metrics.generation import KID


def features(n, seed, shift=0.0):
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed)) + shift


def unbiased_mmd(x, y):
    """From the definition: the mean kernel over different pairs within each set, minus twice that
    between them.
    """
    x, y = x.double().numpy(), y.double().numpy()

    def kernel(a, b):
        return (a @ b / 6 + 1) ** 3

    within = [
        np.mean([kernel(s[i], s[j]) for i in range(len(s)) for j in range(len(s)) if i != j])
        for s in (x, y)
    ]
    return sum(within) - 2 * np.mean([kernel(a, b) for a in x for b in y])


def test_kid_of_all_images_agrees_with_the_definition():
    x, y = features(20, 0), features(20, 1, shift=0.5)
    assert kid(x, y, subsets=1, subset_size=20) == pytest.approx(unbiased_mmd(x, y), rel=1e-10)


def test_the_resampled_kid_is_the_kid_of_the_resample(monkeypatch):
    monkeypatch.setattr(feature_scores, "_BLOCK", 7)
    x, y = features(20, 0), features(25, 1)
    rng = np.random.default_rng(0)
    i, j = rng.integers(20, size=(2, 20)), rng.integers(25, size=(2, 25))
    expected = [unbiased_mmd(x[a], y[b]) for a, b in zip(i, j, strict=True)]
    assert resampled_kid(x, y)(i, j) == pytest.approx(expected, rel=1e-10)


def test_standardising_uses_the_reference_and_leaves_a_constant_feature_alone():
    x, y = features(50, 0), features(70, 1, shift=3.0)
    y[:, 2] = 5.0
    scaled_x, scaled_y = standardised(x, y)
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(scaled_y.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled_y[:, others].std(0), torch.ones(5))
    torch.testing.assert_close(scaled_x[:, 2], x[:, 2] - 5)


def test_only_a_network_other_than_inception_is_standardised(generation, fake):
    """So KID under our own network does not depend on the arbitrary scale of its features, and
    under Inception does.
    """

    class Scaled(fake.Features):
        def features(self, images):
            features = super().features(images)
            return features._replace(pool=16 * features.pool)

    metric = KID(subsets=3, subset_size=40, resamples=0)

    def value(network):
        generation.network = network
        measurement = metric.compute(generation)
        return next(iter(measurement.values.values())).value, measurement.protocol

    plain, protocol = value(fake.Features(name="pixels"))
    assert value(Scaled(name="pixels"))[0] == pytest.approx(plain, rel=1e-9)
    assert "standardised=true" in protocol
    plain, protocol = value(fake.Features(name=""))
    assert value(Scaled(name=""))[0] > 10 * plain
    assert "standardised=false" in protocol
