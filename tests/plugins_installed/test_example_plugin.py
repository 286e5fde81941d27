"""A third party's plugin, really installed, beside one that cannot be imported.

Both lie next to this folder; the tox environment ``plugins`` installs them.
"""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest


def installed(distribution):
    return any(importlib.metadata.distributions(name=distribution))


pytestmark = pytest.mark.skipif(
    not (installed("jembench-example") and installed("jembench-broken")),
    reason="install tests/example_plugin and tests/broken_plugin to run this: tox -e plugins does",
)


def jembench(*arguments, cwd):
    """Run the installed command as a user does."""
    command = Path(sys.executable).with_name("jembench")
    return subprocess.run(
        [command, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    done = jembench("list", "--format", "json", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0, done.stderr
    return {(row["distribution"], row["kind"], row["name"]): row for row in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("linear", "models", "jembench_example:linear"),
        ("mala", "samplers", "jembench_example:mala"),
        ("stripes", "datasets", "jembench_example:stripes"),
        ("confidence", "metrics", "jembench_example.metric:Confidence"),
        ("margin", "scores", "jembench_example:margin"),
        ("jsonl", "trackers", "jembench_example:jsonl"),
        ("confidence", "figures", "jembench_example:bars"),
        ("sentences", "formats", "jembench_example:sentences"),
        ("sign-sgd", "optimizers", "jembench_example:sign_sgd"),
        ("halving", "schedules", "jembench_example:halving"),
        ("erase", "augmentations", "jembench_example:erase"),
        ("grey", "starts", "jembench_example:grey"),
    ],
)
def test_each_component_is_a_row(rows, name, kind, target):
    row = rows["jembench-example", kind, name]
    assert row == {
        "distribution": "jembench-example",
        "version": "1.2.3",
        "kind": kind,
        "name": name,
        "target": target,
        "status": "ok",
    }


def test_the_broken_plugin_is_one_row(rows):
    row = rows["jembench-broken", "models", "broken"]
    assert row["status"] == "broken: RuntimeError: broken on purpose"
    broken = [key for key, row in rows.items() if row["status"] != "ok"]
    assert broken == [("jembench-broken", "models", "broken")]


def test_the_model_is_listed_with_its_options(tmp_path):
    done = jembench("list", "models", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    models = {model["name"]: model for model in json.loads(done.stdout)}
    assert models["linear"]["title"] == "Logistic regression on the pixels, read as an energy."
    assert models["linear"]["options"] == [
        {"name": "bias", "type": "bool", "required": False, "default": True}
    ]
    assert models["broken"]["problem"] == "RuntimeError: broken on purpose"


def test_using_the_broken_plugin_says_whose_fault_it_is(tmp_path):
    done = jembench("run", "hybrid", "--models", "broken", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "Error: The model 'broken' of jembench-broken 0.0.1 cannot be loaded from "
        "jembench_broken:broken: RuntimeError: broken on purpose. Update or uninstall "
        "jembench-broken.\n"
    )


def test_all_is_used_in_one_run_and_by_a_model_of_another_distribution(tmp_path):
    arguments = [
        "--models",
        "linear,jem:net=small-2",
        "--dataset",
        "stripes",
        "--metrics",
        "accuracy,confidence",
    ]
    settings = [
        "--recipe",
        "digits",
        "--set",
        "chains.sampler=mala:steps=2,step_size=0.001",
        "--set",
        "epochs=5",
    ]
    done = jembench("run", "hybrid", *arguments, *settings, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    cells = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "cells").glob("*.json")]
    found = {(cell["fit"]["model"].partition(":")[0], cell["metric"]): cell for cell in cells}
    accuracy, confidence = (
        found["linear", name]["outcome"]["values"][name] for name in ("accuracy", "confidence")
    )
    assert accuracy["value"] == 100  # the three directions are linearly separable
    assert confidence["low"] < confidence["value"] < confidence["high"]
    plugins = {
        metric: cell["provenance"]["plugins"]
        for (model, metric), cell in found.items()
        if model == "jem"
    }
    made_by = [
        "jembench-example 1.2.3 [mala = jembench_example:mala]",
        "jembench-example 1.2.3 [stripes = jembench_example:stripes]",
        f"jembench-jem {importlib.metadata.version('jembench-jem')} [jem = jembench_jem:jem]",
    ]
    measured_by = {
        "accuracy": f"jembench {importlib.metadata.version('jembench')} "
        "[accuracy = jembench.metrics.classification:Accuracy]",
        "confidence": "jembench-example 1.2.3 [confidence = jembench_example.metric:Confidence]",
    }
    assert plugins == {metric: sorted([*made_by, code]) for metric, code in measured_by.items()}


def test_it_keeps_every_promise(tmp_path):
    done = jembench("plugin", "check", "jembench-example", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    rows = json.loads(done.stdout)
    parts = {"erase", "grey", "halving", "jsonl", "margin", "sentences", "sign-sgd"}
    models = {"linear", "class-gaussians"}
    assert {row["component"] for row in rows} == models | {"mala", "stripes", "confidence"} | parts
    assert {row["status"] for row in rows} <= {"passed", "skipped"}
