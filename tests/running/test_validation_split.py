"""Metrics of the images that a recipe holds out, in place of test images (``--split``)."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from jembench.api.arguments import selection
from jembench.api.comparison import compare
from jembench.api.reproduction import plan_reproduction
from jembench.api.results import Results
from jembench.catalog import trust
from jembench.errors import NotApplicable, SpecError
from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.experiment.works import code_of, planned, works
from jembench.report.card import card
from jembench.running import events
from jembench.running.check import look_ahead
from jembench.running.events import Events
from jembench.running.worker import Worker

HELD, TEST = 9, 30  # images of the data of the zoo
FLAT = "data.stratified=false"
SCALED = "nll:scaling=temperature"


@pytest.fixture
def make(zoo_of_tests):
    """Make a plan of models of the zoo."""

    def make(*metrics, models="classifier", settings=(), **more):
        block = Run(
            models=tuple(f"zoo_of_tests:{model}" for model in models.split()),
            metrics=metrics or ("accuracy",),
        )
        suite = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
        recipe = str(zoo_of_tests / "tiny.toml")
        return make_plan(suite, recipe=recipe, settings=settings, **more)

    return make


def held_out(zoo):
    """The images that the recipe holds out, without the project's code for it."""
    train = zoo.Shades().split("train")
    first = torch.from_numpy(np.random.RandomState(1234).permutation(90)[:HELD])
    return train.images[first], train.labels[first]


def test_values_are_those_of_the_images_held_out(make, zoo, store, carry_out, loaded):
    plan = make("accuracy", "nll", "pgd:images=4,steps=2,restarts=1", settings=[FLAT])
    carry_out(plan, store)
    test = {cell.metric.name: store.read_cell(cell) for cell in plan.cells}
    plan = make(
        "accuracy", "nll", "pgd:images=4,steps=2,restarts=1", settings=[FLAT], split="validation"
    )
    assert "train classifier 0" not in carry_out(plan, store)  # the fit is the same
    held = {cell.metric.name: store.read_cell(cell) for cell in plan.cells}

    images, labels = held_out(zoo)
    with torch.no_grad():
        logits = loaded(make(settings=[FLAT])).model.logits(images / 255 * 2 - 1)
    correct = (logits.argmax(1) == labels).double()
    loss = torch.nn.functional.cross_entropy(logits.double(), labels)
    assert held["accuracy"].outcome.values["accuracy"].value == pytest.approx(100 * correct.mean())
    assert held["nll"].outcome.values["nll"].value == pytest.approx(float(loss), rel=1e-6)
    assert test["nll"].outcome.values["nll"].value != pytest.approx(float(loss), rel=1e-3)
    assert [cells["nll"].outcome.values["nll"].n for cells in (held, test)] == [HELD, TEST]

    # each has its own protocol, and only held-out cells name the split
    for name, cell in held.items():
        written = json.loads(store.cell_path(test[name]).read_text())
        assert "split" not in written["provenance"]
        assert cell.provenance["split"] == "validation"
        assert "split=validation" in cell.outcome.protocol
        assert cell.id != test[name].id
    assert "split=test" in test["nll"].outcome.protocol
    # the attack chose among nine images
    assert store.read_arrays(held["pgd"])["index"].max() < HELD


def test_a_limit_is_of_the_images_held_out(make, store, carry_out):
    plan = make("nll", split="validation", limit=4)
    carry_out(plan, store)
    (cell,) = (store.read_cell(planned_cell) for planned_cell in plan.cells)
    assert (cell.outcome.values["nll"].n, cell.images) == (4, "4 validation images")


def test_they_are_never_shown_with_results_on_test_images(make, store, carry_out, monkeypatch):
    for split in ("test", "validation"):
        carry_out(make(models="classifier jem", split=split), store)
    cells = store.cells()
    assert len(cells) == 4
    a, b = "zoo_of_tests:classifier", "zoo_of_tests:jem"
    for split, other, how in (
        ("test", "validation", "with --split validation"),
        ("validation", "test", "without --split"),
    ):
        which = selection(split=split)
        results = Results.of_store(store, which)
        assert {(cell.split, len(results.cells)) for cell in results.cells} == {(split, 2)}
        (left_out,) = results.left_out
        assert left_out == f"2 outcomes on {other} images; `jembench report` shows them {how}."
        titles = [table.title for table in results.document.tables()]
        assert all(("validation images" in title) == (split == "validation") for title in titles)
        assert {row["split"] for row in results.per_seed().document.records()} == {split}
        (difference,) = compare(a, b, store=store.root, split=split).records
        assert f"split={split}" in str(difference["protocols"])

    # what holds all results of a store or a fit
    units = works(make(models="classifier jem"), lambda key: False)
    monkeypatch.setenv(trust.VARIABLE, ",".join(code_of(units)))
    assert {cell.split for cell in plan_reproduction(store.root).cells} == {"test"}
    record = store.trained()[0]
    of_fit = [cell for cell in cells if cell.fit.id == record.key.id]
    assert {cell.split for cell in of_fit} == {"test", "validation"}
    text = card(record, of_fit, store.fit_folder(record.key), "shared.zip")
    assert "split=test" in text
    assert "split=validation" not in text
    (held,) = (cell for cell in of_fit if cell.split == "validation")
    values = events.measurement_event(held, record).values
    assert "validation/accuracy" in values
    assert "accuracy" not in values

    with pytest.raises(SpecError, match="which are not shown beside results on validation images"):
        Results.of_store(store, selection(split="validation"), ["jem-iclr2020/table1"])


def test_results_on_test_images_alone_are_no_results_on_validation_images(make, store, carry_out):
    carry_out(make(), store)
    results = Results.of_store(store, selection(split="validation"))
    assert not results.cells
    assert "--split validation" in results.nothing


def test_what_holds_no_images_out_is_refused_before_training(make, zoo, monkeypatch):
    with pytest.raises(NotApplicable, match=r"--set data\.validation=9, or by a recipe"):
        look_ahead(make(settings=["data.validation=0"], split="validation"))
    with pytest.raises(NotApplicable, match="trained elsewhere, so that its validation images"):
        look_ahead(make(models="painter_alone density_alone", split="validation"))
    both = zoo.Shades.split

    def test_alone(self, name):
        split = both(self, name)
        return split if name == "test" else split._replace(images=split.images[:0])

    monkeypatch.setattr(zoo.Shades, "split", test_alone)
    with pytest.raises(NotApplicable, match="test images alone, and none are held out"):
        look_ahead(make(split="validation"))


def test_nothing_is_fitted_on_images_under_evaluation(make, store, monkeypatch):
    """One worker has units of both; what it found out for one does not count for the other."""
    check, held = works(make(SCALED, split="validation"), lambda key: False, check=True)
    (test,) = works(make(SCALED), lambda key: False)
    monkeypatch.setenv(trust.VARIABLE, ",".join(code_of([held, test])))
    worker = Worker(store, torch.device("cpu"), Events())
    for unit in (check, held):
        assert worker.carry_out(unit).how == "done"
    assert not store.is_trained(held.fit)  # for nothing
    assert worker.carry_out(test).how == "done"
    found = {cell.split: cell.outcome for cell in store.cells()}
    assert found["test"].status == "ok"
    assert found["validation"].status == "na"
    assert "nothing may be fitted on them" in found["validation"].reason


def test_a_unit_keeps_its_split(make, monkeypatch):
    (unit,) = works(make(split="validation"), lambda key: False)
    monkeypatch.setenv(trust.VARIABLE, ",".join(code_of([unit])))
    (cell,) = planned(unit, "unit.json").cells
    assert (cell.split, cell.id) == ("validation", unit.cells[0].id)


def test_every_protocol_names_the_split(make):
    (cell,) = make(split="validation").cells
    assert cell.protocol("fid:data=d,images=9") == "fid:data=d,images=9,split=validation"
    assert cell.protocol("of my own") == "of my own, split=validation"
    assert cell.protocol("") == ""
    assert dataclasses.replace(cell, split="test").protocol("of my own") == "of my own"
