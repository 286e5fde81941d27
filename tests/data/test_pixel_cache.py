"""The cache of decoded images: kills, processes, damage and full disks lose or change no pixel."""

import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

from jembench.data.pixel_cache import PixelCache
from jembench.errors import Fallback

SIZE = 5000
ROWS = 400

FILL = """
import sys, resource, numpy as np
from jembench.data.pixel_cache import PixelCache
path, size, rows, largest = sys.argv[1], *map(int, sys.argv[2:])
if largest:
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
cache = PixelCache(path=__import__("pathlib").Path(path), size=size)
read = np.empty(size, np.uint8)
for row in range(rows):
    pixels = np.random.default_rng(row).integers(256, size=size, dtype=np.uint8)
    with cache.opened() as file:
        cache.write(file, row, pixels, row % 32)
        if not largest:
            assert cache.read(file, row, read) == row % 32
            assert (read == pixels).all()
"""


def pixels_of(row):
    return np.random.default_rng(row).integers(256, size=SIZE, dtype=np.uint8)


def fill(path, rows=ROWS, largest=0):
    arguments = map(str, (path, SIZE, rows, largest))
    return subprocess.Popen([sys.executable, "-c", FILL, *arguments])


def kept(path, rows=ROWS):
    """The rows in a file, each of which has its own pixels and flags."""
    cache, present = PixelCache(path=path, size=SIZE), []
    pixels = np.empty(SIZE, np.uint8)
    with cache.opened() as file:
        for row in range(rows):
            flags = cache.read(file, row, pixels)
            if flags is not None:
                assert flags == row % 32
                assert (pixels == pixels_of(row)).all()
                present.append(row)
    return present


@pytest.fixture(autouse=True)
def limit_of_images():
    """The cache knows no limit of images."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "some.pixels"


@pytest.fixture
def filled(path):
    cache = PixelCache(path=path, size=SIZE)
    with cache.opened() as file:
        for row in range(8):
            cache.write(file, row, pixels_of(row), row)
    return path


def test_a_kill_leaves_whole_images_behind(path):
    process = fill(path, rows=1_000_000)
    while not path.is_file() or path.stat().st_size < 20 * SIZE:
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    rows = path.stat().st_size // SIZE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Fallback)  # a record that the kill cut in two
        assert len(kept(path, rows)) >= 19


def test_two_processes_fill_one_file(path):
    processes = [fill(path), fill(path)]
    assert [process.wait() for process in processes] == [0, 0]
    assert kept(path) == list(range(ROWS))


@pytest.mark.parametrize("largest", [10 * SIZE, 10 * (SIZE + 8) + 4, 10 * (SIZE + 8) + 400, 1])
def test_a_full_disk_keeps_what_was_written_before(path, largest):
    assert fill(path, rows=20, largest=largest).wait() == 0
    assert kept(path, 20) == list(range(largest // (SIZE + 8)))


def test_what_a_process_wrote_is_not_verified_by_it(path, monkeypatch):
    cache, pixels = PixelCache(path=path, size=SIZE), np.empty(SIZE, np.uint8)
    with cache.opened() as file:
        cache.write(file, 1, pixels_of(1), 3)
        monkeypatch.setattr("jembench.data.pixel_cache._checksum", None)
        assert cache.read(file, 1, pixels) == 3
    assert (pixels == pixels_of(1)).all()


def test_rows_may_come_in_any_order(path):
    cache = PixelCache(path=path, size=SIZE)
    with cache.opened() as file:
        cache.write(file, 5, pixels_of(5), 5)
    assert kept(path) == [5]


@pytest.mark.parametrize("place", [0, 3, 4, 6, 7, 8, 1000, SIZE + 7])
def test_every_flipped_byte_is_seen(filled, place):
    content = bytearray(filled.read_bytes())
    content[2 * (SIZE + 8) + place] ^= 1
    filled.write_bytes(content)
    with pytest.warns(Fallback, match=f"{filled} is damaged at image 2. The images are decoded"):
        assert kept(filled) == [0, 1, 3, 4, 5, 6, 7]


def test_a_truncated_file_is_seen(filled):
    content = filled.read_bytes()
    filled.write_bytes(content[: 3 * (SIZE + 8) + 100])
    with pytest.warns(Fallback, match="is damaged at image 3"):
        assert kept(filled) == [0, 1, 2]


def test_what_another_process_cut_off_is_not_read_again_as_it_was(filled):
    cache, pixels = PixelCache(path=filled, size=SIZE), np.empty(SIZE, np.uint8)
    with cache.opened() as file:
        assert cache.read(file, 7, pixels) == 7
        filled.write_bytes(filled.read_bytes()[:-1])
        with pytest.warns(Fallback, match="is damaged at image 7"):
            assert cache.read(file, 7, pixels) is None


def test_a_file_that_cannot_be_made_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "some.pixels", tmp_path, None):
        cache = PixelCache(path=path, size=SIZE)
        with cache.opened() as file:
            cache.write(file, 0, pixels_of(0), 0)
            assert cache.read(file, 0, pixels_of(0)) is None
