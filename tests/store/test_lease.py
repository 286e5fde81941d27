import errno
import fcntl
import json
import os
import platform
import re
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
from jembench.store.lease import in_work, lease

HOLD = """
import sys
from pathlib import Path
from jembench.store.lease import lease
with lease(Path(sys.argv[1])) as mine:
    print(mine is not None, flush=True)
    sys.stdin.readline()
"""

NO_LOCKS = """
import errno, fcntl
def flock(*arguments):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
"""

ANOTHER_KERNEL = """
import fcntl, os
from jembench.store import lease as module
fcntl.flock = lambda *arguments: None  # a lock that is seen there alone
module._kernel = lambda: str(os.getpid())
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


KILLED_WHILE_CREATING = """
import os, signal, sys
from pathlib import Path
from jembench.store import lease as module
setattr(module, sys.argv[2], lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
with module.lease(Path(sys.argv[1])):
    pass
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "leases" / "fit.json"


@contextmanager
def process(script, *arguments):
    """A process that has said its first word, which is given as well. It is killed in the end."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def write_as_of(path, age, kernel="another"):
    """The lease that a process of a kernel wrote ``age`` seconds ago, on a machine with the name of
    this one.
    """
    path.parent.mkdir(exist_ok=True)
    locks = f"{kernel}-{path.parent.stat().st_dev:x}"
    path.write_text(
        json.dumps({"host": platform.node(), "pid": 1, "locks": locks, "token": "theirs"})
    )
    then = time.time() - age
    os.utime(path, (then, then))


def test_it_can_be_held_and_is_gone_afterwards(path):
    with lease(path) as mine:
        assert mine
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


def test_a_process_excludes_itself_as_well(path):
    with lease(path):
        with lease(path) as again:
            assert not again
        assert path.exists()  # who did not get it does not release it either
        with lease(path) as again:
            assert not again


def test_this_process_is_excluded_while_another_holds_it(path):
    with process(HOLD, path) as (holder, said):
        assert said == "True"
        with lease(path) as mine:
            assert not mine
        holder.communicate("end\n")
        with lease(path) as mine:
            assert mine


@pytest.mark.parametrize("place", ["_lock", "_publish", "_read"])
def test_a_kill_while_it_is_created_blocks_nobody(path, place):
    with process(KILLED_WHILE_CREATING, path, place) as (killed, _):
        killed.wait()
    assert in_work(path.parent) == set()
    with lease(path) as mine:
        assert mine


def test_it_can_be_created_where_there_are_no_links(path, monkeypatch):
    def link(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with lease(path) as mine:
        assert mine.is_mine
        with lease(path) as again:
            assert not again
    assert list(path.parent.iterdir()) == []


def test_a_link_that_a_network_file_system_makes_twice_is_one(path, monkeypatch):
    link = os.link

    def repeated(*names):
        link(*names)
        link(*names)

    monkeypatch.setattr(os, "link", repeated)
    with lease(path) as mine:
        assert mine.is_mine


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


def test_one_that_is_released_while_another_process_asks_for_it_is_busy(path, monkeypatch):
    def link(new, held):
        assert not held.exists()
        raise FileExistsError

    monkeypatch.setattr(module.os, "link", link)
    with module.lease(path) as mine:
        assert mine is None
    monkeypatch.undo()
    with module.lease(path) as mine:
        assert mine is not None


@pytest.mark.parametrize(("how", "size"), [("", 8), (NO_LOCKS, 4)], ids=["locks", "no-locks"])
def test_of_many_that_want_it_one_has_it_at_a_time(path, tmp_path, how, size):
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-c", how + CONTEND, str(path), str(log)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    crowd = [subprocess.Popen(command, text=True, **pipes) for _ in range(size)]
    for one in crowd:
        assert one.stdout.readline() == "ready\n"
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in crowd:
        _, said = one.communicate()
        assert one.returncode == 0, said
        assert said.count("has no file locks") == bool(how)  # once a process
    lines = log.read_text().splitlines()
    assert len(lines) == 2 * 8 * size
    for begin, end in zip(lines[::2], lines[1::2], strict=True):
        assert (begin.split()[0], end) == ("begin", begin.replace("begin", "end"))
    assert {line.split()[1] for line in lines} == {str(one.pid) for one in crowd}
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("how", [NO_LOCKS, ANOTHER_KERNEL], ids=["no-locks", "another-kernel"])
def test_a_stale_one_is_taken_over_by_one_of_many(path, how):
    write_as_of(path, age=module.LIFETIME + 1)
    command = [
        sys.executable,
        "-c",
        how + HOLD.replace("with", "sys.stdin.readline()\nwith"),
        str(path),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    crowd = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    won = [one.stdout.readline().strip() for one in crowd]
    assert sorted(won) == ["False"] * 3 + ["True"]
    for one in crowd:
        one.communicate("end\n")
    assert list(path.parent.iterdir()) == []


def test_a_take_over_by_a_process_that_was_killed_lapses(path):
    write_as_of(path, age=121)
    claim = path.with_name(".theirs.0")
    claim.touch()
    with lease(path) as mine:
        assert not mine
    os.utime(claim, (0, 0))
    with lease(path) as mine:
        assert mine
    module.sweep(path.parent)
    assert list(path.parent.iterdir()) == []


def test_a_take_over_in_which_a_process_of_this_kernel_was_killed_blocks_nobody(path):
    path.parent.mkdir()
    module._create(path, "theirs").close()
    module._create(path.with_name(".theirs.0"), "").close()
    with lease(path) as mine:
        assert mine


def test_one_that_was_replaced_before_the_claim_is_not_taken_over(path, monkeypatch):
    """A slow process sees a dead holder whose lease was taken over meanwhile."""
    write_as_of(path, age=121)
    claimed = module._claimed

    @contextmanager
    def slow(*arguments):
        with claimed(*arguments) as mine:
            path.write_text(json.dumps({"token": "newer"}))
            yield mine

    monkeypatch.setattr(module, "_claimed", slow)
    with lease(path) as mine:
        assert not mine
    assert json.loads(path.read_text())["token"] == "newer"


def test_a_lease_of_another_kernel_holds_until_it_expires_whatever_the_name_of_the_host(path):
    write_as_of(path, age=50)
    with lease(path) as mine:
        assert not mine
    assert json.loads(path.read_text())["token"] == "theirs"
    for age in (121, -86400):  # of a clock that was a day ahead: it does not block for a day
        write_as_of(path, age=age)
        with lease(path) as mine:
            assert mine
            assert mine.is_mine
            assert json.loads(path.read_text())["pid"] == os.getpid()


def test_two_kernels_with_one_host_name_never_both_hold_it(path):
    with process(ANOTHER_KERNEL + HOLD, path) as (holder, said):
        assert said == "True"
        with lease(path) as mine:
            assert not mine
        holder.communicate("end\n")
    with lease(path), process(ANOTHER_KERNEL + HOLD, path) as (_, said):
        assert said == "False"


def test_without_locks_a_killed_process_holds_it_until_it_expires(path):
    with process(NO_LOCKS + HOLD, path) as (holder, said):
        assert said == "True"
        holder.kill()
        holder.wait()
    with lease(path) as mine:
        assert not mine
    os.utime(path, (0, 0))
    with lease(path) as mine:
        assert mine


def test_a_sandbox_that_cannot_name_its_kernel_goes_by_heartbeats(path, monkeypatch):
    monkeypatch.setattr(module, "_kernel", lambda: "")
    write_as_of(path, age=0, kernel="")
    with lease(path) as mine:
        assert not mine


@pytest.mark.parametrize("content", ["", "{", '{"pid": 3}'])
def test_what_says_nothing_is_free_when_it_is_old(path, content):
    """A file that was created, and not written yet, looks the same."""
    path.parent.mkdir()
    path.write_text(content)
    with lease(path) as mine:
        assert not mine
    os.utime(path, (0, 0))
    with lease(path) as mine:
        assert mine


def test_a_holder_gives_signs_of_life(path, monkeypatch):
    monkeypatch.setattr(module, "LIFETIME", 0.04)
    with lease(path):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_one_that_was_taken_over_is_neither_renewed_nor_released(path, monkeypatch):
    monkeypatch.setattr(module, "LIFETIME", 0.004)
    with lease(path) as mine:
        mine.check()
        write_as_of(path, age=0)
        with pytest.raises(
            StoreError, match=f"The lease {re.escape(str(path))} was taken over or removed"
        ):
            mine.check()
        time.sleep(0.02)
        os.utime(path, (0, 0))
        time.sleep(0.02)
        assert path.stat().st_mtime == 0
    assert json.loads(path.read_text())["token"] == "theirs"


def test_one_that_was_removed_and_taken_again_is_not_released(path):
    with lease(path) as mine:
        path.unlink()
        assert not mine.is_mine
        with lease(path) as again:
            assert again
            assert not mine.is_mine
    with lease(path), lease(path) as again:
        assert not again


def test_a_store_that_was_emptied_is_no_error(path, monkeypatch):
    monkeypatch.setattr(module, "LIFETIME", 0.004)
    with lease(path):
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()
        time.sleep(0.01)
    assert not path.parent.exists()


def test_holders_are_listed_and_none_is_disturbed(path):
    with lease(path):
        write_as_of(path.with_name("gone.json"), age=500)
        write_as_of(path.with_name("slow.json"), age=50)
        path.with_name("torn.json").write_text("{")
        before = {file: file.read_bytes() for file in path.parent.iterdir()}
        assert module.in_work(path.parent) == {"fit", "slow", "torn"}
        assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    assert module.in_work(path.parent / "nowhere") == set()


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def test_no_thread_and_no_open_file_is_left_behind(path):
    threads, opened = threading.active_count(), open_files()
    for _ in range(3):
        with lease(path), lease(path):
            pass
    assert threading.active_count() == threads
    assert open_files() == opened


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "leases").write_text("")
    with (
        pytest.raises(StoreError, match=r"Cannot write .*fit\.json: .* Choose another folder"),
        lease(tmp_path / "leases" / "fit.json"),
    ):
        pass


def test_a_full_disk(path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.json, "dumps", fail)
    with pytest.raises(StoreError, match=r"No space left on device\. Free some space"), lease(path):
        pass
    monkeypatch.undo()
    with lease(path) as mine:
        assert mine


def test_a_kernel_without_a_name_of_its_own_shares_no_locks(tmp_path, monkeypatch):
    with (tmp_path / "x").open("wb") as file:
        assert (
            module._lock(file.fileno(), fcntl.LOCK_EX)
            == f"{module._kernel()}-{tmp_path.stat().st_dev:x}"
        )
    monkeypatch.setattr(module, "Path", lambda name: tmp_path / "nothing")
    for system, known in (("Linux", False), ("Darwin", True)):
        monkeypatch.setattr(module.platform, "system", lambda system=system: system)
        assert bool(module._kernel.__wrapped__()) == known
    monkeypatch.setattr(module, "_kernel", lambda: "")
    with (tmp_path / "x").open("wb") as file:
        assert module._lock(file.fileno(), fcntl.LOCK_EX) == ""
