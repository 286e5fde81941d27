import io
import json
import signal
from pathlib import Path

import pytest

from jembench.interfaces.running import Driver, Job
from jembench.running import processes as module
from jembench.running.processes import Processes


class FakeProcess:
    """A worker. What it prints and how it ends is said by :meth:`say` and :meth:`die`."""

    pid = 0

    def __init__(self, command, *, env, stdout, stdin, **_):
        self.command, self.env, self.stdout = command, env, stdout
        self.ids = [word for word in command[command.index("work") + 1 : -1] if word != "-"]
        self.stdin = io.BytesIO() if stdin == module.subprocess.PIPE else None
        self.signals, self.code = [], None

    @property
    def given(self):
        """The batches that it was given after the first one."""
        return [line.split() for line in self.stdin.getvalue().decode().splitlines()]

    def say(self, text, end="\n"):
        self.stdout.write(f"{text}{end}".encode())
        self.stdout.flush()

    def end(self, unit, how="done", **given):
        self.say(json.dumps({"id": unit, "how": how, **given}))

    def die(self, code=0):
        self.code = code

    def poll(self):
        return self.code

    def wait(self, seconds=None):
        assert self.code is not None or self.stdin.closed

    def send_signal(self, number):
        self.signals.append(number)


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, the first one first."""
    started = []

    def popen(*arguments, **given):
        started.append(FakeProcess(*arguments, **given))
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", popen)
    monkeypatch.setattr(
        module.os, "killpg", lambda pid, number: [each.die(-number) for each in started]
    )
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
        found = Processes(**options)
        opened.append(found)
        found.open(
            Driver(
                store=tmp_path,
                options=["-o"],
                environment={"MINE": "1"},
                carry_out=lambda job: None,
            )
        )
        return found

    yield make
    for each in opened:
        each.close()


def job(name, order=0, gpus=1):
    return Job(id=name, name=name, kind="fit", order=order, gpus=gpus, text="{}")


def jobs(names):
    return [job(name, order) for order, name in enumerate(names)]


def endings(executor):
    return [(each.id, each.how) for each in executor.ended(0)]


def logs(tmp_path):
    return sorted(path.name for path in Path(tmp_path, "works").iterdir())


def places(started):
    return [("".join(process.ids), process.env.get("CUDA_VISIBLE_DEVICES")) for process in started]


def test_each_worker_has_a_gpu(open_processes, started, gpus):
    gpus(2)
    executor = open_processes(jobs=None)
    assert (executor.slots, executor.here) == (2, True)
    executor.submit(jobs("abc"))
    executor.ended(0)
    assert places(started) == [("a", "0"), ("b", "1")]
    started[1].end("b")
    assert endings(executor) == [("b", "done")]
    executor.ended(0)
    assert started[1].given == [["c"]]
    assert len(started) == 2


def test_workers_share_an_only_gpu_that_cuda_was_given_no_name_for(open_processes, started, gpus):
    gpus(1)
    executor = open_processes(jobs=2)
    executor.submit(jobs("ab"))
    executor.ended(0)
    assert places(started) == [("a", "0"), ("b", "0")]


def test_several_workers_share_a_gpu_by_the_names_that_cuda_was_given(
    open_processes, started, gpus, monkeypatch
):
    gpus(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7")
    executor = open_processes(per_gpu=2)
    executor.submit(jobs("abcde"))
    executor.ended(0)
    assert places(started) == [("a", "3"), ("b", "GPU-7"), ("c", "3"), ("d", "GPU-7")]


def test_a_unit_of_several_gpus_has_a_place_on_each_and_is_started_by_torchrun(
    open_processes, started, gpus
):
    gpus(3)
    executor = open_processes(per_gpu=2)
    executor.submit([job("a", 0), job("b", 1, gpus=3), job("c", 2), job("d", 3, gpus=4)])
    (refused,) = executor.ended(0) or executor.ended(0)
    assert places(started) == [("a", "0"), ("b", "1,2,0"), ("c", "1")]
    torchrun = [
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "3",
        "-m",
        "jembench",
        "work",
        "b",
        "-o",
    ]
    assert started[1].command[3:] == torchrun
    assert (refused.id, refused.how) == ("d", "refused")
    assert refused.text == "It needs 4 GPUs together, and this run has 3 on this machine."


def test_the_cores_are_shared_out(open_processes, started, monkeypatch):
    monkeypatch.setattr(module, "_cores", lambda: 8)
    executor = open_processes(jobs=3)
    executor.submit([job("a"), job("b", 1, gpus=2), job("c", 2)])
    executor.ended(0)
    assert places(started) == [("a", None), ("b", None)]  # which takes two places
    assert [process.env["OMP_NUM_THREADS"] for process in started] == ["2", "2"]
    assert started[0].env["MINE"] == "1"
    assert started[0].command[1:] == ["-P", "-m", "jembench", "work", "a", "-", "-o"]
    assert Processes().slots == 8


def test_the_fewer_units_wait_the_smaller_is_a_batch(open_processes, started):
    executor = open_processes(jobs=2)
    executor.submit(jobs("abcdefghij"))
    executor.ended(0)
    assert [process.ids for process in started] == [["a", "b"], ["c", "d"]]
    for name in "ab":
        started[0].end(name)
        assert endings(executor) == [(name, "done")]
    executor.ended(0)
    assert started[0].given == [["e"]]
    started[0].die()  # while it carries out the batch
    executor.ended(0), executor.ended(0)
    assert started[2].ids == ["e"]
    assert len(started) == 3


def test_a_worker_without_units_ends_after_a_while(open_processes, started, monkeypatch):
    executor = open_processes(jobs=1)
    executor.submit(jobs("a"))
    executor.ended(0)
    started[0].end("a")
    assert endings(executor) == [("a", "done")]
    executor.ended(0)
    assert not started[0].stdin.closed
    monkeypatch.setattr(module, "IDLE", 0.0)
    executor.ended(0)
    assert started[0].stdin.closed
    executor.submit(jobs("b"))  # before the process has gone
    executor.ended(0)
    started[0].die()
    executor.ended(0), executor.ended(0)
    assert [process.ids for process in started] == [["a"], ["b"]]


def test_idle_workers_give_their_places_to_a_unit_of_several_gpus(open_processes, started, gpus):
    gpus(2)
    executor = open_processes()
    executor.submit(jobs("a"))
    executor.ended(0)
    started[0].end("a")
    executor.ended(0)
    executor.submit([job("b", 1, gpus=2)])
    executor.ended(0)
    assert started[0].stdin.closed
    assert len(started) == 1
    started[0].die()
    executor.ended(0), executor.ended(0)
    assert places(started)[1:] == [("b", "1,0")]
    assert started[1].stdin is None


def test_units_start_in_order_and_other_lines_are_passed_over(open_processes, started, tmp_path):
    executor = open_processes(jobs=1)
    executor.submit([job("b", 2), job("a", 0)])
    executor.ended(0)
    assert started[0].ids == ["a"]
    for line in ("a library says", "[1, 2]", '{"what": "ever"}', ""):
        started[0].say(line)
    started[0].say('{"id": "a", ', end="")  # a line that is not whole yet
    assert endings(executor) == []
    started[0].say('"how": "done"}')
    started[0].die()
    assert endings(executor) == [("a", "done")]
    assert logs(tmp_path) == []


def test_what_a_worker_left_that_died_is_tried_again(open_processes, started, tmp_path):
    executor = open_processes(jobs=1, retries=1)
    executor.submit(jobs("abcdef"))
    executor.ended(0)
    assert started[0].ids == ["a", "b", "c"]
    started[0].end("a")
    started[0].die(-9)
    assert endings(executor) == [("a", "done")]
    executor.ended(0)
    assert started[1].ids == ["b", "c"]
    started[1].die(-9)
    (lost,) = executor.ended(0)
    assert (lost.id, lost.how, lost.text) == ("b", "lost", "its worker ended with SIGKILL, 2 times")
    assert logs(tmp_path) == [Path(lost.log).name]
    executor.ended(0)
    assert started[2].ids == ["c", "d"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_a_worker_left_that_was_stopped_has_ended_so(open_processes, started, cancelled):
    executor = open_processes(jobs=1, retries=0)
    executor.submit(jobs("abcdef"))
    executor.ended(0)
    if cancelled:
        executor.cancel()
        assert started[0].signals == [signal.SIGTERM]
        assert endings(executor) == [("d", "stopped"), ("e", "stopped"), ("f", "stopped")]
    else:
        started[0].end("a", "stopped")
    started[0].die(3)
    assert endings(executor) == [(name, "stopped") for name in "abc"]
