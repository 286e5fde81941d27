"""A network that is random or depends on the batch says so beside its numbers."""

import torch

from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.report.rows import rows
from jembench.store.store import Store


def plan_of(zoo, model):
    block = Run(models=(f"zoo_of_tests:{model}",), metrics=("accuracy", "nll"))
    chosen = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
    return make_plan(chosen, recipe=str(zoo / "tiny.toml"))


def cells(plan, store):
    return [store.read_cell(cell) for cell in plan.cells]


def test_random_outputs_are_said_at_the_row_and_the_same_in_every_store(zoo_of_tests, carry_out, tmp_path):
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
