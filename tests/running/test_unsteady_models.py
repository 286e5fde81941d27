"""A network that is random, depends on the batch or has spoiled statistics has a note."""

from dataclasses import replace

import pytest
import torch

from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.models import running_statistics
from jembench.report.rows import rows
from jembench.running import session
from jembench.running.driver import RunOptions
from jembench.running.evaluation import TrainedFit
from jembench.store.store import Store


def plan_of(zoo, model, *settings, metrics=("accuracy", "nll")):
    block = Run(models=(f"zoo_of_tests:{model}",), metrics=metrics)
    chosen = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
    return make_plan(chosen, recipe=str(zoo / "tiny.toml"), settings=settings)


def cells(plan, store):
    return [store.read_cell(cell) for cell in plan.cells]


def test_random_outputs_are_said_at_the_row_and_the_same_in_every_store(
    zoo_of_tests, carry_out, tmp_path
):
    plan = plan_of(zoo_of_tests, "dropping")
    found = []
    for name in ("one", "two"):
        torch.rand(3)  # the state of the global generator does not count
        store = Store(tmp_path / name)
        events = carry_out(plan, store)
        assert sum("it draws random numbers" in event for event in events) == 1
        found.append(cells(plan, store))
    assert [cell.outcome.values for cell in found[0]] == [cell.outcome.values for cell in found[1]]
    for row in rows(found[0]):
        assert "it draws random numbers" in row.notes[-1]


def test_outputs_that_depend_on_the_batch_are_said_at_the_row(zoo_of_tests, carry_out, store):
    plan = plan_of(zoo_of_tests, "batchwise")
    carry_out(plan, store)
    for row in rows(cells(plan, store)):
        assert "depend on the other images of a pass" in row.notes[-1]


def test_steady_outputs_have_no_note(zoo_of_tests, carry_out, store):
    plan = plan_of(zoo_of_tests, "classifier")
    carry_out(plan, store)
    for cell in cells(plan, store):
        assert "outputs" not in cell.provenance


@pytest.mark.parametrize(("held", "judged_on"), [(0, "45 further training"), (30, "30 validation")])
def test_statistics_of_other_images_are_said_at_the_row_once_examined(
    zoo_of_tests, carry_out, store, monkeypatch, held, judged_on
):
    plan = plan_of(zoo_of_tests, "spoiled", f"data.validation={held}")
    events = carry_out(plan, store)
    assert sum(f"of {judged_on} images are classified" in event for event in events) == 1
    found = rows(cells(plan, store))
    assert all("running statistics of batch norm" in row.notes[-1] for row in found)
    # another metric of the same fit has the note too, without further passes
    monkeypatch.setattr(running_statistics, "correct", None)
    more = plan_of(zoo_of_tests, "spoiled", f"data.validation={held}", metrics=("ece",))
    carry_out(more, store)
    assert rows(cells(more, store))[0].notes == found[0].notes


def test_the_cause_of_wrong_statistics_follows_from_the_model(
    zoo_of_tests, carry_out, store, monkeypatch
):
    plan = plan_of(zoo_of_tests, "spoiled")
    with monkeypatch.context() as patch:
        patch.setattr(TrainedFit, "range_remark", lambda self: "another range")
        carry_out(plan, Store(store.root.parent / "of-range"))
        (notes,) = {row.notes for row in rows(cells(plan, Store(store.root.parent / "of-range")))}
    assert notes[-1] == "another range"
    assert "running statistics" not in " ".join(notes)

    carry_out(plan, store)
    with session.open_fit(plan.fits[0], store, RunOptions("cpu")) as evaluation:
        fit = evaluation.data
        assert "weights that still change" in fit.statistics_remark()
        assert "hains" not in fit.statistics_remark()
        of_import = replace(fit, pretrained=True).statistics_remark()
        assert "--set-input" in of_import
        assert "Train " not in of_import
        fit.model.chains = "marginal"
        assert "Chains" in fit.statistics_remark()


@pytest.mark.parametrize("model", ["normed", "mixing"])
def test_statistics_as_trained_have_no_note(zoo_of_tests, carry_out, store, model):
    plan = plan_of(zoo_of_tests, model)
    carry_out(plan, store)
    assert all("outputs" not in cell.provenance for cell in cells(plan, store))


def test_a_failure_in_training_mode_is_a_warning(zoo_of_tests, carry_out, store, monkeypatch):
    monkeypatch.setattr(running_statistics, "counted_anew", lambda *arguments: 1 / 0)
    plan = plan_of(zoo_of_tests, "normed")
    events = carry_out(plan, store)
    warnings = [event for event in events if "running statistics were not compared" in event]
    assert len(warnings) == 1
    assert "ZeroDivisionError" in warnings[0]
    assert {cell.outcome.status for cell in cells(plan, store)} == {"ok"}
