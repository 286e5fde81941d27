"""SIGTERM and SIGHUP: what a queue or a closed terminal sends stops the work as ``--max-hours``
does.
"""

import csv
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from jembench import stopping
from jembench.running import fits, worker
from jembench.running.evaluation import TrainedFit
from jembench.store import checkpoint
from jembench.store.store import Store
from jembench.training import fit as fitting
from jembench.training import loop

COMMAND = [sys.executable, "-m", "jembench.cli.main"]
GOES_ON = "The same command goes on from there."


@pytest.fixture(autouse=True)
def answered():
    """The signals end a process, and those that it starts, even where the tests were started to
    ignore them.
    """
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    yield
    for number, former in before.items():
        signal.signal(number, former)


def kill_in(monkeypatch, place, method, number=signal.SIGTERM, *, call=1):
    """Send this process a real signal in the n-th call of a method or a function."""
    original, calls = getattr(place, method), []

    def with_signal(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    monkeypatch.setattr(place, method, with_signal)


def left_behind():
    """Leases and temporary files in the store."""
    return [
        path
        for path in Path("runs").rglob("*")
        if path.name.endswith(".tmp") or path.match("leases/*.json")
    ]


def history(folder):
    with (folder / "history.csv").open() as file:
        return [
            {name: value for name, value in row.items() if name != "seconds"}
            for row in csv.DictReader(file)
        ]


@pytest.fixture
def train(jembench, tiny):
    return lambda *arguments: jembench("train", "zoo_of_tests:jem", *tiny, *arguments)


def test_training_goes_on_bit_for_bit_from_the_iteration_at_which_it_was_stopped(
    train, monkeypatch
):
    """Stopped in the first window, in another, at a checkpoint, at a window's end."""
    monkeypatch.setattr(fitting, "SIGNAL_INTERVAL", 0.0)  # a check after each iteration
    reached = 0
    for stop, number in [(1, "SIGTERM"), (14, "SIGHUP"), (18, "SIGTERM"), (27, "SIGHUP")]:
        with monkeypatch.context() as patch:
            kill_in(patch, loop.Trainer, "iterate", signal.Signals[number], call=stop - reached)
            stopped = train()
        reached = stop
        assert stopped.code == 3
        assert stopped.out == ""
        assert f"Received {number} after {stop} of 36 iterations. {GOES_ON}" in stopped.err
        assert left_behind() == []
        (folder,) = Path("runs/fits").iterdir()
        assert not (folder / "fit.json").exists()

    resumed, straight = train(), train("--store", "straight")
    assert resumed.code == straight.code == 0
    folders = [Path(done.out.strip()) for done in (resumed, straight)]
    histories = [history(folder) for folder in folders]
    assert [int(row["iteration"]) for row in histories[0]] == list(range(3, 37, 3))
    assert {row["iterations"] for row in histories[0]} == {"3"}
    # windows without a stop within, as at 1 and 14
    whole = [number for number in range(12) if number not in (0, 4)]
    assert [histories[0][number] for number in whole] == [histories[1][number] for number in whole]
    for name in ("model.safetensors", "sampler.safetensors"):
        first, second = (checkpoint.read(folder / name) for folder in folders)
        assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize(
    ("place", "method"),
    [
        (TrainedFit, "part"),
        (worker, "write_samples"),
        (Store, "write_cell"),
        (fits, "load_weights"),
    ],
)
def test_whatever_else_is_done_ends_where_it_is(jembench, run, values, monkeypatch, place, method):
    with monkeypatch.context() as patch:
        kill_in(patch, place, method)
        stopped = run("--name", "Mine=zoo_of_tests:jem")
    assert stopped.code == 3
    assert " fit Mine on zoo_of_tests:data, " in jembench("status").out
    assert stopped.err.splitlines()[-1].startswith("Received SIGTERM")
    assert "the same command goes on from there." in stopped.err.lower()
    assert left_behind() == []
    assert run().code == 0
    assert run("--store", "straight").code == 0
    assert values("runs") == values("straight")


def test_a_command_that_keeps_nothing_promises_nothing(jembench, monkeypatch):
    Path("runs").mkdir()
    kill_in(monkeypatch, Store, "cells")
    assert jembench("report")[::2] == (3, "Received SIGTERM.\n")


def test_a_process_that_waits_for_another_one_can_be_stopped(train, run):
    train()
    (folder,) = Path("runs/fits").iterdir()
    fit_id = folder.name.rpartition("-")[2]
    (folder / "fit.json").unlink()
    for command in (run, train):
        with Store(Path("runs")).lease(fit_id):
            timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGHUP])
            timer.start()
            stopped = command(models="zoo_of_tests:jem") if command is run else command()
            timer.join()
        assert stopped.code == 3
        assert (
            "Received SIGHUP. Finished work is kept: the same command goes on from there."
            in stopped.err
        )


def test_a_signal_that_is_ignored_stays_ignored(train, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        kill_in(monkeypatch, loop.Trainer, "iterate", signal.SIGHUP)
        assert train().code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_afterwards_signals_mean_what_they_did(train, monkeypatch):
    before = [signal.getsignal(number) for number in stopping.SIGNALS]
    kill_in(monkeypatch, loop.Trainer, "iterate")
    assert train().code == 3
    assert [signal.getsignal(number) for number in stopping.SIGNALS] == before


@pytest.fixture
def environment(jembench, zoo_of_tests, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(zoo_of_tests), prepend=os.pathsep)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def endless():
    """A training of days, with checkpoints now and then."""
    settings = [
        "epochs=100000",
        "log_every=100",
        "checkpoint_every=10000",
        "chains.sampler=pcd:steps=2,buffer=1000",
    ]
    return [
        "train",
        "jem:net=small-2",
        "--device",
        "cpu",
        *(word for setting in settings for word in ("--set", setting)),
    ]


def begun():
    return list(Path("runs").glob("fits/*/checkpoint-start.safetensors"))


def test_a_second_signal_ends_the_process_at_once(environment, zoo_of_tests):
    Path("stuck.py").write_text(
        "import sys, time\n"
        "def build(data_spec):\n"
        "    while True:\n"
        "        try:\n"
        "            print('BUILDING', file=sys.stderr, flush=True)\n"
        "            time.sleep(0.1)\n"
        "        except BaseException:\n"
        "            pass\n"
    )
    arguments = [
        "train",
        "stuck:build",
        "--dataset",
        "zoo_of_tests:data",
        "--recipe",
        zoo_of_tests / "tiny.toml",
    ]
    environment["PYTHONPATH"] += f":{Path.cwd()}"
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while b"BUILDING" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)  # a burst is one signal
    time.sleep(2 * stopping.BURST)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_closed_terminal_leaves_a_checkpoint(environment, endless):
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [*COMMAND, *endless], environment)
    reader = threading.Thread(target=drain, args=(terminal,), daemon=True)
    reader.start()
    while not begun():
        time.sleep(0.05)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert left_behind() == []
    assert list(Path("runs").glob("fits/*/checkpoint-0.safetensors"))


def drain(terminal):
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass
