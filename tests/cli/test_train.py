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


def test_run_finds_what_train_has_made(train, run):
    train("zoo_of_tests:jem")
    done = run(models="zoo_of_tests:jem", metrics="accuracy")
    assert done.code == 0
    assert "zoo_of_tests:jem on zoo_of_tests:data, seed 0: done in " in done.err
