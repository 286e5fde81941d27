"""How long a run will still take, in closed form."""

import pytest

from jembench.running.eta import Eta

TRAIN, MEASURE = ("train", "jem"), ("measure", "jem")


def units(count, group=TRAIN):
    return {f"{group[0]} {number}": group for number in range(count)}


def eta_of(groups):
    eta = Eta()
    for unit, group in groups.items():
        eta.queued(unit, group)
    return eta


def run(eta, unit, start, end):
    eta.started(unit, start)
    eta.ended(unit, end, done=True, again=False)


def test_nothing_is_said_before_there_is_anything_to_estimate_from():
    eta = eta_of(units(2))
    assert eta.left(0) is None
    eta.started("train 0", 0)
    eta.progressed("train 0", 0.1, 10)
    assert eta.left(20) is None


def test_one_after_the_other_each_takes_as_long_as_the_first():
    eta = eta_of(units(4))
    run(eta, "train 0", 100, 160)
    assert eta.left(160) == 180
    eta.started("train 1", 160)
    assert eta.left(180) == 160


def test_a_run_without_units_or_whose_units_have_ended_takes_no_time():
    assert eta_of({}).left(0) == 0
    eta = eta_of(units(1))
    run(eta, "train 0", 0, 60)
    assert eta.left(60) == 0


def test_a_running_unit_is_estimated_from_its_own_speed():
    eta = eta_of(units(2))
    eta.started("train 0", 0)
    eta.progressed("train 0", 0.25, 40)  # resumed there, after 40 seconds
    eta.progressed("train 0", 0.5, 60)
    assert eta.left(70) == 30 + 100


def test_what_takes_longer_than_expected_is_expected_to_take_still_longer():
    eta = eta_of(units(4))
    run(eta, "train 0", 0, 10)
    eta.started("train 1", 10)
    assert eta.left(15) == 5 + 20
    assert eta.left(20) == 0 + 20
    # over by 30 of 40 seconds: 70 in all, and the two that wait take (10 + 70) / 2 each
    assert eta.left(50) == 30 + 80


def test_a_training_that_went_back_is_estimated_anew():
    eta = eta_of(units(1))
    eta.started("train 0", 0)
    for fraction, time in [(0.1, 10), (0.5, 50), (0.4, 60), (0.5, 80)]:
        eta.progressed("train 0", fraction, time)
    assert eta.left(80) == pytest.approx(0.5 * 20 / 0.1)


def test_as_many_as_have_run_at_once_share_the_work():
    eta = eta_of(units(10))
    for number in (0, 1):
        eta.started(f"train {number}", 0)
    for number in (0, 1):
        eta.ended(f"train {number}", 50, done=True, again=False)
    assert eta.left(50) == 8 * 50 / 2


def test_a_run_ends_no_sooner_than_its_longest_unit():
    eta = eta_of(units(4))
    for number in range(4):
        eta.started(f"train {number}", 0)
    for number in range(3):
        eta.ended(f"train {number}", 10, done=True, again=False)
    eta.progressed("train 3", 0.1, 10)
    eta.progressed("train 3", 0.2, 20)
    assert eta.left(20) == 80


def test_units_last_as_long_as_those_most_like_them():
    eta = eta_of({**units(2), **units(2, MEASURE), "glow": ("train", "glow")})
    run(eta, "train 0", 0, 100)
    assert eta.left(100) is None  # how long does it take to measure?
    run(eta, "measure 0", 100, 110)
    assert eta.left(110) == 100 + 10 + 100  # one of each group, and one of the same kind


def test_what_failed_says_nothing_of_durations():
    eta = eta_of(units(3))
    run(eta, "train 0", 0, 100)
    eta.started("train 1", 100)
    eta.ended("train 1", 101, done=False, again=False)
    assert eta.left(101) == 100


def test_what_was_stopped_is_to_be_done_again_and_what_was_dropped_is_not():
    eta = eta_of(units(3))
    run(eta, "train 0", 0, 100)
    eta.started("train 1", 100)
    eta.ended("train 1", 150, done=False, again=True)
    assert eta.left(150) == 200
    for _ in range(2):  # the worker says it, and the executor
        eta.ended("train 1", 150, done=False, again=False)
    assert eta.left(150) == 100


def test_a_unit_of_another_run_changes_nothing():
    eta = eta_of(units(1))
    eta.started("?", 0)
    eta.ended("?", 5, done=True, again=False)
    assert eta.left(5) is None
