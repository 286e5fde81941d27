"""Every check of samplers catches the fault that is planted for it, and no other does."""

import pytest

from jembench.interfaces import DataSpec
from jembench.testing import DIGITS, check_sampler, perform
from jembench.testing.checks import PROMISES

FAULTS = {
    "WithoutKept": "all-parts",
    "HalfAStep": "length",
    "StartsInDouble": "begins-as-images",
    "InitGivesTuples": "begins-as-images",
    "StartsInLevels": "starts-within-bounds",
    "EnergyOfABatch": "step-keeps-shapes",
    "CountsNothing": "steps-are-counted",
    "ForgetsLabels": "labels-stay",
    "StartsWithoutLabels": "labels-stay",
    "LabelsAnyway": "labels-stay",
    "AsksWithoutLabels": "asks-grad-energy",
    "AsksByName": "asks-grad-energy",
    "AsksWithOthersLabels": "asks-grad-energy",
    "AsksWithLabelsOfOne": "asks-grad-energy",
    "AsksForNone": "asks-grad-energy",
    "MovesInPlace": "leaves-its-arguments",
    "FinishesInPlace": "leaves-its-arguments",
    "KeepsTheGraph": "keeps-no-graph",
    "DividesBy0": "stays-finite",
    "Uphill": "goes-downhill",
    "LimitsTheBatch": "chains-do-not-disturb-each-other",
    "LimitsEachPart": "chains-do-not-disturb-each-other",
    "OneNoise": "each-chain-has-its-own-noise",
    "TellsTheEnd": "step-info-describes-the-start",
    "TellsTheEndInParts": "step-info-describes-the-start",
    "TellsTheLimited": "step-info-describes-the-start",
    "ByTheClock": "same-generator",
    "AlwaysTheSame": "other-generator",
    "Global": "global-randomness",
    "CountsStarts": "looking",
    "StateOfNumbers": "state-is-tensors",
    "ForgetsItsMomentum": "resumes",
    "AgesInFloats": "kept-are-chains",
    "KeepsTheBeginning": "ends-are-kept",
    "NeverGoesOn": "goes-on",
    "GivesItsBufferAway": "kept-is-a-copy",
    "InformsInPlace": "informing",
    "SumsUpWhatItSaw": "informing",
    "BackToFront": "sharing",
    "OnePartOnly": "sharing",
}
UNUSUAL = {
    "WithoutNoise": {"each-chain-has-its-own-noise"},
    "SeldomMoves": set(),
    "DrawsForTheGentleAlone": {"chains-do-not-disturb-each-other"},
    "AsksInParts": set(),
    "AsksOneByOne": set(),
    "AsksPartsAfterNoise": {"chains-do-not-disturb-each-other"},
}


def results(spec, data=DIGITS):
    return [perform(check) for check in check_sampler(spec, data)]


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
    status = {result.check.name: (result.status, result.message) for result in results("sound_samplers:Toy", data)}
    skipped = {"labels-stay"} if data.num_classes == 0 else set()
    assert {name for name, (found, _) in status.items() if found != "passed"} == skipped, status


@pytest.mark.parametrize(("sampler", "skipped"), UNUSUAL.items())
def test_an_unusual_sampler_fails_no_check(sampler, skipped):
    status = {
        result.check.name: result.status for result in results(f"sound_samplers:{sampler}") if result.status != "passed"
    }
    assert status == dict.fromkeys(skipped, "skipped")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(fault):
    failed = {
        result.check.name: result.message for result in results(f"faulty_samplers:{fault}") if result.status == "failed"
    }
    assert list(failed) == [FAULTS[fault]], failed


def test_every_check_has_a_fault_that_it_catches():
    assert {promise.name for promise in PROMISES["samplers"]} == set(FAULTS.values())
