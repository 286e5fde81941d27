"""Sizes that are absurd are refused before anything is allocated or read, by limits that can be raised."""

import json
import os
import socket
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest
import torch

from jembench.catalog import limits, registry
from jembench.data.decoding import Form, decode_all
from jembench.errors import JembenchError, SpecError
from jembench.interfaces import DataSpec
from jembench.models.adapters import factories, foreign, header
from jembench.models.nets.build import build_net
from jembench.store import checkpoint

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)
RGB = Form(mode="RGB", height=8, width=8, square=True)


@pytest.fixture
def allocated(monkeypatch):
    """Fails the test when PyTorch is asked for more than 2 GiB at once: a refusal comes before that."""
    monkeypatch.setenv("JEMBENCH_MAX_GIB", "2")
    before = torch.empty

    def empty(*arguments, **options):
        made = before(*arguments, **options)
        assert made.nbytes < 2 * limits.GIB
        return made

    monkeypatch.setattr(torch, "empty", empty)


@pytest.mark.parametrize(
    ("kind", "text", "unit"),
    [
        ("models", "jem:net=small-99999999", "GiB"),
        ("models", "baseline:net=wrn-28-100000", "GiB"),
        ("models", "jem:net=wrn-10000-1", "tensors"),
        ("models", "igebm:width=1000000000", "GiB"),
        ("models", "glow:hidden=1000000000", "GiB"),
        ("models", "glow:levels=1,steps=1000000000", "tensors"),
        ("models", "residual-flow:hidden=1000000000", "GiB"),
        ("models", "residual-flow:levels=1,blocks=1000000000,hidden=2", "tensors"),
        ("samplers", "pcd:buffer=1000000000000", "GiB"),
        ("samplers", "proximal:buffer=1000000000000", "GiB"),
        ("samplers", "igebm-langevin:buffer=1000000000000", "GiB"),
    ],
)
def test_a_component_that_would_fill_the_memory_is_refused(allocated, kind, text, unit, monkeypatch):
    monkeypatch.setenv("JEMBENCH_MAX_TENSORS", "500")
    with pytest.raises(SpecError, match=rf"takes .* {unit}, and (the limit is (2|500)|this machine has)"):
        registry.resolve(kind, text).make(DIGITS)


def test_a_wide_network_is_refused_before_its_first_layer_is_filled(monkeypatch):
    monkeypatch.setattr(torch.nn, "Conv2d", None)
    with pytest.raises(SpecError, match=r"The net small-99999999 takes 8,046,626,884 GiB, and the limit is 8"):
        build_net("small-99999999", DIGITS)


ABSURD = [
    ("jem:net=small-99999999", "", "GiB"),
    ("jem-factored:net=wrn-28-100000", "", "GiB"),
    ("baseline:net=wrn-10000-1", "", "tensors"),
    ("adversarial:net=wrn-10000-1", "", "tensors"),
    ("igebm:width=1000000000", "", "GiB"),
    ("glow:hidden=1000000000", "", "GiB"),
    ("residual-flow:hidden=2,blocks=1000000000", "", "tensors"),
    ("jem", "pcd:buffer=1000000000000", "GiB"),
    ("jem", "proximal:buffer=1000000000000", "GiB"),
    ("igebm", "igebm-langevin:buffer=1000000000000", "GiB"),
]


def test_an_absurd_size_is_refused_by_the_plan_without_torch():
    code = (
        "import sys; from jembench.errors import SpecError; from jembench.experiment.plan import plan_fit\n"
        "for model, sampler, unit in " + repr(ABSURD) + ":\n"
        "    try: plan_fit(model, 'digits', settings=[f'chains.sampler={sampler}'] if sampler else [])\n"
        "    except SpecError as error: assert f'{unit}, and the limit is' in str(error), error\n"
        "    else: raise AssertionError(model)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "text",
    [
        "jem:net=wrn-10-1",
        "baseline:net=small-3",
        "igebm:width=3",
        "glow:levels=1,steps=2,hidden=5",
        "residual-flow:levels=1,blocks=2,hidden=5",
    ],
)
def test_the_least_size_is_no_more_than_the_size(text):
    resolved = registry.resolve("models", text)
    least = resolved.factory.least_size(resolved.bound.arguments)
    parameters = list(resolved.make(DIGITS).parameters())
    assert 0 < least.bytes <= sum(parameter.nbytes for parameter in parameters)
    assert least.tensors <= len(parameters)


def test_a_model_that_a_file_names_is_refused_too(monkeypatch, tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"")
    made_from = ("models", "jem:net=small-99999999")
    monkeypatch.setattr(factories.imported, "made_from", lambda arguments: [made_from])
    with pytest.raises(SpecError, match=r"jem:net=small-99999999 takes .* GiB"):
        registry.resolve("models", f"imported:file={file}").check_size()


def test_counting_does_not_import_the_compiler():
    code = (
        "import sys, torch; from jembench.catalog import limits\n"
        "with limits.allocating('a layer'): torch.nn.Linear(2, 2)\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_limits_can_be_raised(monkeypatch):
    monkeypatch.setenv("JEMBENCH_MAX_TENSORS", "10")
    with pytest.raises(SpecError, match=r"raise the limit with the environment variable JEMBENCH_MAX_TENSORS."):
        build_net("wrn-10-1", DIGITS)
    monkeypatch.setenv("JEMBENCH_MAX_TENSORS", "100")
    build_net("wrn-10-1", DIGITS)


@pytest.mark.parametrize("value", ["x", "-1", "0", "1.5", "nan", "9" * 30, "\u0661x"])
def test_a_limit_that_is_no_number(monkeypatch, value):
    monkeypatch.setenv("JEMBENCH_MAX_GIB", value)
    with pytest.raises(SpecError, match=r"JEMBENCH_MAX_GIB is .*; it must be a whole number from 1 up, of GiB."):
        limits.check_bytes("a network", 1)


def test_what_is_made_is_counted_and_not_changed():
    torch.manual_seed(0)
    plain = build_net("small-8", DIGITS).state_dict()
    torch.manual_seed(0)
    with limits.allocating("a network"):
        counted = build_net("small-8", DIGITS).state_dict()
    assert all(torch.equal(plain[name], counted[name]) for name in plain)


# --- files ------------------------------------------------------------------------------------------------------------


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
        SpecError, match=r"bomb.pt, unpacked, takes 4 GiB, and the limit is 1. .*JEMBENCH_MAX_UNPACKED_GIB"
    ):
        foreign.read(path)


def test_a_file_that_torch_compressed_or_not_is_read(tmp_path):
    torch.save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert foreign.read(tmp_path / "b.pt")["a"].shape == (1000,)


def test_a_header_of_too_many_names_is_refused(tmp_path):
    path = tmp_path / "many.safetensors"
    names = {f"layer.{n}.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(200_000)}
    encoded = json.dumps(names).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded)
    for read in (foreign.read, header.read):
        with pytest.raises(SpecError, match=r"takes 200,000 tensors, and the limit is 10,000. .*JEMBENCH_MAX_TENSORS"):
            read(path)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.fixture
def large(tmp_path):
    """A PNG of 30,000 x 30,000 pixels that takes less than a kilobyte, as far as its header says."""
    path = tmp_path / "large.png"
    size = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")
    )
    return str(path)


def test_a_huge_image_is_refused_by_its_header(large):
    with pytest.raises(SpecError, match=r"large.png is too large: .*900000000 pixels.*JEMBENCH_MAX_PIXELS"):
        decode_all([large], RGB)


def test_many_images_of_a_huge_size_are_refused(large):
    with pytest.raises(SpecError, match=r"10 images of 100000x100000 pixels takes 280 GiB"):
        decode_all([large] * 10, Form(mode="RGB", height=100_000, width=100_000, square=True))


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
    for read in (
        foreign.read,
        header.read,
        checkpoint.read,
        lambda path: decode_all([str(path)], RGB),
    ):
        with pytest.raises(JembenchError, match=r"x.png (is no|is damaged|cannot be)"):
            read(path)
