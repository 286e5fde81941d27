"""Log p(x) by predicted classes, against a one-way analysis of variance and means that are taken
image by image.
"""

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation, random_images
from scipy.stats import f_oneway

from jembench.errors import NotApplicable
from jembench.metrics.ood import OutOfDistribution
from jembench_energy_ood.by_class import ClassOffset


def evaluation_of(log_px, predicted):
    logits = torch.nn.functional.one_hot(torch.as_tensor(predicted), 3).float()
    return FakeEvaluation(test_energies=-torch.as_tensor(log_px), test_logits=logits)


@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0])
def test_it_is_that_of_an_analysis_of_variance(offset):
    """F = (eta^2 / (K - 1)) / ((1 - eta^2) / (N - K)); and 1 minus the share of the sums of squares
    within classes.
    """
    rng = np.random.default_rng(0)
    predicted = rng.integers(3, size=90)
    log_px = (rng.normal(size=90) + offset * predicted - 500).astype("float32")
    value = ClassOffset().compute(evaluation_of(log_px, predicted)).values["class-offset"]
    groups = [log_px[predicted == number].astype("float64") for number in range(3)]
    f = f_oneway(*groups).statistic
    assert value.value == pytest.approx(2 * f / (2 * f + 87))
    whole = np.concatenate(groups)
    within = sum(((group - group.mean()) ** 2).sum() for group in groups)
    assert value.value == pytest.approx(1 - within / ((whole - whole.mean()) ** 2).sum())
    assert 0 <= value.low <= value.value <= value.high <= 1
    assert value.low < value.high
    assert value.n == 90
    assert value.unit == ""


@pytest.mark.parametrize(
    ("log_px", "share"),
    [([1.0, 1.0, 5.0, 5.0], 1.0), ([1.0, 5.0, 1.0, 5.0], 0.0), ([2.0] * 4, 0.0)],
)
def test_its_ends(log_px, share):
    assert (
        ClassOffset().compute(evaluation_of(log_px, [0, 0, 2, 2])).values["class-offset"].value
        == share
    )


@pytest.fixture
def evaluation():
    """Readings of 40 test images, 30 outliers and 50 validation images."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"test": 40, "inverted": 30, "validation": 50}
    readings = {}
    for name, n in sizes.items():
        readings["logits", name] = 3 * torch.randn(n, 3, generator=generator)
        readings["energy", name] = 200 * torch.randn(n, generator=generator) - 500
    return FakeEvaluation(
        labels=torch.arange(40) % 3,
        sets={name: random_images(n, n) for name, n in sizes.items()},
        set_labels={"validation": None},
        readings=readings,
    )


def minus_its_class(evaluation, name):
    """Log p(x) minus the mean of validation images of the predicted class, one by one."""
    readings = {
        part: (evaluation.readings["logits", part], -evaluation.readings["energy", part].double())
        for part in (name, "validation")
    }
    held = {}
    for logits, log_px in zip(*readings["validation"], strict=True):
        held.setdefault(int(logits.argmax()), []).append(float(log_px))
    logits, log_px = readings[name]
    return log_px - torch.tensor([np.mean(held[int(row.argmax())]) for row in logits])


def test_the_score_subtracts_the_mean_of_the_class(evaluation):
    found = OutOfDistribution(set="inverted", score="log-px-given-class", resamples=0).compute(
        evaluation
    )
    for name, array in (("test", "inside"), ("inverted", "outside")):
        assert np.allclose(found.arrays[array], minus_its_class(evaluation, name))


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
    readings |= {
        (quantity, "train"): readings[quantity, "validation"][:30]
        for quantity in ("logits", "energy")
    }
    trained = metric.compute(WithoutValidation(**{**vars(evaluation), "readings": readings}))
    assert "fitted_images=30,fitted_on=train" in trained.protocol
    readings["energy", "train"] = readings["energy", "train"] + 7.0
    shifted = metric.compute(WithoutValidation(**{**vars(evaluation), "readings": readings}))
    assert np.allclose(shifted.arrays["inside"], trained.arrays["inside"] + 7)
    assert shifted.values == trained.values


def test_a_class_of_no_held_out_image_has_the_mean_of_all(evaluation):
    evaluation.readings["logits", "validation"] = torch.tensor([[2.0, 1.0, 0.0]]).repeat(50, 1)
    found = OutOfDistribution(set="inverted", score="log-px-given-class", resamples=0).compute(
        evaluation
    )
    energies = (evaluation.readings["energy", name].double() for name in ("inverted", "validation"))
    outside, held = (-energy.numpy() for energy in energies)
    assert np.allclose(found.arrays["outside"], outside - held.mean())
