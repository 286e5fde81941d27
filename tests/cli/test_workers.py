"""``jembench run -j N``: real worker processes, which are killed, stopped and go on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

COMMAND = [sys.executable, "-m", "jembench.cli.main"]

ODD = """
import os, signal, time
from pathlib import Path
from zoo_of_tests import Trained, Weights

class Killed(Trained):
    # Its process is killed in the 14th iteration, unless one has been before.
    done = 0

    def training_loss(self, batch, negatives):
        self.done += 1
        if self.done == 14 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_loss(batch, negatives)

class Slow(Trained):
    # It takes minutes, unless there is a file that says otherwise.
    def training_loss(self, batch, negatives):
        if not Path("fast").exists():
            time.sleep(0.5)
        return super().training_loss(batch, negatives)

def killed(data_spec):
    return Killed("marginal", Weights(cross_entropy=1, marginal=1))

def slow(data_spec):
    return Slow("marginal", Weights(cross_entropy=1, marginal=1))
"""


@pytest.fixture
def odd(jembench, zoo_of_tests, tmp_path, monkeypatch):
    """A module ``odd_models``, for this process and for others."""
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "odd_models.py").write_text(ODD)
    monkeypatch.setenv("PYTHONPATH", f"{zoo_of_tests}:{tmp_path / 'odd'}", prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path / "odd")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    sys.modules.pop("odd_models", None)


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def left():
    works = list(Path("runs/works").glob("*"))
    return sorted(works) + [
        path for path in Path("runs").rglob("*") if path.suffix == ".tmp" or path.match("leases/*")
    ]


def weights(store):
    """Every tensor of the trained models and of their chains, as bytes."""
    return {
        (path.parent.name, path.name, name): tensor.tobytes()
        for path in Path(store).glob("fits/*/[ms]*.safetensors")
        for name, tensor in load_file(path).items()
    }


def cells(store):
    """Every outcome and what it was made with, without when and how long."""
    by_name = {}
    for path in Path(store).glob("cells/*.json"):
        cell = json.loads(path.read_text())
        del (
            cell["outcome"]["seconds"],
            cell["provenance"]["time"],
            cell["provenance"]["threads"],
            cell["digest"],
        )
        cell["provenance"]["command"] = cell["provenance"]["command"].replace("-j 2 ", "")
        by_name[path.name] = cell
    return by_name


@pytest.fixture
def forked(programs, monkeypatch):
    """Workers are forks, which import nothing; signals do not reach them."""
    monkeypatch.setattr(sys, "executable", str(programs / "python"))


def test_workers_give_the_same_as_one_process_bit_for_bit(run, odd, forked, monkeypatch):
    """Although one of them is killed while it trains: another one goes on from the checkpoint."""
    windows = Path("windows")
    monkeypatch.setenv("JEMBENCH_TRACKERS", f"zoo_of_tests:windows:file={windows}")
    models = "odd_models:killed,zoo_of_tests:classifier"
    done = run("-j", "2", "--store", "runs", models=models)
    assert done.code == 0, done.err
    assert Path("killed").exists()
    assert left() == []
    seen = [json.loads(line) for line in windows.read_text().splitlines()]
    of_killed = [event["done"] for event in seen if event["fit"]["model"] == "odd_models:killed"]
    once = list(range(3, 37, 3))
    # what went on from the checkpoint at 9 sends its whole history again
    assert of_killed[-len(once) :] == once
    assert of_killed[: -len(once)] == once[: len(of_killed) - len(once)] != []
    assert len({event["worker"] for event in seen}) >= 2

    serial = run("--store", "serial", models=models)
    assert serial.code == 0
    assert weights("runs") == weights("serial") != {}
    assert cells("runs") == cells("serial")


def test_what_is_missing_is_the_same_error_as_in_one_process_and_nothing_starts(odd, forked, run):
    arguments = ["--metrics", "accuracy,fid:features=inception"]
    models = "zoo_of_tests:jem,zoo_of_tests:classifier"
    alone, by_worker = (
        run(*arguments, *more, models=models) for more in (["--executor", "local"], ["-j", "1"])
    )
    assert "nothing was started" in alone.err
    assert (by_worker.code, by_worker.err) == (alone.code, alone.err) == (2, alone.err)
    assert left() == []


SLOW = ["--models", "odd_models:slow", "--metrics", "accuracy", "-j", "1"]


def trains():
    return bool(list(Path("runs").glob("fits/*/checkpoint-start*")))


def stopped_cleanly():
    return bool(list(Path("runs").glob("fits/*/checkpoint-[01].safetensors")))


def children_of(pid):
    return [
        int(word)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for word in path.read_text().split()
    ]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_driver_that_is_killed_leaves_no_worker_and_the_next_run_finishes(odd, run, tiny):
    arguments = [*COMMAND, "run", "hybrid", *SLOW, *map(str, tiny)]
    driver = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: driver.poll() is not None or trains())
        (worker,) = children_of(driver.pid)
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not is_alive(worker), 15)
    assert stopped_cleanly()
    Path("fast").touch()
    assert run(*SLOW[:-2]).code == 0
    assert left() == []


def test_an_interrupted_driver_ends_its_workers_cleanly(odd, run, jembench, monkeypatch):
    workers, others = [], children_of(os.getpid())

    def send():
        wait_for(trains)
        workers.extend(set(children_of(os.getpid())) - set(others))
        os.kill(os.getpid(), signal.SIGINT)

    # tests may have been started to ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sender = threading.Thread(target=send)
        sender.start()
        done = run(*SLOW)
        sender.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 130, done.err
    assert workers
    assert not any(map(is_alive, workers))
    assert (
        "Stopping 1 units of work; each keeps what it has done. A second Ctrl-C ends them at once."
        in done.err
    )
    assert "the same command goes on from there." in done.err
    assert stopped_cleanly()
    unit, _ = left()  # and its status

    Path("fast").touch()  # the unit can be carried out by hand, by who trusts its code
    refused = jembench("work", unit.stem, "--store", "runs")
    assert refused.code == 2
    assert (
        f"the unit of work {unit.stem} names zoo_of_tests:data, which runs code that you did not "
        "name" in refused.err
    )
    monkeypatch.setenv("JEMBENCH_TRUST", "odd_models:slow,zoo_of_tests:data")
    by_hand = jembench("work", unit.stem, "--store", "runs")
    assert (by_hand.code, json.loads(by_hand.out)["how"]) == (0, "done")
    assert list(Path("runs").glob("fits/*/fit.json"))
    assert left() == []
