"""Commands on models that were trained elsewhere: imported ones, generators, and factories that say so."""

import json
from pathlib import Path

import pytest
import torch

IMPORTED = "imported:file=w.safetensors"
GENERATOR = "generator:module=zoo_of_tests:paint"


@pytest.fixture
def weights(jembench, zoo_of_tests, monkeypatch):
    """Weights of a classifier of the zoo, imported into the folder where the command is called."""
    torch.manual_seed(0)
    torch.save({"net.1.weight": torch.rand(3, 16), "net.1.bias": torch.rand(3)}, "w.pt")
    done = jembench("import", "weights", "w.pt", "--model", "zoo_of_tests:classifier", "--dataset", "zoo_of_tests:data")
    assert done.code == 0, done.err
    monkeypatch.setenv("JEMBENCH_TRUST", "zoo_of_tests:classifier")  # as the last line of done.out says


@pytest.fixture
def command(jembench, tiny, weights):
    """A command on the dataset of the zoo."""
    return lambda name, *arguments: jembench(name, *arguments, *tiny)


# --- train, sample, estimate, attack ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (GENERATOR, "drawn directly, in no order"),
        ("zoo_of_tests:painter_alone", "drawn directly, in no order"),
        ("zoo_of_tests:accompanied", "from the chains that training kept, in no order"),
        ("zoo_of_tests:energy_alone:chains=marginal", "from new chains of 100 steps, in no order"),
    ],
)
def test_sample_says_where_the_images_are_from(command, model, told):
    done = command("sample", model)
    assert done.code == 0, done.err
    assert done.out.endswith(f", recipe pretrained, seed 0, {told}\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sample", GENERATOR, "--steps", "5"], f"{GENERATOR} draws its images directly, without a chain. Leave --st"),
        (["sample", IMPORTED], f"{IMPORTED} generates no images: it neither draws them nor has chains. Choose a mod"),
        (["sample", "zoo_of_tests:plain"], "zoo_of_tests:plain generates no images: it is trained without chains."),
        (["estimate", GENERATOR], f"{GENERATOR} was trained elsewhere: there is no training to estimate."),
        (["estimate", IMPORTED], f"{IMPORTED} was trained elsewhere: there is no training to estimate."),
        (
            ["train", "imported:file=nowhere"],
            "file of imported is 'nowhere', which cannot be read: No such file or dir",
        ),
        (["train", "imported:file=w.pt"], "w.pt is no file that `jembench import` wrote"),
        (["train", "imported"], "imported needs file: write imported:file=..."),
        (["train", "generator:module=nowhere:paint"], "cannot be loaded from nowhere:paint: ModuleNotFoundError"),
        (["train", "generator:module=nowhere"], "module of generator is 'nowhere', which cannot be read"),
        (["sample", f"{GENERATOR},latent=3"], "zoo_of_tests:paint fails when it is called with latents (100, 3): "),
        (["sample", f"{GENERATOR},conditional=true"], "fails when it is called with n = 100 and labels: TypeError"),
        (["train", IMPORTED, "--set", "epoch=5"], "There is no key in recipe tiny named 'epoch'. Nearest: epochs"),
    ],
)
def test_what_cannot_be_is_told_in_one_paragraph(command, arguments, text):
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith("Error: ")
    assert text in done.err
    assert "bug" not in done.err


# --- run --------------------------------------------------------------------------------------------------------------


def test_every_cell_of_a_suite_is_a_value_or_a_reason_and_a_second_run_does_nothing(run, outcomes):
    models = f"{GENERATOR},zoo_of_tests:density_alone,zoo_of_tests:plain"
    metrics = "accuracy,bits-per-dim,zoo_of_tests:brightness,iteration-time"
    done = run("--format", "json", models=models, metrics=metrics)
    assert done.code == 0, done.err
    found = {(model, metric): outcome for (model, _, metric), outcome in outcomes("runs").items()}
    assert {key for key, outcome in found.items() if outcome["status"] == "ok"} == {
        (GENERATOR, "zoo_of_tests:brightness"),
        ("zoo_of_tests:density_alone", "bits-per-dim"),
        ("zoo_of_tests:plain", "accuracy"),
        ("zoo_of_tests:plain", "iteration-time"),
    }
    assert found[GENERATOR, "iteration-time"]["reason"] == (
        "The model was trained elsewhere: nothing is known of its training."
    )
    again = run("--format", "json", models=models, metrics=metrics)
    assert (again.out, again.err) == (done.out, "")


def test_a_moved_file_is_the_same_model(run, weights, outcomes):
    assert run(models=IMPORTED, metrics="accuracy").code == 0
    Path("folder").mkdir()
    Path("w.safetensors").rename("folder/moved.safetensors")
    for path in ("folder/moved.safetensors", Path("folder/moved.safetensors").absolute()):
        done = run(models=f"imported:file={path}", metrics="accuracy")
        assert (done.code, done.err) == (0, "")
    assert len(outcomes("runs")) == 1


# --- lists of plugins -------------------------------------------------------------------------------------------------


@pytest.fixture
def future(zoo):
    """A distribution that was written for a later interface."""
    info = zoo / "future_zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: future-zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jembench.models]\nfuture = future_zoo:build\n[jembench.api]\n99 = x\n")


REASON = "future-zoo 1.0 was written for version 99 of jembench's plugin interface, and this jembench has version 2."


def test_an_incompatible_plugin_is_listed_with_what_to_do(jembench, future):
    (row,) = [row for row in json.loads(jembench("list", "--format", "json").out) if row["name"] == "future"]
    assert row["status"] == f"broken: {REASON} Update jembench, or uninstall future-zoo."


def test_an_incompatible_plugin_is_not_used(jembench, future):
    done = jembench("train", "future")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {REASON}")
