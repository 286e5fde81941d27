"""``jembench attack``: what it prints, and what a kill or the clock cannot take away."""

import pytest

from jembench.running.evaluation import TrainedFit

MODELS = "zoo_of_tests:jem,zoo_of_tests:classifier"


@pytest.fixture
def attack(jembench, tiny):
    """``jembench attack`` on models that are trained in a moment."""

    def call(name, *arguments, models=MODELS):
        return jembench("attack", name, "--models", models, "--images", 8, *tiny, *arguments)

    return call


@pytest.fixture
def pgd(attack):
    return lambda *arguments, **options: attack(
        "pgd", "--restarts", 1, "--steps", 5, *arguments, **options
    )


def test_the_table(pgd, table, outcomes):
    done = pgd("--norm", "l2")
    assert done.code == 0
    rows = table(done.out)
    assert [row[0] for row in rows] == ["zoo_of_tests:jem", "zoo_of_tests:classifier"]
    assert "PGD L2" in done.out
    assert {metric for _, _, metric in outcomes("runs")} == {
        "pgd:images=8,norm=l2,restarts=1,steps=5"
    }


def test_refinement_is_for_models_with_chains(pgd):
    done = pgd("--refine", "1", "--eot", "2", "--grad", "bpda")
    assert done.code == 0
    lines = [line.split()[:3] for line in done.out.splitlines() if line[:2] in ("0 ", "1 ")]
    assert [line[:2] for line in lines[:4]] == [
        [refine, f"zoo_of_tests:{model}"] for refine in "01" for model in ("jem", "classifier")
    ]
    assert lines[3][2] == "N/A¹"
    assert "averaged chains 2, gradient BPDA" in " ".join(done.out.split())
    assert "¹ Refinement continues the chains of the training" in done.out


def test_when_the_time_is_up_the_table_has_what_is_done(pgd, monkeypatch, table):
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 3)
    looks = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(TrainedFit, "out_of_time", lambda _: next(looks))
        partial = pgd(models="zoo_of_tests:classifier")
    assert partial.code == 3
    assert "6 of 8 images so far; the same command goes on" in partial.out
    assert "The time is up: of zoo_of_tests:classifier" in partial.err
    assert [row[0] for row in table(partial.out)] == ["zoo_of_tests:classifier"]
    whole = pgd(models="zoo_of_tests:classifier")
    assert whole.code == 0
    assert "so far" not in whole.out


def test_no_time_at_all(pgd, jembench, tiny, monkeypatch):
    assert jembench("train", "zoo_of_tests:classifier", *tiny).code == 0
    monkeypatch.setattr(TrainedFit, "out_of_time", lambda _: True)
    done = pgd(models="zoo_of_tests:classifier")
    assert done.code == 3
    assert (
        "The time is up before an image was attacked. The same command goes on from here."
        in done.err
    )
