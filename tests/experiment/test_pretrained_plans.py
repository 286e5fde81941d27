import pytest

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.plan import plan_fit

MODEL = "zoo_of_tests:painter_alone"

pytestmark = pytest.mark.usefixtures("zoo_of_tests")


def test_a_factory_says_whether_its_models_are_trained_here():
    assert not registry.resolve("models", "zoo_of_tests:jem").is_pretrained
    assert registry.resolve("models", MODEL).is_pretrained


def test_of_the_settings_those_of_chains_are_for_it():
    fit = plan_fit(MODEL, "digits", "digits", ["epochs=5", "chains.sampler=sgld:steps=7"])
    assert (fit.recipe.name, fit.recipe.overrides) == (
        "pretrained",
        ("chains.sampler=sgld:steps=7",),
    )
    assert plan_fit(MODEL, "digits", None, ["epochs=5"]).key == plan_fit(MODEL, "digits").key


@pytest.mark.parametrize(
    ("recipe", "settings", "text"),
    [
        (
            None,
            ["epoch=5"],
            "There is no key in recipe digits-quick named 'epoch'. Nearest: epochs",
        ),
        ("nowhere", [], "nowhere"),
        (
            "pretrained",
            ["chains.sampler=sgldd"],
            "There is no sampler named 'sgldd'. Nearest: sgld",
        ),
    ],
)
def test_names_that_do_not_exist_are_told_all_the_same(recipe, settings, text):
    with pytest.raises(SpecError, match=text):
        _ = plan_fit(MODEL, "digits", recipe, settings).key


def test_the_recipe_that_trains_nothing_is_for_no_other():
    assert plan_fit(MODEL, "digits", "pretrained").recipe.name == "pretrained"
    with pytest.raises(
        SpecError, match="The recipe pretrained trains nothing, and jem is to be trained"
    ):
        plan_fit("jem", "digits", "pretrained")
