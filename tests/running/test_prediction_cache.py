import os
import shutil

import pytest
import torch

from jembench.errors import Fallback
from jembench.running.caches import TensorCache
from jembench.store.store import Store

VALUES = {"logits": torch.arange(6.0).reshape(2, 3), "energy": torch.tensor([1.0, -2.0])}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_what_was_kept_is_recalled_by_another_process(store):
    TensorCache(store.readings_of("fit", "weights")).keep("abc", VALUES)
    found = TensorCache(store.readings_of("fit", "weights")).recall("abc")
    assert found.keys() == VALUES.keys()
    assert all(torch.equal(found[name], value) for name, value in VALUES.items())


def test_other_images_fits_and_weights_are_not_known(store):
    cache = TensorCache(store.readings_of("fit", "weights"))
    cache.keep("abc", VALUES)
    assert cache.recall("abd") == {}
    assert TensorCache(store.readings_of("other", "weights")).recall("abc") == {}
    assert TensorCache(store.readings_of("fit", "Weights")).recall("abc") == {}


def test_a_damaged_file_is_told_of_and_as_good_as_none(tmp_path):
    cache = TensorCache(tmp_path)
    cache.keep("abc", VALUES)
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(b"torn")
    with pytest.warns(Fallback, match=f"{file} is .*It is computed again"):
        assert cache.recall("abc") == {}
    cache.keep("abc", VALUES)
    assert cache.recall("abc").keys() == VALUES.keys()


@pytest.mark.parametrize("place", ["other/abc", "own/abd"])
def test_the_file_of_another_fit_or_of_other_images_is_not_recalled(tmp_path, place):
    own = TensorCache(tmp_path / "own")
    own.keep("abc", VALUES)
    moved = tmp_path / f"{place}.safetensors"
    moved.parent.mkdir(exist_ok=True)
    shutil.copy(tmp_path / "own" / "abc.safetensors", moved)
    with pytest.warns(
        Fallback, match=r"it was written under another name or in another folder.*again"
    ):
        assert TensorCache(moved.parent).recall(moved.stem) == {}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_nothing_is_kept_where_something_else_lies(tmp_path, make):
    make(tmp_path / "abc.safetensors")
    cache = TensorCache(tmp_path)
    cache.keep("abc", VALUES)
    with pytest.warns(Fallback, match=r"abc.safetensors .*It is computed again"):
        assert cache.recall("abc") == {}
    assert not (tmp_path / "abc.safetensors").is_file()
