import dataclasses
import json
from pathlib import Path

import pytest

from jembench.catalog.spec import Spec
from jembench.store.store import Store


@pytest.fixture
def shared(run, monkeypatch):
    """The store ``runs`` with one model, whose names the environment trusts."""
    monkeypatch.setenv("JEMBENCH_TRUST", "zoo_of_tests:classifier,zoo_of_tests:data")
    assert run(models="zoo_of_tests:classifier").code == 0
    return Path("runs")


def rewritten(store, **changes):
    """Every cell of a store with other values or another provenance."""
    for cell in Store(store).cells():
        Store(store).write_cell(changes["of"](cell), Store(store).read_arrays(cell))


def test_what_is_measured_again_here_is_equal(shared, jembench, values):
    done = jembench("reproduce", shared)
    assert done.code == 0, done.err
    assert done.out.count(" equal") >= 2
    assert done.out.endswith("Reproduced: yes. The new results are in reproduced.\n")
    measured = {key: value for key, value in values("reproduced").items() if value}
    assert measured == {key: value for key, value in values("runs").items() if value}
    (row,) = {
        row["verdict"]
        for row in json.loads(jembench("reproduce", shared, "--format", "json").out)["rows"]
    }
    assert row == "equal"


def test_another_value_and_other_versions_are_named(shared, jembench):
    def other(cell):
        values = {
            label: value._replace(value=1e3, low=999.0, high=1001.0)
            for label, value in cell.outcome.values.items()
        }
        provenance = {**cell.provenance, "metric_id": "another"}
        return dataclasses.replace(
            cell, outcome=dataclasses.replace(cell.outcome, values=values), provenance=provenance
        )

    rewritten(shared, of=other)
    done = jembench("reproduce", shared)
    assert done.code == 1
    assert done.out.count("outside") >= 2
    assert "the code or the options of the metric accuracy" in done.out
    assert done.out.endswith("Reproduced: no. The new results are in reproduced.\n")


def test_the_plan_alone(shared, jembench):
    done = jembench("reproduce", shared, "--dry-run", "--format", "json")
    assert [(fit["model"], fit["recipe"]) for fit in json.loads(done.out)] == [
        ("zoo_of_tests:classifier", "tiny")
    ]
    assert not Path("reproduced").exists()


def test_components_that_are_not_installed(shared, jembench):
    def by_a_plugin(cell):
        plugins = [*cell.provenance["plugins"], "zoo-park 1.0 [lion = zoo:lion]"]
        fit = dataclasses.replace(cell.fit, model=Spec("lion:width=2"))
        return dataclasses.replace(
            cell, fit=fit, provenance={**cell.provenance, "plugins": plugins}
        )

    rewritten(shared, of=by_a_plugin)
    done = jembench("reproduce", shared)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "Error: The store runs names components that are not installed here: the model lion. They "
        "come from zoo-park 1.0 [lion = zoo:lion]. Install their distributions, or name their file "
        "with --plugin, and run the command again.\n"
    )


def test_code_that_the_store_alone_names_is_refused(shared, jembench, monkeypatch):
    monkeypatch.delenv("JEMBENCH_TRUST")
    done = jembench("reproduce", shared)
    assert done.code == 2
    assert "runs code that you did not name" in done.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "There is no store nowhere. Name the folder of a store."),
        (["mine.toml"], "The store mine.toml is a file, not a folder."),
        (["empty"], "The store empty holds no result that could be measured again."),
        (
            ["empty", "--store", "empty"],
            "--store is empty, the store that is reproduced. Name another folder.",
        ),
    ],
)
def test_what_cannot_be_reproduced(jembench, arguments, expected):
    Path("empty").mkdir()
    Path("mine.toml").touch()
    done = jembench("reproduce", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {expected}")
