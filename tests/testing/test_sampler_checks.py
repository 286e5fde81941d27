"""Every check of samplers finds the faults that are planted for it."""

import pytest

from jembench.interfaces import DataSpec
from jembench.testing import DIGITS, check_sampler
from jembench.testing.checks import PROMISES, perform

FAULTS = {
    "WithoutKept": "can-be-made",
    "StartsInLevels": "begins-as-images",
    "CountsNothing": "step-gives-images",
    "KeepsTheGraph": "step-gives-images",
    "ForgetsLabels": "labels-stay",
    "AsksWithoutLabels": "asks-grad-energy",
    "MovesInPlace": "leaves-its-arguments",
    "InformsInPlace": "leaves-its-arguments",
    "DividesBy0": "stays-finite",
    "Uphill": "goes-downhill",
    "LimitsTheBatch": "chains-do-not-disturb-each-other",
    "ByTheClock": "randomness-by-generator",
    "AlwaysTheSame": "randomness-by-generator",
    "Global": "global-randomness",
    "CountsStarts": "inspection",
    "StateOfNumbers": "resumes",
    "ForgetsItsMomentum": "resumes",
    "AgesInFloats": "kept-are-chains",
    "GivesItsBufferAway": "kept-are-chains",
    "KeepsTheBeginning": "goes-on",
    "NeverGoesOn": "goes-on",
}


def statuses(spec, data=DIGITS):
    return {check.name: perform(check).status for check in check_sampler(spec, data)}


@pytest.mark.parametrize(
    "data",
    [
        DataSpec(name="toy", shape=(1, 8, 8), num_classes=10),
        DataSpec(name="colours", shape=(3, 4, 6), num_classes=2, bounds=(0.0, 1.0)),
        DataSpec(name="unlabelled", shape=(1, 3, 5), num_classes=0),
    ],
    ids=lambda data: data.name,
)
def test_a_sampler_without_fault_passes_every_check(data):
    skipped = {"labels-stay"} if data.num_classes == 0 else set()
    by_name = statuses("sound_samplers:Toy", data)
    assert by_name == dict.fromkeys(by_name, "passed") | dict.fromkeys(skipped, "skipped")


@pytest.mark.parametrize("sampler", ["DrawsForTheGentleAlone", "AsksInParts"])
def test_an_unusual_sampler_fails_no_check(sampler):
    by_name = statuses(f"sound_samplers:{sampler}")
    assert by_name == dict.fromkeys(by_name, "passed") | {
        "chains-do-not-disturb-each-other": "skipped"
    }


@pytest.mark.parametrize(("fault", "check"), FAULTS.items())
def test_a_planted_fault_fails_its_check(fault, check):
    (found,) = (each for each in check_sampler(f"faulty_samplers:{fault}") if each.name == check)
    assert perform(found).status == "failed"


def test_every_check_has_a_fault_that_it_finds():
    assert {promise.name for promise in PROMISES["samplers"]} == set(FAULTS.values())
