"""``jembench run``: what it refuses, and what it keeps when something goes wrong."""

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

# --- what it refuses --------------------------------------------------------------------------------------------------

REFUSED = {
    "nothing": ([], ["Missing argument 'SUITE|FILE'", "`jembench run --help`"]),
    "suite": (["hybird"], ["no suite named 'hybird'", "Nearest: hybrid.", "`jembench list suites`"]),
    "model": (
        ["hybrid", "--models", "jemm"],
        ["no model named 'jemm'", "Nearest: jem, igebm, jem-factored.", "`jembench list models`"],
    ),
    "option of a model": (
        ["hybrid", "--models", "jem:nett=small-8"],
        ["no option of jem named 'nett'", "Nearest: net", "`jembench list models`"],
    ),
    "no spec": (["hybrid", "--models", "jem:=3"], ["'=3' is not key=value", "Write name:key=value"]),
    "no models": (["hybrid", "--models", ","], ["nothing to run", "without models"]),
    "empty models": (["hybrid", "--models", ""], ["nothing to run", "without models"]),
    "import path": (["hybrid", "--models", "nothing_here:build"], ["No module named 'nothing_here'", "Check the path"]),
    "metric": (["hybrid", "--metrics", "acuracy"], ["no metric named 'acuracy'", "`jembench list metrics`"]),
    "option of a metric": (["hybrid", "--metrics", "ece:bin=3"], ["no option of ece named 'bin'", "Nearest: bins,"]),
    "number of a metric": (["hybrid", "--set", "ece.bins=0"], ["bins of ece is 0; it must be at least 1"]),
    "metric of no suite": (
        ["hybrid", "--set", "kid.subsets=3"],
        ["the metric kid, which is not measured", "--metrics"],
    ),
    "setting of a metric": (["hybrid", "--set", "ece.bins=x"], ["bins of ece is 'x'", "a whole number"]),
    "dataset": (["hybrid", "--dataset", "digit"], ["no dataset named 'digit'", "`jembench list datasets`"]),
    "recipe": (["hybrid", "--recipe", "papers"], ["no recipe named 'papers'", "Nearest: paper", "list recipes`"]),
    "recipe file": (["hybrid", "--recipe", "mine.toml"], ["no recipe file mine.toml"]),
    "field": (["hybrid", "--set", "epohcs=1"], ["no key in recipe digits named 'epohcs'", "Nearest: epochs"]),
    "field of a table": (["hybrid", "--set", "optimizer.rate=1"], ["optimizer of recipe digits named 'rate'"]),
    "value": (["hybrid", "--set", "epochs=abc"], ["In recipe digits, epochs is 'abc'", "must be a finite number"]),
    "no value": (["hybrid", "--set", "epochs"], ["'epochs' does not say what to set", "--set epochs=5"]),
    "padding": (["hybrid", "--set", "data.pad=100000"], ["Images of 8x8 cannot be padded", "--set data.pad=7"]),
    "validation": (["hybrid", "--set", "data.validation=1400"], ["Cannot hold 1400 of 1400", "from 0 to 1399"]),
    "batch": (["hybrid", "--set", "batch_size=1401"], ["A batch of 1401 cannot be drawn from 1400"]),
    "buffer": (
        ["hybrid", "--set", "chains.sampler=pcd:buffer=31"],
        ["A batch of 32 chains does not fit a replay buffer"],
    ),
    "sampler": (["hybrid", "--set", "chains.sampler=pdc"], ["no sampler named 'pdc'", "`jembench list samplers`"]),
    "seeds": (["hybrid", "--seeds", "a,b"], ["--seeds is 'a,b'", "0,1,2"]),
    "no seeds": (["hybrid", "--seeds", ""], ["--seeds is ''", "0,1,2"]),
    "limit": (["hybrid", "--limit", "0"], ["'--limit': 0 is not in the range x>=1", "`jembench run --help`"]),
    "device": (["hybrid", "--device", "cuda:99"], ["no device cuda:99", "--device cpu"]),
    "no device": (["hybrid", "--device", "gpu"], ["'gpu' is not a device", "cpu, cuda"]),
    "two devices": (["hybrid", "--device", "cpu,cuda"], ["'cpu,cuda' is not a device", "cpu, cuda"]),
    "no real device": (["hybrid", "--device", "meta"], ["device meta cannot be used", "--device cpu or auto"]),
    "hours": (["hybrid", "--max-hours", "nan"], ["nan is not a number of hours"]),
    "endless hours": (["hybrid", "--max-hours", "inf"], ["inf is not a number of hours"]),
    "executor": (["hybrid", "--executor", "locale"], ["no executor named 'locale'", "Nearest: local, processes."]),
    "format": (["hybrid", "--format", "xml"], ["There is no format named 'xml'"]),
    "option": (["hybrid", "--model", "jem"], ["No such option", "--model", "--models"]),
    "plan as CSV": (["hybrid", "--dry-run", "--format", "csv"], ["--format table or json"]),
}


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry"])
@pytest.mark.parametrize(("arguments", "texts"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_told_in_one_paragraph_before_anything_is_done(jembench, arguments, texts, dry):
    done = jembench("run", *arguments, *dry)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    for text in texts:
        assert text in done.err
    assert list(Path.cwd().iterdir()) == []


def test_data_that_are_missing_are_told_with_the_way_to_get_them(jembench, monkeypatch, tmp_path):
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path / "data"))
    done = jembench("run", "hybrid", "--dataset", "cifar10")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    for text in (
        "Error: CIFAR-10 is not available",
        str(tmp_path / "data"),
        "--dataset cifar10:download=true",
        "root=",
    ):
        assert text in done.err
    assert [path for path in Path.cwd().rglob("*") if path.is_file()] == []


# --- stores that cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("file", "The store file is a file, not a folder. Choose another place with --store."),
        ("file/below", "Not a directory. A part of this path is a file: choose another folder with --store."),
        ("/proc/jembench", "Choose another folder with --store."),
    ],
)
@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_store_that_cannot_be_written(run, monkeypatch, store, text, by):
    Path("file").write_text("mine")
    if by == "environment":
        monkeypatch.setenv("JEMBENCH_STORE", store)
    done = run(*(["--store", store] if by == "option" else []))
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert text in done.err
    assert [path.name for path in Path.cwd().iterdir()] == ["file"]
    assert Path("file").read_text() == "mine"


@pytest.mark.filterwarnings("default::jembench.errors.Fallback")
def test_a_cell_that_is_torn_is_measured_anew_and_no_other(run, contents, values):
    before = run()
    whole = contents("runs")
    numbers = values("runs")
    torn = next(Path("runs/cells").glob("accuracy-zoo-of-tests-jem-*"))
    torn.write_text(torn.read_text()[:100])
    after = run()
    assert (after.code, after.out) == (0, before.out)
    assert "training" not in after.err
    assert after.err.count(torn.name) == 1
    now = contents("runs")
    assert {path for path in whole if now[path] != whole[path]} <= {torn.relative_to("runs"), Path("asked.jsonl")}
    assert values("runs") == numbers


@pytest.mark.filterwarnings("default::jembench.errors.Fallback")
def test_a_torn_record_of_a_fit_is_written_anew_from_the_checkpoint(run):
    before = run()
    record = next(Path("runs/fits").glob("*-jem-*/fit.json"))
    weights = (record.parent / "model.safetensors").read_bytes()
    record.write_text('{"schema": 1, ')
    next(Path("runs/cells").glob("accuracy-zoo-of-tests-jem-*")).unlink()
    after = run()
    assert (after.code, after.out) == (0, before.out)
    assert json.loads(record.read_text())["status"] == "done"
    assert (record.parent / "model.safetensors").read_bytes() == weights


def test_a_newer_record_is_left_alone(run):
    run()
    cell = next(Path("runs/cells").glob("accuracy-*"))
    newer = json.dumps(json.loads(cell.read_text()) | {"schema": 99})
    cell.write_text(newer)
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "was written by a newer jembench" in done.err
    assert cell.read_text() == newer


def test_a_checkpoint_of_another_model_is_refused_and_kept(run, outcomes):
    run()
    folder = next(Path("runs/fits").glob("*-classifier-*"))
    run("--store", "others", models="baseline:net=small-4")
    (other,) = next(Path("others/fits").iterdir()).glob("checkpoint-*.safetensors")
    (own,) = folder.glob("checkpoint-*.safetensors")
    for path in [folder / "fit.json", *Path("runs/cells").glob("*-classifier-*")]:
        path.unlink()
    other.rename(own)
    foreign = own.read_bytes()
    done = run()
    assert done.code != 0
    assert "The checkpoint belongs to another model: " in done.out + done.err
    assert "another folder with --store" in done.out + done.err
    assert own.read_bytes() == foreign
    assert outcomes("runs")["zoo_of_tests:jem", 0, "accuracy"]["status"] == "ok"


def test_a_full_disk_ends_the_run_and_loses_nothing(run, contents, monkeypatch, outcomes):
    def no_space(descriptor):
        cells = Path(f"/proc/self/fd/{descriptor}").readlink().parent
        if cells.name == "cells" and any(cells.glob("accuracy-*")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("jembench.files.os.fsync", no_space)
        done = run()
    assert (done.code, done.out) == (2, "")
    paragraph = done.err.splitlines()[-1]
    assert "No space left on device. The disk is full: free some space and run the same command again" in paragraph
    kept = contents("runs")
    assert [key[2] for key in outcomes("runs")] == ["accuracy"]
    assert not [path for path in kept if path.name.endswith(".tmp")]
    assert run().code == 0
    now = contents("runs")
    assert all(now[path] == kept[path] for path in kept if path.suffix == ".json" and path.parts[0] != "works")


# --- models that fail -------------------------------------------------------------------------------------------------


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
    assert done.err.count("Traceback (most recent call last):") == 1  # both metrics fail for the same reason
    assert "in training_loss" in done.err


def test_what_a_failed_run_did_not_get_is_tried_again(run, failing):
    assert run(models=failing, metrics="accuracy").code == 1
    sys.modules["broken_zoo"].build = sys.modules["zoo_of_tests"].classifier  # its author has mended it
    done = run(models=failing, metrics="accuracy")
    assert done.code == 0
    assert "failed" not in done.out


def test_a_metric_that_fails_spoils_no_other(run, outcomes):
    done = run(models="zoo_of_tests:classifier", metrics="zoo_of_tests:raises,accuracy")
    assert done.code == 1
    assert "ZeroDivisionError: a metric's own bug" in done.out
    assert outcomes("runs")["zoo_of_tests:classifier", 0, "accuracy"]["status"] == "ok"


def test_a_fit_that_diverges_is_a_failure_with_advice(run):
    done = run(models="zoo_of_tests:diverging", metrics="accuracy")
    assert done.code == 1
    assert (
        "¹ Diverged: Training diverged at iteration 3 (loss was inf), and no remedy is left. It had been repaired at "
        in done.out
    )


def test_what_plugins_print_does_not_reach_stdout(run, failing):
    done = run("--format", "json", models=failing, metrics="accuracy")
    assert json.loads(done.out)["rows"][0]["values"][0]["status"] == "failed"
    assert "imported\n" in done.err
    assert "training\n" in done.err
