"""Scores from features, against scikit-learn, autograd and the formulas of the papers, image by
image.
"""

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation, random_images
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from torch import nn

from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.errors import NotApplicable, SpecError
from jembench.metrics.ood import OutOfDistribution
from jembench.models.energies import LogitModel
from jembench_energy_ood.feature_scores import layer_and_input

FITTED = ["knn:k=5", "vim:dim=4", "mahalanobis", "react:percentile=80"]
SCORES = [*FITTED, "ash:percentile=60", "kl-grad-norm"]


@pytest.fixture
def evaluation():
    """Return an evaluation of 9 features and 3 classes, one absent."""
    hidden = nn.Linear(16, 9)
    net = nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(9, 3))
    nn.init.constant_(net[1].bias, 0.5)
    sets = {
        "train": random_images(150, 1),
        "test": random_images(20, 2),
        "inverted": random_images(15, 3, high=200),
    }
    labels = torch.arange(150) % 2 * 2
    labels = {"set_labels": {"train": labels}, "labels": torch.zeros(20, dtype=torch.long)}
    return FakeEvaluation(model=LogitModel(net), sets=sets, **labels)


@pytest.fixture
def features(evaluation):
    """The features by hand, float64."""
    first = evaluation.model.net[1]

    def of(name):
        pixels = to_float(evaluation.sets[name], (-1, 1))
        hidden = pixels.flatten(1) @ first.weight.T + first.bias
        return hidden.clamp(min=0).detach().double().numpy()

    return of


def by_hand(score, h, train, labels, weight, bias):
    """The papers' formulas, with scikit-learn where it has them."""
    name = score.partition(":")[0]
    if name == "knn":
        unit, references = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (h, train))
        neighbours = NearestNeighbors(n_neighbors=5).fit(references)
        distances, _ = neighbours.kneighbors(unit)
        return -distances[:, -1]
    if name == "mahalanobis":
        groups = [train[labels == label] for label in (0, 2)]
        centred = np.concatenate([group - group.mean(axis=0) for group in groups])
        covariance = EmpiricalCovariance(assume_centered=True).fit(centred)
        distances = []
        for group in groups:
            covariance.location_ = group.mean(axis=0)
            distances.append(covariance.mahalanobis(h))
        return -np.min(distances, axis=0)
    if name == "vim":
        origin = np.linalg.lstsq(weight, -bias, rcond=None)[0]
        # right singular vectors, the largest first
        principal = np.linalg.svd(train - origin)[2][:4]

        def residual(x):
            centred = x - origin
            return np.linalg.norm(centred - centred @ principal.T @ principal, axis=1)

        largest = (train @ weight.T + bias).max(axis=1)
        alpha = largest.sum() / residual(train).sum()
        density = logsumexp(h @ weight.T + bias, axis=1)
        return density - alpha * residual(h)
    if name == "react":
        clipped = np.minimum(h, np.quantile(train, 0.8))
        return logsumexp(clipped @ weight.T + bias, axis=1)
    if name == "ash":
        kept = np.zeros_like(h)
        for row, x in zip(kept, h, strict=True):
            largest = np.argsort(-x, kind="stable")[: 9 - round(9 * 0.6)]
            row[largest] = x[largest]
        scale = np.exp(h.sum(axis=1) / kept.sum(axis=1))
        scaled = kept * scale[:, None]
        return logsumexp(scaled @ weight.T + bias, axis=1)
    norms = []
    for x in torch.from_numpy(h):
        w = torch.from_numpy(weight).requires_grad_()
        log_p = (w @ x + torch.from_numpy(bias)).log_softmax(0)
        divergence = -log_p.mean() - np.log(3)
        (slope,) = torch.autograd.grad(divergence, w)
        norms.append(slope.abs().sum().item())
    return np.array(norms)


@pytest.mark.parametrize("score", SCORES)
def test_a_score_is_that_of_its_paper(evaluation, features, score):
    last = evaluation.model.net[3]
    weight = last.weight.detach().double().numpy()
    bias = last.bias.detach().double().numpy()
    metric = OutOfDistribution(set="inverted", score=score, resamples=0)
    measurement = metric.compute(evaluation)
    labels = evaluation.set_labels["train"].numpy()
    for array, images in (("inside", "test"), ("outside", "inverted")):
        train = features("train")
        expected = by_hand(score, features(images), train, labels, weight, bias)
        assert np.ptp(expected) > 1e-3
        assert measurement.arrays[array] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert ("fitted_images=150,fitted_on=train" in measurement.protocol) == (score in FITTED)


def test_the_images_have_the_noise_of_the_protocol_and_features_are_kept(evaluation):
    metric = OutOfDistribution(set="inverted", score="knn:k=5", resamples=0)
    plain = metric.compute(evaluation)
    assert len(evaluation.memory) == 3
    again = metric.compute(evaluation)
    assert np.array_equal(again.arrays["inside"], plain.arrays["inside"])
    assert len(evaluation.memory) == 3
    options = {"set": "inverted", "score": "knn:k=5", "resamples": 0}
    noisy = OutOfDistribution(**options, data_noise=0.1).compute(evaluation)
    assert not np.allclose(noisy.arrays["inside"], plain.arrays["inside"])


class Halved(nn.Module):
    """A network whose logits are changed after its last layer."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x) / 2


def test_the_last_layer_is_the_one_whose_output_is_the_logits():
    head = nn.Linear(16, 3, bias=False)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), head)
    net[1].unused = nn.Linear(16, 3)
    x = torch.randn(4, 1, 4, 4)
    layer, inputs = layer_and_input(LogitModel(net), x)
    assert layer is head
    assert torch.equal(inputs, net[1](x.flatten(1)))
    with pytest.raises(NotApplicable, match=r"logits does not end with an nn\.Linear layer"):
        layer_and_input(LogitModel(Halved()), x)


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        ("knn:k=151", "k of knn is 151, and there are 150 training images"),
        ("vim:dim=9", "dim of vim is 9; it must be less than the number of features, 9"),
    ],
)
def test_options_that_do_not_fit_the_model_are_refused(evaluation, score, reason):
    with pytest.raises(SpecError, match=reason):
        OutOfDistribution(set="inverted", score=score).compute(evaluation)


@pytest.mark.parametrize("spec", ["knn:k=0", "react:percentile=100", "ash:percentile=0"])
def test_options_out_of_range_are_refused(spec):
    with pytest.raises(SpecError):
        registry.resolve("scores", spec)
