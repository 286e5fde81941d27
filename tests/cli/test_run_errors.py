"""``jembench run``: what it refuses, and what it keeps when something goes wrong."""

import json
import shlex
import sys
from pathlib import Path

import pytest


def test_data_that_are_missing_are_told_with_the_way_to_get_them(jembench, monkeypatch, tmp_path):
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path / "data"))
    done = jembench("run", "hybrid", "--dataset", "cifar10")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    for text in (
        "Error: CIFAR-10 is not available",
        str(tmp_path / "data"),
        "write cifar10:download=true",
        "root=",
    ):
        assert text in done.err
    assert [path for path in Path.cwd().rglob("*") if path.is_file()] == []


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A module of the user's own whose model cannot be trained."""
    (tmp_path / "broken_zoo.py").write_text(
        "import zoo_of_tests\n"
        "print('imported')\n"
        "class Failing(zoo_of_tests.Trained):\n"
        "    def training_loss(self, batch, negatives):\n"
        "        print('training')\n"
        "        raise RuntimeError('out of luck')\n"
        "def build(data_spec):\n"
        "    return Failing('none', None)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "broken_zoo:build"
    sys.modules.pop("broken_zoo", None)


def test_a_model_that_fails_stops_no_other_and_the_table_says_why(run, failing, table):
    done = run(models=f"{failing},zoo_of_tests:classifier", metrics="accuracy,ece")
    assert done.code == 1
    rows = {row[0]: row[1:] for row in table(done.out)}
    assert rows[failing] == ["failed¹", "failed¹"]
    assert "failed" not in " ".join(rows["zoo_of_tests:classifier"])
    assert "¹ RuntimeError: out of luck" in done.out
    assert "Traceback" not in done.out + done.err
    assert f"{failing} on zoo_of_tests:data, seed 0: failed after" in done.err
    assert "2 of 4 outcomes" in done.out


def test_the_way_to_the_traceback_is_told_and_works(run, jembench, failing):
    lines = run(models=failing, metrics="accuracy,ece").out.splitlines()
    told = next(line for line in lines if "jembench --debug run hybrid" in line)
    done = jembench(*shlex.split(told)[1:])
    assert done.code == 1
    # both metrics fail for the same reason
    assert done.err.count("Traceback (most recent call last):") == 1
    assert "in training_loss" in done.err


def test_what_plugins_print_does_not_reach_stdout(run, failing):
    done = run("--format", "json", models=failing, metrics="accuracy")
    assert json.loads(done.out)["rows"][0]["status"] == "failed"
    assert "imported\n" in done.err
    assert "training\n" in done.err
