"""The checks of models: correct ones pass them all, and each fault is told by one check, which says what to do."""

import faulty_densities
import faulty_losses
import faulty_models
import pytest
import torch

from jembench.interfaces import DataSpec
from jembench.testing import DIGITS, check_model, perform
from jembench.testing.checks import PROMISES

COLOURS = DataSpec(name="colours", shape=(3, 4, 6), num_classes=3, bounds=(0.0, 1.0))

FAULTS = [
    ("can-be-made", "fails", "ValueError: no such thing"),
    ("can-be-made", "gives_a_number", "gives a int. Return a torch.nn.Module"),
    ("has-a-capability", "Mute", "Give it a method logits"),
    ("trained-here-or-elsewhere", "Untrainable", "@jembench.plugin.pretrained()"),
    ("options-typed", "fractional_default", "must be a whole number. That is its default"),
    ("options-typed", "text_for_none", "net is None, which written into a spec is read back as 'none'"),
    ("options-typed", "positional_option", "width is not keyword-only"),
    ("shapes-from-data", "made_for_digits_alone", "Take sizes from data.shape"),
    ("shapes-from-data", "DrawsForDigitsAlone", "and the bounds are 0 to 1. Clamp what is drawn to data.bounds"),
    ("logits-shape", "OneLogitMore", "the shape (5, 11) for 5 images. Return (5, 10)"),
    ("energy-shape", "EnergyColumn", "the shape (5, 1) for 5 images. Return (5,)"),
    ("log-prob-shape", "density_column", "the shape (5, 1) for 5 images. Return (5,)"),
    ("samples-shape", "FlatSamples", "Return (5, 1, 8, 8)"),
    ("samples-within-bounds", "Unclamped", "pixels from -3 to 3, and the bounds are -1 to 1"),
    ("labels-taken-or-refused", "NoLabelArgument", "Let it take y=None"),
    ("labels-taken-or-refused", "LabelsNotRefused", "raise jembench.plugin.SpecError"),
    ("answers-are-float32", "Double", "energy(x) is torch.float64"),
    ("answers-are-finite", "NotANumber", "1 of 320 values of sample(n) are not finite"),
    ("one-image", "Squeezes", "squeeze(1) in place of squeeze()"),
    ("each-image-alone", "LooksAround", "energy(x), of the same images in other batches, differs by"),
    ("any-memory-layout", "Views", "Use flatten or reshape in place of view"),
    ("weights-by-seed", "counts_models", "differs in log_scale"),
    ("making-sets-no-seed", "seeds_torch", "global generator of torch"),
    ("making-sets-no-seed", "seeds_numpy", "global generator of numpy"),
    ("same-answer-twice", "ChangesItsMind", "energy(x), asked twice, differs by"),
    ("samples-by-generator", "SamplesAlike", "the same images under another generator"),
    ("samples-by-generator", "SamplesFromItself", "under two equal generators"),
    ("global-randomness", "DrawsGlobally", "energy(x) draws from or seeds the global generator of torch"),
    ("mode-left-alone", "SwitchesToEvaluation", "energy(x) puts the model, net"),
    ("mode-left-alone", "SwitchesInTheLoss", "training_loss puts net"),
    ("images-left-alone", "ChangesImages", "energy(x) changes x in place"),
    ("images-left-alone", "ChangesTheBatch", "training_loss changes x in place"),
    ("state-left-alone", "Remembers", "energy(x) changes seen"),
    ("no-gradients-left", "LeavesGradients", "in place of backward()"),
    ("no-gradients-left", "Freezes", "changes requires_grad"),
    ("energy-is-minus-log-density", "HighEnergyIsLikely", "Lower energy = likelier"),
    ("energy-sums-over-classes", "LowestOfAllClasses", "marginal_energy"),
    ("energy-follows-from-logits", "FollowsNot", "Leave out the attribute"),
    ("class-energies-agree-with-logits", "OtherClassEnergies", "E(x, y) = -f(x)[y]"),
    ("class-densities-agree-with-logits", "Tempered", "which no p(y) explains"),
    ("density-within-its-classes", "PriorForgotten", "log p(y) is -log K"),
    ("density-integrates-to-1", "NotNormalised", "Made for (1, 1, 2), exp(log_prob(x)) integrates to 0.16"),
    ("density-integrates-to-1", "ScaleForgotten", "integrates to 4 over all images, and not to 1"),
    ("density-integrates-to-1", "MassOfLevels", "it is the probability mass of the 256 levels of a pixel"),
    ("density-integrates-to-1", "DensityOfLevels", "subtract D log(width) from log_prob"),
    ("answers-depend-on-the-class", "EnergyOfNoClass", "energy(x, y) is the same for all 10 classes"),
    ("answers-depend-on-the-class", "DensityOfNoClass", "raises jembench.plugin.SpecError for labels"),
    ("samples-depend-on-the-class", "SamplesOfAnyClass", "the same images for each of the 10 classes"),
    ("energy-has-a-gradient", "Detached", "Leave out detach"),
    ("energy-has-a-gradient", "Flat", "dE/dx is zero everywhere"),
    ("gradient-is-of-the-energy", "HalfDetached", "Something on the way from x to the energy is detached"),
    ("chains-are-known", "OtherChains", "one of none, marginal, conditional"),
    ("passes-are-counted", "PassesNever", "passes_per_loss is 0; it must be a whole number of at least 1"),
    ("passes-are-counted", "PassesHalf", "passes_per_loss is 1.5"),
    ("loss-is-a-number", "LossOfOne", "Make it one finite number"),
    ("parts-are-numbers", "AttachedParts", "part.mean().detach()"),
    ("energies-of-the-loss", "EnergyColumns", "the shape (32, 1)"),
    ("loss-pulls-energies-apart", "PushesDataUp", "mean E(data) - mean E(samples)"),
    ("loss-pulls-energies-apart", "EnergiesOfNoLoss", "made of Energies(data, samples)"),
    ("every-parameter-is-trained", "Idle", "No gradient reaches idle"),
    ("loss-by-seed", "NumpyLoss", "global generator of numpy"),
    ("loss-by-seed", "CountsLosses", "under the same seed"),
    ("labels-belong-to-x-labelled", "TakesXForLabelled", "write logits(batch.x_labelled)"),
    ("training-lowers-the-loss", "Ascends", "see to its sign"),
    ("fitted-by-generator", "FitsByChance", "fit draws from or seeds the global generator of torch"),
    ("fitted-to-the-images", "FitsNothing", "what it learns is not stored. Register a buffer"),
    ("saved-and-loaded", "Hides", "neither a parameter nor a buffer"),
    ("saved-and-loaded", "CountsInPython", "a training that is interrupted becomes another one"),
    ("deep-copy", "Twin", "The two share tensors"),
    ("deep-copy", "HoldsAGenerator", "cannot pickle"),
]

NEED_A_GPU = {"follows-its-device"}


def results(spec, data=DIGITS):
    return {check.name: perform(check) for check in check_model(spec, data)}


def result(name, spec, data=DIGITS):
    """The result of one check."""
    return next(perform(check) for check in check_model(spec, data) if check.name == name)


def faulty(model):
    module = next(each for each in (faulty_losses, faulty_densities, faulty_models) if hasattr(each, model))
    return f"{module.__name__}:{model}"


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
def test_a_model_without_fault_passes_every_check(model, data):
    assert [result for result in results(f"sound_models:{model}", data).values() if not result.is_fine] == []


def test_the_correct_models_are_asked_everything():
    asked = {
        name
        for model in ("Mixture", "Contrastive", "Fitted")
        for name, result in results(f"sound_models:{model}").items()
        if result.status == "passed"
    }
    assert asked | NEED_A_GPU == {promise.name for promise in PROMISES["models"]}


@pytest.mark.parametrize(("check", "model", "words"), FAULTS)
def test_one_check_tells_the_fault_and_what_to_do(check, model, words):
    found = results(faulty(model))
    assert {name: r.message for name, r in found.items() if r.status == "failed"}.keys() == {check}
    assert words in found[check].message


def test_every_check_has_a_fault():
    assert {check for check, _, _ in FAULTS} | NEED_A_GPU == {promise.name for promise in PROMISES["models"]}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_tensor_that_stays_behind_is_told_on_a_gpu():
    assert {name for name, result in results(faulty("StaysBehind")).items() if result.status == "failed"} == NEED_A_GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_without_fault_follows_its_device():
    assert result("follows-its-device", "sound_models:Mixture").status == "passed"


@pytest.mark.parametrize("model", ["Mixture", "HeavyTailed", "finished"])
def test_a_density_over_all_of_space_is_integrated_as_well_as_one_within_the_bounds(model):
    assert result("density-integrates-to-1", f"sound_models:{model}").status == "passed"


def normalisation_of(model, bounds):
    data = DataSpec(name="grey", shape=(1, 4, 4), num_classes=0, bounds=bounds)
    return result("density-integrates-to-1", f"faulty_densities:{model}", data)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0)], ids=str)
@pytest.mark.parametrize("model", ["MassOfLevels", "LevelsAround", "LevelsBetween"])
def test_masses_are_told_with_the_width_of_a_bin(model, bounds):
    found = normalisation_of(model, bounds)
    width = (bounds[1] - bounds[0]) / 255
    assert found.status == "failed"
    assert "integrates to width^2, where the width of a level's bin is (high - low) / 255" in found.message
    assert f"data.bounds, {width:.3g}: it is the probability mass" in found.message


@pytest.mark.parametrize("model", ["MassOfLevels", "LevelsAround", "LevelsBetween"])
def test_where_bins_have_width_1_masses_are_densities(model):
    assert normalisation_of(model, (0.0, 255.0)).status != "failed"


def test_a_density_that_is_constant_within_its_bins_is_no_mass():
    found = result("density-integrates-to-1", "sound_models:DiscretisedLogistic")
    assert found.status == "skipped"
    assert "not smooth enough to be integrated numerically" in found.message


def test_a_finished_model_need_not_be_trained():
    found = result("loss-is-a-number", "sound_models:finished")
    assert (found.status, found.message) == ("skipped", "It has no training_loss.")


def test_a_declared_fault_is_an_expected_failure():
    found = result("samples-within-bounds", faulty("excused"))
    assert (found.status, found.message) == ("expected failure", "It is drawn on a larger canvas on purpose.")


def test_a_declared_fault_that_is_none_is_told():
    assert result("samples-within-bounds", faulty("excused_for_nothing")).status == "unexpected success"


def test_names_and_promises_can_be_read():
    for promise in PROMISES["models"]:
        assert promise.name == promise.name.lower()
        assert promise.text.endswith(".")
    assert len({promise.name for promise in PROMISES["models"]}) == len(PROMISES["models"])
