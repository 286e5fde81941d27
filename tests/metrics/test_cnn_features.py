from __future__ import annotations

import dataclasses
import os
import signal
import sys

import pytest
import torch

from jembench import progress, stopping
from jembench.data.factories import digits
from jembench.errors import Unavailable
from jembench.interfaces import DataSpec, Split
from jembench.metrics import features
from jembench.metrics.features import CnnFeatures
from jembench.store import checkpoint

CPU = torch.device("cpu")


@pytest.fixture
def short(monkeypatch):
    """Training that is over at once, and imports no compiler."""
    monkeypatch.setitem(features.RECIPE, "iterations", 3)
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)


@pytest.fixture
def toy(fake):
    spec = DataSpec(name="toy", shape=(3, 5, 7), num_classes=4, bounds=(0, 1))
    generator = torch.Generator().manual_seed(0)

    def split(n):
        images = torch.randint(256, (n, 3, 5, 7), dtype=torch.uint8, generator=generator)
        return Split(images, torch.randint(4, (n,), generator=generator))

    return fake.Dataset(spec, {"train": split(40), "test": split(20)})


def prepared(dataset, cache):
    network = CnnFeatures()
    network.prepare(dataset, cache, CPU)
    return network


def never(*_):
    raise AssertionError("trained again")


def test_the_network_of_digits_is_shipped_and_was_trained_by_this_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_train", never)
    dataset = digits()
    network = prepared(dataset, tmp_path)
    images, labels = dataset.split("test")
    computed = network.features(images)
    accuracy = 100 * (computed.logits.argmax(1) == labels).double().mean().item()
    assert accuracy >= 98
    assert network.name == "digits-cnn"
    assert list(tmp_path.iterdir()) == []


def test_other_images_of_the_same_name_have_their_own_network(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_train", lambda spec, *images: features._make_net(spec))
    toy.spec = dataclasses.replace(toy.spec, name="digits")
    first = prepared(toy, tmp_path)
    assert first.identity != prepared(digits(), tmp_path).identity
    assert first.identity == prepared(toy, tmp_path).identity


def test_the_network_depends_on_neither_the_global_seed_nor_the_threads(toy, tmp_path, short):
    threads, identities = torch.get_num_threads(), set()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            torch.default_generator.manual_seed(count)
            identities.add(prepared(toy, tmp_path / str(count)).identity)
    finally:
        torch.set_num_threads(threads)
    assert len(identities) == 1


@pytest.mark.parametrize(("signal_at", "killed_at", "begins"), [(7, None, 7), (None, 9, 8)])
def test_a_training_that_was_interrupted_goes_on_to_the_same_network(
    toy, tmp_path, monkeypatch, signal_at, killed_at, begins
):
    monkeypatch.setitem(features.RECIPE, "iterations", 12)
    monkeypatch.setattr(features, "CHECKPOINT_EVERY", 4)
    straight, seen = prepared(toy, tmp_path / "straight"), []
    loss = torch.nn.functional.cross_entropy

    def counted(*args):
        seen.append(progress.now().done)
        if len(seen) == signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        if len(seen) == killed_at:
            raise KeyboardInterrupt
        return loss(*args)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", counted)
    with stopping.listening(), pytest.raises((stopping.Stopped, KeyboardInterrupt)):
        prepared(toy, tmp_path / "stopped")
    seen.clear()
    signal_at = killed_at = None
    assert prepared(toy, tmp_path / "stopped").identity == straight.identity
    assert seen == list(range(begins, 12))
    assert [path.name for path in (tmp_path / "stopped" / "toy-cnn").iterdir()] == [
        "weights.safetensors"
    ]


@pytest.mark.parametrize("content", ["of another recipe", "torn"])
def test_an_unfinished_training_that_is_not_this_one_is_left(toy, tmp_path, short, content):
    straight = prepared(toy, tmp_path / "straight").identity
    path = tmp_path / "other" / "toy-cnn" / "training.safetensors"
    if content == "torn":
        path.parent.mkdir(parents=True)
        path.write_bytes(b"torn")
    else:
        checkpoint.write(path, {"record": {}, "iteration": 2})
    assert prepared(toy, tmp_path / "other").identity == straight


def test_training_leaves_the_global_generator_and_the_threads_alone(toy, tmp_path, short):
    torch.default_generator.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    with torch.no_grad():
        prepared(toy, tmp_path)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_the_network_is_made_once(toy, tmp_path, short, monkeypatch):
    first = prepared(toy, tmp_path)
    monkeypatch.setattr(features, "_train", never)
    again = prepared(toy, tmp_path)
    assert again.identity == first.identity
    images = toy.split("test").images
    assert torch.equal(again.features(images).pool, first.features(images).pool)


@pytest.mark.parametrize("damage", ["cut short", "changed", "removed"])
def test_a_damaged_file_is_made_again_and_is_the_same(damage, toy, tmp_path, short):
    identity = prepared(toy, tmp_path).identity
    path = tmp_path / "toy-cnn" / "weights.safetensors"
    whole = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(whole[:-9] if damage == "cut short" else whole[:-9] + b"000000000")
    assert prepared(toy, tmp_path).identity == identity
    assert path.read_bytes() == whole


def test_the_test_split_is_not_trained_on(toy, tmp_path, short):
    first = prepared(toy, tmp_path / "a").identity
    toy.splits["test"].images.zero_()
    assert prepared(toy, tmp_path / "b").identity == first


def test_unlabelled_images_train_no_network(toy, tmp_path):
    toy.spec = dataclasses.replace(toy.spec, num_classes=0)
    with pytest.raises(Unavailable, match="trained on labels, and the dataset toy has none"):
        prepared(toy, tmp_path)
