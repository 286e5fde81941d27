"""The script for a GPU runs on the CPU at a tiny size, and keeps its place whatever happens to an item."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scripts import importing

from jembench.data.digits import digits
from jembench.experiment.plan import plan_fit
from jembench.running.fits import make_trainer
from jembench.store import checkpoint
from jembench.training import fit as fits

GPU = Path(__file__).parent.parent / "benchmarks" / "gpu"

AT_ONCE = [
    "machine",
    "recipes",
    "speed-large",
    "switches",
    "profile",
    "compiler",
    "estimate",
    "kill",
    "attacks",
    "cifar10",
]
"""Items that are measured in a process each, and here in one."""

HERE = """
import contextlib, io, runpy, subprocess, sys

def here(command, *, stdout=None, **options):
    # Python's programs in this process, where their libraries are imported already; others as they are.
    if command[0] != sys.executable:
        return run(command, stdout=stdout, **options)
    printed, arguments = io.StringIO(), command[2 + (command[1] == "-m"):]
    with contextlib.redirect_stdout(sys.stdout if stdout is None else printed):
        if command[1] == "-m":
            from jembench.cli.main import main
            code = main(arguments)
        else:
            sys.argv[1:], code = arguments, 0
            try:
                runpy.run_path(command[1], run_name="__main__")
            except SystemExit as end:
                code = end.code or 0
    assert not (options["check"] and code), command
    return subprocess.CompletedProcess(command, code, printed.getvalue())

run, subprocess.run = subprocess.run, here
"""


@pytest.fixture(scope="module")
def gpu():
    """Imports a script as ``python benchmarks/gpu/run.py`` does."""
    with importing(GPU) as imported:
        yield imported


# --- the items --------------------------------------------------------------------------------------------------------


def test_items(gpu, tmp_path):
    script = f"""{HERE}
import iterations, measure
iterations.SWITCHES = iterations.SWITCHES[-2:]
for item in {AT_ONCE}:
    folder = measure.Path({str(tmp_path)!r}) / item
    folder.mkdir()
    common = ["--device", "cpu", "--size", "tiny", "--seconds", "65", "--kept", str(folder / "state.json")]
    measure.main([item, *common, "--folder", str(folder)])
"""
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(GPU)}, check=False)
    assert done.returncode == 0
    found = {item: json.loads((tmp_path / item / "values.json").read_text()) for item in AT_ONCE}
    assert {row["numbers"] for row in found["machine"]["tables"]["matrix products"]} == {"float32", "tf32", "bfloat16"}
    assert [row["error"] for row in found["recipes"]["tables"]["iterations"]] == [""] * 4
    assert len(found["speed-large"]["aims"]) == 2
    assert [row["compiled"] for row in found["switches"]["tables"]["iterations"]] == ["off", "on"]
    assert found["profile"]["tables"]["an iteration"][0]["kernels"] > 100
    assert [row["not compiled"] for row in found["compiler"]["tables"]["networks"]] == [[], []]
    assert [row["refined"] for row in found["attacks"]["tables"]["gradients"]] == [0, 1]
    assert len(found["estimate"]["aims"]) == 1
    assert [row["label"] for row in found["cifar10"]["tables"]["results"]][:2] == ["accuracy", "ece"]
    assert found["cifar10"]["done"]
    (same,) = found["kill"]["aims"]
    assert same == {"aim": "digits: the weights are the same bit for bit", "value": 0, "reached": True}


def test_an_item_of_the_list_and_its_page(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu("run").signal, "signal", lambda *_: None)
    state = tmp_path / "state.json"
    command = ["--device", "cpu", "--size", "tiny", "--state", str(state), "--work", str(tmp_path / "work")]
    assert gpu("run").main([*command, "--only", "machine"]) == 0
    found = json.loads(state.read_text())
    assert {name: result["status"] for name, result in found["items"].items()} == {"machine": "ok"}
    page = state.with_suffix(".md").read_text()
    assert "| Attacks: gradients a second, memory, and a memory that is too small | not measured |" in page
    assert "| bfloat16 | 64 |" in page
    found["items"]["machine"]["values"]["aims"] = [{"aim": "an aim", "value": 0, "reached": True}]
    assert "| an aim | 0 | yes |" in gpu("page").page(found, gpu("run").ITEMS)


# --- a training that goes on elsewhere --------------------------------------------------------------------------------


def test_a_training_goes_on_at_another_machine_from_a_rounded_checkpoint(gpu, tmp_path):
    settings = ["epochs=0.1", "log_every=1", "checkpoint_every=2", "optimizer.average=0.9"]
    plan = plan_fit("jem:net=small-1", "digits", None, [*settings, "chains.sampler=pcd:steps=1,buffer=100"])
    here, there, kept = tmp_path / "here", tmp_path / "there", tmp_path / "state.json"
    fits.train(make_trainer(plan, digits(), torch.device("cpu")), here)
    assert gpu("travel").pack(here, kept) == 4
    assert gpu("travel").unpack(kept, there)
    before, after = (checkpoint.read(next(folder.glob("checkpoint-*")))["trainer"] for folder in (here, there))
    for name, value in before["model"].items():
        assert torch.equal(after["model"][name], value)
        torch.testing.assert_close(
            after["average"]["state"][name], before["average"]["state"][name], rtol=0.01, atol=0.01
        )
    extent = float(before["sampler"]["images"].max() - before["sampler"]["images"].min())
    assert (after["sampler"]["images"] - before["sampler"]["images"]).abs().max() <= extent / 255 / 2 + 1e-6
    assert not gpu("travel").unpack(kept, there), "it is as new"
    fitted = fits.train(make_trainer(plan, digits(), torch.device("cpu")), there)
    assert (fitted.iteration, len(fitted.history)) == (4, 4)


# --- the list ---------------------------------------------------------------------------------------------------------

FAKE = """
import json, pathlib, sys, time
name, folder = sys.argv[1], pathlib.Path(sys.argv[sys.argv.index("--folder") + 1])
(folder / "values.json").write_text(json.dumps({"notes": {"name": name}, "done": (folder / "second").exists()}))
(folder / "second").touch()
print("line of", name, flush=True)
if name == "crashes":
    raise ArithmeticError("no such number")
if name in ("hangs", "is long"):
    time.sleep(60)
"""


@pytest.fixture
def listed(gpu, tmp_path, monkeypatch):
    """Runs a list whose items are a script without PyTorch; gives their statuses."""
    (tmp_path / "measure.py").write_text(FAKE)
    run = gpu("run")
    for name, value in {"HERE": tmp_path, "SPARE": 0.1}.items():
        monkeypatch.setattr(run, name, value)
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    state = tmp_path / "kept" / "state.json"

    def call(items, minutes=1.0, *arguments):
        code = run.main(
            ["--state", str(state), "--work", str(tmp_path), "--minutes", str(minutes), *arguments],
            [run.Item(name, seconds, name.capitalize(), lasting=name == "lasts") for name, seconds in items.items()],
        )
        assert code == 0
        found = json.loads(state.read_text())["items"] if state.exists() else {}
        return {name: result["status"] for name, result in found.items()}

    call.state = state
    return call


def test_what_fails_or_hangs_is_a_result_and_the_list_goes_on(listed):
    found = listed({"crashes": 5, "hangs": 0.1, "works": 5})
    assert found == {"crashes": "failed", "hangs": "hung", "works": "ok"}
    crashed = json.loads(listed.state.read_text())["items"]["crashes"]
    assert (crashed["code"], crashed["values"]["notes"]["name"]) == (1, "crashes")
    assert crashed["last lines"][-1] == "ArithmeticError: no such number"
    assert "ArithmeticError: no such number" in listed.state.with_suffix(".md").read_text()
    assert list(listed.state.parent.glob(".*")) == []


def test_what_the_minutes_cut_off_is_tried_once_more(listed):
    items = {"is long": 0.4, "works": 5}
    assert listed(items, 0.6 / 60) == {"is long": "cut off"}
    assert listed(items, 0.6 / 60) == {"is long": "cut off"}
    assert listed(items) == {"is long": "cut off", "works": "ok"}


def test_a_short_item_takes_the_place_of_one_that_does_not_fit(listed):
    assert listed({"works": 0.1, "is long": 500, "fits": 0.1}) == {"works": "ok", "fits": "ok"}


def test_a_lasting_item_goes_on_in_every_call_until_it_is_done(listed):
    items = {"works": 1, "lasts": 1}
    assert listed(items) == {"works": "ok", "lasts": "part"}
    assert listed(items) == {"works": "ok", "lasts": "ok"}
    assert json.loads(listed.state.read_text())["calls"][1]["items"] == ["lasts"]
    assert listed(items) == {"works": "ok", "lasts": "ok"}
    assert listed(items, 1.0, "--only", "works") == {"works": "ok", "lasts": "ok"}


def test_the_list_shows_what_is_done(listed, capsys):
    listed({"works": 5})
    capsys.readouterr()
    listed({"works": 5, "crashes": 5}, 1.0, "--list")
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["works", "ok"], ["crashes", "to"]]


def test_an_item_that_does_not_exist(gpu, capsys):
    assert gpu("run").main(["--only", "warp"]) == 2
    assert capsys.readouterr().err == "There is no item warp. --list prints all.\n"
