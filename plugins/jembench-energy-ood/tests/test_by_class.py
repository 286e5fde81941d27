"""Log p(x) by predicted classes, against a one-way analysis of variance and means that are taken
image by image.
"""

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation, random_images
from scipy.stats import f_oneway
from torch import Generator

from jembench.errors import NotApplicable
from jembench.metrics.ood import OutOfDistribution
from jembench_energy_ood.by_class import ClassOffset


def evaluation_of(log_px, predicted):
    labels = torch.as_tensor(predicted)
    logits = torch.nn.functional.one_hot(labels, 3).float()
    return FakeEvaluation(test_energies=-torch.as_tensor(log_px), test_logits=logits)


@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_it_is_that_of_an_analysis_of_variance(offset):
    """F = (eta^2 / (K - 1)) / ((1 - eta^2) / (N - K)).

    eta^2 is 1 minus the share of the sums of squares within classes.
    """
    rng = np.random.default_rng(0)
    predicted = rng.integers(3, size=90)
    noise = rng.normal(size=90)
    log_px = (noise + offset * predicted - 500).astype("float32")
    value = ClassOffset().compute(evaluation_of(log_px, predicted)).values["class-offset"]
    values = log_px.astype("float64")
    groups = [values[predicted == number] for number in range(3)]
    f = f_oneway(*groups).statistic
    assert value.value == pytest.approx(2 * f / (2 * f + 87))
    whole = np.concatenate(groups)
    within = sum(((group - group.mean()) ** 2).sum() for group in groups)
    total = ((whole - whole.mean()) ** 2).sum()
    assert value.value == pytest.approx(1 - within / total)
    assert 0 <= value.low <= value.value <= value.high <= 1
    assert value.low < value.high
    assert value.n == 90
    assert value.unit == ""


@pytest.mark.parametrize(
    ("log_px", "share"),
    [([1.0, 1.0, 5.0, 5.0], 1.0), ([1.0, 5.0, 1.0, 5.0], 0.0), ([2.0] * 4, 0.0)],
)
def test_its_ends(log_px, share):
    measurement = ClassOffset().compute(evaluation_of(log_px, [0, 0, 2, 2]))
    assert measurement.values["class-offset"].value == share


@pytest.fixture
def evaluation():
    """Readings of 40 test images, 30 outliers and 50 validation images."""
    generator = Generator().manual_seed(0)
    sizes = {"test": 40, "inverted": 30, "validation": 50}
    readings = {}
    for name, n in sizes.items():
        readings["logits", name] = 3 * torch.randn(n, 3, generator=generator)
        noise = torch.randn(n, generator=generator)
        readings["energy", name] = 200 * noise - 500
    sets = {name: random_images(n, n) for name, n in sizes.items()}
    labels = {"labels": torch.arange(40) % 3, "set_labels": {"validation": None}}
    return FakeEvaluation(sets=sets, readings=readings, **labels)


def minus_its_class(evaluation, name):
    """Return log p(x) minus the mean of the class, image by image."""
    readings = {}
    for part in (name, "validation"):
        energy = evaluation.readings["energy", part]
        readings[part] = (evaluation.readings["logits", part], -energy.double())
    held = {}
    for logits, log_px in zip(*readings["validation"], strict=True):
        held.setdefault(int(logits.argmax()), []).append(float(log_px))
    logits, log_px = readings[name]
    means = [np.mean(held[int(row.argmax())]) for row in logits]
    return log_px - torch.tensor(means)


def test_the_score_subtracts_the_mean_of_the_class(evaluation):
    metric = OutOfDistribution(set="inverted", score="log-px-given-class", resamples=0)
    measurement = metric.compute(evaluation)
    for name, array in (("test", "inside"), ("inverted", "outside")):
        assert np.allclose(measurement.arrays[array], minus_its_class(evaluation, name))


def test_a_fitted_score_says_which_images_it_was_fitted_on(evaluation):
    metric = OutOfDistribution(set="inverted", score="log-px-given-class", resamples=0)
    held = metric.compute(evaluation)
    assert "fitted_images=50,fitted_on=validation" in held.protocol

    class WithoutValidation(FakeEvaluation):
        def part(self, name):
            if name == "validation":
                raise NotApplicable("no images were held out")
            return super().part(name)

    readings = evaluation.readings
    for quantity in ("logits", "energy"):
        readings[quantity, "train"] = readings[quantity, "validation"][:30]
    without = WithoutValidation(**{**vars(evaluation), "readings": readings})
    trained = metric.compute(without)
    assert "fitted_images=30,fitted_on=train" in trained.protocol
    readings["energy", "train"] = readings["energy", "train"] + 7.0
    without = WithoutValidation(**{**vars(evaluation), "readings": readings})
    shifted = metric.compute(without)
    expected = trained.arrays["inside"] + 7
    assert np.allclose(shifted.arrays["inside"], expected)
    assert shifted.values == trained.values


def test_a_class_of_no_held_out_image_has_the_mean_of_all(evaluation):
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    evaluation.readings["logits", "validation"] = logits.repeat(50, 1)
    metric = OutOfDistribution(set="inverted", score="log-px-given-class", resamples=0)
    measurement = metric.compute(evaluation)
    readings = evaluation.readings
    energies = (readings["energy", name].double() for name in ("inverted", "validation"))
    outside, held = (-energy.numpy() for energy in energies)
    assert np.allclose(measurement.arrays["outside"], outside - held.mean())
