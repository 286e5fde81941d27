"""Factories whose models were trained elsewhere: what they are, and what they are made from."""

import sys

import pytest

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.plan import plan_fit
from jembench.running.session import RunOptions, place

SOURCE = """
from jembench.catalog.options import pretrained

def uses(arguments):
    return [("models", "jem:net=small-4"), ("samplers", arguments["sampler"])]

@pretrained("file", "other", uses=uses)
def build(data, *, file: str, other: str = "a:b", sampler: str = "pcd", width: int = 2): ...

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


def test_content_makes_the_identity_and_the_place_does_not(here):
    one = identity("file=w.bin")
    (here / "folder").mkdir()
    (here / "folder" / "moved.bin").write_bytes(b"weights")
    assert identity("file=folder/moved.bin") == identity(f"file={here}/w.bin") == identity("file=./w.bin") == one
    assert identity("file=w.bin,width=3") != one
    (here / "w.bin").write_bytes(b"others!")
    assert identity("file=w.bin") != one


def test_an_import_path_stands_for_itself_unless_it_is_a_file(here):
    assert identity("file=w.bin,other=zoo:build")["arguments"]["other"] == "zoo:build"
    (here / "zoo:build").write_bytes(b"weights")
    both = identity("file=w.bin,other=zoo:build")["arguments"]
    assert both["other"] == both["file"]


@pytest.mark.parametrize(
    ("file", "cause"), [("nowhere.bin", "No such file or directory"), (".", "Is a directory"), ("", "Is a directory")]
)
def test_a_file_that_cannot_be_read_is_told(file, cause):
    with pytest.raises(SpecError) as caught:
        identity(f"file={file}")
    assert str(caught.value) == f"file of elsewhere_of_tests:build is {file!r}, which cannot be read: {cause}. " + (
        "Check the path."
    )


def test_a_file_that_must_not_be_read_is_told(monkeypatch):
    def refuse(files):
        raise PermissionError(13, "Permission denied", str(files[""]))

    monkeypatch.setattr(registry, "content", refuse)
    with pytest.raises(SpecError, match=r"is 'w\.bin', which cannot be read: Permission denied\. Check the path"):
        identity("file=w.bin")


def test_what_it_is_made_from_comes_after_itself():
    used = resolve("build:file=w.bin,sampler=sgld").uses
    assert [component.name for component in used] == ["elsewhere_of_tests:build", "jem", "sgld"]
    assert [component.name for component in resolve("trained").uses] == ["elsewhere_of_tests:trained"]


def test_what_it_is_made_from_must_be_installed():
    with pytest.raises(SpecError, match=r"There is no sampler named 'sgldd'\. Nearest: sgld"):
        _ = resolve("build:file=w.bin,sampler=sgldd").uses


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


def test_no_number_of_processes_is_too_many_for_no_training():
    place([plan_fit(MODEL, "digits")], RunOptions(devices=7))
    with pytest.raises(SpecError, match="cannot be shared out evenly among 7 processes"):
        place([plan_fit("jem", "digits")], RunOptions(devices=7))
