"""``jembench check``: its exit codes, its formats and what it measures."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from jembench.store.store import Store

CLASSIFIER = "zoo_of_tests:classifier"


@pytest.fixture
def measured(run):
    """The store ``runs`` with one model, and its copy ``baseline``."""
    assert run(models=CLASSIFIER).code == 0
    shutil.copytree("runs", "baseline")


def change(root, model=CLASSIFIER, **fields):
    """Give the accuracy of a model other values and, at 100 %, all images right."""
    store = Store(Path(root))
    for cell in store.cells():
        if (cell.metric, cell.fit.model) == ("accuracy", model):
            value = cell.outcome.values["accuracy"]._replace(**fields)
            outcome = dataclasses.replace(cell.outcome, values={"accuracy": value})
            arrays = dict(store.read_arrays(cell))
            if value.value == 100.0:
                arrays = {"correct": np.ones_like(arrays["correct"])}
            store.write_cell(dataclasses.replace(cell, outcome=outcome), arrays)


def improve(root):
    """Let the classifier of a store classify every image correctly."""
    change(root, value=100.0, low=90.0, high=100.0)


def test_equal_stores_pass(measured, jembench):
    done = jembench("check", "baseline")
    assert (done.code, done.err) == (0, "")
    assert f"Check of {CLASSIFIER} · dataset zoo_of_tests:data · recipe tiny" in done.out
    # brightness is N/A in both
    assert done.out.endswith("\n2 passed. The exit code is 0.\n")


def test_a_worse_value_fails_unless_it_is_tolerated(measured, jembench):
    improve("baseline")
    worse = jembench("check", "baseline", "--columns", "accuracy")
    assert (worse.code, worse.out.count(" worse ")) == (1, 1)
    assert worse.out.endswith(f"1 failed (accuracy of {CLASSIFIER}). The exit code is 1.\n")
    tolerated = ["--columns", "accuracy", "--tolerance", "accuracy=99"]
    assert jembench("check", "baseline", *tolerated).code == 0


def test_the_formats_of_continuous_integration(measured, jembench):
    improve("baseline")
    done = jembench("check", "baseline", "--format", "junit")
    (suite,) = ElementTree.fromstring(done.out)
    assert (done.code, suite.attrib["tests"], suite.attrib["failures"]) == (1, "2", "1")
    (failure,) = suite.iter("failure")
    assert re.fullmatch(r"worse; [\d.]+ against 100 %", failure.attrib["message"])
    assert done.err.endswith("The exit code is 1.\n")

    done = jembench("check", "baseline", "--format", "github", "--output", "summary.md")
    summary = Path("summary.md").read_text()
    assert summary.startswith(
        f"## ❌ 1 failed (accuracy of {CLASSIFIER.replace('_', chr(92) + '_')})"
    )
    assert summary.count("❌") == 1
    assert "| accuracy % ↑ |" in summary
    assert "is for what passes or fails" in jembench("report", "--format", "junit").err
    plain = jembench("report", "--format", "markdown").out
    assert jembench("report", "--format", "github").out == plain


def test_a_file_is_measured_and_compared(jembench, zoo_of_tests):
    text = f"""
title = "Ours"
models = ["{CLASSIFIER}"]
datasets = ["zoo_of_tests:data"]
metrics = ["accuracy"]
recipe = "{zoo_of_tests / "tiny.toml"}"
"""
    Path("first.toml").write_text(text)
    Path("both.toml").write_text(text.replace('["accuracy"]', '["accuracy", "ece"]'))
    trusted = ["--models", CLASSIFIER, "--dataset", "zoo_of_tests:data"]
    assert jembench("run", "first.toml", *trusted, "--store", "baseline").code == 0
    done = jembench("check", "baseline", "both.toml", *trusted)
    assert (done.code, done.out.count(" equal"), done.out.count(" not judged¹")) == (0, 1, 1)
    assert done.out.endswith("\n1 passed, 1 not judged. The exit code is 0.\n")
    # what only the baseline has is not asked for by the file, but is missing without one
    assert jembench("run", "both.toml", *trusted, "--store", "more").code == 0
    less = jembench("check", "more", "first.toml", *trusted, "--store", "less")
    assert less.code == 0
    assert f"The file does not ask for ece of {CLASSIFIER} of the baseline" in less.err
    missing = jembench("check", "more", "--store", "less")
    assert missing.code == 2
    assert missing.out.endswith(
        f"could not be judged (ece of {CLASSIFIER}), 1 passed. The exit code is 2.\n"
    )


@pytest.mark.parametrize(
    ("claim", "code", "strict"),
    [("at_least = 0", 0, 0), ("at_least = 101", 1, 1), ("at_least = 50", 0, 1)],
)
def test_a_claim_of_the_file_decides_too(
    jembench, zoo_of_tests, tmp_path_factory, claim, code, strict
):
    store = tmp_path_factory.getbasetemp() / "claimed"  # measured once
    Path("mine.toml").write_text(f"""
title = "Ours"
models = ["{CLASSIFIER}"]
datasets = ["zoo_of_tests:data"]
metrics = ["accuracy"]
recipe = "{zoo_of_tests / "tiny.toml"}"
[[claim]]
metric = "accuracy"
{claim}
""")
    trusted = ["--models", CLASSIFIER, "--dataset", "zoo_of_tests:data", "--store", store]
    assert jembench("run", "mine.toml", *trusted).code == 0
    change(store, value=50.0, low=45.0, high=55.0)
    shutil.copytree(store, "baseline")
    for command in (["check", "baseline", "mine.toml"], ["report", "mine.toml", "--claims"]):
        done = jembench(*command, *trusted)
        assert (done.code, done.err) == (code, "")
        assert f"accuracy {claim.replace(' =', '').replace('_', ' ')}" in done.out
        assert jembench(*command, *trusted, "--strict").code == strict
    records = jembench("report", "mine.toml", "--claims", *trusted, "--format", "junit").out
    assert len(list(ElementTree.fromstring(records).iter("failure"))) == code


def damage_cell():
    path = next(Path("baseline/cells").glob("accuracy*"))
    path.write_text(path.read_text().replace("accuracy", "acuracy", 1))


def damage_arrays():
    path = next(Path("baseline/arrays").glob("accuracy*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize("damage", [damage_cell, damage_arrays])
def test_a_damaged_baseline_does_not_pass(measured, jembench, damage):
    damage()
    done = jembench("check", "baseline")
    assert (done.code, done.out) == (2, "")
    assert "accuracy" in done.err


def test_without_the_values_of_single_images_intervals_decide(measured, jembench):
    improve("baseline")
    shutil.rmtree("baseline/arrays")
    done = jembench("check", "baseline", "--columns", "accuracy")
    assert done.code == 1
    assert "the 95 % intervals of both values decide, as of independent images" in done.out


def test_results_on_other_images_cannot_be_judged(measured, run, jembench):
    shutil.rmtree("runs")
    assert run("--limit", "20", models=CLASSIFIER).code == 0
    done = jembench("check", "baseline", "--columns", "accuracy")
    assert done.code == 2
    assert "measured under different protocols: images=20; images=" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no store nowhere."),
        (["runs"], "runs is both the baseline and the store, which equals itself."),
        (["baseline", "--store", "nowhere"], "There are no results and no store nowhere yet"),
        (["baseline", "--tolerance", "accuracy"], "--tolerance is 'accuracy'; it must be two"),
        (["baseline", "--tolerance", "accuracy=1%"], "--tolerance accuracy is '1%'; it must be"),
        (["baseline", "--tolerance", "fid=1"], "There is no column among these results named"),
        (["baseline", "--models", "jem"], "There is no model among these results named 'jem'."),
    ],
)
def test_what_cannot_be_checked(measured, jembench, arguments, message):
    done = jembench("check", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {message}")


def test_without_measuring_torch_is_not_imported(measured):
    improve("baseline")
    script = (
        "import sys\nfrom jembench.cli.main import main\ncode = main(['check', 'baseline', "
        "'--columns', 'accuracy'])\nsys.exit('torch' if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_model_that_is_worse_than_another_fails(run, jembench):
    jem = "zoo_of_tests:jem"
    assert run().code == 0
    improve("runs")
    of_accuracy = ["--columns", "accuracy", "--fail-if-worse"]
    worse = jembench("compare", jem, CLASSIFIER, *of_accuracy)
    assert (worse.code, worse.err) == (1, "")
    assert worse.out.endswith(f"\n1 failed (accuracy of {jem}). The exit code is 1.\n")
    tolerated = ["--tolerance", "accuracy=99"]
    assert jembench("compare", jem, CLASSIFIER, *of_accuracy, *tolerated).code == 0
    assert jembench("compare", CLASSIFIER, jem, *of_accuracy).code == 0
    assert jembench("compare", jem, CLASSIFIER, "--columns", "accuracy").code == 0
    for option in (tolerated, ["--strict"]):
        done = jembench("compare", jem, CLASSIFIER, *option)
        assert (done.code, "are for --fail-if-worse" in done.err) == (2, True)
