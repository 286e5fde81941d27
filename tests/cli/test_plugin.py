"""``jembench plugin list``."""

import json

import pytest


@pytest.fixture
def report(jembench, unreadable):
    done = jembench("plugin", "list", "--format", "json")
    assert done.code == 0
    return json.loads(done.out)


def test_a_row_a_component(report):
    rows = {(row["distribution"], row["name"]): row for row in report["components"]}
    assert rows["zoo-park", "lion"] == {
        "distribution": "zoo-park",
        "version": "1.0",
        "kind": "models",
        "name": "lion",
        "target": "zoo_cli_park:lion",
        "status": "ok",
        "reason": "",
    }
    assert (rows["zoo-park", "raises"]["status"], rows["zoo-park", "raises"]["reason"]) == (
        "broken",
        "RuntimeError: no food",
    )
    assert rows["jembench", "digits"]["status"] == "ok"


def test_everything_of_ours_works(report):
    assert [row for row in report["components"] if row["distribution"] == "jembench" and row["status"] != "ok"] == []


def test_distributions_that_cannot_be_read_are_named(report):
    (row,) = report["unreadable"]
    assert row["distribution"] == "cage"
    assert "no section headers" in row["reason"]


def test_the_table(jembench, unreadable):
    done = jembench("plugin", "list")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["zoo-park", "1.0", "models", "lion", "=", "zoo_cli_park:lion", "ok"] in lines
    assert any(
        line[:7] == ["zoo-park", "1.0", "models", "raises", "=", "zoo_cli_raises:build", "broken"] for line in lines
    )
    assert any(line[:2] == ["cage", "broken"] for line in lines)


def test_an_option_whose_type_cannot_be_read_is_the_plugins_fault(jembench, zoo):
    (zoo / "zoo_cli_park.py").write_text("def lion(data_spec, *, net: 'Nowhere'): ...\n")
    done = jembench("plugin", "list", "--format", "json")
    (row,) = [row for row in json.loads(done.out)["components"] if row["name"] == "lion"]
    assert row["status"] == "broken"
    assert "Nowhere" in row["reason"]
