"""``jembench estimate``."""

import json

import pytest

from jembench.experiment.plan import plan_fit
from jembench.running import estimate as module
from jembench.running.estimate import other_recipes


@pytest.fixture
def estimate(jembench, monkeypatch):
    """``jembench estimate`` of a network that takes a moment, in batches of 2 and 8 images; 32 would take too long."""
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    return lambda *arguments: jembench("estimate", *arguments)


def test_the_recipe_that_is_asked_for_stands_first_and_others_beside_it(estimate):
    done = estimate("jem:net=small-2", "--recipe", "digits", "--set", "epochs=2", "--against", "digits-paper")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("jem:net=small-2 on digits, ")
    assert [line.split("  ")[0].strip() for line in lines[3:]] == [
        "digits+epochs=2",
        "the same in float32",
        "digits-paper",
    ]
    assert "timing digits-paper ..." in done.err


def test_the_recipe_that_is_used_by_default_has_a_star(estimate):
    done = estimate("baseline:net=small-2", "--recipe", "digits-paper", "--against", "digits")
    names = [line.split("  ")[0].strip() for line in done.out.splitlines()[3:]]
    assert names == ["digits-paper", "the same in float32", "digits *", "* the default for this model and dataset"]
    assert "not known" not in done.out


def test_json_says_the_same_in_full(estimate):
    done = estimate("baseline:net=small-2", "--set", "epochs=2", "--against", "", "--format", "json")
    rows = json.loads(done.out)
    assert [row["recipe"] for row in rows] == ["digits+epochs=2", "the same in float32"]
    for row in rows:
        assert (row["model"], row["chosen"]) == ("baseline:net=small-2", False)
        assert row["operations"] == rows[0]["operations"] > 0
        assert row["hours"] == pytest.approx(row["seconds"] * row["iterations"] / 3600)


def test_a_dataset_need_not_be_there(estimate):
    done = estimate("baseline:net=wrn-10-1", "--dataset", "cifar10", "--recipe", "paper", "--against", "")
    assert done.code == 0
    assert "117150" in done.out  # 150 epochs of 781 batches of 64


def test_at_a_rate_nothing_is_timed(estimate):
    wanted = ("jem:net=small-2", "--set", "epochs=2", "--against", "digits-paper", "--rate", "1.5")
    done = estimate(*wanted, "--format", "json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert [row["timed"] for row in rows] == ["nothing: operations, at 1.5 TFLOP/s"] * 3
    assert rows[0]["operations"] == rows[1]["operations"] > 0
    for row in rows:
        assert row["seconds"] == pytest.approx(row["operations"] / 1.5e12)
        assert row["hours"] == pytest.approx(row["seconds"] * row["iterations"] / 3600)
    lines = estimate(*wanted).out.splitlines()
    assert lines[0] == "jem:net=small-2 on digits, 1.5 TFLOP/s"
    assert "TFLOP/iteration" in lines[1]


def test_a_recipe_that_does_not_fit_is_a_row_with_the_reason_and_an_error_if_it_is_asked_for(estimate, monkeypatch):
    wanted, reason = ("baseline:net=small-2", "--rate", "1"), "Cannot hold 5000 of 1400 training images out"
    done = estimate(*wanted, "--against", "code")
    assert (done.code, done.out) == (2, "")
    assert f"Error: {reason}" in done.err
    monkeypatch.setattr("jembench.running.estimate.other_recipes", lambda asked: ["code", "digits-paper"])
    done = estimate(*wanted)
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.split()[:1] == ["code"]]
    assert f"cannot be used: {reason}" in line
    assert reason not in done.err
    rows = json.loads(estimate(*wanted, "--format", "json").out)
    assert [(row["recipe"], bool(row["reason"]), row["hours"] > 0) for row in rows[2:]] == [
        ("code", True, False),
        ("digits-paper", False, True),
    ]


@pytest.mark.parametrize(
    ("model", "dataset", "some", "none_of"),
    [
        (
            "jem",
            "cifar10",
            {"code", "fast", "sada"},
            {"paper", "digits", "digits-paper", "igebm", "glow", "pretrained"},
        ),
        (
            "jem",
            "digits",
            {"digits-paper", "digits-validation"},
            {"digits", "paper", "igebm-digits", "factored-digits"},
        ),
        ("igebm", "digits", {"igebm"}, {"igebm-digits", "glow", "code", "digits-paper"}),
    ],
)
def test_others_are_recipes_for_the_same_models_and_this_dataset(model, dataset, some, none_of):
    found = set(other_recipes(plan_fit(model, dataset)))
    assert some <= found
    assert not none_of & found


def test_a_model_with_one_recipe_has_nothing_to_be_compared_with():
    assert other_recipes(plan_fit("glow", "cifar10")) == []


def test_a_model_that_cannot_be_trained(estimate, zoo_of_tests):
    done = estimate("zoo_of_tests:untrainable")
    assert (done.code, done.out) == (2, "")
    assert "cannot be trained" in done.err
