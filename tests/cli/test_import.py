"""``jembench import``, and the model that it makes, from one end to the other."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from jembench.interfaces import DataSpec
from jembench.models.nets.build import build_net

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)


@pytest.fixture
def checkpoint(jembench):
    """A checkpoint as JEM's authors write them, for digits, in the folder where the command is called."""
    torch.manual_seed(0)
    names = build_net("wrn-10-1", DIGITS).state_dict()
    weights = {name if name.startswith("class_output") else f"f.{name}": value for name, value in names.items()}
    buffer = torch.rand(50, 1, 8, 8) * 2 - 1
    torch.save({"model_state_dict": weights, "replay_buffer": buffer}, "DIGITS_MODEL.pt")
    return buffer


def test_from_a_published_checkpoint_to_a_row_of_the_table(jembench, checkpoint):
    done = jembench("import", "jem", "DIGITS_MODEL.pt")
    assert done == (
        0,
        "   model  jem:net=wrn-10-1, 77,418 parameters, every name and shape fits\n"
        "  chains  pcd:buffer=50\n"
        " written  DIGITS_MODEL.safetensors\n"
        "    next  jembench run hybrid --models imported:file=DIGITS_MODEL.safetensors --dataset digits\n",
        "",
    )
    model = "imported:file=DIGITS_MODEL.safetensors"
    arguments = ("run", "hybrid", "--models", model, "--metrics", "accuracy,energy-gap,iteration-time", "--limit", "40")
    first = jembench(*arguments, "--format", "json")
    assert first.code == 0, first.err
    (row,) = json.loads(first.out)["rows"]
    assert row["recipe"] == "pretrained"
    assert jembench(*arguments, "--format", "json").out == first.out
    cells = [json.loads(path.read_text()) for path in Path("runs/cells").iterdir()]
    by_metric = {cell["metric"]: cell for cell in cells}
    assert by_metric["iteration-time"]["outcome"]["status"] == "na"
    assert by_metric["energy-gap"]["outcome"]["status"] == "ok"
    plugins = " ".join(by_metric["accuracy"]["provenance"]["plugins"])
    assert "imported = " in plugins


def test_another_file_of_the_same_name_is_another_model(jembench, checkpoint):
    arguments = ("run", "hybrid", "--models", "imported:file=DIGITS_MODEL.safetensors", "--metrics", "accuracy")
    for _ in range(2):
        assert jembench("import", "jem", "DIGITS_MODEL.pt").code == 0
        assert jembench(*arguments, "--limit", "40").code == 0
        content = torch.load("DIGITS_MODEL.pt", weights_only=True)
        content["model_state_dict"]["class_output.bias"] += 1
        torch.save(content, "DIGITS_MODEL.pt")
        Path("DIGITS_MODEL.safetensors").unlink()
    assert len(list(Path("runs/cells").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["jem", "nowhere.pt"], "There is no file nowhere.pt. Check the path."),
        (["gem", "DIGITS_MODEL.pt"], "There is no importer named 'gem'. Nearest: jem"),
        (["jem", "DIGITS_MODEL.pt", "--output", "x.bin"], "--output is x.bin; its name must end in .safetensors."),
        (["weights", "DIGITS_MODEL.pt"], "A plain state_dict does not say which model it is of. Name it: --model"),
        (["jem", "DIGITS_MODEL.pt", "--dataset", "cifar10"], "The replay buffer in DIGITS_MODEL.pt is (50, 1, 8, 8)"),
        (["weights", "DIGITS_MODEL.pt", "--model", "baseline"], "do not fit baseline, and nothing was imported"),
    ],
)
def test_what_does_not_work_is_told_and_nothing_is_written(arguments, text, jembench, checkpoint):
    done = jembench("import", *arguments)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert [path.name for path in Path().iterdir()] == ["DIGITS_MODEL.pt"]


KEPT = "w.safetensors exists. Name another file with --output, or replace it with --force."


def weights_of(seed):
    torch.manual_seed(seed)
    return build_net("small-4", DIGITS).state_dict()


def test_the_source_is_never_written_over(jembench):
    save_file(weights_of(0), "w.safetensors")
    before = Path("w.safetensors").read_bytes()
    arguments = ("import", "weights", "w.safetensors", "--model", "baseline:net=small-4")
    done = jembench(*arguments)
    assert (done.code, done.err) == (
        2,
        "Error: w.safetensors is the file that is imported. Name another file with --output.\n",
    )
    assert Path("w.safetensors").read_bytes() == before
    assert jembench(*arguments, "--output", "m.safetensors").code == 0


def test_a_file_beside_the_source_is_never_written_over(jembench):
    torch.save(weights_of(0), "w.pt")
    save_file(weights_of(1), "w.safetensors")
    before = Path("w.safetensors").read_bytes()
    done = jembench("import", "weights", "w.pt", "--model", "baseline:net=small-4")
    assert (done.code, done.out) == (2, "")
    assert KEPT in done.err
    assert Path("w.safetensors").read_bytes() == before


def test_of_a_training_with_other_parts_the_model_is_read_and_the_rest_is_told(jembench):
    """As a file that holds the model beside its criterion: first the way in is told, then what was left out."""
    model = {f"model.{name}": value for name, value in weights_of(0).items()}
    torch.save({"state_dict": model | {"criterion.weight": torch.ones(10)}}, "w.ckpt")
    arguments = ("w.ckpt", "--model", "baseline:net=small-4")
    done = jembench("import", "weights", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "Take that off: `jembench import weights:prefix=model.`." in done.err
    done = jembench("import", "weights:prefix=model.", *arguments)
    assert (done.code, done.err) == (0, "")
    assert "  unused  criterion.weight\n" in done.out
