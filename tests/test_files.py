import errno
import hashlib
import os
import stat
import time

import pytest

from jembench import files
from jembench.errors import StoreError
from jembench.store.store import Store


def fail_with(error):
    def write(stream):
        stream.write(b"half of it")
        raise error

    return write


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_obey_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        files.write_atomically(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_write_replaces(tmp_path):
    path = tmp_path / "x"
    files.write_atomically(path, b"old, and longer than the new one")
    files.write_atomically(path, b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), ValueError("bug"), KeyboardInterrupt],
)
def test_interrupted_write_keeps_the_former_file_and_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "x"
    files.write_atomically(path, b"old")
    expected = (
        StoreError
        if isinstance(error, OSError)
        else type(error)
        if isinstance(error, Exception)
        else error
    )
    with pytest.raises(expected):
        files.write_atomically(path, fail_with(error))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nobody_sees_a_half_written_file(tmp_path):
    path = tmp_path / "x"

    def write(stream):
        stream.write(b"half")
        stream.flush()
        assert not path.exists()

    files.write_atomically(path, write)
    assert path.read_bytes() == b"half"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free some space and run the same command again; finished work is kept."),
        (errno.EDQUOT, "Free some space"),
        (errno.EACCES, "Choose another folder with --store."),
    ],
)
def test_the_remedy_fits_the_problem(tmp_path, code, remedy):
    path = tmp_path / "x"
    with pytest.raises(StoreError) as caught:
        files.write_atomically(path, fail_with(OSError(code, os.strerror(code))))
    assert str(caught.value).startswith(f"Cannot write {path}: {os.strerror(code)}. {remedy}")
    assert caught.value.exit_code == 2


def test_a_digest_is_of_the_content_and_follows_it(tmp_path, monkeypatch):
    path, copy = tmp_path / "x", tmp_path / "other"
    path.write_bytes(b"one")
    copy.write_bytes(b"one")
    first = files.digest(path)
    assert first == files.digest(copy) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"another")
    assert files.digest(path) == hashlib.sha256(b"another").hexdigest()
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(b"another"[::-1])
    os.utime(path, ns=times)
    assert files.digest(path) == hashlib.sha256(b"another"[::-1]).hexdigest()
    monkeypatch.setattr(files.hashlib, "file_digest", None)
    assert files.digest(copy) == first  # computed once


@pytest.mark.parametrize("read", [files.read_bytes, files.digest])
def test_only_regular_files_are_read(tmp_path, read):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "loop", "", "nowhere"):
        with pytest.raises(
            OSError, match=r"Not a regular file|Too many levels|Is a directory|No such file"
        ):
            read(tmp_path / name)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "x", largest=5) == b"12345"
    with pytest.raises(OSError, match="too large"):
        files.read_bytes(tmp_path / "x", largest=4)


def unfinished(root):
    return [path for path in root.rglob("*") if path.is_file()]


def test_temporary_files_of_killed_processes_are_swept_after_an_hour_and_no_others(tmp_path):
    (tmp_path / "cells").mkdir()
    names = [
        ".jembench-x1.tmp",
        ".jembench-future.tmp",
        ".a.json.x2.tmp",
        "c.json",
        "d.tmp",
        ".jembench-young.tmp",
    ]
    for name in names:  # the second one of a clock that was ahead
        (tmp_path / "cells" / name).write_text("{")
        os.utime(tmp_path / "cells" / name, (0, 2**32 if "future" in name else 0))
    os.utime(tmp_path / "cells" / names[-1])
    files.sweep(tmp_path, below=False)
    assert {path.name for path in (tmp_path / "cells").iterdir()} == set(names)
    files.sweep(tmp_path)
    assert {path.name for path in (tmp_path / "cells").iterdir()} == set(names[2:])
    files.write_atomically(tmp_path / "x", lambda stream: files.sweep(tmp_path))
    assert (tmp_path / "x").exists()


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_wrong_removes_no_temporary_file_of_a_living_process(
    tmp_path, monkeypatch, hours
):
    fresh = tmp_path / ".jembench-fresh.tmp"
    fresh.write_bytes(b"")  # of a machine without locks
    at = time.time() + 3600 * hours
    monkeypatch.setattr(time, "time", lambda: at)

    def write(stream):
        stream.write(b"half")
        stream.flush()
        (path,) = set(tmp_path.glob(".jembench-*")) - {fresh}
        os.utime(path, (at, at))  # the clock of the file system was set meanwhile
        files.sweep(tmp_path)
        stream.write(b" and half")

    files.write_atomically(tmp_path / "x", write)
    assert (tmp_path / "x").read_bytes() == b"half and half"
    assert fresh.exists()


def test_a_store_in_somebody_s_folder_is_swept_no_further_than_its_own_folders(tmp_path):
    (tmp_path / "documents").mkdir()
    for path in (
        tmp_path / ".jembench-elsewhere.x.tmp",
        tmp_path / "documents" / ".jembench-elsewhere.x.tmp",
    ):
        path.write_text("")
        os.utime(path, (0, 0))
    Store(tmp_path).sweep()
    assert unfinished(tmp_path) == [tmp_path / "documents" / ".jembench-elsewhere.x.tmp"]


def test_what_is_no_regular_file_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StoreError, match=r"Cannot write .*fifo: Not a regular file"):
        files.write_atomically(tmp_path / "fifo", b"a file")
    assert (tmp_path / "fifo").is_fifo()
    assert list(tmp_path.iterdir()) == [tmp_path / "fifo"]
