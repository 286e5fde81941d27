import numpy as np
import pytest
import torch
from scipy.stats import entropy

from jembench.errors import Unavailable
from jembench.metrics.samples import ConfidentSamples


class Model:
    """Three pixels of an image are its logits."""

    def __init__(self, scale=4.0):
        self.scale = scale

    def logits(self, x):
        return self.scale * x.flatten(1)[:, :3]


@pytest.fixture
def evaluation(fake):
    return fake.Evaluation(model=Model(), sampled=fake.images(200, 3))


def by_hand(evaluation, scale=4.0):
    pixels = evaluation.sampled.flatten(1)[:, :3].double() / 255 * 2 - 1
    probabilities = torch.softmax(scale * pixels, dim=1)
    return probabilities.argmax(1).numpy(), probabilities.amax(1).numpy()


def test_the_surest_64_are_found_in_their_order(evaluation):
    predicted, confidence = by_hand(evaluation)
    measured = ConfidentSamples().compute(evaluation)
    surest = np.argsort(-confidence)[:64]
    assert np.array_equal(measured.arrays["shown"], surest)
    assert np.array_equal(measured.arrays["images"], evaluation.sampled.numpy()[surest])
    assert measured.arrays["confidence"] == pytest.approx(confidence, abs=1e-6)
    assert measured.values["confidence-64"].value == pytest.approx(
        100 * confidence[surest].mean(), abs=1e-4
    )
    counts = np.bincount(predicted[surest], minlength=3)
    assert measured.arrays["counts"].tolist() == counts.tolist()
    assert measured.values["classes-64"].value == pytest.approx(np.exp(entropy(counts)))
    for value in measured.values.values():
        assert value.low <= value.value <= value.high
        assert value.n == 64
    assert "images=200" in measured.protocol
    assert "shown=64" in measured.protocol


def test_too_few_samples_are_refused(evaluation):
    evaluation.sampled = evaluation.sampled[:63]
    with pytest.raises(Unavailable, match=r"needs at least 64 samples.*there are 63"):
        ConfidentSamples().compute(evaluation)
