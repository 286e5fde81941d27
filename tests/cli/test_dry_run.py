"""``--dry-run``: the run does what it says, and can carry out what it lets pass."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

METRICS = (
    "accuracy",
    "ece:scaling=temperature",
    "energy-gap",
    "chain-age",
    "confident-samples",
    "class-samples:source=fresh,steps=2",
    "iteration-time",
    "ood:set=interp",
    "ood:score=refinement,set=uniform",
    "pgd:budget=quick,images=2,restarts=1,steps=2",
    "pgd:budget=quick,images=2,refine=1,restarts=1,steps=2",
)
MODELS = (
    "zoo_of_tests:jem,zoo_of_tests:classifier,zoo_of_tests:painter_alone,zoo_of_tests:energy_alone"
)
VARIANTS = {
    "as it is": [],
    "no validation, few images": ["--set", "data.validation=0", "--limit", "10"],
    "no buffer": ["--set", "chains.sampler=sgld:steps=2"],
}


@pytest.fixture
def planned(run):
    def planned(*arguments, **what):
        done = run(*arguments, "--dry-run", "--format", "json", **what)
        states = {}
        for row in json.loads(done.out):
            states |= {(row["model"], metric): "to do" for metric in row["to_do"]}
            for reasons in (row["not_applicable"], row["missing"]):
                states |= {(row["model"], metric): reason for metric, reason in reasons.items()}
        return done, states

    return planned


@pytest.mark.parametrize("arguments", VARIANTS.values(), ids=VARIANTS)
def test_what_is_to_be_done_is_done_and_nothing_else(run, planned, outcomes, arguments):
    what = {"models": MODELS, "metrics": ",".join(METRICS)}
    done, said = planned(*arguments, **what)
    assert done.code == 0
    run(*arguments, **what)
    measured = {(model, metric): cell for (model, _, metric), cell in outcomes("runs").items()}
    assert measured.keys() == said.keys()
    happened = {
        key: "to do" if cell["status"] == "ok" else cell["reason"] for key, cell in measured.items()
    }
    # what follows from the trained model alone cannot be known: no temperature may fit
    unforeseen = {key for key in said if happened[key] != said[key]}
    assert all(happened[key].startswith("No temperature between") for key in unforeseen)
    # there is something to do in each variant
    assert {key for key, text in said.items() if text == "to do"}
    finished, then = planned(*arguments, **what)
    assert finished.code == 0
    assert "to do" not in then.values()


def test_many_of_one_metric_are_counted(run):
    metrics = "accuracy," + ",".join(f"ece:bins={bins}" for bins in (5, 6, 7, 8))
    assert (
        "to do: accuracy, 4 of ece"
        in run("--dry-run", models="zoo_of_tests:classifier", metrics=metrics).out
    )


@pytest.fixture
def nothing_downloaded(monkeypatch, tmp_path):
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry"])
@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ("accuracy,fid:features=inception", "fid: Inception's weights are not available"),
        ("accuracy,ood:set=svhn", "ood: SVHN is not available"),
    ],
)
def test_weights_and_images_that_are_missing_are_refused_before_training(
    run, nothing_downloaded, metrics, text, dry
):
    done = run(*dry, models="zoo_of_tests:jem", metrics=metrics)
    assert done.code == 2
    assert f"Something is missing, and nothing was started. {text}" in done.err
    assert "--skip-missing" in done.err
    assert ("missing: " in done.out) == bool(dry)
    assert [path for path in Path("runs").rglob("*") if path.is_file()] == []


def test_what_is_missing_can_be_left_for_later(run, nothing_downloaded, outcomes):
    arguments = {"models": "zoo_of_tests:jem", "metrics": "accuracy,ood:set=svhn"}
    assert run("--skip-missing", "--dry-run", **arguments).code == 0
    done = run("--skip-missing", **arguments)
    assert done.code == 0
    measured = {metric: cell for (*_, metric), cell in outcomes("runs").items()}
    assert measured["accuracy"]["status"] == "ok"
    assert (measured["ood:set=svhn"]["status"], measured["ood:set=svhn"]["details"]) == ("na", {})
    assert "write svhn:download=true" in measured["ood:set=svhn"]["reason"]
    assert run(**arguments).code == 2  # it is still missing, and asked for


def test_a_plan_is_printed_without_its_dataset(jembench, nothing_downloaded, tmp_path):
    models = ["--models", "baseline:net=wrn-10-1", "--metrics", "accuracy,nll", "--recipe", "paper"]
    done = jembench(
        "run",
        "hybrid",
        *models,
        "--dataset",
        f"cifar10,imagefolder:root={tmp_path / 'mine'}",
        "--dry-run",
    )
    assert done.code == 2
    assert "117,150 iterations" in done.out  # 150 epochs of 781 batches of 64
    assert "not known" in done.out
    assert done.out.count("to do: accuracy, nll") == 2
    for text in (
        "CIFAR-10 is not available",
        "cifar10:download=true",
        f"There is no folder {tmp_path / 'mine'}",
    ):
        assert text in done.err
        assert text in done.out


@pytest.mark.parametrize(
    ("recipe", "settings", "is_said"),
    [("paper", (), True), ("paper", ("data.flip=false",), False)],
)
def test_a_run_says_that_the_images_of_a_folder_are_mirrored(
    jembench, tmp_path, recipe, settings, is_said
):
    for place in ("train/a", "train/b", "test/a", "test/b"):
        folder = tmp_path / "mine" / place
        folder.mkdir(parents=True)
        for number in range(2):
            level = 16 * len(list(tmp_path.rglob("*.png")))
            Image.new("L", (16, 16), level).save(folder / f"{number}.png")
    command = ["run", "hybrid", "--models", "baseline:net=small-2", "--metrics", "accuracy"]
    command += ["--dataset", f"imagefolder:root={tmp_path / 'mine'}", "--recipe", recipe]
    for setting in ("epochs=1", "batch_size=2", *settings):
        command += ["--set", setting]
    done = jembench(*command, "--dry-run")
    note = "Half of the training images of imagefolder are mirrored."
    assert done.code == 0
    assert done.err.count(note) == int(is_said)


def test_a_dry_run_downloads_nothing(jembench, nothing_downloaded, monkeypatch):
    monkeypatch.setattr("jembench.data.torchvision_sets._read", pytest.fail)
    models = [
        "--models",
        "baseline:net=wrn-10-1",
        "--metrics",
        "accuracy,ood:set=svhn:download=true",
    ]
    done = jembench("run", "hybrid", *models, "--dataset", "cifar10:download=true", "--dry-run")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("gib", "kept"),
    [("32", "kept in "), ("0", "decoded at each reading, above JEMBENCH_CACHE_GIB=0")],
)
def test_the_reading_of_images_that_are_not_in_memory_is_timed(
    jembench, tmp_path, monkeypatch, gib, kept
):
    for number in range(6):
        folder = tmp_path / "mine" / f"n0144{number % 2:04}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (16, 16), 16 * number).save(folder / f"{number}.png")
    command = ["run", "hybrid", "--models", "baseline:net=small-2", "--metrics", "accuracy"]
    command += ["--dataset", f"imagefolder:root={tmp_path / 'mine'}", "--dry-run"]
    command += ["--recipe", "digits", "--set", "batch_size=2", "--set", "data.validation=0"]
    done = jembench(*command)
    assert (done.code, "are read in parts" in done.out) == (0, False)

    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    monkeypatch.setenv("JEMBENCH_CACHE_GIB", gib)
    done = jembench(*command, "--limit", "1").out
    assert "mine: 4 training images of 16x16 pixels, 0.0 GiB, are read in parts" in done
    assert "mine: 1 test images of 16x16 pixels" in done
    assert f"Image files are {kept}" in done
    assert "Reading all takes about 0.0 minutes, by 4 of them." in done


@pytest.mark.parametrize(("dataset", "images"), [("digits", 140), ("cifar10:download=true", 5000)])
def test_the_remedy_for_a_temperature_fits_the_dataset(
    jembench, nothing_downloaded, dataset, images
):
    arguments = [
        "run",
        "hybrid",
        "--models",
        "baseline:net=small-2",
        "--metrics",
        "ece:scaling=temperature",
    ]
    arguments += ["--dataset", dataset, "--dry-run"]
    told = jembench(*arguments).out
    assert f"--set data.validation={images}, or by a recipe that holds some out" in told
    assert (
        "to do: ece:scaling=temperature"
        in jembench(*arguments, "--set", f"data.validation={images}").out
    )


PASSES = {
    "pgd:refine=10": 300 * 44_000,  # 20 restarts of 40 steps, 5 chains of 10 steps and a prediction
    "pgd:norm=l2": 300 * 20 * 40,
    "pgd:budget=quick,eot=10,norm=l2,smooth=0.25": 25 * 2 * 10 * 10,
    "boundary:budget=quick,refine=1": 25 * 1_000 * 2,
    "transfer:budget=quick,refine=1": 25 * 2 * 10,  # made against the model without chains
    "distal": 100 * 200,
}


def test_network_passes_of_attacks_are_known_before_the_training(run):
    what = {
        "models": "zoo_of_tests:jem,zoo_of_tests:classifier",
        "metrics": ",".join(["accuracy", *PASSES]),
    }
    jem, classifier = json.loads(run("--dry-run", "--format", "json", **what).out)
    assert jem["passes"] == PASSES
    unrefined = {metric: passes for metric, passes in PASSES.items() if "refine" not in metric}
    assert classifier["passes"] == unrefined
    out = " ".join(run("--dry-run", **what).out.split())
    assert f"attacks: {sum(PASSES.values()):,} network passes" in out
    assert f"attacks: {sum(unrefined.values()):,} network passes" in out
    assert "images x restarts x steps" in out


def test_the_memory_of_a_training_is_said_and_refused_before_it_starts(
    jembench, tmp_path, monkeypatch
):
    images = np.arange(12 * 3 * 20 * 20, dtype=np.uint8).reshape(12, 3, 20, 20)
    labels = np.arange(12) % 2
    arrays = {"x_train": images, "y_train": labels, "x_test": images + 1, "y_test": labels}
    np.savez(tmp_path / "mine.npz", **arrays)
    command = ["run", "hybrid", "--models", "baseline:net=small-2", "--metrics", "accuracy"]
    command += ["--dataset", f"npz:{tmp_path / 'mine.npz'}", "--recipe", "finetune"]
    for setting in ("epochs=1", "least_iterations=0", "batch_size=4"):
        command += ["--set", setting]
    planned = jembench(*command, "--dry-run")
    assert planned.code == 0
    said = re.search(r"about \S+ MiB: .* MiB for each", " ".join(planned.out.split()))
    assert said
    done = jembench(*command)
    assert f"training takes {said[0]} of 4 images of an iteration (float32)" in done.err
    monkeypatch.setattr("jembench.training.memory.room", lambda _: ("the GPU", 200_000))
    command += ["--store", "other"]
    for refused in (jembench(*command, "--dry-run"), jembench(*command)):
        assert refused.code == 2
        assert "and the GPU has 0.191 MiB. What fits: --set batch_size=3" in refused.err
    assert not list(Path("other").glob("fits/*"))
