import json
import shutil
from pathlib import Path

import pytest

JEM, CLASSIFIER = "zoo_of_tests:jem", "zoo_of_tests:classifier"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "runs"


@pytest.fixture
def trained(kept, run, jembench):
    """Two models of the zoo with two seeds each."""
    if kept.exists():
        shutil.copytree(kept, "runs")
    else:
        assert run("--seeds", "0,1").code == 0
        shutil.copytree("runs", kept)
    return lambda *arguments: jembench("compare", *arguments)


def test_two_models(trained, outcomes):
    done = trained(JEM, CLASSIFIER, "--format", "json", "--resamples", "200")
    assert (done.code, done.err) == (0, "")
    content = json.loads(done.out)
    assert [content[side]["model"] for side in "ab"] == [JEM, CLASSIFIER]
    rows = {row["label"]: row for row in content["rows"]}
    assert {"accuracy", "ece"} <= rows.keys()
    stored = [
        [
            outcomes("runs")[model, seed, "accuracy"]["values"]["accuracy"]["value"]
            for seed in (0, 1)
        ]
        for model in (JEM, CLASSIFIER)
    ]
    assert (rows["accuracy"]["a"], rows["accuracy"]["b"]) == tuple(
        sum(values) / 2 for values in stored
    )
    assert rows["accuracy"]["seeds"] == [0, 1]
    assert rows["ece"]["images_test"] == "paired bootstrap"
    assert rows["ece"]["training_p"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["zoo_of_tests:gem", CLASSIFIER],
            "There is no model among these results named 'zoo_of_tests:gem'.",
        ),
        (
            [JEM, JEM],
            f"{JEM} and {JEM} are not two models on one dataset: {JEM} on zoo_of_tests:data, "
            "recipe tiny.",
        ),
        ([JEM, CLASSIFIER, "--seeds", "x"], "seeds is 'x'"),
        (
            [JEM, CLASSIFIER, "--limit", "5"],
            "runs holds no such results yet: `jembench run hybrid --limit 5` makes",
        ),
    ],
)
def test_what_cannot_be_compared(trained, arguments, message):
    done = trained(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {message}")
    assert len(done.err.splitlines()) == 1


def test_claims_of_a_store(run, jembench):
    run(models="jem,baseline", metrics="accuracy,debiased-ece")
    done = jembench("report", "--claims")
    assert (done.code, done.err) == (0, "")
    assert "Claims · Grathwohl et al., ICLR 2020" in done.out
    assert "jembench attack pgd --norm linf --seeds 2,3,4" in done.out
    claims = {
        claim["claim"]: claim
        for claim in json.loads(jembench("report", "--claims", "--format", "json").out)["rows"]
    }
    calibrated = claims["jem-iclr2020/calibrated"]
    assert (calibrated["model_a"], calibrated["model_b"], calibrated["recipe_a"]) == (
        "jem",
        "baseline",
        "tiny",
    )
    assert calibrated["verdict"] in (
        "one seed only (for)",
        "one seed only (against)",
        "no difference seen",
    )
    assert 0 < calibrated["images_p"] <= calibrated["p"] <= 1


def test_claims_of_an_empty_store(jembench):
    Path("my runs").mkdir()
    done = jembench("report", "--claims", "--store", "my runs")
    assert (done.code, done.err) == (0, "")
    assert "`jembench run labels --seeds 2,3,4 --store 'my runs'`:\n· With few labels" in done.out


@pytest.mark.parametrize("arguments", [["--models", "jem"], ["--reference", "none"]])
def test_claims_of_papers_are_of_everything(jembench, arguments):
    done = jembench("report", "--claims", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "Error: --claims judges the claims of papers, or of a FILE, by all results"
    )
