import csv
import json
from pathlib import Path

import pytest

from jembench import run
from jembench.errors import SpecError

EXPERIMENT = """
title = "Mine"
datasets = ["zoo_of_tests:data"]
metrics = ["accuracy", "ece"]
recipe = "{recipe}"
settings = ["ece.bins=5"]
limit = 9
[execution]
store = "mine"
device = "cpu"
max_hours = 100
"""
BLOCKS = """
[[run]]
models = ["zoo_of_tests:classifier"]
[[run]]
models = ["zoo_of_tests:jem"]
settings = ["epochs=0.5"]
seeds = [3]
"""
TRUSTED = "zoo_of_tests:classifier,zoo_of_tests:data,zoo_of_tests:jem"


@pytest.fixture
def experiment(jembench, zoo_of_tests, monkeypatch):
    """Write an experiment file, which is trusted; with more text behind, if there is some."""
    monkeypatch.setenv("JEMBENCH_TRUST", TRUSTED)

    def write(more="", name="mine.toml"):
        path = Path(name)
        path.write_text(EXPERIMENT.format(recipe=zoo_of_tests / "tiny.toml") + more + BLOCKS)
        return path

    return write


def cells(store):
    read = [json.loads(path.read_text()) for path in Path(store).glob("cells/*.json")]
    return {
        (
            c["fit"]["model"],
            c["fit"]["recipe"],
            c["fit"]["seed"],
            c["metric"],
            c["provenance"]["limit"],
        )
        for c in read
    }


def test_a_file_says_all_that_a_command_line_says(experiment, jembench):
    done = jembench("run", experiment())
    assert done.code == 0
    models = [("zoo_of_tests:classifier", "tiny", 0), ("zoo_of_tests:jem", "tiny+epochs=0.5", 3)]
    assert cells("mine") == {
        (*model, metric, 9) for model in models for metric in ("accuracy", "ece:bins=5")
    }
    assert jembench("store", "verify", "--store", "mine").code == 0
    nexts = [
        line.split(None, 1)[1] for line in done.out.splitlines() if line.split()[:1] == ["next"]
    ]
    assert nexts[-1] == "jembench report mine.toml --store mine --format markdown"
    assert "--store mine" in nexts[-2]


def test_the_environment_is_stronger_than_the_file_and_the_command_line_than_both(
    experiment, jembench, monkeypatch
):
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


def test_workers_of_the_command_line_stand_in_place_of_the_executor_of_the_file(
    experiment, jembench
):
    text = 'executor = "slurm-of-nowhere"\n'
    preview = ("--dry-run", "--models", "zoo_of_tests:classifier")
    assert jembench("run", experiment(text), *preview).code == 2
    assert jembench("run", experiment(text), *preview, "-j", "2").code == 0


def test_a_file_is_trusted_no_more_because_the_command_line_names_it(
    experiment, jembench, monkeypatch
):
    path = experiment()
    monkeypatch.delenv("JEMBENCH_TRUST")
    assert "runs code that you did not name" in jembench("run", path).err
    named = (
        "--models",
        "zoo_of_tests:classifier,zoo_of_tests:jem",
        "--dataset",
        "zoo_of_tests:data",
    )
    assert jembench("run", path, *named, "--dry-run").code == 0


def test_the_name_of_a_suite_comes_before_that_of_a_file(experiment, jembench):
    experiment("[[", name="hybrid")
    assert (
        jembench("run", "hybrid", "--models", "baseline", "--metrics", "accuracy", "--dry-run").code
        == 0
    )


def test_a_report_after_a_run_has_what_its_command_shows(experiment, jembench):
    # results that the next run has no part in
    assert jembench("run", experiment(), "--seeds", "9").code == 0
    names = ("--name", "Mine=zoo_of_tests:jem", "--heading", "ece:bins=5=Error", "--limit", "8")
    done = jembench("run", experiment(), *names)
    assert done.code == 0, done.err
    assert f"report mine.toml {' '.join(names)}" in done.out
    report = jembench("report", "mine.toml", *names, "--per-seed", "--format", "csv")
    rows = list(csv.DictReader(report.out.splitlines()))
    models = {("zoo_of_tests:classifier", "0"), ("Mine", "3")}
    assert {(row["name"], row["seed"]) for row in rows} == models


NAMED = """
[[run]]
models = ["zoo_of_tests:jem"]
name = "JEM, longer"
settings = ["epochs=1"]
seeds = [3]
[[claim]]
id = "longer"
text = "Longer training makes it more accurate"
metric = "accuracy"
higher = [["zoo_of_tests:jem", "tiny+epochs=1"]]
than = [["zoo_of_tests:jem", "tiny+epochs=0.5"]]
"""


def test_two_models_of_one_spec_have_names_and_the_file_makes_claims_of_them(experiment, jembench):
    path = experiment(NAMED)
    done = jembench("run", path)
    assert done.code == 0, done.err
    assert "JEM, longer" in done.out
    judged = jembench("report", path, "--claims", "--format", "csv")
    (claim,) = csv.DictReader(judged.out.splitlines())
    assert (claim["claim"], claim["recipe_a"], claim["recipe_b"]) == (
        "mine/longer",
        "tiny+epochs=1",
        "tiny+epochs=0.5",
    )
    rows = json.loads(jembench("report", path, "--format", "json").out)["rows"]
    names = {(row["model"], row["recipe"]): row["name"] for row in rows}
    assert names["zoo_of_tests:jem", "tiny+epochs=1"] == "JEM, longer"
    assert names["zoo_of_tests:jem", "tiny+epochs=0.5"] == "zoo_of_tests:jem"
    assert jembench("report", path, "--format", "html", "--output", "page.html").code == 0
    page = Path("page.html").read_text()
    assert "Longer training makes it more accurate" in page
    assert "JEM, longer" in page
    judged = jembench("report", path, "--claims")
    assert "Claims · Mine" in judged.out
    assert jembench("report", "hybrid", "--claims").err.startswith("Error: hybrid makes no claims.")


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("[[report]]", "jembench report mine.toml --format latex --output table.tex"),
        ("[[figures]]", "jembench figures mine.toml"),
    ],
)
def test_a_file_names_no_files_to_write(experiment, jembench, table, command):
    for done in (jembench("run", experiment(table)), jembench("report", experiment(table))):
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"Error: mine.toml has {table}, but a file says what is")
        assert f"after the run use `{command}`" in done.err
    assert not Path("mine").exists()


def test_a_file_from_python(experiment, monkeypatch):
    path = experiment()
    with monkeypatch.context() as untrusted:
        untrusted.delenv("JEMBENCH_TRUST")
        with pytest.raises(SpecError, match="runs code that you did not name"):
            run(path, progress=False)
    results = run(path, seeds=2, progress=False)
    assert {(record.model, record.seeds) for record in results} == {
        ("zoo_of_tests:classifier", (2,)),
        ("zoo_of_tests:jem", (2,)),
    }
    assert len(cells("mine")) == 4
    run(path, models="zoo_of_tests:classifier", store="other", progress=False)
    assert len(cells("other")) == 2


def test_a_report_of_a_file_shows_what_the_file_names_alone(experiment, jembench):
    path = experiment()
    for more in ([], ["--seeds", "8"], ["--set", "epochs=0.75"]):
        assert jembench("run", path, *more).code == 0

    def shown(*arguments):
        done = jembench("report", path, "--format", "json", *arguments)
        rows = json.loads(done.out)["rows"]
        fits = {
            (row["model"].partition(":")[2], row["recipe"], tuple(row["seeds"])) for row in rows
        }
        return sorted((model, recipe, list(seeds)) for model, recipe, seeds in fits), done.err

    rows, notes = shown()
    assert rows == [("classifier", "tiny", [0]), ("jem", "tiny+epochs=0.5", [3])]
    assert (
        notes
        == "Left out: 8 outcomes of models, data, recipes or seeds that mine.toml does not name.\n"
    )
    assert shown("--seeds", "0,3,8")[0] == [
        ("classifier", "tiny", [0, 8]),
        ("jem", "tiny+epochs=0.5", [3, 8]),
    ]
    assert shown("--models", "zoo_of_tests:jem")[0] == [("jem", "tiny+epochs=0.5", [3])]
    assert shown("--recipe", "*+epochs=0.75")[0] == [
        ("classifier", "tiny+epochs=0.75", [0]),
        ("jem", "tiny+epochs=0.75", [3]),
    ]
    text = experiment(name="other.toml").read_text().replace("0.5", "0.25").replace("[3]", "[9]")
    Path("other.toml").write_text(
        text.replace('[[run]]\nmodels = ["zoo_of_tests:classifier"]\n', "")
    )
    assert jembench("report", "other.toml").out == (
        "mine holds no such results yet: `jembench run other.toml --limit 9 --store mine` makes "
        "some.\n"
    )
