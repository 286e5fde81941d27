"""Samples by class: what the model takes its own images for, and which of them are shown."""

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from jembench.interfaces import Samples, Source
from jembench.interfaces.evaluation import KEPT
from jembench.metrics.samples import ClassSamples
from jembench.stats.intervals import wilson

FRESH = Source(chains="fresh", steps=5, images=60, conditional=True)


class Model:
    """Three pixels of an image are its logits."""

    def logits(self, x):
        return 4 * x.flatten(1)[:, :3]


@pytest.fixture
def evaluation(fake):
    images = fake.images(60, 3)
    return fake.Evaluation(
        model=Model(),
        by_source={
            KEPT: Samples(images, None, "buffer"),
            FRESH: Samples(images, torch.arange(60) % 3, "chains:conditional=true,steps=5"),
        },
    )


def by_hand(evaluation):
    pixels = evaluation.by_source[KEPT].images.flatten(1)[:, :3].double() / 255 * 2 - 1
    probabilities = np.exp(4 * pixels.numpy())
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities.argmax(axis=1), probabilities.max(axis=1)


def test_samples_of_chains_on_px_are_counted_by_the_class_that_the_model_sees(evaluation):
    predicted, confidence = by_hand(evaluation)
    measured = ClassSamples().compute(evaluation)
    assert measured.values.keys() == {"classes-kept", "confident-kept"}
    assert measured.values["classes-kept"].value == pytest.approx(
        np.exp(entropy(np.bincount(predicted, minlength=3)))
    )
    hits = int((confidence > 0.9).sum())
    assert 0 < hits < 60
    confident = measured.values["confident-kept"]
    assert confident[:3] == pytest.approx(
        (100 * hits / 60, *(100 * end for end in wilson(hits, 60)))
    )
    assert np.array_equal(measured.arrays["predicted"], predicted)
    assert measured.arrays["confidence"] == pytest.approx(confidence, abs=1e-6)
    assert "labels" not in measured.arrays


def test_the_likeliest_samples_are_counted_by_class(fake):

    class Density(Model):
        def energy(self, x):
            return -x.flatten(1)[:, 0]

    images = fake.images(60, 3)
    evaluation = fake.Evaluation(model=Density(), by_source={KEPT: Samples(images, None, "buffer")})
    measured = ClassSamples(resamples=50).compute(evaluation)
    predicted, _ = by_hand(evaluation)
    first = images.flatten(1)[:, 0].numpy()
    top = np.lexsort((predicted, -first.astype(int)))[:15]
    expected = np.exp(entropy(np.bincount(predicted[top], minlength=3)))
    value = measured.values["classes-densest-kept"]
    assert value.value == pytest.approx(expected)
    assert expected < measured.values["classes-kept"].value


def test_a_given_sampler_draws_new_chains(fake):
    drawn = Samples(fake.images(60, 3), None, "sgld:steps=2")
    evaluation = fake.Evaluation(model=Model(), by_source={Source(sampler="sgld:steps=2"): drawn})
    metric = ClassSamples(sampler="sgld:steps=2", resamples=50)
    assert metric.requires == {"logits"}
    assert metric.compute(evaluation).values.keys() == {"confident-fresh", "classes-fresh"}


def test_samples_of_chains_on_a_class_are_compared_with_it(evaluation):
    predicted, _ = by_hand(evaluation)
    measured = ClassSamples(source="fresh", steps=5, images=60, conditional=True).compute(
        evaluation
    )
    assert measured.values.keys() == {"agreement-fresh"}
    hits = int((predicted == np.arange(60) % 3).sum())
    agreement = measured.values["agreement-fresh"]
    assert agreement[:3] == pytest.approx(
        (100 * hits / 60, *(100 * end for end in wilson(hits, 60)))
    )
    assert (agreement.n, agreement.unit, agreement.better) == (60, "%", "higher")
    assert measured.arrays["labels"].tolist() == [number % 3 for number in range(60)]
