from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import Unavailable
from jembench.metrics.classification import log_odds
from jembench.metrics.sample_protocol import SampleProtocol, selected


def random_logits(n=200, classes=5, seed=0):
    return 3 * torch.randn(n, classes, generator=torch.Generator().manual_seed(seed))


def confidence_in_numpy(logits):
    logits = logits.double().numpy()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (p / p.sum(axis=1, keepdims=True)).max(axis=1)


def test_the_log_odds_are_those_of_the_confidence():
    p = confidence_in_numpy(random_logits())
    np.testing.assert_allclose(log_odds(random_logits()).numpy(), np.log(p / (1 - p)), rtol=1e-10)


def test_images_whose_confidence_rounds_to_one_are_told_apart():
    logits = torch.tensor([[90.0, 0.0], [0.0, 100.0], [95.0, 0.0], [1000.0, -1000.0]])
    assert confidence_in_numpy(logits).tolist() == [1.0] * 4
    assert selected(SampleProtocol(selection="model", top=2), logits).tolist() == [1, 3]


@given(top=st.one_of(st.floats(0.01, 0.99), st.integers(2, 200)), seed=st.integers(0, 20))
def test_the_most_confident_are_kept_in_their_order(top, seed):
    logits = random_logits(seed=seed)
    asked = SampleProtocol(selection="features", top=top)
    kept = selected(asked, logits).numpy()
    expected = np.sort(np.argsort(-confidence_in_numpy(logits), kind="stable")[: asked.count(200)])
    np.testing.assert_array_equal(kept, expected)


@given(top=st.sampled_from([5, 14, 0.1, 0.3]), seed=st.integers(0, 20))
def test_of_each_class_its_most_confident_are_kept(top, seed):
    logits = random_logits(seed=seed)
    asked = SampleProtocol(selection="model", top=top, per_class=True)
    of_class, classes, confidence = (
        asked.count(200) // 5,
        logits.argmax(1).numpy(),
        confidence_in_numpy(logits),
    )
    expected = [
        np.flatnonzero(classes == k)[np.argsort(-confidence[classes == k])[:of_class]]
        for k in range(5)
    ]
    assert selected(asked, logits).tolist() == sorted(np.concatenate(expected).tolist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 201}, "200 images are fewer than the 201 most confident to keep. Lower top"),
        ({"top": 4, "per_class": True}, "are 0 per class"),
        (
            {"top": 199, "per_class": True},
            r"39 per class, and the selecting network predicts class \d for \d+",
        ),
    ],
)
def test_more_than_there_are_is_refused(options, message):
    with pytest.raises(Unavailable, match=message):
        selected(SampleProtocol(selection="model", **options), random_logits())


@pytest.mark.parametrize("per_class", [False, True])
def test_the_likeliest_are_kept(per_class):
    logits, log_px = random_logits(), torch.randn(200, generator=torch.Generator().manual_seed(1))
    classes, scores = logits.argmax(1).numpy(), log_px.numpy()
    asked = SampleProtocol(selection="density", top=20, per_class=per_class)
    groups = [np.flatnonzero(classes == k) for k in range(5)] if per_class else [np.arange(200)]
    expected = [group[np.argsort(-scores[group])[: 20 // len(groups)]] for group in groups]
    assert selected(asked, logits, log_px).tolist() == sorted(np.concatenate(expected).tolist())
    assert asked.requires == {"samples", "logits", "energy"}
