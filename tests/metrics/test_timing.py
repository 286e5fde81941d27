from __future__ import annotations

import pytest
from torch import nn

from jembench.metrics.training import Cost, IterationTime
from jembench.running.fits import _seconds_of_last_attempt


def test_the_median_is_not_moved_by_a_window_in_which_the_machine_was_busy(fake):
    evaluation = fake.Evaluation(iteration_seconds=(0.11, 0.10, 9.0, 0.12, 0.10, 0.11, 0.12))
    value = IterationTime().compute(evaluation).values["iteration-time"]
    assert (value.value, value.n, value.unit, value.better) == (0.11, 7, "s", "lower")
    assert 0.09 < value.low <= 0.11 <= value.high < 9.0


def test_a_time_that_was_measured_under_load_is_marked(fake):
    def remarks(other_load):
        evaluation = fake.Evaluation(iteration_seconds=(0.2, 0.3), other_load=other_load)
        return IterationTime().compute(evaluation).details["suspicious"]

    assert remarks(3.25) == ["it was measured while other processes computed"]
    assert remarks(0.1) == remarks(None) == []


def test_parameters_are_counted_once_and_buffers_are_none(fake):
    layer = nn.Linear(5, 5)
    values = (
        Cost().compute(fake.Evaluation(model=nn.Sequential(layer, nn.BatchNorm1d(5), layer))).values
    )
    assert values["parameters"].value == 5 * 5 + 5 + 2 * 5


@pytest.mark.parametrize(("seconds", "labels"), [((), []), ((0.2, 0.3), ["iteration-time"])])
def test_hours_are_known_of_a_model_that_was_fitted_at_once_and_name_the_hardware(
    fake, seconds, labels
):
    measured = IterationTime().compute(fake.Evaluation(iteration_seconds=seconds, hours=1.5))
    assert list(measured.values) == [*labels, "training-hours"]
    assert measured.values["training-hours"][:3] == (1.5, None, None)
    assert list(measured.details["undefined"]) == ([] if seconds else ["iteration-time"])
    assert "hardware=" in measured.protocol


def test_the_time_of_a_repaired_training_is_that_of_its_last_attempt():
    """Ten steps of sampling after the repair, where there were five before it."""
    rows = [(0, 9.0), (0, 0.1), (0, 0.1), (1, 0.7), (1, 0.2), (1, 0.3)]
    history = [{"attempt": attempt, "seconds": seconds} for attempt, seconds in rows]
    assert _seconds_of_last_attempt(history) == [0.2, 0.3]
    assert _seconds_of_last_attempt(history[:3]) == [0.1, 0.1]
    assert _seconds_of_last_attempt(history[:1]) == [9.0]
