"""Sizes that are absurd are refused before anything is allocated or read, by limits that can be
raised.
"""

import json
import os
import socket
import struct
import zipfile
import zlib

import pytest
import torch

from jembench import limits
from jembench.catalog import registry
from jembench.data.decoding import EncodedImages, Form
from jembench.errors import JembenchError, SpecError
from jembench.interfaces import DataSpec
from jembench.models import importing, memory
from jembench.store import checkpoint

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)
RGB = Form(mode="RGB", height=8, width=8, square=True)


def give_memory(monkeypatch, size):
    """Let this machine have ``size`` bytes of memory."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": size}.__getitem__)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("models", "jem:net=small-9999"),
        ("models", "baseline:net=wrn-28-1000"),
        ("models", "igebm:width=10000"),
        ("samplers", "pcd:buffer=100000000"),
        ("samplers", "proximal:buffer=100000000"),
        ("samplers", "igebm-langevin:buffer=100000000"),
    ],
)
def test_a_component_that_would_fill_the_memory_is_refused(kind, text, monkeypatch):
    give_memory(monkeypatch, 8 * memory.GIB)
    resolved = registry.resolve(kind, text)
    with pytest.raises(
        SpecError, match=r"^It takes .* GiB.*, and this machine has 8\. Make it smaller\."
    ):
        memory.check_memory(lambda: resolved.make(DIGITS), "It", torch.device("cpu"))


def test_a_model_needs_gradients_and_two_moments_a_parameter(monkeypatch):
    def make():
        return torch.nn.Sequential(
            torch.nn.Linear(3, 5), torch.nn.Linear(5, 7).requires_grad_(False)
        )

    give_memory(monkeypatch, 4 * (4 * 20 + 42))
    memory.check_memory(make, "It", torch.device("cpu"))
    give_memory(monkeypatch, 4 * (4 * 20 + 42) - 1)
    with pytest.raises(SpecError, match="with gradients and the state of an optimiser"):
        memory.check_memory(make, "It", torch.device("cpu"))


def test_the_check_of_memory_changes_nothing(monkeypatch):
    def make():
        torch.rand(3)
        return torch.nn.Linear(3, int(torch.ones(()).item()))  # the meta device has no values

    before = torch.get_rng_state()
    memory.check_memory(make, "It", torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.empty(()).device.type == "cpu"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("models", "jem:net=small-99999999"),
        ("models", "jem:net=wrn-10000-1"),
        ("models", "igebm:width=1000000000"),
        ("models", "glow:levels=1,steps=1000000000"),
        ("models", "glow:hidden=1000000000"),
        ("models", "residual-flow:levels=1,blocks=1000000000,hidden=2"),
        ("samplers", "pcd:buffer=1000000000000"),
    ],
)
def test_a_number_that_would_make_objects_without_end_is_refused(kind, text):
    with pytest.raises(
        SpecError, match=r"it must be at least 1 and at most|with numbers below 10,000"
    ):
        registry.resolve(kind, text).make(DIGITS)


@pytest.mark.parametrize("value", ["x", "-1", "0", "1.5", "nan", "9" * 30, "\u0661x"])
def test_a_limit_that_is_no_number(monkeypatch, value):
    monkeypatch.setenv("JEMBENCH_MAX_GIB", value)
    with pytest.raises(
        SpecError, match=r"JEMBENCH_MAX_GIB is .*; it must be a whole number from 1 up, of GiB."
    ):
        limits.check_bytes("a network", 1)


def test_a_zip_bomb_is_refused_by_its_directory(tmp_path, monkeypatch):
    path = tmp_path / "bomb.pt"
    torch.save({"a": torch.zeros(10)}, path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/9", b"")
        archive.getinfo("archive/data/9").file_size = (
            3 * limits.GIB
        )  # as three GiB of zeros would be, without making them
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(
        SpecError,
        match=r"bomb.pt, unpacked, takes 4 GiB, and the limit is 1. .*JEMBENCH_MAX_UNPACKED_GIB",
    ):
        importing.read(path)


def test_a_file_that_torch_compressed_or_not_is_read(tmp_path):
    torch.save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert importing.read(tmp_path / "b.pt")["a"].shape == (1000,)


def test_a_header_of_too_many_names_is_refused(tmp_path):
    path = tmp_path / "many.safetensors"
    names = {
        f"layer.{n}.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        for n in range(20_000)
    }
    encoded = json.dumps(names).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded)
    with pytest.raises(
        SpecError, match=r"takes 20,000 tensors, and the limit is 10,000. .*JEMBENCH_MAX_TENSORS"
    ):
        importing.read(path)


def chunk(kind, content):
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def decode(paths, form):
    images = EncodedImages(len(paths), form, paths.__getitem__)
    return images.read(torch.arange(len(paths)))


@pytest.fixture
def large(tmp_path):
    """A PNG of less than a kilobyte whose header says 30,000 x 30,000 pixels."""
    path = tmp_path / "large.png"
    size = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(bytes(9)))
        + chunk(b"IEND", b"")
    )
    return str(path)


def test_a_huge_image_is_refused_by_its_header(large):
    with pytest.raises(
        SpecError, match=r"large.png is too large: .*900000000 pixels.*JEMBENCH_MAX_PIXELS"
    ):
        decode([large], RGB)


def test_many_images_of_a_huge_size_are_refused(large):
    with pytest.raises(SpecError, match=r"10 images of 100000x100000 pixels takes 280 GiB"):
        decode([large] * 10, Form(mode="RGB", height=100_000, width=100_000, square=True))


def fifo(path):
    os.mkfifo(path)


def loop(path):
    path.symlink_to(path)


def folder(path):
    path.mkdir()


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


ODD = [fifo, loop, folder, bound_socket]


@pytest.mark.parametrize("make", ODD)
def test_what_is_no_regular_file_is_never_opened(tmp_path, make):
    path = tmp_path / "x.png"
    make(path)
    for read in (importing.read, checkpoint.read, lambda path: decode([str(path)], RGB)):
        with pytest.raises(JembenchError, match=r"x.png (is no|is damaged|cannot be)"):
            read(path)
