from __future__ import annotations

import pytest

from jembench.errors import Unavailable
from jembench.metrics import factories


def test_the_median_is_not_moved_by_a_window_in_which_the_machine_was_busy(fake):
    evaluation = fake.Evaluation(iteration_seconds=(0.11, 0.10, 9.0, 0.12, 0.10, 0.11, 0.12))
    found = factories.iteration_time().compute(evaluation).values["iteration-time"]
    assert (found.value, found.n, found.unit, found.better) == (0.11, 7, "s", "lower")
    assert 0.09 < found.low <= 0.11 <= found.high < 9.0


def test_the_order_of_windows_does_not_matter(fake):
    seconds = (0.3, 0.1, 0.2, 0.5)
    compute = factories.iteration_time().compute
    assert compute(fake.Evaluation(iteration_seconds=seconds)) == compute(
        fake.Evaluation(iteration_seconds=seconds[::-1])
    )


def test_one_window_has_no_interval(fake):
    found = factories.iteration_time().compute(fake.Evaluation(iteration_seconds=(0.2,)))
    assert found.values["iteration-time"][:3] == (0.2, None, None)


def test_a_model_trained_elsewhere_has_no_timings(fake):
    with pytest.raises(Unavailable, match="trained elsewhere"):
        factories.iteration_time().compute(fake.Evaluation())
