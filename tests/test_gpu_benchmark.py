"""The script for a GPU runs on the CPU at a tiny size, and goes on whatever happens to an item."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from scripts import importing

from jembench.catalog import registry

GPU = Path(__file__).parent.parent / "benchmarks" / "gpu"
TINY = ["--device", "cpu", "--size", "tiny", "--out"]
AS_LISTED = re.compile(r"[a-z-]+(?::[a-z]+=[^,:]+(?:,[a-z]+=[^,:]+)*)?(?=,|$)")
"""A metric in a list of them: its name, and options that commas divide as well."""


@pytest.fixture(scope="module")
def script():
    """Import the script as ``python benchmarks/gpu/run.py`` does."""
    with importing(GPU) as imported:
        yield imported("run")


def place(script, folder):
    device = torch.device("cpu")
    return script.Place(device=device, tiny=True, out=folder, data=None, seconds=60)


def results(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "item",
    [
        "machine",
        "recount",
        "cudnn",
        "iteration",
        "paper",
        "profile",
        "estimate",
        "compute",
        "recipes",
    ],
)
def test_an_item_notes_what_it_measures(script, tmp_path, monkeypatch, item):
    monkeypatch.setattr(script.timed, "ITERATIONS", script.timed.ITERATIONS[1:2])
    assert CliRunner().invoke(script.main, [*TINY, str(tmp_path), "--item", item]).exit_code == 0
    rows = results(tmp_path)
    assert {row["item"] for row in rows} == {item}
    assert not [row for row in rows if "error" in row or row.get("not_captured")]
    if item == "recount":
        assert [row["statistics"] for row in rows[:2]] == ["stored", "counted"]
    if item == "iteration":
        graphs = [(row["graph"], row["over"]) for row in rows if "ratio" in row]
        assert graphs == [("today", "steps"), ("whole", "today"), ("uncompiled", "today")]


def test_a_model_that_cannot_be_trained_is_a_result(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script.timed, "MODELS", ("nothing", "jem"))
    script.timed.recipes(place(script, tmp_path))
    first, second, _ = results(tmp_path)
    assert "nothing" in first["error"]
    assert second["loss"]


def test_an_iteration_that_cannot_be_captured_is_a_result(script, tmp_path, monkeypatch):
    def refused(trainer):
        raise RuntimeError("not while capturing")

    whole = importlib.import_module("whole")
    monkeypatch.setattr(whole.WholeIteration, "iterate", refused)
    monkeypatch.setattr(script.timed, "ITERATIONS", script.timed.ITERATIONS[:1])
    script.timed.iteration(place(script, tmp_path))
    rows = results(tmp_path)
    reasons = {row["contestant"]: row.get("not_captured") for row in rows if "contestant" in row}
    expected = "RuntimeError: not while capturing"
    assert reasons == {"steps": None, "today": None, "whole": expected, "uncompiled": expected}
    assert [row["graph"] for row in rows if "ratio" in row] == ["today"]


def test_the_first_items_fit_into_fifteen_minutes_with_the_start(script):
    names = list(script.ITEMS)
    first = names[: names.index("paper") + 1]
    assert first == ["machine", "tests", "recount", "speedrun", "cudnn", "iteration", "paper"]
    assert sum(script.ITEMS[name][1] for name in first) <= 13 * 60


def test_items_that_were_not_tried_run_before_stopped_ones(script, tmp_path, monkeypatch):
    ran = []

    def carry_out(command, seconds):
        ran.append((command[command.index("--item") + 1], round(seconds)))
        return {"tests": "out of time", "speed": "exit code 1"}.get(ran[-1][0], "done")

    monkeypatch.setattr(script, "carry_out", carry_out)
    items = {"machine": (None, 20), "tests": (None, 45), "speed": (None, 60)}
    monkeypatch.setattr(script, "ITEMS", items)
    call = [*TINY, str(tmp_path), "--minutes"]
    assert CliRunner().invoke(script.main, [*call, "0.8"]).exit_code == 0  # speed has no time left
    monkeypatch.setattr(script, "ITEMS", items | {"speed": (None, 30)})
    assert CliRunner().invoke(script.main, [*call, "2"]).exit_code == 0
    assert ran == [("machine", 20), ("tests", 45), ("speed", 30), ("tests", 45)]
    ends = [row["ended"] for row in results(tmp_path)]
    assert ends == ["done", "out of time", "exit code 1", "out of time"]


def test_an_item_is_stopped_at_its_limit_with_all_that_it_started(script, tmp_path):
    written = tmp_path / "pid"
    child = f"import os, time; open({str(written)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert script.carry_out([sys.executable, "-c", parent], 3) == "out of time"
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)


@pytest.mark.parametrize("item", ["recount", "speedrun"])
def test_a_training_needs_images(script, tmp_path, item):
    command = ["--device", "cpu", "--item", item, "--out", str(tmp_path)]
    done = CliRunner().invoke(script.main, command)
    assert done.exit_code == 2
    assert "needs --data" in done.output


def test_the_speedrun_is_noted_beside_its_aims(script, tmp_path, monkeypatch):
    """A row a metric, of which ECE misses its aim; what only accompanies a metric has no aim."""
    trained, ran = script.trained, []
    names = [str(registry.resolve("metrics", name)) for name in trained.AIMS]
    assert names == list(trained.AIMS)  # as in the rows
    shown = {"value": 5.0, "low": None, "high": None, "reason": "", "source": ""}

    def measure(*arguments):
        metrics = arguments[arguments.index("--metrics") + 1]
        names = AS_LISTED.findall(metrics)
        rows = [shown | {"metric": name, "label": name.partition(":")[0]} for name in names]
        further = [rows[0] | {"label": "fpr95-in"}, rows[0] | {"source": "a paper"}]
        return json.dumps({"rows": rows + further})

    def run(command, check):
        ran.append(command[command.index("train") + 1])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(trained, "jembench", measure)
    monkeypatch.setattr(trained.subprocess, "run", run)
    trained.speedrun(place(script, tmp_path))
    assert ran == ["jem", "baseline"]
    rows = [row for row in results(tmp_path) if "metric" in row and "aim" in row]
    aims = {row["metric"]: row["met"] for row in rows}
    assert aims == dict.fromkeys(trained.AIMS, True) | {"accuracy": False, "ece": False}
    (time,) = [row for row in results(tmp_path) if "minutes" in row]
    assert (time["aim"], time["met"]) == ("<= 10", True)


def test_a_speedrun_whose_time_is_up_is_not_measured(script, tmp_path, monkeypatch):
    code = subprocess.CompletedProcess([], 3)
    monkeypatch.setattr(script.trained.subprocess, "run", lambda command, check: code)
    monkeypatch.setattr(script.trained, "jembench", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit, match="3"):
        script.trained.speedrun(place(script, tmp_path))
