"""From weights made elsewhere to a model that is measured here."""

import dataclasses
import json

import pytest
import safetensors.torch
import torch

from jembench.catalog import registry
from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import Import, SavedChains
from jembench.interfaces.models import HasSampler
from jembench.models.adapters import header, imported
from jembench.models.capabilities import capabilities
from jembench.store import tensors as files

JEM = "jem:net=small-4"
PCD = "pcd:buffer=6,steps=3"


def made(data, spec=JEM, seed=3):
    torch.manual_seed(seed)
    return registry.resolve("models", spec).make(data)


def found(data, **changes):
    sampler = registry.resolve("samplers", PCD).make(data)
    sampler.init(3, generator=torch.Generator().manual_seed(5))
    fields = {"model": JEM, "weights": made(data).state_dict(), "chains": SavedChains(PCD, sampler.state_dict())}
    return Import(**{**fields, **changes})


@pytest.fixture
def path(tmp_path, data):
    imported.write(tmp_path / "jem.safetensors", found(data, unused=("head",)), data, {"file": "x.pt"})
    return tmp_path / "jem.safetensors"


def test_the_model_and_its_chains_come_back(path, data):
    torch.manual_seed(0)
    model = imported.load(path, data)
    x = torch.rand(4, *data.shape)
    assert torch.equal(model.logits(x), made(data).logits(x))
    assert capabilities(model) == {"logits", "energy", "samples"}
    assert isinstance(model, HasSampler)
    kept, expected = model.own_sampler().state_dict(), found(data).chains.state
    assert all(torch.equal(kept[name], expected[name]) for name in expected)


def test_a_model_without_chains_brings_none(tmp_path, data):
    imported.write(tmp_path / "b.safetensors", found(data, chains=None), data, {})
    assert not isinstance(imported.load(tmp_path / "b.safetensors", data), HasSampler)


def test_the_header_says_all_that_made_it(path, data):
    known = header.read(path)
    assert (known.model, known.sampler, known.unused) == (JEM, PCD, ("head",))
    assert known.source == {"file": "x.pt"}
    assert known.data == data


def test_identity_is_content_and_not_place(path, data, tmp_path):
    one = registry.resolve("models", f"imported:file={path}").identity
    path.rename(tmp_path / "moved.safetensors")
    assert registry.resolve("models", f"imported:file={tmp_path / 'moved.safetensors'}").identity == one
    imported.write(path, found(data, weights=made(data, seed=4).state_dict()), data, {})
    registry.look_again()
    assert registry.resolve("models", f"imported:file={path}").identity != one


def test_everything_that_does_not_fit_is_listed_and_nothing_is_loaded(data, tmp_path):
    weights = dict(made(data).state_dict())
    names = list(weights)
    weights["more"] = torch.ones(1)
    weights[names[0]] = torch.ones(1, 2)
    weights[names[1]] = torch.full_like(weights[names[1]], torch.nan)
    del weights[names[2]]
    with pytest.raises(CheckpointError) as caught:
        imported.fit_together(found(data, weights=weights), data, tmp_path / "x.pt")
    text = str(caught.value)
    for part in ("more is unknown", f"{names[0]} is (1, 2) instead of", f"{names[2]} is missing", "is not finite"):
        assert part in text
    assert "nothing was imported" in text


def test_what_is_too_large_for_the_model_s_precision_is_not_finite(data, tmp_path):
    weights = dict(made(data).state_dict())
    name = min(weights)
    weights[name] = weights[name].double().clone()
    weights[name].view(-1)[0] = 1e300
    with pytest.raises(CheckpointError, match=f"nothing was imported: {name} is not finite"):
        imported.fit_together(found(data, weights=weights), data, tmp_path / "x.pt")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_chains_that_are_not_finite_are_refused(value, data, tmp_path):
    state = dict(found(data).chains.state)
    state["images"] = state["images"].clone()
    state["images"][2, 0, 3, 3] = value
    with pytest.raises(
        CheckpointError, match=r"chains in .*x\.pt hold .* not finite, .*nothing was imported: images\."
    ):
        imported.fit_together(found(data, chains=SavedChains(PCD, state)), data, tmp_path / "x.pt")


def test_chains_that_do_not_fit_are_refused(data, tmp_path):
    chains = SavedChains("pcd:buffer=7,steps=3", found(data).chains.state)
    with pytest.raises(CheckpointError, match="replay buffer is"):
        imported.fit_together(found(data, chains=chains), data, tmp_path / "x.pt")


def test_another_dataset_is_refused(path, data):
    other = dataclasses.replace(data, name="other", num_classes=5)
    with pytest.raises(SpecError, match=r"holds a model for tiny, \[1, 8, 8\] with 3 classes, and other has .* with 5"):
        imported.load(path, other)


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_file_that_was_not_imported_is_told_of(tmp_path, data, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="is no file that `jembench import` wrote"):
        imported.load(tmp_path / "x.safetensors", data)


def test_a_newer_file_is_refused(tmp_path, data, monkeypatch):
    monkeypatch.setattr(header, "SCHEMA", 3)
    imported.write(tmp_path / "x.safetensors", found(data), data, {})
    monkeypatch.setattr(header, "SCHEMA", 2)
    with pytest.raises(CheckpointError, match="written by a newer jembench"):
        header.read(tmp_path / "x.safetensors")


def test_one_flipped_bit_is_seen(path, data):
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 2]) + whole[position + 1 :])
        with pytest.raises(CheckpointError, match=f"{path} is (damaged|no file that)"):
            imported.load(path, data)


def test_equal_weights_are_equal_files(path, tmp_path, data):
    imported.write(tmp_path / "again.safetensors", found(data, unused=("head",)), data, {"file": "x.pt"})
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_file_of_the_first_version_is_read(path, data):
    values, seal = files.read(path, "")
    old = {"jembench-import": json.dumps({**seal.record, "schema": 1})}
    path.write_bytes(safetensors.torch.save(values, metadata=old))
    assert header.read(path).model == seal.record["model"]
    assert imported.load(path, data) is not None
