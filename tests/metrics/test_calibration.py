from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torchmetrics.classification import MulticlassCalibrationError

from jembench.errors import Diverged, SpecError
from jembench.metrics import factories
from jembench.metrics.calibration import Predictions, bin_of, expected_calibration_error, predictions


def made_of(*pairs: tuple[float, bool]) -> Predictions:
    confidence, correct = zip(*pairs, strict=True)
    return Predictions(np.array(confidence), np.array(correct))


@pytest.fixture
def evaluation(fake):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (300,), generator=generator)
    logits = 3 * torch.randn(300, 3, generator=generator)
    logits[torch.arange(300), labels] += 1
    return fake.Evaluation(test_logits=logits, labels=labels)


@pytest.mark.parametrize("bins", [1, 7, 20])
def test_ece_agrees_with_torchmetrics(bins, evaluation):
    probabilities = evaluation.test_logits.double().softmax(1)
    oracle = MulticlassCalibrationError(num_classes=3, n_bins=bins, norm="l1").set_dtype(torch.float64)
    expected = 100 * oracle(probabilities, evaluation.labels).item()
    found = factories.ece(bins=bins).compute(evaluation).values["ece"]
    assert found.value == pytest.approx(expected, abs=1e-4)  # torchmetrics sums in float32


def test_ece_of_a_case_made_by_hand():
    # Bins of width 1/2: [0, .5) holds one, right at .4; [.5, 1] holds three, two of them right, mean confidence .8.
    predicted = made_of((0.4, True), (0.7, True), (0.8, False), (0.9, True))
    expected = 1 / 4 * (1 - 0.4) + 3 / 4 * (0.8 - 2 / 3)
    assert expected_calibration_error(predicted, bins=2) == pytest.approx(expected, abs=1e-15)


def test_a_confidence_of_exactly_one_belongs_to_the_last_bin():
    assert bin_of(np.array([1.0]), bins=20).tolist() == [19]
    together = made_of((1.0, False), (0.96, True))  # one bin: accuracy 1/2, mean confidence .98
    assert expected_calibration_error(together, bins=20) == pytest.approx(0.98 - 0.5)


def test_bins_are_closed_below_and_open_above():
    assert bin_of(np.array([0.0, 0.2499, 0.25, 0.5, 0.75]), bins=4).tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(("correct", "ece"), [(True, 0.0), (False, 1.0)])
def test_the_best_and_the_worst_calibration(correct, ece):
    assert expected_calibration_error(made_of(*[(1.0, correct)] * 5), bins=20) == ece


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50), st.integers(1, 30))
def test_ece_is_the_weighted_gap_between_confidence_and_accuracy(pairs, bins):
    confidence, correct = made_of(*pairs)
    assume(not np.isin(confidence, np.arange(1, bins) / bins).any())  # an edge may round differently there
    expected = 0.0
    for b in range(bins):
        inside = (confidence >= b / bins) & ((confidence < (b + 1) / bins) | (b == bins - 1))
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    assert expected_calibration_error(Predictions(confidence, correct), bins) == pytest.approx(expected, abs=1e-12)


def test_the_softmax_is_taken_in_float64():
    confidence, _ = predictions(torch.tensor([[20.0, 0.0]]), torch.tensor([0]))
    assert confidence[0] == 1 / (1 + np.exp(-20.0)) < 1  # float32 would say 1


def test_ece_and_its_interval_do_not_depend_on_the_order_of_images(evaluation):
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    permuted = dataclasses.replace(
        evaluation, test_logits=evaluation.test_logits[order], labels=evaluation.labels[order]
    )
    ece = factories.ece()
    assert ece.compute(permuted).values == ece.compute(evaluation).values


def test_the_interval_holds_the_estimate_even_for_a_well_calibrated_model(fake):
    """There every resample looks worse than the estimate, and a plain percentile interval would lie above it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 3, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    found = factories.ece().compute(fake.Evaluation(test_logits=logits, labels=labels)).values["ece"]
    assert 0 <= found.low < found.value < found.high <= 100


def test_the_measurement_can_be_scored_again_from_its_arrays(evaluation):
    measurement = factories.ece(bins=15).compute(evaluation)
    assert measurement.protocol == "ece:bins=15,data=toy,data_noise=0,images=300,split=test"
    again = expected_calibration_error(Predictions(**measurement.arrays), 15)
    assert 100 * again == pytest.approx(measurement.values["ece"].value, abs=1e-12)


def test_logits_that_are_not_finite_are_refused(evaluation):
    evaluation.test_logits[0, 0] = torch.nan
    with pytest.raises(Diverged, match="logits of 1 of 300"):
        factories.ece().compute(evaluation)


def test_no_bins_are_refused():
    with pytest.raises(SpecError, match="bins of ece is 0; it must be at least 1"):
        factories.ece(bins=0)
