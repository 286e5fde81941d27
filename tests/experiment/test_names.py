"""Display names of models and columns: asked for, stated, and refused."""

import pytest

from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment.names import DisplayNames, display_names, matching
from jembench.store.fits import asked
from jembench.store.outcome import Trained

BATCH = "jem:momentum=0.1,norm=batch"
ADDED = {"norm": "batch", "momentum": "0.1", "marginal": "0.2"}
"""Options of models that a recipe sets; the models below have no ``marginal``."""


@pytest.mark.parametrize(
    ("model", "others", "name"),
    [
        (BATCH, {}, "jem"),
        (BATCH.replace("jem:", "jem:dropout=0.5,"), {"dropout": 0.5}, "jem:dropout=0.5"),
        # the recipe is overridden by a default
        ("jem:momentum=0.1", {"norm": "none"}, "jem:norm=none"),
        ("jem:momentum=0.3,norm=batch", {"momentum": 0.3}, "jem:momentum=0.3"),
        ("Net-0123456789", {"norm": None, "momentum": None}, "Net:momentum=null,norm=null"),
    ],
)
def test_a_model_is_named_without_the_options_that_its_recipe_added(model, others, name):
    arguments = {"norm": "batch", "momentum": 0.1, "dropout": 0.0} | others
    assert asked(Spec(model), arguments, ADDED) == name.replace("null", "none")


def test_a_requested_spec_that_two_models_share_is_no_name():
    fits = {
        Trained("Net-0123456789", "digits", "pretrained"): "Net",
        Trained("Net-abcdef0123", "digits", "pretrained"): "Net",
    }
    assert display_names({}, fits) == DisplayNames()
    other = {
        Trained("Net-0123456789", "digits", "pretrained"): "Net",
        Trained("Net-abcdef0123", "stripes", "pretrained"): "Net",
    }
    assert set(display_names({}, other).models.values()) == {"Net"}


FITS = {
    Trained(BATCH, "digits", "jem++"): "jem",
    Trained("baseline", "digits", "digits"): "baseline",
}


@pytest.mark.parametrize("text", ["jem", BATCH, "jem:norm=batch", "jem*"])
def test_a_model_is_renamed_by_each_text_that_names_it(text):
    assert display_names({text: "Mine"}, FITS).models == {(BATCH, "jem++"): "Mine"}


def test_a_suite_names_a_model_and_what_is_given_names_it_anew():
    of_suite = DisplayNames(models={(BATCH, "jem++"): "Ours"}, recipes={"jem++": "fast"})
    assert display_names({}, FITS, of_suite) == of_suite
    anew = display_names({"Ours": "Mine"}, FITS, of_suite)
    assert anew == DisplayNames(models={(BATCH, "jem++"): "Mine"}, recipes={"jem++": "fast"})


def test_a_metric_or_a_label_is_headed():
    headed = display_names({"ece": "Error"}, FITS, columns={"ece", "nll"})
    assert (headed.models, headed.headings) == (
        display_names({}, FITS).models,
        {"ece": "Error"},
    )
    with pytest.raises(
        SpecError, match=r"no model or column among these results named 'eces'\. Nearest: ece"
    ):
        display_names({"eces": "Error"}, FITS, columns={"ece", "nll"})


def test_a_name_is_that_of_one_model_on_a_dataset_by_a_recipe():
    models = ("jem:norm=batch", "jem:dropout=0.5")
    shown = {Trained(model, "digits", "digits"): model for model in models}
    with pytest.raises(
        SpecError, match=r"'Mine' would be the name of jem:norm=batch and of jem:dropout=0\.5"
    ):
        display_names({"jem": "Mine"}, shown)


def test_matching():
    metrics = ["ood:set=interp", "ood:score=max-py,set=interp", "accuracy"]
    assert matching("metrics", "ood", metrics) == metrics[:2]
    assert matching("metrics", "ood:score=log-px,set=interp", metrics) == ["ood:set=interp"]
    assert matching("metrics", "ood:set=uniform", metrics) == []
    # other options of a metric are another metric
    assert matching("metrics", "ood:set=interp", metrics[1:]) == []
    assert matching("metrics", "*set=interp", metrics) == metrics[:2]
    assert matching("metrics", "gone", ["gone:x=1"]) == ["gone:x=1"]
    assert matching("models", "jem:norm=batch", [BATCH, "jem"]) == [BATCH]
    assert matching(None, "acc*", ["accuracy", "ece"]) == ["accuracy"]
