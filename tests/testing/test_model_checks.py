"""The checks of models: correct ones pass them all, and each check finds its faults and says what
to do.
"""

import pytest
import torch

from jembench.interfaces import DataSpec
from jembench.testing import DIGITS, check_model
from jembench.testing.checks import PROMISES, perform

COLOURS = DataSpec(name="colours", shape=(3, 4, 6), num_classes=3, bounds=(0.0, 1.0))

FAULTS = [
    ("can-be-made", "gives_a_number", "returns a int, not a torch.nn.Module"),
    ("has-a-capability", "Mute", "Define a method logits"),
    (
        "output-shapes",
        "EnergyColumn",
        "energy(x) returns (5, 1) for 5 images of (1, 8, 8). Return a tensor of (5,)",
    ),
    ("samples-within-bounds", "Unclamped", "pixels from -3 to 3, and the bounds are -1 to 1"),
    ("shapes-from-data", "made_for_digits_alone", "Take sizes from data.shape"),
    ("labels-taken-or-refused", "NoLabelArgument", "Define y=None"),
    ("outputs-are-finite", "NotANumber", "1 of 320 values of sample(n) are not finite"),
    ("each-image-alone", "Squeezes", "squeeze(1) instead of squeeze()"),
    (
        "each-image-alone",
        "LooksAround",
        "energy(x), of the same images in other batches, differs by",
    ),
    ("weights-by-seed", "counts_models", "differs in log_scale"),
    ("same-output-twice", "ChangesItsMind", "energy(x), computed twice, differs by"),
    ("samples-by-generator", "SamplesAlike", "the same images for another generator"),
    ("global-randomness", "DrawsGlobally", "draws from or seeds the global generator of torch"),
    ("nothing-changed", "SwitchesInTheLoss", "training_loss changes the mode of net"),
    ("nothing-changed", "ChangesImages", "energy(x) changes x"),
    ("nothing-changed", "Remembers", "energy(x) changes seen"),
    ("nothing-changed", "LeavesGradients", "energy(x) changes the gradient of net"),
    ("saved-and-loaded", "Hides", "neither a parameter nor a buffer"),
    ("saved-and-loaded", "CountsInPython", "a resumed training would differ"),
    ("energy-is-minus-log-density", "HighEnergyIsLikely", "a lower energy means a higher density"),
    ("energy-sums-over-classes", "LowestOfAllClasses", "marginal_energy"),
    ("energy-follows-from-logits", "FollowsNot", "Leave out the attribute"),
    ("class-energies-agree-with-logits", "OtherClassEnergies", "E(x, y) = -f(x)[y]"),
    ("class-densities-agree-with-logits", "Tempered", "which no p(y) explains"),
    ("density-within-its-classes", "PriorForgotten", "log p(y) = -log K"),
    ("density-integrates-to-1", "NotNormalised", "exp(log_prob(x)) integrates to 0.4"),
    ("density-integrates-to-1", "LevelsBetween", "subtract log((high - low) / 255)"),
    ("depends-on-the-class", "EnergyOfNoClass", "energy with y is the same for all 10 classes"),
    ("depends-on-the-class", "SamplesOfAnyClass", "sample with y is the same for all 10 classes"),
    ("energy-has-a-gradient", "Detached", "Do not use detach"),
    (
        "gradient-is-of-the-energy",
        "HalfDetached",
        "An operation between x and the energy is detached",
    ),
    ("loss-is-a-number", "LossOfOne", "with the mean over the batch as total"),
    ("energies-of-the-loss", "PushesDataUp", "mean E(data) - mean E(samples)"),
    ("every-parameter-is-trained", "Idle", "No gradient reaches idle"),
    ("every-parameter-is-trained", "IdleInItsPhase", "No gradient reaches idle"),
    ("loss-by-seed", "UnseededLoss", "under the same seed"),
    ("labels-belong-to-x-labelled", "TakesXForLabelled", "use logits(batch.x_labelled)"),
    ("training-lowers-the-loss", "Ascends", "check its sign"),
    (
        "fitted-by-generator",
        "FitsByChance",
        "fit draws from or seeds the global generator of torch",
    ),
    ("fitted-by-generator", "FitsNothing", "the result of fit is not stored. Register a buffer"),
]

NEED_A_GPU = {"follows-its-device"}


def results(spec, data=DIGITS):
    return {check.name: perform(check) for check in check_model(spec, data)}


def result(name, spec):
    """The result of one check."""
    return next(perform(check) for check in check_model(spec) if check.name == name)


@pytest.mark.parametrize("data", [DIGITS, COLOURS], ids=lambda data: data.name)
@pytest.mark.parametrize(
    "model",
    [
        "Mixture",
        "Contrastive",
        "EnergyAlone",
        "HeavyTailed",
        "DiscretisedLogistic",
        "Mixes",
        "Fitted",
        "Network",
        "finished",
    ],
)
def test_a_model_without_fault_fails_no_check(model, data):
    assert {
        r.message for r in results(f"sound_models:{model}", data).values() if r.status == "failed"
    } == set()


def test_the_correct_models_are_asked_everything():
    asked = {
        name
        for model in ("Mixture", "Contrastive", "Fitted")
        for name, result in results(f"sound_models:{model}").items()
        if result.status == "passed"
    }
    assert asked | NEED_A_GPU == {promise.name for promise in PROMISES["models"]}


@pytest.mark.parametrize(("check", "model", "words"), FAULTS)
def test_one_check_finds_the_fault_and_says_what_to_do(check, model, words):
    failure = result(check, f"faulty_models:{model}")
    assert failure.status == "failed"
    assert words in failure.message


def test_every_check_has_a_fault_that_it_finds():
    assert {check for check, _, _ in FAULTS} | NEED_A_GPU == {
        promise.name for promise in PROMISES["models"]
    }


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_tensor_that_stays_behind_is_found_on_a_gpu():
    failed = {
        name for name, r in results("faulty_models:StaysBehind").items() if r.status == "failed"
    }
    assert failed == NEED_A_GPU
