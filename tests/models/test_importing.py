import argparse
import json
import pickle
import random
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from jembench.errors import CheckpointError
from jembench.models import importing

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


ADAM = {
    "state": {0: {"step": torch.ones(()), "exp_avg": torch.ones(2)}},
    "param_groups": [{"lr": 0.1}],
}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda w: w,
        lambda w: {"state_dict": w, "epoch": 3},
        lambda w: {"ema": w, "optimizer": ADAM, "best": torch.ones(())},
        lambda w: {"model": {"state_dict": w}, "optimizer": ADAM},
        lambda w: {**w, "epoch": 3, "config": {"net": "wrn", "widths": [1, 2]}, "note": None},
        lambda w: {"state_dict": {**w, "calls": 3}, "loss": torch.ones(()), "best": 0.5},
        lambda w: {
            "model": w,
            "args": argparse.Namespace(lr=0.1),
            "replay_buffer": torch.ones(5, 2),
        },
        lambda w: {**w, "_extra_state": {"scale": torch.ones(2)}},
    ],
    ids=[
        *("itself", "in a dictionary", "beside an optimiser", "deeper"),
        *("with settings", "with a counter", "with arguments", "with extra state"),
    ],
)
def test_the_one_state_dictionary_wherever_it_lies(path, wrapped):
    torch.save(wrapped(WEIGHTS), path)
    found = importing.state_dict(importing.read(path), path)
    assert found.keys() == WEIGHTS.keys()
    assert torch.equal(found["a.weight"], WEIGHTS["a.weight"])


SEVERAL = {"model": WEIGHTS, "ema": {"model": {"a.weight": torch.zeros(2, 3)}}, "epoch": 3}


def test_of_several_one_is_chosen(path):
    assert importing.state_dict(SEVERAL, path, "model").keys() == WEIGHTS.keys()
    assert torch.equal(
        importing.state_dict(SEVERAL, path, "ema.model")["a.weight"], torch.zeros(2, 3)
    )


@pytest.mark.parametrize(
    ("entry", "text"),
    [("", "holds several state_dicts"), ("emma", "has no state_dict 'emma'")],
    ids=["none", "unknown"],
)
def test_several_are_named_where_none_of_them_is_chosen(entry, text, path):
    with pytest.raises(CheckpointError) as caught:
        importing.state_dict(SEVERAL, path, entry)
    assert str(caught.value).startswith(
        f"{path} {text}; those in it: model, ema.model. Name one: `jembench import "
    )


def test_a_nest_that_holds_itself_is_refused(path):
    nest = {}
    nest["nest"] = nest
    torch.save(nest, path)
    with pytest.raises(CheckpointError, match="holds no state_dict"):
        importing.state_dict(importing.read(path), path)


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
@pytest.mark.parametrize(
    "write",
    [
        save_file,
        torch.save,
        lambda value, path: torch.save(value, path, _use_new_zipfile_serialization=False),
    ],
    ids=["safetensors", "torch", "torch before 1.6"],
)
def test_the_content_says_what_it_is_and_not_the_name(write, ending, tmp_path):
    path = tmp_path / f"weights.{ending}"
    write(WEIGHTS, path)
    assert torch.equal(
        importing.state_dict(importing.read(path), path)["a.weight"], WEIGHTS["a.weight"]
    )


def test_a_header_whose_length_begins_like_a_pickle(path):
    """0x80 is a pickle's first byte, and the lowest one of the length 128."""
    header = (
        json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
        .ljust(128)
        .encode()
    )
    path.write_bytes(len(header).to_bytes(8, "little") + header + struct.pack("<f", 7))
    assert importing.read(path)["a"].tolist() == [7]


@pytest.mark.parametrize(
    "write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))]
)
def test_a_file_that_would_run_code_is_refused_and_runs_none(path, tmp_path, write):
    write({"state_dict": Trap(tmp_path / "sprung")}, path)
    with pytest.raises(
        CheckpointError, match="loading that could run code, which jembench never does"
    ):
        importing.read(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", "is damaged"), (b"some words", "is damaged"), (b"PK\x03\x04 torn", "is damaged")],
)
def test_what_is_no_file_of_weights_is_told(tmp_path, content, text, ending):
    path = tmp_path / f"weights.{ending}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=text) as caught:
        importing.read(path)
    assert str(caught.value).startswith(str(path))


def test_archives_of_others_are_refused(path):
    with path.open("wb") as stream:
        np.savez(stream, a=np.ones(2))
    with pytest.raises(CheckpointError, match="holds more than tensors"):
        importing.read(path)
    with path.open("wb") as stream, zipfile.ZipFile(stream, "w") as archive:
        for name in ("data.pkl", "code/__torch__.py", "constants.pkl"):
            archive.writestr(f"net/{name}", "")
    with pytest.raises(CheckpointError, match="holds more than tensors"):
        importing.read(path)


def refusal(path):
    """Why a file cannot be read; "" if it can. It may raise nothing else."""
    try:
        importing.state_dict(importing.read(path), path)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("zipped", [True, False])
def test_whatever_is_damaged_is_an_error_of_the_file(zipped, path):
    torch.save(WEIGHTS, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    rng = random.Random(0)
    refusals = []
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.sample(range(4, min(len(whole), 1000)), 3):
            damaged[place] = rng.randrange(256)
        path.write_bytes(damaged)
        refusals.append(refusal(path))
    told = [text for text in refusals if text]
    assert len(told) > 50
    assert all(text.startswith(f"{path} ") for text in told)


@pytest.mark.parametrize(
    "content",
    [[1, 2], {}, {"epoch": 3, "loss": torch.ones(())}, {"state_dict": {"calls": 3}}, {0: WEIGHTS}],
)
def test_content_without_a_state_dictionary_is_refused(content, path):
    with pytest.raises(
        CheckpointError, match="holds no state_dict, a dictionary of dense tensors alone"
    ):
        importing.state_dict(content, path)


@pytest.mark.parametrize(
    "tensor", [torch.eye(2).to_sparse(), torch.ones(2, device="meta")], ids=["sparse", "meta"]
)
def test_tensors_that_are_not_plain_numbers_are_refused(tensor, path):
    torch.save({"a": torch.ones(1), "b": tensor}, path)
    with pytest.raises(
        CheckpointError, match="holds no state_dict, a dictionary of dense tensors alone"
    ):
        importing.state_dict(importing.read(path), path)
