"""Experiments that are files: ``jembench run FILE``."""

import json
from pathlib import Path

import pytest

EXPERIMENT = """
title = "Mine"
models = ["zoo_of_tests:classifier"]
datasets = ["zoo_of_tests:data"]
metrics = ["accuracy", "ece"]
recipe = "{recipe}"
settings = ["ece.bins=5"]
limit = 9
[[model]]
spec = "zoo_of_tests:jem"
settings = ["epochs=0.5"]
seeds = [3]
[run]
store = "mine"
device = "cpu"
max_hours = 100
"""
TRUSTED = "zoo_of_tests:classifier,zoo_of_tests:data,zoo_of_tests:jem"


@pytest.fixture
def experiment(jembench, zoo_of_tests, monkeypatch):
    """Write an experiment file, which is trusted; with more text behind, if there is some."""
    monkeypatch.setenv("JEMBENCH_TRUST", TRUSTED)

    def write(more="", name="mine.toml"):
        path = Path(name)
        path.write_text(EXPERIMENT.format(recipe=zoo_of_tests / "tiny.toml") + more)
        return path

    return write


def cells(store):
    read = [json.loads(path.read_text()) for path in Path(store).glob("cells/*.json")]
    return {
        (c["fit"]["model"], c["fit"]["recipe"], c["fit"]["seed"], c["metric"], c["provenance"]["limit"]) for c in read
    }


def test_a_file_says_all_that_a_command_line_says(experiment, jembench):
    done = jembench("run", experiment())
    assert done.code == 0
    models = [("zoo_of_tests:classifier", "tiny", 0), ("zoo_of_tests:jem", "tiny+epochs=0.5", 3)]
    assert cells("mine") == {(*model, metric, 9) for model in models for metric in ("accuracy", "ece:bins=5")}
    (kept,) = Path("mine", "experiments").iterdir()
    assert kept.read_text() == Path("mine.toml").read_text()
    assert json.loads(Path("mine", "asked.jsonl").read_text())["experiment"] == kept.name
    assert jembench("store", "verify", "--store", "mine").code == 0
    nexts = [line.split(None, 1)[1] for line in done.out.splitlines() if line.split()[:1] == ["next"]]
    assert nexts[-1] == "jembench report mine.toml --format markdown"
    assert "--store mine" in nexts[-2]
    again = jembench("run", kept)
    assert (again.code, cells("mine")) == (0, cells("mine"))
    assert len(list(Path("mine", "experiments").iterdir())) == 1


def test_the_environment_is_stronger_than_the_file_and_the_command_line_than_both(experiment, jembench, monkeypatch):
    preview = ("run", experiment(), "--dry-run", "--format", "json")

    def planned(*arguments):
        done = jembench(*preview, *arguments)
        assert done.code == 0, done.err
        return {(fit["model"], fit["recipe"], fit["seed"]) for fit in json.loads(done.out)}

    classifier, jem = "zoo_of_tests:classifier", "zoo_of_tests:jem"
    assert planned() == {(classifier, "tiny", 0), (jem, "tiny+epochs=0.5", 3)}
    monkeypatch.setenv("JEMBENCH_RUN_SEEDS", "5")
    monkeypatch.setenv("JEMBENCH_SET", "epochs=2")
    assert planned() == {(classifier, "tiny+epochs=2", 5), (jem, "tiny+epochs=2", 5)}
    monkeypatch.setenv("JEMBENCH_RUN_MODELS", jem)
    assert planned("--seeds", "6", "--set", "epochs=1") == {(jem, "tiny+epochs=1", 6)}


def test_where_it_is_carried_out(experiment, jembench, monkeypatch):
    def store_of(*arguments):
        out = jembench("run", experiment(), "--models", "zoo_of_tests:classifier", *arguments).out
        return [line.split()[1].partition("/")[0] for line in out.splitlines() if line.startswith(" results ")]

    assert store_of() == ["mine"]
    monkeypatch.setenv("JEMBENCH_STORE", "of-environment")
    assert store_of() == ["of-environment"]
    assert store_of("--store", "of-command-line") == ["of-command-line"]


def test_workers_of_the_command_line_stand_in_place_of_the_executor_of_the_file(experiment, jembench):
    text = 'executor = "slurm-of-nowhere"\n'
    preview = ("--dry-run", "--models", "zoo_of_tests:classifier")
    assert jembench("run", experiment(text), *preview).code == 2
    assert jembench("run", experiment(text), *preview, "-j", "2").code == 0


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("devise = 1", "There is no key in run of mine.toml named 'devise'. Nearest: device"),
        ("[[model]]\nspce = 1", "There is no key in model[1] of mine.toml named 'spce'. Nearest: spec"),
        ('[[model]]\nspec = "math:sqrt"', "The suite mine.toml names math:sqrt, which runs code that you did not name"),
        ("[[", "mine.toml is not valid TOML: "),
        ('[[model]]\nspec = "no-such-model"', "There is no model named 'no-such-model'."),
    ],
)
def test_what_is_wrong_in_a_file_is_one_paragraph(experiment, jembench, more, expected):
    done = jembench("run", experiment(more))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {expected}")
    assert done.err.count("\n") == 1


def test_a_file_is_trusted_no_more_because_the_command_line_names_it(experiment, jembench, monkeypatch):
    path = experiment()
    monkeypatch.delenv("JEMBENCH_TRUST")
    assert "runs code that you did not name" in jembench("run", path).err
    named = ("--models", "zoo_of_tests:classifier,zoo_of_tests:jem", "--dataset", "zoo_of_tests:data")
    assert jembench("run", path, *named, "--dry-run").code == 0


@pytest.mark.parametrize("name", ["nowhere.toml", "./nowhere", "hybrid/"])
def test_a_path_without_a_file(jembench, name):
    done = jembench("run", name)
    assert (done.code, done.err[:30]) == (2, f"Error: There is no suite file {name}"[:30])


def test_the_name_of_a_suite_comes_before_that_of_a_file(experiment, jembench):
    experiment("[[", name="hybrid")
    assert jembench("run", "hybrid", "--models", "baseline", "--metrics", "accuracy", "--dry-run").code == 0
