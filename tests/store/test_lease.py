"""Leases between real processes."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from jembench.errors import StoreError
from jembench.store import lease as module
from jembench.store.lease import lease

HOLD = """
import sys
from pathlib import Path
from jembench.store.lease import lease
with lease(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    sys.stdin.readline()
"""

CONTEND = """
import os, sys, time
from pathlib import Path
from jembench.store.lease import lease
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
me = os.getpid()
print("ready", flush=True)
sys.stdin.readline()
held = 0
while held < 8:
    with lease(Path(sys.argv[1])) as mine:
        if mine:
            os.write(log, f"begin {me}\\n".encode())
            time.sleep(0.001)
            os.write(log, f"end {me}\\n".encode())
            held += 1
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "leases" / "fit.json"


@contextmanager
def process(script, *arguments):
    """A process that has said its first word, which is given as well. It is killed in the end."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def write_as_of(path, host, age):
    """The lease that another machine left so many seconds ago."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"host": host, "pid": 1}))
    then = time.time() - age
    os.utime(path, (then, then))


# --- one machine ------------------------------------------------------------------------------------------------------


def test_it_can_be_held_and_is_gone_afterwards(path):
    with lease(path) as mine:
        assert mine
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


def test_it_is_released_after_an_error(path):
    with pytest.raises(ZeroDivisionError), lease(path):
        raise ZeroDivisionError
    with lease(path) as mine:
        assert mine


def test_a_process_excludes_itself_as_well(path):
    with lease(path):
        with lease(path) as again:
            assert not again
        assert path.exists()  # who did not get it does not release it either
        with lease(path) as again:
            assert not again


def test_another_process_is_excluded_while_this_one_holds_it(path):
    with lease(path), process(HOLD, path) as (_, said):
        assert said == "False"
    with process(HOLD, path) as (_, said):
        assert said == "True"


def test_this_process_is_excluded_while_another_holds_it(path):
    with process(HOLD, path) as (holder, said):
        assert said == "True"
        with lease(path) as mine:
            assert not mine
        holder.communicate("end\n")
        with lease(path) as mine:
            assert mine


def test_a_holder_that_was_killed_frees_it_at_once(path):
    with process(HOLD, path) as (holder, _):
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert path.exists()
        with lease(path) as mine:
            assert mine


def test_a_holder_that_is_stopped_for_long_still_holds_it(path):
    """On one machine no clock decides: a laptop may sleep."""
    with process(HOLD, path) as (holder, _):
        holder.send_signal(signal.SIGSTOP)
        then = time.time() - 10 * module.LIFETIME
        os.utime(path, (then, then))
        with lease(path) as mine:
            assert not mine


def test_of_eight_that_want_it_one_has_it_at_a_time(path, tmp_path):
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-c", CONTEND, str(path), str(log)]
    crowd = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for one in crowd:
        assert one.stdout.readline() == "ready\n"
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in crowd:
        one.communicate()
        assert one.returncode == 0
    lines = log.read_text().splitlines()
    assert len(lines) == 2 * 8 * 8
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert (begin.split()[0], end) == ("begin", begin.replace("begin", "end"))
    assert {line.split()[1] for line in lines} == {str(one.pid) for one in crowd}


def test_nobody_comes_between_the_looking_and_the_taking_or_leaving(path):
    """Else one could lock the file that the holder is just removing, while a third makes a new one."""
    held, leave = threading.Event(), threading.Event()

    def hold():
        with lease(path):
            held.set()
            leave.wait(10)

    def guarded(thread, begin):
        """Begin while somebody else is at the guard: nothing happens before they leave."""
        with (path.parent / ".guard").open() as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            before = path.exists()
            begin()
            thread.join(0.05)
            assert path.exists() == before
            assert thread.is_alive()

    with lease(path):
        pass  # the folder and the guard are there
    thread = threading.Thread(target=hold, daemon=True)
    guarded(thread, thread.start)
    assert held.wait(10)
    assert path.exists()
    guarded(thread, leave.set)
    thread.join()
    assert not path.exists()


# --- other machines ---------------------------------------------------------------------------------------------------


def test_another_machine_s_lease_holds_until_it_expires(path):
    write_as_of(path, "elsewhere", age=50)
    with lease(path, lifetime=100) as mine:
        assert not mine
    assert json.loads(path.read_text())["host"] == "elsewhere"
    write_as_of(path, "elsewhere", age=101)
    with lease(path, lifetime=100) as mine:
        assert mine
        assert json.loads(path.read_text())["host"] != "elsewhere"


def test_what_a_killed_process_of_this_machine_left_is_free_whatever_its_age(path):
    write_as_of(path, module.platform.node(), age=0)
    with lease(path) as mine:
        assert mine


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", '{"pid": 3}'])
def test_what_a_full_disk_left_is_free(path, content):
    path.parent.mkdir()
    path.write_text(content)
    with lease(path) as mine:
        assert mine


def test_a_holder_gives_signs_of_life(path):
    with lease(path, lifetime=0.04):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_one_that_was_taken_over_is_neither_renewed_nor_released(path):
    """This machine slept for longer than the lifetime, and another one took over."""
    with lease(path, lifetime=0.004):
        path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
        time.sleep(0.02)
        os.utime(path, (0, 0))
        time.sleep(0.02)
        assert path.stat().st_mtime == 0
    assert json.loads(path.read_text())["host"] == "elsewhere"


def test_one_that_was_removed_and_taken_again_is_not_released(path):
    with lease(path):
        path.unlink()
        with lease(path) as again:
            assert again
            held = path.read_text()
    assert not path.exists()
    with lease(path):
        path.unlink()
        path.write_text(held)
    assert path.read_text() == held


def test_a_store_that_was_emptied_is_no_error(path):
    with lease(path, lifetime=0.004):
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()
        time.sleep(0.01)
    assert not path.parent.exists()


# --- what is left behind ----------------------------------------------------------------------------------------------


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def test_no_thread_and_no_open_file_is_left_behind(path):
    threads, files = threading.active_count(), open_files()
    for _ in range(3):
        with lease(path), lease(path):
            pass
    assert threading.active_count() == threads
    assert open_files() == files


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "leases").write_text("")
    with (
        pytest.raises(StoreError, match=r"Cannot write .*fit\.json: .* choose another folder"),
        lease(tmp_path / "leases" / "fit.json"),
    ):
        pass


def test_a_full_disk(path, monkeypatch):
    class Full(module.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    real = type(path).open
    monkeypatch.setattr(
        type(path), "open", lambda self, *a, **k: Full(str(self), "a+") if self == path else real(self, *a, **k)
    )
    with pytest.raises(StoreError, match=r"No space left on device\. The disk is full"), lease(path):
        pass
    monkeypatch.undo()
    with lease(path) as mine:
        assert mine
