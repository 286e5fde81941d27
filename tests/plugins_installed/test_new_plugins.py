"""New distributions of `jembench plugin new`, really installed: their own tests with the
conformance kit, and a run.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jembench.testing.scaffold import KINDS

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("pip") and importlib.util.find_spec("hatchling")),
    reason="distributions are built and installed here with pip and hatchling: tox -e plugins has "
    "them",
)


def run(site, *command, cwd):
    """Run a command of this environment, with the folder ``site`` installed beside the rest."""
    program, *arguments = command
    return subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(site)])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which my-model, my-sampler, my-metric, my-dataset and my-suite are installed,
    from beside it.
    """
    folder = tmp_path_factory.mktemp("new")
    names = [f"my-{kind}" for kind in KINDS]
    for kind, name in zip(KINDS, names, strict=True):
        done = run("", "jembench", "plugin", "new", kind, name, cwd=folder)
        assert done.returncode == 0, done.stderr
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", folder / "site"]
    subprocess.run([*pip, *options, *(folder / name for name in names)], check=True)
    return folder / "site"


def test_their_own_tests_pass(site):
    settings = ["-q", "-p", "no:cacheprovider", "-c", "my-model/pyproject.toml"]
    done = run(site, "pytest", *settings, *(f"my-{kind}" for kind in KINDS), cwd=site.parent)
    assert done.returncode == 0, done.stdout


def test_each_is_a_row(site, tmp_path):
    done = run(site, "jembench", "list", "--format", "json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {kind: rows[f"my-{kind}"]["status"] for kind in KINDS} == dict.fromkeys(KINDS, "ok")


def test_all_are_used_together(site, tmp_path):
    arguments = [
        "--models",
        "my-model",
        "--dataset",
        "digits,my-dataset",
        "--metrics",
        "accuracy,my-metric",
    ]
    budget = [
        "--recipe",
        "digits",
        "--set",
        "epochs=1",
        "--set",
        "chains.sampler=my-sampler:steps=2",
    ]
    done = run(
        site, "jembench", "run", "hybrid", *arguments, *budget, "--format", "json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    cells = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "cells").glob("*.json")]
    accuracy = {
        cell["fit"]["dataset"]: cell["outcome"]["values"]["accuracy"]
        for cell in cells
        if cell["metric"] == "accuracy"
    }
    assert accuracy.keys() == {"digits", "my-dataset"}
    assert accuracy["digits"]["low"] > 30  # three times what chance gives
    used = {
        plugin
        for cell in cells
        for plugin in cell["provenance"]["plugins"]
        if plugin.startswith("my-")
    }
    assert used == {
        f"my-{kind} 0.1.0 [my-{kind} = my_{kind}:build]"
        for kind in ("model", "sampler", "metric", "dataset")
    }
