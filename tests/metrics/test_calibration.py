from __future__ import annotations

import numpy as np
import pytest
import torch

from jembench.metrics.classification import ECE, NLL, AdaptiveECE, Brier, ClasswiseECE

ERRORS = {"ece": ECE, "adaptive-ece": AdaptiveECE, "classwise-ece": ClasswiseECE}
SCALED = ERRORS | {"nll": NLL, "brier": Brier}


@pytest.fixture
def evaluation(fake):
    """300 test images and 200 validation images; the model is three times too sure of all."""
    parts = {}
    for seed, (name, n) in enumerate({"test": 300, "validation": 200}.items()):
        generator = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn(n, 3, generator=generator)
        labels = torch.multinomial((logits / 3).softmax(1), 1, generator=generator)[:, 0]
        parts[name] = (logits, labels)
    return fake.Evaluation(
        test_logits=parts["test"][0],
        labels=parts["test"][1],
        readings={("logits", "validation"): parts["validation"][0]},
        set_labels={"validation": parts["validation"][1]},
    )


@pytest.mark.parametrize("bins", [1, 15])
def test_the_classwise_error_is_the_mean_of_the_binary_ones(bins, evaluation):
    probabilities = evaluation.test_logits.double().softmax(1).numpy()
    labels = evaluation.labels.numpy()
    expected = 0.0
    for k in range(3):
        p, is_k = probabilities[:, k], labels == k
        where = np.minimum((p * bins).astype(int), bins - 1)
        expected += sum(abs((is_k - p)[where == b].sum()) for b in range(bins)) / 300 / 3
    value = ClasswiseECE(bins=bins).compute(evaluation).values["classwise-ece"]
    assert value.value == pytest.approx(100 * expected, abs=1e-9)


@pytest.mark.parametrize("name", ERRORS)
def test_scaling_mends_a_model_that_is_too_sure(name, evaluation):
    before = ERRORS[name]().compute(evaluation).values[name].value
    measurement = ERRORS[name](scaling="temperature").compute(evaluation)
    assert measurement.values[f"{name}-scaled"].value < before / 2
    assert measurement.details["temperature"] == pytest.approx(3, rel=0.3)
    assert measurement.details["validation_images"] == 200
    assert "scaling=temperature" in measurement.protocol
    assert "validation_images=200" in measurement.protocol


def test_scaling_changes_no_answer_and_no_test_label_has_a_part_in_it(evaluation):
    ece = ECE(scaling="temperature")
    first = ece.compute(evaluation)
    assert np.array_equal(first.arrays["correct"], ECE().compute(evaluation).arrays["correct"])
    relabelled = evaluation.but(labels=(evaluation.labels + 1) % 3)
    assert ece.compute(relabelled).details == first.details


@pytest.mark.parametrize("name", SCALED)
def test_where_the_validation_images_need_no_scaling_it_changes_nothing(name, evaluation):
    evaluation.readings["logits", "validation"] = (
        torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log().expand(4, 3)
    )
    evaluation.set_labels["validation"] = torch.tensor([0, 0, 1, 2])
    plain, scaled = (
        SCALED[name](scaling=scaling).compute(evaluation) for scaling in ("none", "temperature")
    )
    assert scaled.details["temperature"] == pytest.approx(1, abs=1e-9)
    assert scaled.values[f"{name}-scaled"][:3] == pytest.approx(plain.values[name][:3], abs=1e-6)
