"""FID at infinitely many images against closed forms."""

import numpy as np
import pytest
import torch

from jembench.errors import NotApplicable
from jembench.interfaces import Features
from jembench.metrics import feature_scores
from jembench.metrics.feature_scores import resampled_fid
from jembench.metrics.sample_protocol import Generated
from jembench_generation.infinity import FIDInfinity, extrapolated_fid


def test_a_bias_in_proportion_to_1_over_n_is_taken_off(monkeypatch):
    def biased(*drawn):
        bias = sum(300 / indices.shape[1] for indices in drawn)
        return np.full(len(drawn[0]), 5.0) + bias

    monkeypatch.setattr(feature_scores, "resampled_fid", lambda *_: biased)
    statistic = extrapolated_fid(torch.empty(0), torch.empty(0))
    distances = statistic(np.zeros((4, 60), int), np.zeros((4, 120), int))
    assert distances == pytest.approx(np.full(4, 5.0))


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_extrapolated_distance_of_normal_features_is_the_closed_form(shift):
    rng = np.random.default_rng(0)
    d = 8
    n = 200
    everything = np.arange(n)[None]
    plain = []
    distances = []
    for _ in range(40):
        a = torch.from_numpy(rng.normal(shift, 1, (n, d)))
        b = torch.from_numpy(rng.normal(0.0, 1, (n, d)))
        plain += [*resampled_fid(a, b)(everything, everything)]
        distances += [*extrapolated_fid(a, b)(everything, everything)]
    error = np.std(distances) / len(distances) ** 0.5
    distance = d * shift**2
    assert np.mean(distances) == pytest.approx(distance, abs=4 * error)
    assert np.mean(plain) > np.mean(distances) + 0.1


def scored(images, real):
    features = Features(images, images)
    places = torch.arange(len(images))
    sample = Generated(images, features, places, "", {"features": "given"})
    return FIDInfinity().scores(sample, real).estimates["fid-infinity"].value


def test_the_order_in_which_images_come_does_not_decide_their_parts():
    """Sorted by content, the thirds would hold images that are alike."""
    rng = np.random.default_rng(1)
    a = torch.from_numpy(rng.normal(size=(300, 4)))
    b = torch.from_numpy(rng.normal(size=(300, 4)))
    a = a[a[:, 0].argsort()]
    b = b[b[:, 0].argsort(descending=True)]
    assert abs(scored(a, b)) < 0.2


def test_fewer_images_than_the_line_needs_are_refused():
    with pytest.raises(NotApplicable, match="six times as many as"):
        FIDInfinity().require(71, 100, "given", 12)
