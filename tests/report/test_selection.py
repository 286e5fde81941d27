"""Which results of a store are shown, in which order, and under which names."""

import csv
import dataclasses
import io
import json

import pytest

from jembench.api.arguments import selection
from jembench.api.stored import OpenStore
from jembench.catalog.spec import stable_hash
from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.report.selection import EVERY
from jembench.store.store import Store

VARIANT = "digits+chains.sampler=pcd:steps=4,noise=0.005,clip=1,bounded=true,buffer=1000,start=class-gaussian"
"""Of the suite ablations."""


@pytest.fixture(scope="module")
def store(tmp_path_factory, cell):
    """Two models with two metrics by the plain recipe; one of them after ``--set epochs=9`` and in a suite as well."""
    root = Store(tmp_path_factory.mktemp("selection") / "runs")
    for model, recipe in (("jem", "digits"), ("baseline", "digits"), ("jem", "digits+epochs=9"), ("jem", VARIANT)):
        for seed in (0, 1):
            for metric, labels in (("accuracy", ["accuracy"]), ("ood:set=interp", ["auroc", "fpr95_in"])):
                values = {label: Value(0.5, 0.4, 0.6, 9, "", "higher") for label in labels}
                found = cell(model, metric, seed=seed, recipe=recipe, **values)
                name = f"{model}-{recipe}"
                fit = dataclasses.replace(found.fit, id=f"{name}{seed}", family=name)
                root.write_cell(dataclasses.replace(found, id=stable_hash([fit.id, metric]), fit=fit), {})
    return root


def models(selected):
    return list(dict.fromkeys((cell.fit.model, cell.fit.recipe) for cell in selected.cells))


def test_changed_recipes_are_left_out_unless_a_suite_changed_them(store):
    found = selection().of(store)
    assert set(models(found)) == {("jem", "digits"), ("baseline", "digits"), ("jem", VARIANT)}
    (note,) = found.left_out
    assert note == "4 outcomes of changed recipes, digits+epochs=9; `jembench report` shows them with --recipe all."


def test_a_suite_shows_its_own_variants(store):
    assert ("jem", VARIANT) in models(selection("ablations").of(store))
    assert ("jem", VARIANT) not in models(selection("hybrid").of(store))


@pytest.mark.parametrize(
    ("which", "labels"),
    [
        ({"recipe": EVERY}, {"digits", "digits+epochs=9", VARIANT}),
        ({"recipe": ["digits+epochs=9", "digits"]}, {"digits", "digits+epochs=9"}),
        ({"recipe": "digits"}, {"digits"}),
        ({"settings": {"epochs": 9}}, {"digits+epochs=9"}),
        ({"recipe": "digits", "settings": {"epochs": 9}}, {"digits+epochs=9"}),
    ],
)
def test_recipes_that_are_asked_for(store, which, labels):
    found = selection(**which).of(store)
    assert {recipe for _, recipe in models(found)} == labels
    assert found.left_out == []


def test_where_all_recipes_are_changed_all_are_shown(tmp_path, cell):
    root = Store(tmp_path / "runs")
    root.write_cell(cell(recipe="digits+epochs=9", accuracy=Value(1.0, None, None, 9)), {})
    assert models(selection().of(root)) == [("jem", "digits+epochs=9")]


def test_rows_and_columns_have_the_order_asked_for(store):
    asked = {"models": "jem,baseline", "recipe": "digits", "columns": "fpr95-in,accuracy,auroc"}
    found = OpenStore(store.root).results(**asked)
    assert [record.label for record in found] == ["fpr95-in", "accuracy", "auroc"] * 2
    assert [record.model for record in found] == ["jem"] * 3 + ["baseline"] * 3
    asked = {"models": ["baseline", "jem"], "metrics": "ood,accuracy"}
    found = OpenStore(store.root).results(**asked, recipe="digits", seeds=1)
    assert [record.label for record in found] == ["auroc", "fpr95-in", "accuracy"] * 2
    assert {(record.model, record.seeds) for record in found} == {("baseline", (1,)), ("jem", (1,))}


def test_columns_leave_out_the_other_published_numbers(store):
    tables = OpenStore(store.root).results("hybrid", columns="accuracy").table("json")
    published = json.loads(tables)["published"]
    assert {number["quantity"] for number in published} == {"accuracy"}


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ({"models": "jam"}, r"no model in the store named 'jam'\. Nearest: jem"),
        ({"dataset": "cifar10"}, r"no dataset in the store named 'cifar10'.*Known: digits"),
        ({"recipe": "digit"}, r"no recipe in the store named 'digit'\. Nearest: digits"),
        ({"settings": {"epochs": 8}}, r"no change of a recipe in the store named 'epochs=8'\. Nearest: epochs=9"),
        ({"seeds": 7}, r"no seed in the store named '7'.*Known: 0, 1\."),
        ({"metrics": "acuracy"}, r"no metric in the store named 'acuracy'\. Nearest: accuracy"),
        ({"columns": "aurocs"}, r"no column of these results named 'aurocs'\. Nearest: auroc"),
        ({"names": {"jam": "JEM"}}, r"no model among the selected results named 'jam'\. Nearest: jem"),
        ({"models": "jem", "names": {"baseline": "B"}}, r"selected results named 'baseline'\..* Known: jem\."),
        ({"names": {"jem": "baseline"}}, r"'baseline' would be the name of baseline and of jem"),
        ({"names": {"jem": "A", "baseline": "A"}}, r"'A' would be the name of"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest_name(store, which, message):
    with pytest.raises(SpecError, match=message):
        selection(**which).of(store)


@pytest.fixture
def of_two(tmp_path, cell):
    """A bare ``baseline`` on digits alone; on stripes the recipe has options for it. There ``jem`` has no nll."""
    root = Store(tmp_path / "runs")
    for model, dataset, recipe, metric in (
        ("baseline", "digits", "digits", "accuracy"),
        ("jem", "digits", "digits+epochs=1", "accuracy"),
        ("baseline:norm=batch", "stripes", "fast", "accuracy"),
        ("baseline:norm=batch", "stripes", "fast", "nll"),
        ("jem-factored", "stripes", "fast", "accuracy"),
    ):
        found = cell(model, metric, recipe=recipe, **{metric: Value(0.5, None, None, 9)})
        fit = dataclasses.replace(found.fit, dataset=dataset, id=model + dataset, family=model + dataset)
        root.write_cell(dataclasses.replace(found, id=stable_hash([fit.id, metric]), fit=fit), {})
    return root


def test_a_bare_name_means_another_spec_on_another_dataset(of_two):
    on_stripes = selection(models="jem-factored,baseline", dataset="stripes", names={"baseline": "Classifier"})
    found = on_stripes.of(of_two)
    assert models(found) == [("jem-factored", "fast"), ("baseline:norm=batch", "fast")]
    assert found.names == {("baseline:norm=batch", "fast"): "Classifier"}
    found = selection(models="baseline", names={"baseline": "Classifier"}).of(of_two)
    assert set(models(found)) == {("baseline", "digits"), ("baseline:norm=batch", "fast")}
    assert set(found.names.values()) == {"Classifier"}
    assert found.names.keys() == set(models(found))


@pytest.mark.parametrize(
    ("which", "named", "known"),
    [
        ({"models": "jem,baseline", "dataset": "stripes"}, "model", "baseline:norm=batch, jem-factored"),
        ({"models": "jem,baseline"}, "model", "baseline, baseline:norm=batch"),  # the recipe of jem is changed
        ({"models": "jem-factored,baseline", "columns": "nll"}, "model", "baseline:norm=batch"),
        ({"names": {"jem": "JEM"}, "dataset": "stripes"}, "model", "baseline:norm=batch, jem-factored"),
        ({"models": "jem-factored", "dataset": "stripes,digits"}, "dataset", "stripes"),
    ],
)
def test_what_the_other_selections_leave_out_is_refused(of_two, which, named, known):
    with pytest.raises(SpecError, match=rf"no {named} among the selected results named .* Known: {known}\."):
        selection(**which).of(of_two)


def test_a_display_name_is_shown_and_changes_nothing_else(store):
    plain, named = (OpenStore(store.root).results(names=names) for names in ({}, {"jem": "JEM (ours)"}))
    assert [dataclasses.replace(record, printed_as="") for record in named] == list(plain)
    assert {record.model: record.printed_as for record in named} == {"jem": "JEM (ours)", "baseline": ""}
    assert "JEM (ours)" in str(named)
    assert "JEM (ours)" not in str(plain)


def test_the_values_of_each_seed(store):
    found = OpenStore(store.root).results(models="jem", recipe="digits", columns="auroc", names={"jem": "JEM"})
    rows = list(csv.DictReader(io.StringIO(found.per_seed().table("csv"))))
    assert sorted((row["printed_as"], row["label"], row["seed"]) for row in rows) == [
        ("JEM", "auroc", "0"),
        ("JEM", "auroc", "1"),
    ]
    with pytest.raises(SpecError, match="csv, json or parquet"):
        found.per_seed().table("markdown")
