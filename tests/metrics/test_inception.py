from __future__ import annotations

import fidelity
import numpy as np
import pytest
import torch
from scipy.stats import entropy

from jembench.metrics.feature_scores import (
    inception_score,
    inception_score_in_order,
    resampled_score,
)
from jembench.metrics.generation import IS


@pytest.fixture
def logits():
    return 3 * torch.randn(203, 5, generator=torch.Generator().manual_seed(0))


def score_in_numpy(logits, splits):
    logits = logits.double().numpy()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    p = p[np.random.RandomState(2020).permutation(len(p))]  # torch-fidelity's own shuffle
    scores = []
    for i in range(splits):
        chunk = p[i * len(p) // splits : (i + 1) * len(p) // splits]
        divergence = (chunk * (np.log(chunk) - np.log(chunk.mean(axis=0)))).sum(axis=1)
        scores.append(np.exp(divergence.mean()))
    return np.mean(scores)


@pytest.mark.parametrize("splits", [1, 10])
def test_the_score_agrees_with_numpy(splits, logits):
    assert inception_score(logits, splits) == pytest.approx(
        score_in_numpy(logits, splits), rel=1e-12
    )


@pytest.mark.parametrize("splits", [1, 7, 10])
def test_the_score_is_torch_fidelitys_to_the_last_bit(splits, logits):
    expected = fidelity.inception_score(logits.double(), splits)
    assert inception_score(logits, splits) == expected


def test_sure_and_diverse_images_score_the_number_of_classes():
    logits = 1000 * torch.eye(4).repeat(50, 1)
    assert inception_score(logits, splits=1) == pytest.approx(4)


def test_undecided_or_identical_images_score_one():
    assert inception_score(torch.zeros(50, 4), splits=5) == pytest.approx(1)
    assert inception_score(
        torch.tensor([[9.0, 0.0, 0.0]]).repeat(50, 1), splits=5
    ) == pytest.approx(1)


def test_the_resampled_score_is_the_score_of_the_resample(logits):
    indices = np.random.default_rng(0).integers(203, size=(3, 203))
    expected = [fidelity.inception_score(logits[row], 10, shuffle=False) for row in indices]
    assert resampled_score(logits, 10)(indices) == pytest.approx(expected, rel=1e-12)


def test_a_class_of_probability_zero_does_no_harm():
    logits = torch.tensor([[0.0, -2000.0], [0.0, -2000.0]])
    assert resampled_score(logits, 1)(np.array([[0, 1]])) == pytest.approx([1.0])


def test_barratt_and_sharma_cut_the_images_as_they_come_and_leave_the_rest_out(logits):
    p = logits.double().softmax(dim=1).numpy()
    scores = []
    for k in range(10):
        part = p[k * 20 : (k + 1) * 20]  # 203 // 10
        marginal = part.mean(axis=0)
        scores.append(np.exp(np.mean([entropy(image, marginal) for image in part])))
    assert inception_score_in_order(logits, 10) == pytest.approx(np.mean(scores), rel=1e-12)


def test_the_second_implementation_takes_the_images_in_the_order_of_the_buffer(fake):
    """If images are sorted by class, each split has one class, and scores 1."""
    classes = torch.arange(60) // 20
    images = fake.images(3, 1)[classes]

    def score(implementation, order):
        evaluation = fake.Evaluation(sampled=images[order])
        measured = IS(splits=3, implementation=implementation, resamples=20).compute(evaluation)
        assert f"implementation={implementation}" in measured.protocol
        (value,) = measured.values.values()
        return value.value

    ordered, shuffled = (
        torch.arange(60),
        torch.randperm(60, generator=torch.Generator().manual_seed(0)),
    )
    assert score("barratt-sharma", ordered) == pytest.approx(1)
    assert score("barratt-sharma", shuffled) > 1.01
    assert score("torch-fidelity", ordered) == score("torch-fidelity", shuffled) > 1.01
