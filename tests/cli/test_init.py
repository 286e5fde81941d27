"""``jembench init``: the file says what the command line says."""

import dataclasses
import re
import tomllib
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jembench.catalog import discovery
from jembench.catalog.options import keyword_parameters
from jembench.cli import init
from jembench.cli.attack import attack
from jembench.cli.run import run
from jembench.experiment import suite_files as suites
from jembench.experiment.attacks import ATTACKS
from jembench.experiment.planning import make_plan

# --- every option has a place -----------------------------------------------------------------------------------------


def names(command):
    return {parameter.name for parameter in command.params if isinstance(parameter, click.Option)}


def test_every_option_of_run_has_a_place_in_the_file_or_a_reason_to_have_none():
    placed = {field.option for field in init.FIELDS} - {"suite"}
    assert names(run) | {"plugin"} == placed | init.EXCLUDED.keys()  # which every command gets when it is called
    assert not placed & init.EXCLUDED.keys()
    assert names(init.init) >= placed


def test_every_option_of_attack_is_one_of_run_or_of_the_table_of_an_attack():
    known = [keyword_parameters(discovery.load(discovery.find("metrics", name))) for name in ATTACKS]
    assert names(attack) - names(run) <= {option for takes in known for option in takes}


# --- the same plan ----------------------------------------------------------------------------------------------------

SPECS = st.sampled_from(["jem", "baseline", "jem:net=small-4", "baseline:norm=batch", "jem:dropout=0.1,net=small-4"])
OPTIONS = {
    "models": st.lists(SPECS, min_size=1, max_size=3, unique=True),
    "datasets": st.sampled_from([["digits"], ["cifar10", "digits"]]),
    "metrics": st.lists(st.sampled_from(["accuracy", "ece:bins=9", "nll", "fid"]), min_size=1, unique=True),
    "seeds": st.lists(st.integers(0, 10**18 - 1), min_size=1, max_size=3, unique=True).map(tuple),
    "recipe": st.sampled_from(["digits", "fast", "paper"]),
    "settings": st.lists(
        st.sampled_from(["epochs=3", "data.flip=true", "chains.sampler=sgld:steps=3", "guard.mode=off"]), unique=True
    ),
    "limit": st.integers(1, 10**6),
}


@pytest.mark.parametrize("suite", ["hybrid", "divergence", "labels"])
@given(chosen=st.fixed_dictionaries({}, optional=OPTIONS))
@settings(max_examples=5)
def test_the_file_has_the_plan_of_the_command_line(tmp_path_factory, suite, chosen):
    path = tmp_path_factory.mktemp("init") / "mine.toml"
    path.write_text(init.document(suites.load(suite), {"include": [suite], **chosen}))
    of_file, of_options = make_plan(suites.load(str(path))), init.plan_of(suite, chosen)
    assert [cell.id for cell in of_file.cells] == [cell.id for cell in of_options.cells]
    assert [part.metrics for part in of_file.parts] == [part.metrics for part in of_options.parts]
    assert of_file.suite.references == of_options.suite.references


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_is_read_back_as_it_was(text):
    assert tomllib.loads(f"a = {init.toml([text])}") == {"a": [text]}


# --- the command ------------------------------------------------------------------------------------------------------


def test_every_line_that_is_commented_out_can_be_used(tmp_path):
    text = init.document(suites.load("hybrid"), {"include": ["hybrid"]})
    used = re.sub(r"^# (?=\[\[|\w+ = )", "", text, flags=re.MULTILINE)
    path = tmp_path / "mine.toml"
    path.write_text(used)
    loaded = suites.load(str(path))
    assert None not in dataclasses.asdict(loaded.run).values()
    plan = make_plan(loaded)
    assert [fit.model.component.name for fit in plan.fits] == ["jem", "baseline", "jem"]
    assert {cell.metric.component.name for cell in plan.cells} >= {"accuracy", "pgd"}


def test_the_file_is_printed_or_written_and_runs(jembench):
    chosen = ("--models", "jem,baseline", "--seeds", "0,1,2", "--set", "epochs=20", "-j", "2", "--store", "mine")
    printed = jembench("init", "hybrid", *chosen)
    written = jembench("init", "hybrid", *chosen, "--output", "mine.toml")
    assert (printed.code, written.code, written.out) == (0, 0, "mine.toml\n")
    assert Path("mine.toml").read_text() == printed.out
    assert tomllib.loads(printed.out)["run"] == {"store": "mine", "executor": "processes:jobs=2"}
    by_file = jembench("run", "mine.toml", "--dry-run", "--format", "json")
    assert (by_file.code, by_file.out) == (0, jembench("run", "hybrid", *chosen, "--dry-run", "--format", "json").out)
    again = jembench("init", "hybrid", "--output", "mine.toml")
    assert (again.code, Path("mine.toml").read_text()) == (2, printed.out)
    assert "mine.toml exists" in again.err
    assert jembench("init", "hybrid", "--output", "mine.toml", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["hybird"], "There is no suite named 'hybird'. Nearest: hybrid."),
        (["nowhere.toml"], "There is no suite file nowhere.toml."),
        (["hybrid", "--models", "jme"], "There is no model named 'jme'. Nearest: jem"),
        (["hybrid", "--set", "epoch=3"], "There is no key in recipe digits named 'epoch'. Nearest: epochs"),
        (["hybrid", "--seeds", "x"], "--seeds is 'x'; "),
        (["hybrid", "--output", "mine.txt"], "--output is mine.txt; its name must end in .toml."),
        (["hybrid", "--store", "\udcff"], "'\\udcff' is no text that a file can hold."),
    ],
)
def test_what_is_wrong_is_said_before_a_file_is_written(jembench, arguments, expected):
    done = jembench("init", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {expected}")
    assert list(Path().iterdir()) == []


def test_a_file_that_names_code_says_how_it_is_run(jembench, zoo_of_tests):
    done = jembench("init", "hybrid", "--models", "zoo_of_tests:classifier", "--output", "mine.toml")
    assert done.code == 0
    assert "JEMBENCH_TRUST=zoo_of_tests:classifier jembench run FILE" in done.err
