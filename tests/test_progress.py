from contextlib import suppress

import pytest

from jembench import progress


@pytest.fixture
def clock(monkeypatch):
    """Moves the clock by some seconds."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    # the default of a field is bound before
    monkeypatch.setattr(progress, "Phase", lambda *a: _at(now[0], *a))
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def _at(moment, *given):
    phase = _PHASE(*given)
    phase.start = moment
    return phase


_PHASE = progress.Phase


def words():
    return progress.now()


def test_nothing_is_being_done():
    assert words() == ("", 0, 0, "")


def test_the_outermost_count_is_a_number_and_inner_ones_are_words(clock):
    with progress.phase("attack", 100, "images") as outer:
        outer.done = 50
        for _ in progress.track(range(40), "sampling", "steps"):
            clock(2)
            break
        loop = progress.track(range(1200), "sampling", "steps")
        next(loop), next(loop)
        clock(2)
        assert words() == ("attack, sampling 1 of 1,200 steps", 50, 100, "images")
        loop.close()
        assert words() == ("attack", 50, 100, "images")
    assert words() == ("", 0, 0, "")


def test_what_is_short_does_not_flicker(clock):
    with progress.phase("reading"), progress.phase("a file"):
        assert words()[0] == "reading"
        clock(progress.LONG)
        assert words()[0] == "reading, a file"


def test_a_duration_is_in_the_unit_in_which_people_say_it():
    texts = [progress.duration(seconds) for seconds in (-1, 32.2, 89, 240, 5399, 5400, 3.6e6)]
    assert texts == ["1 s", "32 s", "89 s", "4 min", "90 min", "1.5 h", "1,000.0 h"]


def test_an_error_ends_the_phases():
    with suppress(ZeroDivisionError), progress.phase("outer"):
        for each in progress.track([1, 0], "inner"):
            assert 1 / each
    assert words() == ("", 0, 0, "")


def test_a_phase_that_counts_nothing_leaves_the_number_to_the_next(clock):
    with (
        progress.phase("feature network cnn"),
        progress.phase("training", 800, "iterations") as inner,
    ):
        inner.done = 7
        clock(2)
        assert words() == ("feature network cnn, training", 7, 800, "iterations")
