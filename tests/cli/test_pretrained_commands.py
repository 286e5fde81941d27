"""Commands on models that were trained elsewhere: imported ones, and factories that say so."""

import pytest

PAINTER = "zoo_of_tests:painter_alone"


@pytest.fixture
def command(jembench, tiny, zoo_of_tests):
    """A command on the dataset of the zoo."""
    return lambda name, *arguments: jembench(name, *arguments, *tiny)


# --- train, sample, estimate, attack ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (PAINTER, "drawn directly, in no order"),
        ("zoo_of_tests:energy_alone:chains=marginal", "from new chains of 100 steps, in no order"),
    ],
)
def test_sample_says_where_the_images_are_from(command, model, told):
    done = command("sample", model)
    assert done.code == 0, done.err
    assert done.out.endswith(f", recipe pretrained, seed 0, {told}\n")


# --- run --------------------------------------------------------------------------------------------------------------


def test_every_cell_of_a_suite_is_a_value_or_a_reason_and_a_second_run_does_nothing(run, outcomes):
    models = f"{PAINTER},zoo_of_tests:density_alone,zoo_of_tests:plain"
    metrics = "accuracy,bits-per-dim,zoo_of_tests:brightness,iteration-time"
    done = run("--format", "json", models=models, metrics=metrics)
    assert done.code == 0, done.err
    found = {(model, metric): outcome for (model, _, metric), outcome in outcomes("runs").items()}
    assert {key for key, outcome in found.items() if outcome["status"] == "ok"} == {
        (PAINTER, "zoo_of_tests:brightness"),
        ("zoo_of_tests:density_alone", "bits-per-dim"),
        ("zoo_of_tests:plain", "accuracy"),
        ("zoo_of_tests:plain", "iteration-time"),
    }
    assert found[PAINTER, "iteration-time"]["reason"] == (
        "The model was trained elsewhere: nothing is known of its training."
    )
    again = run("--format", "json", models=models, metrics=metrics)
    assert (again.out, again.err) == (done.out, "")


# --- lists of plugins -------------------------------------------------------------------------------------------------


@pytest.fixture
def future(zoo):
    """A distribution that was written for a later interface."""
    info = zoo / "future_zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: future-zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jembench.models]\nfuture = future_zoo:build\n[jembench.api]\n99 = x\n")


REASON = "future-zoo 1.0 was written for version 99 of jembench's plugin interface, and this jembench has version 2."


def test_an_incompatible_plugin_is_not_used(jembench, future):
    done = jembench("train", "future")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {REASON}")
