"""``jembench train``."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def train(jembench, tiny):
    """``jembench train`` with what takes a moment."""
    return lambda model, *arguments: jembench("train", model, *tiny, *arguments)


def test_it_prints_the_folder_of_the_trained_model_and_nothing_else(train):
    done = train("zoo_of_tests:jem", "--seed", "3")
    assert done.code == 0
    folder = Path(done.out.removesuffix("\n"))
    assert json.loads((folder / "fit.json").read_text())["key"]["seed"] == 3
    assert (folder / "model.safetensors").exists()
    assert "zoo_of_tests:jem on zoo_of_tests:data, seed 3: training" in done.err


def test_what_is_trained_is_not_trained_again(train, contents):
    before = train("zoo_of_tests:jem")
    whole = contents("runs")
    assert train("zoo_of_tests:jem") == (0, before.out, "")
    assert contents("runs") == whole


def test_run_finds_what_train_has_made(train, run):
    train("zoo_of_tests:jem")
    done = run(models="zoo_of_tests:jem", metrics="accuracy")
    assert done.code == 0
    assert "zoo_of_tests:jem on zoo_of_tests:data, seed 0: done in " in done.err


def test_weights_that_were_deleted_are_made_anew(train):
    folder = Path(train("zoo_of_tests:jem").out.strip())
    (folder / "model.safetensors").unlink()
    done = train("zoo_of_tests:jem")
    assert done.code == 0
    assert "seed 0: training" in done.err
    assert (folder / "model.safetensors").exists()


def test_a_checkpoint_of_another_model_is_refused_and_kept(train):
    folder = Path(train("zoo_of_tests:classifier").out.strip())
    (other,) = Path(train("baseline:net=small-4").out.strip()).glob("checkpoint-*.safetensors")
    (own,) = folder.glob("checkpoint-*.safetensors")
    (folder / "fit.json").unlink()
    foreign = other.read_bytes()
    other.replace(own)
    done = train("zoo_of_tests:classifier")
    assert (done.code, done.out) == (2, "")
    assert "Error: The checkpoint belongs to another model: " in done.err
    assert own.read_bytes() == foreign
