"""Files that other programs wrote, bad ones included."""

import pickle

import pytest
import torch
from safetensors.torch import save_file

from jembench.adapters import foreign
from jembench.errors import CheckpointError

WEIGHTS = {"a.weight": torch.ones(2, 3), "a.bias": torch.zeros(2)}


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.pt"


@pytest.mark.parametrize("wrapped", [lambda w: w, lambda w: {"state_dict": w, "epoch": 3}, lambda w: {"model": w}])
def test_a_state_dictionary_and_where_it_usually_lies(path, wrapped):
    torch.save(wrapped(WEIGHTS), path)
    found = foreign.state_dict(foreign.read(path), path)
    assert found.keys() == WEIGHTS.keys()
    assert torch.equal(found["a.weight"], WEIGHTS["a.weight"])


def test_safetensors(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(WEIGHTS, path)
    assert foreign.state_dict(foreign.read(path), path).keys() == WEIGHTS.keys()


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_file_that_would_run_code_is_refused_and_runs_none(path, tmp_path, write):
    write({"state_dict": Trap(tmp_path / "sprung")}, path)
    with pytest.raises(CheckpointError, match="loading it could run code, which jembench never does"):
        foreign.read(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"PK\x03\x04 torn"])
@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_a_damaged_file_is_told_of(tmp_path, content, ending):
    path = tmp_path / f"weights.{ending}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=str(path)):
        foreign.read(path)


def test_a_torn_file_is_told_of(path):
    torch.save(WEIGHTS, path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match=r"Give a \.safetensors file, or one that torch.save wrote"):
        foreign.read(path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([1, 2], "holds a list, not a state_dict"),
        ({}, "holds a dict, not a state_dict"),
        ({"a": torch.ones(1), "epoch": 3, "best": 0.5}, "epoch, best are no tensors"),
    ],
)
def test_what_is_no_state_dictionary_is_told(content, text, path):
    with pytest.raises(CheckpointError, match=text):
        foreign.state_dict(content, path)


def test_a_prefix_is_taken_off_where_all_have_it():
    one = torch.ones(1)
    assert foreign.without_prefix({"m.a": one, "m.b": one}, "m.").keys() == {"a", "b"}
    assert foreign.without_prefix({"m.a": one, "b": one}, "m.").keys() == {"m.a", "b"}
