"""The axes of columns: what they hold, and which ticks have labels."""

import pytest

from jembench.report.rows import Row
from jembench.report.scale import _LETTER, Scale, scale


def rows(*values, half=0.0):
    return [
        Row(name="", dataset="", value=value, low=value - half, high=value + half, better="lower")
        for value in values
    ]


def test_a_scale_holds_what_lies_together_and_clips_the_rest():
    axis = scale(rows(1.0, 2.0, 3.0, 1000.0, half=0.5))
    assert axis.low < 0.5 < 3.5 < axis.high < 10
    assert axis.place(1000.0) == 100
    assert axis.place(-1000.0) == 0
    assert axis.place((axis.low + axis.high) / 2) == pytest.approx(50)
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    assert len(axis.ticks) >= 2


def test_labels_of_ticks_leave_room_for_one_another():
    assert [label.text for label in scale(rows(449_280.0, 1.54e6)).labels] == ["500k", "1M", "1.5M"]
    ends = [
        (1e-5, 3e-5),
        (0.00012, 0.00013),
        (-1.2e9, 1e9),
        (1e15, 7e17),
        (-0.5, 0.5),
        (99_999.0, 100_001.0),
    ]
    for values in ends:
        labels = scale(rows(*values)).labels
        assert labels
        widths = [_LETTER * len(label.text) for label in labels]
        sides = []
        for label, width in zip(labels, widths, strict=True):
            sides += [label.middle - width / 2, label.middle + width / 2]
        assert sides == sorted(sides)
        assert sides[0] >= -0.1
        assert sides[-1] <= 100.1


@pytest.mark.parametrize(
    "values", [(1.0,), (0.0, 0.0), (1.0, 1e6), (7.0, 7.0, 7.0, 9.0), (1.0, float("nan"))]
)
def test_every_finite_value_without_a_majority_that_lies_closer_is_inside(values):
    axis = scale(rows(*values))
    assert all(0 < axis.place(value) < 100 for value in values if value == value)


def test_what_is_no_number_has_no_scale():
    assert scale([]) is None
    assert scale(rows(float("inf"))) is None
    axis = scale(rows(1.0, 2.0, 1e308, -1e308, float("inf")))
    assert [axis.place(value) for value in (-1e308, 1e308)] == [0, 100]
    assert axis.high < 10
    assert scale(rows(1.0, 2.0, half=float("inf"))) == scale(rows(1.0, 2.0))


def test_places_are_percentages():
    assert [Scale(0.0, 4.0, ()).place(value) for value in (0.0, 1.0, 4.0)] == [0, 25, 100]
