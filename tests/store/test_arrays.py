"""The per-example values of a cell: they come back, or are refused."""

import dataclasses
import hashlib
import os
import zipfile

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.errors import DamagedError, Fallback, StoreError
from jembench.interfaces import Value
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

CELL = Cell(
    id="abcdef0123",
    fit=FitKey(model=Spec("jem"), dataset=Spec("digits"), recipe="digits", seed=3, id="0123456789"),
    metric=Spec("ece:bins=15"),
    outcome=Outcome(
        status="ok",
        protocol="ece:bins=15",
        values={"ece": Value(2.5, 1.0, None, 397, "%", "lower")},
    ),
)

# each test that is about it asks for it
pytestmark = pytest.mark.filterwarnings("ignore::jembench.errors.Fallback")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def test_arrays_come_back_bit_for_bit(store):
    arrays = {
        "logits": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32),
        "file": np.array([True, False]),  # also the name of an argument of numpy's own writer
        "a label, with: signs": np.array(7),
    }
    store.write_cell(CELL, arrays)
    with np.load(store.arrays_path(CELL), allow_pickle=False) as back:
        assert set(back.files) == set(arrays)
        for label, array in arrays.items():
            assert back[label].dtype == array.dtype
            assert np.array_equal(back[label], array)


def test_arrays_that_need_a_pickle_are_refused(store):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        store.write_cell(CELL, {"them": np.array([object()])})
    assert store.read_cell(CELL) is None
    assert list(store.root.rglob(".*")) == []


@pytest.fixture
def written(store):
    """A cell with arrays, as it is read back."""
    store.write_cell(
        CELL, {"correct": np.ones(1000, dtype=bool), "confidence": np.linspace(0, 1, 1000)}
    )
    return store.read_cell(CELL)


DAMAGES = {
    "foreign": lambda whole: b"no archive",
    "cut": lambda whole: whole[: len(whole) // 2],
    "edited": lambda whole: whole[:200] + b"x" * 50 + whole[250:],
    "flipped": lambda whole: whole[:1] + bytes([whole[1] ^ 4]) + whole[2:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_arrays_are_an_error_and_are_computed_again(store, written, damage):
    path = store.arrays_path(CELL)
    assert store.is_settled(CELL)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedError, match=f"{path} cannot be read .*edited or exchanged."):
        store.read_arrays(written)
    with pytest.warns(
        Fallback,
        match=rf"{path} cannot be read .* `jembench run` computes the cell {CELL.id} again",
    ):
        assert not store.is_settled(CELL)


def test_arrays_of_another_cell_are_refused(store, written):
    other = dataclasses.replace(CELL, id="0123456789")
    store.write_cell(other, {"correct": np.zeros(1000, dtype=bool)})
    robbed = store.read_cell(other)
    store.arrays_path(other).replace(store.arrays_path(CELL))
    with pytest.raises(DamagedError, match="does not match the digest in the cell"):
        store.read_arrays(written)
    with pytest.raises(DamagedError, match="No such file"):
        store.read_arrays(robbed)
    assert not store.is_settled(CELL)
    assert not store.is_settled(other)


def test_arrays_that_are_no_file_are_refused_at_once(store, written):
    path = store.arrays_path(CELL)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedError, match="Not a regular file"):
        store.read_arrays(written)
    assert not store.is_settled(CELL)


def test_equal_arrays_are_equal_files(store, monkeypatch):
    import time

    arrays = {"b": np.ones(2), "a": np.arange(5)}
    store.write_cell(CELL, arrays)
    first = store.arrays_path(CELL).read_bytes()
    monkeypatch.setattr(time, "localtime", lambda *_: (2031, 1, 1, 1, 1, 1, 1, 1, 1))
    store.write_cell(CELL, dict(reversed(arrays.items())))
    assert store.arrays_path(CELL).read_bytes() == first


def test_arrays_that_hold_objects_are_not_read(store):
    path = store.arrays_path(CELL)
    path.parent.mkdir(parents=True)
    np.savez(path, correct=np.array([{}], dtype=object))
    with pytest.raises(StoreError, match="pickle"):
        store.read_arrays(
            dataclasses.replace(CELL, arrays=hashlib.sha256(path.read_bytes()).hexdigest())
        )


def test_arrays_that_unpack_to_far_more_are_not_read(store, written):
    path = store.arrays_path(CELL)
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist[0].file_size = 3 * 2**30
        archive.writestr("more.npy", b"")  # so that the directory is written again
    with pytest.raises(DamagedError, match=r"unpacked, takes \d GiB"):
        store.read_arrays(
            dataclasses.replace(written, arrays=hashlib.sha256(path.read_bytes()).hexdigest())
        )
