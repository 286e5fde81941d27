"""The executor ``processes``, with processes that do as a test says."""

import json
import os
import threading
from pathlib import Path

import pytest

from jembench.errors import SpecError
from jembench.interfaces.running import Driver, Ended, Job
from jembench.running import processes as module
from jembench.running.processes import processes


class FakeProcess:
    """A worker. What it prints and how it ends is said by :meth:`say` and :meth:`die`."""

    def __init__(self, command, *, env, **_):
        self.command, self.env = command, env
        self.ids, self.signals = [], []
        self.stdin = self
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading)
        self._out = os.fdopen(writing, "w")
        self.code = None
        self._ended = threading.Event()

    def write(self, line):
        if self.code is not None:
            raise BrokenPipeError
        self.ids.append(line.strip())

    def flush(self): ...

    def close(self):
        """The end of stdin: it ends by itself, or asks itself to stop."""
        if self.code is None:
            self.die(0)

    def say(self, text):
        self._out.write(f"{text}\n")
        self._out.flush()

    def end(self, how, **given):
        self.say(json.dumps({"id": self.ids[-1], "how": how, **given}))

    def die(self, code):
        self.code = code
        self._ended.set()
        self._out.close()

    def wait(self, timeout=None):
        assert self._ended.wait(timeout or 10)
        return self.code

    def send_signal(self, number):
        self.signals.append(number)

    def kill(self):
        if self.code is None:
            self.die(-9)


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, the first one first."""
    started = []

    def popen(*arguments, **given):
        started.append(FakeProcess(*arguments, **given))
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", popen)
    return started


@pytest.fixture
def gpus(monkeypatch):
    """Set the number of GPUs of this machine; at first, none."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def gpus(number):
        monkeypatch.setattr("torch.cuda.device_count", lambda: number)

    gpus(0)
    return gpus


@pytest.fixture
def open_processes(tmp_path, started, gpus):
    """Make an executor that is open; it is closed after the test."""
    opened = []

    def make(**options):
        found = processes(**options)
        opened.append(found)
        driver = Driver(
            store=tmp_path, arguments=lambda ids: ["work", *ids], environment={"MINE": "1"}, carry_out=lambda job: None
        )
        found.open(driver)
        return found

    yield make
    for each in opened:
        each.close()


def job(name, order=0, gpus=1):
    return Job(id=name, name=name, kind="train", order=order, gpus=gpus, text="{}")


def endings(executor):
    """The next ones."""
    for _ in range(200):
        if found := executor.ended(0.05):
            return found
    raise AssertionError("nothing ended")


def next_of(executor):
    return [(each.id, each.how) for each in endings(executor)]


def logs(tmp_path):
    return sorted(path.name for path in Path(tmp_path, "works").glob("*.log"))


# --- places -----------------------------------------------------------------------------------------------------------


def places(started):
    return [(process.ids, process.env.get("CUDA_VISIBLE_DEVICES")) for process in started]


def test_each_worker_has_a_gpu_and_units_for_the_cpu_have_workers_without_one(open_processes, started, gpus):
    gpus(2)
    executor = open_processes(jobs=None)
    assert (executor.slots, executor.gpus, executor.here) == (2, True, True)
    executor.submit([job("a", 0), job("b", 1), job("c", 2), job("statistics", 3, gpus=0)])
    executor.ended(0)
    assert places(started) == [(["a"], "0"), (["b"], "1"), (["statistics"], "")]
    started[1].end("done")
    assert next_of(executor) == [("b", "done")]
    assert places(started) == [(["a"], "0"), (["b", "c"], "1"), (["statistics"], "")]


def test_several_workers_share_a_gpu_by_the_names_that_cuda_was_given(open_processes, started, gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7")
    executor = open_processes(per_gpu=2)
    executor.submit([job(name, order) for order, name in enumerate("abcde")])
    executor.ended(0)
    assert places(started) == [(["a"], "3"), (["b"], "GPU-7"), (["c"], "3"), (["d"], "GPU-7")]


def test_the_cores_are_shared_out(open_processes, started, monkeypatch):
    monkeypatch.setattr(module, "_cores", lambda: 8)
    executor = open_processes(jobs=3)
    executor.submit([job("a", 0), job("b", 1, gpus=0)])
    executor.ended(0)
    assert places(started) == [(["a"], None), (["b"], None)]
    assert [process.env["OMP_NUM_THREADS"] for process in started] == ["2", "2"]
    assert started[0].env["MINE"] == "1"
    assert started[0].command[1:] == ["-P", "-m", "jembench", "work", "-"]
    assert processes().slots == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    executor.submit([job("c", 2)])
    executor.ended(0)
    assert started[2].env["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize("options", [{"jobs": 0}, {"per_gpu": 0}, {"retries": -1}])
def test_options_that_cannot_be(options):
    with pytest.raises(SpecError, match="jobs and per_gpu must be at least 1, retries at least 0"):
        processes(**options)


# --- endings ----------------------------------------------------------------------------------------------------------


def test_a_worker_gets_the_next_unit_in_order_and_other_lines_are_passed_over(open_processes, started, tmp_path):
    executor = open_processes(jobs=1)
    executor.submit([job("c", 2), job("a", 0)])
    executor.ended(0)
    executor.submit([job("b", 1)])
    for line in ("a library says", "[1, 2]", '{"what": "ever"}', ""):
        started[0].say(line)
    for name in "abc":
        started[0].end("done")
        assert next_of(executor) == [(name, "done")]
    executor.close()
    assert (started[0].code, logs(tmp_path)) == (0, [])


@pytest.mark.parametrize("how", ["failed", "refused"])
def test_what_failed_keeps_its_log(open_processes, started, tmp_path, how):
    executor = open_processes(jobs=1)
    executor.submit([job("a")])
    executor.ended(0)
    started[0].end(how, text="why", host="node7")
    (ended,) = executor.ended(5)
    assert ended == Ended(id="a", how=how, text="why", host="node7", log=ended.log)
    executor.close()
    assert logs(tmp_path) == [Path(ended.log).name]


def test_a_worker_that_was_stopped_gets_no_other_unit(open_processes, started):
    """It ends by itself: what it were given would count as a death."""
    executor = open_processes(jobs=1, retries=0)
    executor.submit([job("a", 0), job("b", 1)])
    executor.ended(0)
    started[0].end("stopped")
    assert next_of(executor) == [("a", "stopped")]
    executor.ended(0)
    assert [process.ids for process in started] == [["a"]]
    started[0].die(3)
    while len(started) == 1:
        executor.ended(0.05)
    assert started[1].ids == ["b"]
