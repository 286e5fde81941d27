import math

import pytest

from jembench.experiment import recipe as recipes
from jembench.training import guard
from jembench.training.guard import Adjustment, Intervention, Starts

HEALTHY = {
    "loss": 1.5,
    "cross_entropy": 0.5,
    "energy_data": -40.0,
    "energy_samples": -41.0,
    "highest_data": -36.0,
    "highest_sample": -30.0,
}
STARTS = Starts(highest=-10.0, mean=-20.0)


def verdict(*changes, starts=STARTS):
    return guard.verdict([HEALTHY | change for change in changes or [{}]], starts)


def test_nothing_is_wrong_with_a_healthy_window():
    assert verdict({}, {}, {}) is None


def test_a_model_without_chains_is_judged_by_its_loss_alone():
    rows = [{"loss": 0.3, "cross_entropy": 0.3}] * 2
    assert guard.verdict(rows, None) is None
    assert guard.verdict([*rows, {"loss": math.inf, "cross_entropy": 0.3}], None) == "loss was inf"


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


def test_energies_that_explode_with_those_of_random_starts_show_in_the_cross_entropy():
    exploded = HEALTHY | {"cross_entropy": 12.0}
    assert guard.verdict([exploded, exploded], STARTS) == "the cross-entropy was 12 nats"
    assert guard.verdict([exploded, HEALTHY], STARTS) is None  # it has come back by itself
    assert guard.verdict([HEALTHY | {"cross_entropy": 9.9}] * 2, STARTS) is None


@pytest.mark.parametrize(("highest", "wrong"), [(50.0, False), (50.1, True), (-1000.0, False)])
def test_the_highest_sample_is_compared_with_the_highest_random_start(highest, wrong):
    """The start lies 30 above the data: a sample may lie 90 above them."""
    found = verdict({"highest_sample": highest})
    text = "the highest sample lay 90.1 above the data in energy, the highest random start 30"
    assert found == (text if wrong else None)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (-10.0, None),
        (-9.9, "samples lay 30.1 above the data in energy, random starts 20"),
        (-70.0, None),
        (-70.1, "samples lay 30.1 below the data in energy, random starts 20 above"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "joint_"])
def test_the_mean_sample_is_compared_with_the_mean_random_start(prefix, samples, expected):
    row = {
        prefix + name if name.startswith("energy") else name: value
        for name, value in HEALTHY.items()
    }
    assert guard.verdict([row | {f"{prefix}energy_samples": samples}] * 3, STARTS) == expected


def test_of_two_energies_that_of_the_chains_is_judged():
    """Starts of conditional chains have E(x, y), which E(x) is not compared with."""
    row = HEALTHY | {"joint_energy_data": -40.0, "joint_energy_samples": -9.9}
    expected = "samples lay 30.1 above the data in energy, random starts 20"
    assert guard.verdict([row] * 3, STARTS) == expected
    other = HEALTHY | {"energy_samples": -9.9}
    healthy = other | {"joint_energy_data": -40.0, "joint_energy_samples": -41.0}
    assert guard.verdict([healthy] * 3, STARTS) is None


def test_a_distance_counts_if_it_is_large_in_the_mean_and_still_at_the_end():
    near, far = {}, {"highest_sample": 60.0, "energy_samples": 0.0}
    assert verdict(far, far, near) is None  # it has closed
    assert verdict(near, near, far) is None  # it may close
    assert verdict(near, far, far, far, far, far) is not None


def test_where_images_lie_higher_than_random_starts_they_take_their_place():
    # 1 and .5 above the data; the highest image lies 4 above
    low = Starts(highest=-39.0, mean=-39.5)
    assert verdict({"highest_sample": -28.1}, starts=low) is None
    assert verdict({"highest_sample": -27.9}, starts=low) is not None
    assert verdict({"energy_samples": -34.1}, starts=low) is None
    assert verdict({"energy_samples": -33.9}, starts=low) is not None


def test_chains_that_are_still_at_their_starts_are_no_divergence():
    """As in the first 60 iterations with layer norm: a gap of 12 nats, and random starts as far
    above the data.
    """
    row = {"energy_data": -9.1, "energy_samples": 2.9, "highest_data": -8.3, "highest_sample": 5.9}
    assert verdict(*[row] * 20, starts=Starts(highest=5.9, mean=2.9)) is None


def test_a_collapse_that_an_energy_penalty_keeps_finite_is_divergence():
    """A penalty of .01 holds the energies at -50 and 50, and the classifier is right on 95 % of the
    images.
    """
    row = {
        "loss": -49.7,
        "energy_data": -49.9,
        "energy_samples": 49.7,
        "highest_data": -45.0,
        "highest_sample": 56.0,
    }
    assert verdict(*[row] * 20, starts=Starts(highest=37.2, mean=4.2)) == (
        "samples lay 99.6 above the data in energy, random starts 54.1"
    )


NEAR_DATA = [-0.05] * 10


def windows(*distances, scale=1.0, shift=0.0, attempt=0):
    """Windows in which samples lie so far above the data; the data lie at -40, the highest image 5
    above.
    """
    rows = [
        {"energy_data": -40, "highest_data": -35, "energy_samples": -40 + 5 * distance}
        for distance in distances
    ]
    moved = [{name: scale * energy + shift for name, energy in row.items()} for row in rows]
    return [
        row | {"iteration": 20 * number, "attempt": attempt} for number, row in enumerate(moved, 1)
    ]


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (1e-3, 0), (64, 1e4)])
def test_chains_that_leave_the_data_for_good_are_divergence(scale, shift):
    """Measured, layer norm: not in every window a little further, and never as far as random
    starts.
    """
    measured = [0.59, 0.69, 0.76, 0.79, 0.84, 0.81, 0.85]
    found = guard.lost_contact(windows(*NEAR_DATA, *measured, scale=scale, shift=shift))
    assert (
        found == "samples lay above the data for 5 windows, by 0.85 times as much as the highest "
        "training image"
    )
    assert guard.lost_contact(windows(*NEAR_DATA, *measured[:-1], scale=scale, shift=shift)) is None


@pytest.mark.parametrize(
    "distances",
    [
        [],
        [0.9] * 30,  # never had contact: a slow start
        [*NEAR_DATA[1:], *[0.9] * 5],  # still at the start
        [*NEAR_DATA, 0.9, 0.9, 0.9, 0.9, 0.74],  # found again
        [*NEAR_DATA, 0.9, 0.9, 0.74, 0.9, 0.9, 0.9, 0.9],
        [*NEAR_DATA, *[-3.0] * 9],  # below the data: judged by the random starts
        [*[-3.0] * 10, *[0.9] * 5],  # below the data is not near it either
    ],
)
def test_other_distances_are_none(distances):
    assert guard.lost_contact(windows(*distances)) is None


def test_at_the_end_of_the_training_the_last_window_is_enough():
    assert guard.lost_contact(windows(*NEAR_DATA, 0.75), ended=True) == (
        "samples lay above the data for the last window, by 0.75 times as much as the highest "
        "training image"
    )
    assert guard.lost_contact(windows(*NEAR_DATA, 0.9, 0.74), ended=True) is None
    assert guard.lost_contact(windows(*[0.9] * 30), ended=True) is None


def test_the_last_window_of_a_repaired_training_is_judged_without_former_contact():
    """Measured: a fit of 17 windows that was repaired four times ended 4.7 images' distances above
    the data.
    """
    found = guard.lost_contact(windows(*NEAR_DATA[1:], 0.9, 1.5, 4.7, attempt=4), ended=True)
    assert found == (
        "samples lay above the data for the last window, by 4.7 times as much as the highest "
        "training image"
    )
    assert guard.lost_contact(windows(*NEAR_DATA[1:], 4.7, 0.74, attempt=4), ended=True) is None
    assert guard.lost_contact(windows(*[0.9] * 30, attempt=4)) is None  # begun anew, and on its way
    assert guard.lost_contact(windows(*[0.9] * 30), ended=True) is None  # without a repair


def test_windows_that_training_went_back_from_do_not_count():
    history = windows(*NEAR_DATA, *[0.9] * 4)
    again = windows(*NEAR_DATA, 0.9)[-1:]
    assert guard.lost_contact(history + history[-1:]) is None
    assert guard.lost_contact(history + again) is None
    assert guard.is_doubtful(history + again)
    assert (
        guard.lost_contact(history + again + history[-3:] + windows(*[0.9] * 15)[-1:]) is not None
    )


def test_a_state_is_doubtful_while_chains_are_away_from_the_data():
    assert not guard.is_doubtful([])
    assert not guard.is_doubtful(windows(*[0.9] * 30))
    assert not guard.is_doubtful(windows(*NEAR_DATA, 0.9, 0.24))
    assert guard.is_doubtful(windows(*NEAR_DATA, 0.25))
    # after a repair one window near the data is enough
    assert guard.is_doubtful(windows(-0.05, 0.25, attempt=1))
    assert not guard.is_doubtful(windows(0.9, 0.25, attempt=1))
    assert not guard.is_doubtful(windows(-0.05, -3.0, attempt=1))
    assert not guard.is_doubtful([{"iteration": 20, "attempt": 1}])  # a model without chains


@pytest.mark.parametrize("spread", [0.0, -1.0, math.nan])
def test_images_that_all_have_one_energy_give_no_measure(spread):
    flat = [
        row | {"highest_data": row["energy_data"] + spread}
        for row in windows(*NEAR_DATA, *[0.9] * 9)
    ]
    assert guard.lost_contact(flat) is None


VERA_HEALTHY = [-0.77, -1.68, -1.28, -0.77, -0.53, -0.12, 0.17, 0.22, 0.31, 0.06, 0.33, 0.12]
"""Measured: the farthest of three trainings of VERA on digits, window by window."""

VERA_COLLAPSED = [-0.29, -0.96, 0.07, 0.75, 0.7, 0.96, 1.11, 1.15, 1.04, 1.31, 1.31, 1.53, 1.35]
"""Measured with generator_rate=0.5, seed 5, which ended 47 nats from the data."""


def test_a_generator_that_collapses_is_divergence_and_a_healthy_one_is_not():
    for count in range(len(VERA_HEALTHY) + 1):
        for ended in (False, True):
            history = windows(*VERA_HEALTHY[:count])
            assert guard.lost_contact(history, ended=ended, chains=False) is None
    lost = [
        guard.lost_contact(windows(*VERA_COLLAPSED[:count]), chains=False) is not None
        for count in range(len(VERA_COLLAPSED) + 1)
    ]
    assert lost.index(True) == 11
    assert guard.is_doubtful(windows(*VERA_COLLAPSED[:4]), chains=False)
    assert not guard.is_doubtful(windows(*VERA_COLLAPSED[:3]), chains=False)


def test_data_of_one_energy_and_samples_of_another_are_a_collapse_of_a_generator():
    flat = [row | {"highest_data": row["energy_data"]} for row in windows(*[0.9] * 5)]
    assert guard.lost_contact(flat, chains=False).startswith(
        "samples lay above the data for 5 windows, by inf times"
    )
    below = [row | {"highest_data": row["energy_data"]} for row in windows(*[-0.9] * 5)]
    assert guard.lost_contact(below, chains=False).startswith(
        "samples lay below the data for 5 windows"
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 64.0])
@pytest.mark.parametrize("shift", [-5000.0, 0.0, 1e4])
@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        *(({"highest_sample": highest}, highest > 50) for highest in (49.9, 50.1)),
        *(({"energy_samples": samples}, samples > -10) for samples in (-10.1, -9.9)),
        *(({"energy_samples": samples}, samples < -70) for samples in (-69.9, -70.1)),
    ],
)
def test_the_verdict_is_the_same_for_energies_in_other_units_and_from_another_zero(
    scale, shift, change, wrong
):
    def moved(energy):
        return scale * energy + shift

    row = {
        name: value if name in ("loss", "cross_entropy") else moved(value)
        for name, value in (HEALTHY | change).items()
    }
    assert (guard.verdict([row] * 3, Starts(*map(moved, STARTS))) is not None) == wrong


@pytest.mark.parametrize("start", [math.nan, -math.inf])
def test_random_starts_without_energies_are_no_excuse(start):
    assert verdict(starts=Starts(start, start)) == f"the energy of a random start was {start}"


@pytest.mark.parametrize(
    "rows", [[{"loss": 1.0}], [{"loss": 1.0, "energy_data": 0.0, "energy_samples": 99.0}]]
)
def test_energies_that_a_model_does_not_give_are_not_judged(rows):
    assert guard.verdict(rows, STARTS) is None


def intervened(*remedies):
    return [
        Intervention(iteration=8, reason="it went wrong", returned_to=4, remedy=remedy)
        for remedy in remedies
    ]


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


@pytest.mark.parametrize("mode", ["off", "watch"])
def test_only_a_repair_has_remedies(mode):
    assert guard.remedies(recipes.load("digits", [f"guard.mode={mode}"]), chains=True) == ()


def test_what_remedies_made_different_in_words():
    recipe = recipes.load("digits", ["energy_l2=0.05"])
    changed = Adjustment(seeds=4, steps=2, rate=0.09, energy_l2=0.1)
    assert (
        guard.describe(changed, recipe, 8)
        == "8 sampling steps, 0.09 times the learning rate, energy_l2 = 0.1"
    )
    assert guard.describe(Adjustment(seeds=3), recipe, 4) == ""
