"""When training counts as diverged, and what the remedies come to."""

import math

import pytest

from jembench.training import guard
from jembench.training import recipe as recipes
from jembench.training.guard import Adjustment, Intervention
from jembench.training.recipe import Guard

LIMITS = Guard(gap=10, outlier=5)
HEALTHY = {"loss": 1.5, "cross_entropy": 0.5, "energy_data": -40.0, "energy_samples": -41.0, "highest_sample": -30.0}


def verdict(*changes, start=-32.0, limits=LIMITS):
    """Of a window of healthy iterations, each with some values changed."""
    return guard.verdict([HEALTHY | change for change in changes or [{}]], start, limits)


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_healthy_window():
    assert verdict({}, {}, {}) is None


def test_a_model_without_chains_is_judged_by_its_loss_alone():
    rows = [{"loss": 0.3, "cross_entropy": 0.3}] * 2
    assert guard.verdict(rows, None, LIMITS) is None
    assert guard.verdict([*rows, {"loss": math.inf, "cross_entropy": 0.3}], None, LIMITS) == "loss was inf"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"loss": math.nan}, "loss was nan"),
        ({"loss": -math.inf}, "loss was -inf"),
        ({"loss": 1.1e8}, "loss was 1.1e+08"),
        ({"loss": -1.1e8}, "loss was -1.1e+08"),
        ({"cross_entropy": math.nan}, "cross_entropy was nan"),
        ({"highest_sample": math.nan}, "highest_sample was nan"),
        ({"energy_samples": math.nan}, "energy_samples was nan"),
    ],
)
def test_a_number_that_is_none_or_beyond_1e8(change, text):
    assert verdict({}, change, {}) == text
    assert verdict({"loss": 1e8}) is None


@pytest.mark.parametrize("prefix", ["", "joint_"])
@pytest.mark.parametrize(("samples", "wrong"), [(-50.0, False), (-50.1, True), (-30.0, False), (-29.9, True)])
def test_the_gap_of_a_window_counts_either_way(prefix, samples, wrong):
    row = {"loss": 0.0, f"{prefix}energy_data": -40.0, f"{prefix}energy_samples": samples}
    expected = f"E(data) was -40.0 and E(samples) {samples:.1f}" if wrong else None
    assert guard.verdict([row] * 3, -32.0, LIMITS) == expected


def test_the_gap_of_a_window_is_that_of_its_means():
    pair = {"energy_data": -40.0, "energy_samples": -28.0}, {"energy_data": -40.0, "energy_samples": -34.0}
    assert verdict(*pair) is None
    assert verdict(pair[0], pair[0], pair[1]) is None
    assert verdict(pair[0], pair[0], pair[0]) == "E(data) was -40.0 and E(samples) -28.0"


@pytest.mark.parametrize(("samples", "wrong"), [(-70.0, False), (-70.1, True), (-10.0, False), (-9.9, True)])
def test_one_iteration_may_be_three_times_as_far_apart(samples, wrong):
    """The mean over a window would hide two that point in opposite directions."""
    window = [{"energy_samples": samples}, {"energy_samples": -80.0 - samples}]
    assert verdict(*window) == (f"E(data) was -40.0 and E(samples) {samples:.1f}" if wrong else None)


def test_joint_energies_are_watched_beside_the_others():
    wrong = {"joint_energy_data": 0.0, "joint_energy_samples": 12.5}
    assert verdict(wrong, wrong) == "E(data) was 0.0 and E(samples) 12.5"


@pytest.mark.parametrize(("highest", "wrong"), [(-27.0, False), (-26.9, True), (-100.0, False)])
def test_a_sample_far_above_every_random_start(highest, wrong):
    found = verdict({"highest_sample": highest})
    assert found == (f"a sample had an energy of {highest:.1f}, and no random start above -32.0" if wrong else None)


def test_the_random_starts_are_compared_with_the_last_iteration_as_they_are_of_its_weights():
    assert verdict({"highest_sample": 0.0}, {}) is None
    assert verdict({}, {"highest_sample": 0.0}) is not None


@pytest.mark.parametrize("start", [math.nan, -math.inf])
def test_random_starts_without_energies_are_no_excuse(start):
    assert verdict(start=start).startswith("a sample had an energy of -30.0")


def test_energies_that_a_model_does_not_tell_are_not_watched():
    assert guard.verdict([{"loss": 1.0}], -32.0, LIMITS) is None


def test_the_limits_are_the_recipe_s():
    change = {"energy_samples": -60.0, "highest_sample": 0.0}
    assert verdict(change, limits=Guard(gap=21, outlier=33)) is None
    assert verdict(change, limits=Guard(gap=19, outlier=33)) is not None
    assert verdict(change, limits=Guard(gap=21, outlier=31)) is not None


# --- the ladder -------------------------------------------------------------------------------------------------------


def intervened(*remedies):
    return [Intervention(iteration=8, reason="it went wrong", returned_to=4, remedy=remedy) for remedy in remedies]


def test_nothing_done_changes_nothing():
    assert guard.adjustment([]) == Adjustment(seeds=0, steps=1, rate=1.0, energy_l2=0.0)


def test_remedies_add_up_and_each_begins_randomness_anew():
    done = intervened("seed", "steps", "rate", "energy_l2", "steps", "rate", "energy_l2")
    found = [guard.adjustment(done[:number]) for number in range(1, 8)]
    assert [each.seeds for each in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [each.steps for each in found] == [1, 2, 2, 2, 4, 4, 4]
    assert [each.rate for each in found] == pytest.approx([1, 1, 0.3, 0.3, 0.3, 0.09, 0.09])
    assert [each.energy_l2 for each in found] == [0, 0, 0, 0.1, 0.1, 0.1, 0.1]


def test_a_model_without_chains_is_spared_what_would_do_nothing_for_it():
    recipe = recipes.load("digits", ['guard.ladder=["seed","rate","steps","energy_l2","seed"]'])
    assert guard.remedies(recipe, chains=True) == ("seed", "rate", "steps", "energy_l2", "seed")
    assert guard.remedies(recipe, chains=False) == ("seed", "rate", "seed")


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        ("seed", "a new seed"),
        ("steps", "2 times the sampling steps"),
        ("rate", "0.3 times the learning rate"),
        ("energy_l2", "energy_l2 = 0.1"),
    ],
)
def test_an_intervention_in_words(remedy, words):
    (intervention,) = intervened(remedy)
    assert str(intervention) == f"at iteration 8 it went wrong; back to 4 with {words}"
