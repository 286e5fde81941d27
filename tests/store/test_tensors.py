"""Files of tensors: equal content gives equal bytes, and every change is seen."""

import os
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from jembench.errors import CheckpointError, StoreError
from jembench.store import tensors

VALUES = {
    "b.weight": torch.arange(6.0).reshape(2, 3),
    "a": torch.tensor([1, 2]),
    "half": torch.ones(3).bfloat16(),
}
RECORD = {"age": 5, "text": "é", "nested": {"b": [1, None], "a": 0.1}}


@pytest.fixture
def path(tmp_path):
    tensors.write(tmp_path / "x.safetensors", VALUES, RECORD)
    return tmp_path / "x.safetensors"


def test_tensors_and_record_come_back(path):
    found, seal = tensors.read(path, "")
    assert found.keys() == VALUES.keys()
    assert all(
        torch.equal(found[name], value) and found[name].dtype == value.dtype
        for name, value in VALUES.items()
    )
    assert seal.record == RECORD
    assert seal.digest
    assert tensors.check(path) == tensors.read_seal(path) == seal
    # plain safetensors for everybody else
    assert safetensors.torch.load_file(path).keys() == VALUES.keys()


WRITER = """
import sys, torch
from pathlib import Path
from jembench.store import tensors
values = {"b": torch.arange(6.0), "a": torch.ones(2), "c": torch.ones(1).bfloat16()}
tensors.write(Path(sys.argv[1]), values, {"z": 1, "a": 2, "m": "x"})
"""


def test_equal_content_gives_equal_files_in_any_process(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "other")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    values = {"a": torch.ones(2), "c": torch.ones(1).bfloat16(), "b": torch.arange(6.0)}
    tensors.write(tmp_path / "here", values, {"m": "x", "z": 1, "a": 2})
    assert (tmp_path / "other").read_bytes() == (tmp_path / "here").read_bytes()


def test_the_digest_is_of_names_types_shapes_bytes_and_record(tmp_path):
    variants = [
        (VALUES, RECORD),
        (VALUES, {**RECORD, "age": 6}),
        ({**VALUES, "a": torch.tensor([1, 3])}, RECORD),
        ({**VALUES, "a": torch.tensor([[1, 2]])}, RECORD),
        ({**VALUES, "a": torch.tensor([1, 2]).view(torch.float64)}, RECORD),
        ({("A" if name == "a" else name): value for name, value in VALUES.items()}, RECORD),
    ]
    for number, (values, record) in enumerate(variants):
        tensors.write(tmp_path / str(number), values, record)
    assert len({tensors.check(path).digest for path in tmp_path.iterdir()}) == len(variants)


def test_a_flipped_bit_of_any_byte_is_seen(path):
    whole, digest = path.read_bytes(), tensors.check(path).digest
    for position in range(len(whole)):
        for bit in (5, position % 8):  # that of upper case, and another
            path.write_bytes(
                whole[:position] + bytes([whole[position] ^ 1 << bit]) + whole[position + 1 :]
            )
            try:
                seal = tensors.check(path)
            except CheckpointError:
                continue
            # another way of writing the same: \\u00E9
            assert (seal.record, seal.digest) == (RECORD, digest)


def test_every_cut_is_seen(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=rf"{path} is damaged \(.*\)\. Do this\."):
            tensors.read(path, "Do this.")


def test_a_file_of_another_program_is_read_and_is_none_of_a_store(tmp_path):
    path = tmp_path / "foreign"
    path.write_bytes(safetensors.torch.save(VALUES, metadata={"format": "pt"}))
    found, seal = tensors.read(path, "")
    assert torch.equal(found["a"], VALUES["a"])
    assert (seal.record, seal.digest) == ({"format": "pt"}, "")
    with pytest.raises(CheckpointError, match="it has no digest"):
        tensors.check(path)


DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
STRANGE = {
    "empty": b"",
    "short": b"\0\0",
    "long": b"\xff" * 16,
    "no JSON": (5).to_bytes(8, "little") + b"{'a'}",
    "a list": (2).to_bytes(8, "little") + b"[]",
    "deep": len(DEEP).to_bytes(8, "little") + DEEP,
    "metadata": (19).to_bytes(8, "little") + b'{"__metadata__":[]}',
    "record": (32).to_bytes(8, "little") + b'{"__metadata__":{"jembench": 5}}',
    "no digest": (35).to_bytes(8, "little") + b'{"__metadata__":{"jembench": "{}"}}',
    "offsets": (63).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[9999999],"data_offsets":[0,4000]}}',
}


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_what_is_no_such_file_is_one_error(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        tensors.read(tmp_path / "x", "")


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "loop", "", "nowhere"):
        for read in (tensors.check, tensors.read_seal):
            with pytest.raises(
                CheckpointError, match=f"{tmp_path / name} (cannot be read|is damaged)"
            ):
                read(tmp_path / name)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_quantised_tensors_are_refused(path):
    values = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(StoreError, match="w is qint8"):
        tensors.write(path, {"w": values}, {})
