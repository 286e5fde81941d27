"""``jembench run`` and ``report`` of suites with grids and variants, and the published tables that are shown."""

import json

import pytest

from jembench.catalog import packages

GRIDS = """
title = "Weights"
models = ["zoo_of_tests:classifier", "zoo_of_tests:jem"]
datasets = ["zoo_of_tests:data"]
metrics = ["accuracy"]
reference = ["jem-iclr2020/table1"]
[[grid]]
title = "Scores by weight"
metric = "zoo_of_tests:score"
columns = { weight = [1, 2] }
[[variant]]
name = "as it is"
[[variant]]
name = "bigger batches"
settings = ["batch_size=30"]
[[variant]]
name = "wider"
models = ["zoo_of_tests:classifier:width=5"]
"""


@pytest.fixture
def grids(tmp_path, monkeypatch, jembench, zoo_of_tests):
    """``jembench COMMAND grids`` for the suite above, with more options behind."""
    path = tmp_path / "grids.toml"
    path.write_text(GRIDS)
    ordinary = packages.files
    monkeypatch.setattr(packages, "files", lambda folder="": ordinary(folder) if folder else {"grids": path})

    def call(command, *arguments):
        recipe = ["--recipe", zoo_of_tests / "tiny.toml"] if command == "run" else []
        return jembench(command, "grids", *recipe, *arguments)

    return call


def titles(out):
    return [line.split(" · ")[0] for line in out.splitlines() if " · " in line and not line.startswith("Published")]


def test_grids_and_variants_are_trained_measured_and_shown(grids, table):
    done = grids("run")
    assert done.code == 0
    assert titles(done.out) == ["Results", "Scores by weight"]
    rows = [row[:2] for row in table(done.out)]
    assert len(rows) == 5
    assert ["zoo_of_tests:jem", "bigger"] in rows
    assert ["zoo_of_tests:classifier:width=5", "tiny"] in rows
    assert "recipe tiny+batch_size=30" in done.out
    assert "weight 1.0" not in done.out
    assert "weight 1" in done.out
    assert grids("run").err == ""  # all is there
    again = grids("report").out
    assert titles(again) == ["Results", "Scores by weight"]


def test_all_that_a_store_holds_is_in_the_grids_of_the_suites_too(grids, jembench):
    grids("run", "--models", "zoo_of_tests:jem")
    assert titles(jembench("report").out) == ["Results", "Scores by weight"]


@pytest.mark.parametrize("command", ["run", "report"])
def test_the_published_tables_that_are_shown(grids, command):
    grids("run")

    def shown(*arguments):
        numbers = json.loads(grids(command, "--format", "json", *arguments).out)["published"]
        return list(dict.fromkeys(number["table"] for number in numbers))

    assert shown() == ["jem-iclr2020/table1"]
    assert shown("--reference", "none") == []
    assert shown("--reference", "later-work/hybrid,jem-iclr2020/figure4") == [
        "later-work/hybrid",
        "jem-iclr2020/figure4",
    ]


def test_many_of_one_metric_are_counted_in_a_plan(grids, tmp_path):
    path = tmp_path / "grids.toml"
    path.write_text(path.read_text().replace("[1, 2]", "[1, 2, 3, 4]"))
    assert "to do: accuracy, 4 of zoo_of_tests:score" in grids("run", "--dry-run").out
    (row, *_) = json.loads(grids("run", "--dry-run", "--format", "json").out)
    assert len(row["to_do"]) == 5
