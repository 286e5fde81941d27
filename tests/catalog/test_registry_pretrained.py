"""Factories whose models were trained elsewhere: what they are, and what they are made from."""

import sys

import pytest

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.plan import plan_fit

SOURCE = """
from typing import Annotated
from jembench.catalog.options import Content, Names, pretrained

@pretrained()
def build(
    data, *, file: Annotated[str, Content()], sampler: Annotated[str, Names("samplers")] = "pcd", width: int = 2
): ...

@pretrained()
def alone(data): ...

def trained(data): ...
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A user's module, and a file of weights, in the folder where the user stands."""
    (tmp_path / "elsewhere_of_tests.py").write_text(SOURCE)
    (tmp_path / "w.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    sys.modules.pop("elsewhere_of_tests", None)


def resolve(spec):
    return registry.resolve("models", f"elsewhere_of_tests:{spec}")


def identity(options):
    registry.look_again()
    return resolve(f"build:{options}").identity


def test_a_factory_says_whether_its_models_are_trained_here():
    assert not resolve("trained").is_pretrained
    assert resolve("alone").is_pretrained
    assert resolve("build:file=w.bin").is_pretrained


def test_what_an_option_names_comes_after_itself():
    """The start of the sampler, which an option of the sampler names, is the last one."""
    used = resolve("build:file=w.bin,sampler=sgld").uses
    assert [component.name for component in used] == ["elsewhere_of_tests:build", "sgld", "uniform"]
    assert [component.name for component in resolve("trained").uses] == ["elsewhere_of_tests:trained"]


def test_an_option_that_names_a_component_counts_with_its_defaults():
    one = identity("file=w.bin,sampler=sgld")["arguments"]["sampler"]
    assert (one["name"], one["arguments"]["steps"], one["arguments"]["start"]["name"]) == ("sgld", 100, "uniform")
    assert identity("file=w.bin,sampler=sgld:steps=100") == identity("file=w.bin,sampler=sgld")
    assert identity("file=w.bin,sampler=sgldd")["arguments"]["sampler"] == "sgldd"


# --- plans ------------------------------------------------------------------------------------------------------------

MODEL = "elsewhere_of_tests:alone"


def test_of_the_settings_those_of_chains_are_for_it():
    fit = plan_fit(MODEL, "digits", "digits", ["epochs=5", "chains.sampler=sgld:steps=7"])
    assert (fit.recipe.name, fit.recipe.overrides) == ("pretrained", ("chains.sampler=sgld:steps=7",))
    assert plan_fit(MODEL, "digits", None, ["epochs=5"]).key == plan_fit(MODEL, "digits").key


@pytest.mark.parametrize(
    ("recipe", "settings", "text"),
    [
        (None, ["epoch=5"], "There is no key in recipe digits named 'epoch'. Nearest: epochs"),
        ("nowhere", [], "nowhere"),
        ("pretrained", ["chains.sampler=sgldd"], "There is no sampler named 'sgldd'. Nearest: sgld"),
    ],
)
def test_names_that_do_not_exist_are_told_all_the_same(recipe, settings, text):
    with pytest.raises(SpecError, match=text):
        _ = plan_fit(MODEL, "digits", recipe, settings).key


def test_the_recipe_that_trains_nothing_is_for_no_other():
    assert plan_fit(MODEL, "digits", "pretrained").recipe.name == "pretrained"
    with pytest.raises(SpecError, match="The recipe pretrained trains nothing, and jem is to be trained"):
        plan_fit("jem", "digits", "pretrained")
