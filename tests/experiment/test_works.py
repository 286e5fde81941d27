"""Units of work: what travels, what waits for what, and what is refused elsewhere."""

import dataclasses
import json
import re

import pytest

from jembench import __version__
from jembench.catalog import code_identity, trust
from jembench.catalog.spec import Spec
from jembench.errors import DamagedError, SpecError
from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.experiment.works import Work, code_of, planned, works
from jembench.store import records
from jembench.store.records import Record

QUICK_PGD = "pgd:budget=quick,images=150"  # three shards


@pytest.fixture
def make(zoo_of_tests):
    """Make a plan of the zoo's models, by their names there."""

    def make(models="jem", metrics="accuracy", *, seeds=(0,), limit=None, settings=()):
        named = tuple(f"zoo_of_tests:{name}" for name in models.split())
        block = Run(models=named, metrics=tuple(metrics.split()), seeds=seeds)
        chosen = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
        return make_plan(
            chosen, recipe=str(zoo_of_tests / "tiny.toml"), settings=settings, limit=limit
        )

    return make


@pytest.fixture
def trusted(monkeypatch):
    """Trust the code that units name, as a worker of the run that made them does."""
    return lambda units: monkeypatch.setenv(trust.VARIABLE, ",".join(code_of(units)))


def untrained(key):
    return False


def travelled(unit):
    """The unit as a worker reads it."""
    return Record(json.loads(unit.job(0).text), "unit.json").read(Work)


def short(units):
    """Units in words: their kind and part, metrics, later metrics, and the numbers of those that
    must end before.
    """
    numbers = {unit.id: number for number, unit in enumerate(units)}
    return [
        (
            unit.kind + (f" {unit.part[0]}/{unit.part[1]}" if unit.part[1] > 1 else ""),
            " ".join(cell.metric.partition(":")[0] for cell in unit.cells),
            " ".join(cell.metric.partition(":")[0] for cell in unit.later),
            [numbers[before] for before in unit.after],
        )
        for unit in units
    ]


def test_an_option_at_its_default_stays_where_the_recipe_has_another():
    """The recipe speedrun-digits has joint passes and a momentum of .1."""
    block = Run(models=("jem:passes=each,momentum=0.9",), metrics=("accuracy",), seeds=(0,))
    suite = Suite(name="own", title="", datasets=("digits",), runs=(block,))
    plan = make_plan(suite, recipe="speedrun-digits", settings=())
    (unit,) = works(plan, untrained)
    assert unit.fit == plan.fits[0].key
    (again,) = planned(travelled(unit), "unit.json").fits
    assert again.key == unit.fit
    assert (again.model.arguments["passes"], again.model.arguments["momentum"]) == ("each", 0.9)


def test_a_unit_is_a_small_file_from_which_the_same_is_planned_again(make, trusted, tmp_path):
    plan = make(
        "jem classifier",
        f"accuracy ece:bins=7 {QUICK_PGD}",
        seeds=(0, 3),
        limit=20,
        settings=["epochs=5"],
    )
    units = works(plan, untrained, slots=12, deadline=1.5, command="jembench run")
    trusted(units)
    ids = {cell.id: cell.fit.key for cell in plan.cells}
    for number, unit in enumerate(units):
        path = tmp_path / f"{number}.json"
        path.write_text(unit.job(number).text)
        assert path.stat().st_size < 6000
        found = records.read(path).read(Work)
        assert (found.id, found.job(number)) == (unit.id, unit.job(number))
        cells = planned(found, str(path)).cells
        assert {cell.id: cell.fit.key for cell in cells} == {
            cell.id: ids[cell.id] for cell in unit.all_cells
        }
    assert len({unit.id for unit in units}) == len(units)


def test_the_id_of_a_unit_is_that_of_what_is_to_be_done(make):
    (first,), (same,) = (
        works(make(), untrained, **given) for given in ({}, {"deadline": 9.0, "command": "x"})
    )
    assert first.id == same.id
    others = works(make(limit=3), untrained) + works(make(seeds=(1,)), untrained)
    assert first.id not in {unit.id for unit in others}


def test_one_after_the_other(make):
    units = works(make(metrics=f"accuracy {QUICK_PGD}", seeds=(0, 1)), lambda key: key.seed == 1)
    assert short(units) == [("fit", "accuracy pgd", "", [])] * 2


def test_a_model_that_was_trained_elsewhere_is_not_trained(make):
    plan = make("density_alone", "accuracy pgd")
    first, *parts, last = short(works(plan, untrained, slots=4))
    assert first == ("fit", "accuracy", "", [])
    assert [each[-1] for each in parts] == [[]] * 4
    assert last == ("fit", "pgd", "", [1, 2, 3, 4])


@pytest.mark.parametrize(("slots", "parts"), [(2, 1), (3, 1), (4, 2), (6, 3), (100, 3)])
def test_attacks_are_spread_over_the_slots_that_are_free(make, slots, parts):
    """Two models are attacked, with three shards of images each."""
    units = works(make(metrics=f"accuracy ece {QUICK_PGD}", seeds=(0, 1)), untrained, slots=slots)
    shards = (
        [(f"attack-part {number}/{parts}", "pgd", "", [0]) for number in range(parts)]
        if parts > 1
        else []
    )
    assert short(units)[: len(units) // 2] == [
        ("fit", "accuracy ece", "pgd", []),
        *shards,
        ("fit", "pgd", "", list(range(1, parts + 1)) if shards else [0]),
    ]


def test_an_attack_waits_for_the_training_also_with_more_attacks_than_slots(make):
    units = works(make(metrics=f"accuracy {QUICK_PGD}", seeds=range(3)), untrained, slots=2)
    assert short(units)[:2] == [("fit", "accuracy", "pgd", []), ("fit", "pgd", "", [0])]


def test_a_training_of_several_processes_wants_as_many_gpus(make):
    plan = make(metrics=f"accuracy {QUICK_PGD}", settings=["processes=3"])
    assert [unit.gpus for unit in works(plan, untrained, slots=2)] == [3, 1, 1, 1]
    assert [unit.gpus for unit in works(plan, lambda key: True)] == [1]


def test_a_check_for_each_family_of_fits_comes_before_everything(make, trusted):
    plan = make("jem classifier", f"accuracy {QUICK_PGD}", seeds=(3, 1))
    # the first fit has no accuracy to measure
    plan = dataclasses.replace(plan, cells=plan.cells[1:])
    checks, others = works(plan, untrained, check=True), works(plan, untrained)
    first, second, *rest = checks
    assert [unit.kind for unit in checks] == ["check"] * 2 + ["fit"] * 4
    assert [(unit.fit.model, unit.fit.seed) for unit in (first, second)] == [
        ("zoo_of_tests:jem", 3),
        ("zoo_of_tests:classifier", 3),
    ]
    assert {cell.metric.partition(":")[0] for cell in first.cells} == {"accuracy", "pgd"}
    assert [unit.id for unit in rest] == [unit.id for unit in others]
    assert all({first.id, second.id} <= set(unit.after) for unit in rest)
    again, *_ = works(plan, untrained, check=True)
    assert again.id != first.id  # it is not the check of another run
    for slots, count in [(2, 2), (3, 3), (9, 4)]:  # all workers start at once
        checks = [
            unit for unit in works(plan, untrained, check=True, slots=slots) if unit.kind == "check"
        ]
        assert len({unit.fit.id for unit in checks}) == len(checks) == count
    trusted([first])
    (fit,) = planned(travelled(first), "unit.json").fits
    assert fit.key == first.fit


def test_a_fit_that_is_another_one_here_is_refused_with_what_differs(make, trusted):
    (unit,) = works(make(), untrained)
    trusted([unit])
    identity = {**unit.identity, "model": {**unit.identity["model"], "code": "0" * 64}}
    elsewhere = dataclasses.replace(
        travelled(unit), identity=identity, fit=dataclasses.replace(unit.fit, id="f0")
    )
    text = (
        "is not the same here as where it was planned, and nothing was done. It differs in: the "
        "code of the model. "
    )
    with pytest.raises(SpecError, match=text):
        planned(elsewhere, "here")


def test_another_version_is_refused(make, trusted):
    """Even if it is the same fit by its identity: what the versions differ in is not known."""
    (unit,) = works(make(), untrained)
    trusted([unit])
    here = unit.versions["jembench"]
    assert unit.versions == {"jembench": f"{__version__} ({code_identity.digest('jembench')})"}
    assert planned(travelled(unit), "here").fits[0].key == unit.fit
    for there in ("0.0.1", f"{__version__} (0123abcd)"):  # the same version may have other code
        other = dataclasses.replace(
            travelled(unit), versions={"jembench": there, "jembench-other": "3"}
        )
        text = (
            f"differs in: jembench {there} -> {here}. Install the same versions, code and data on "
            "both machines."
        )
        with pytest.raises(SpecError, match=re.escape(text)):
            planned(other, "here")


def test_a_plugin_is_one_of_the_versions():
    chosen = Suite(
        name="", title="", datasets=("digits",), runs=(Run(models=("jem",), metrics=("accuracy",)),)
    )
    (unit,) = works(make_plan(chosen), untrained)
    assert set(unit.versions) == {"jembench", "jembench-jem"}


def test_a_metric_that_is_another_one_here_is_refused(make, trusted):
    (unit,) = works(make(metrics="accuracy ece"), untrained)
    trusted([unit])
    first, second = unit.cells
    with pytest.raises(
        SpecError,
        match=r"differs in: the code, the version or the files of the metric ece. Install",
    ):
        planned(
            dataclasses.replace(unit, cells=(first, dataclasses.replace(second, id="c0"))), "here"
        )


@pytest.mark.parametrize("place", ["model", "dataset", "cells", "recipe"])
def test_code_that_only_the_unit_names_is_refused(make, monkeypatch, place):
    (unit,) = works(make(), untrained)
    foreign = "os.path:join"
    value = {
        "cells": (dataclasses.replace(unit.cells[0], metric=Spec(foreign)),),
        "recipe": {**unit.recipe, "chains": {**unit.recipe["chains"], "sampler": foreign}},
    }
    hostile = dataclasses.replace(unit, **{place: value.get(place, foreign)})
    monkeypatch.setenv(trust.VARIABLE, ",".join(code_of([unit])))
    planned(unit, "unit.json")
    with pytest.raises(
        SpecError, match=rf"unit.json names {foreign}, which runs code that you did not name"
    ):
        planned(hostile, "unit.json")


def test_a_unit_without_metrics_is_refused(make, trusted):
    (unit,) = works(make(), untrained)
    trusted([unit])
    with pytest.raises(SpecError, match="here names no metric"):
        planned(dataclasses.replace(unit, cells=()), "here")


@pytest.mark.parametrize(
    ("field", "value", "wrong"),
    [
        ("part", [2, 2], "part is [2, 2]; it must be [number, of] with 0 <= number < of"),
        ("part", [-1, 2], "part is [-1, 2]; it must be [number, of]"),
        ("gpus", 0, "gpus is 0; it must be at least 1"),
        (
            "cells",
            [{"metric": "ece", "id": "../../x"}],
            "cells[0].id is '../../x'; it must be a part of a file's name",
        ),
        ("limit", 0, "limit is 0; it must be at least 1"),
        ("model", "a\nb", "it must be a spec"),
    ],
)
def test_a_file_that_is_no_unit(make, field, value, wrong):
    (unit,) = works(make(), untrained)
    with pytest.raises(DamagedError) as caught:
        Record({**json.loads(unit.job(0).text), field: value}, "unit.json").read(Work)
    assert wrong in str(caught.value)
    assert "unit.json" in str(caught.value)


def test_a_recipe_that_is_none_is_named(make, trusted):
    (unit,) = works(make(), untrained)
    trusted([unit])
    with pytest.raises(DamagedError, match=r"unit.json, recipe.epochs is -1; it must be"):
        planned(dataclasses.replace(unit, recipe={**unit.recipe, "epochs": -1}), "unit.json")
