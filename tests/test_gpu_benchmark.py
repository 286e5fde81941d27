"""The script for a GPU runs on the CPU at a tiny size, and goes on whatever happens to an item."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from scripts import importing

GPU = Path(__file__).parent.parent / "benchmarks" / "gpu"
TINY = ["--device", "cpu", "--size", "tiny", "--out"]


@pytest.fixture(scope="module")
def script():
    """Import the script as ``python benchmarks/gpu/run.py`` does."""
    with importing(GPU) as imported:
        yield imported("run")


def results(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("item", ["machine", "recipes", "compute", "profile", "estimate"])
def test_an_item_notes_what_it_measures(script, tmp_path, item):
    assert CliRunner().invoke(script.main, [*TINY, str(tmp_path), "--item", item]).exit_code == 0
    found = results(tmp_path)
    assert {row["item"] for row in found} == {item}
    assert not [row for row in found if "error" in row]


def test_a_model_that_cannot_be_trained_is_a_result(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "MODELS", ("nothing", "jem"))
    place = script.Place(device=torch.device("cpu"), tiny=True, out=tmp_path, data=None, seconds=60)
    script.recipes(place)
    first, second, _ = results(tmp_path)
    assert "nothing" in first["error"]
    assert second["loss"]


def test_items_that_are_not_done_run_again(script, tmp_path, monkeypatch):
    ran = []

    def run(command, *, timeout, check):
        ran.append(command[command.index("--item") + 1])
        if ran[-1] == "tests":
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 1 if ran[-1] == "speed" else 0)

    monkeypatch.setattr(script.subprocess, "run", run)
    monkeypatch.setattr(script, "ITEMS", dict.fromkeys(["machine", "tests", "speed"], (None, 1)))
    for _ in range(2):
        assert CliRunner().invoke(script.main, [*TINY, str(tmp_path)]).exit_code == 0
    assert ran == ["machine", "tests", "speed", "tests", "speed"]
    assert [row["ended"] for row in results(tmp_path)][:3] == ["done", "out of time", "exit code 1"]


def test_the_training_needs_images(script, tmp_path):
    done = CliRunner().invoke(script.main, ["--device", "cpu", "--item", "training", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "needs --data" in done.output
