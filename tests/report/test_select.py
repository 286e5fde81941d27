"""Selection by fields, its order, display names, and the pair of a comparison."""

import csv
import dataclasses
import io
import itertools

import pytest

from jembench.api.arguments import selection
from jembench.api.stored import OpenStore
from jembench.catalog.spec import Spec, stable_hash
from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.report.select import find_pair
from jembench.store.outcome import Trained
from jembench.store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory, cell):
    """Two models with two metrics on digits, one of them by two recipes; a variant of one on
    stripes.
    """
    root = Store(tmp_path_factory.mktemp("selection") / "runs")
    for model, dataset, recipe in (
        ("jem", "digits", "digits"),
        ("baseline", "digits", "digits"),
        ("jem", "digits", "digits+epochs=9"),
        ("baseline:norm=batch", "stripes", "fast"),
    ):
        for seed in (0, 1):
            for metric, labels in (
                ("accuracy", ["accuracy"]),
                ("ood:set=interp", ["auroc", "fpr95_in"]),
            ):
                values = {label: Value(0.5, 0.4, 0.6, 9, "", "higher") for label in labels}
                result = cell(model, metric, seed=seed, dataset=dataset, recipe=recipe, **values)
                family = f"{model}-{dataset}-{recipe}"
                fit = dataclasses.replace(result.fit, id=f"{family}{seed}", family=family)
                root.write_cell(
                    dataclasses.replace(result, id=stable_hash([fit.id, metric]), fit=fit), {}
                )
    return root


def fits(selected):
    return list(dict.fromkeys((cell.fit.model, cell.fit.recipe) for cell in selected.cells))


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (
            {"recipe": ["digits+epochs=9", "digits"], "models": "jem"},
            [("jem", "digits+epochs=9"), ("jem", "digits")],
        ),
        ({"recipe": "digits*", "models": "jem"}, [("jem", "digits"), ("jem", "digits+epochs=9")]),
        ({"models": "b*,jem", "dataset": "digits"}, [("baseline", "digits"), ("jem", "digits")]),
        ({"models": "baseline", "dataset": "stripes"}, [("baseline:norm=batch", "fast")]),
    ],
)
def test_fields_select_by_name_or_pattern_in_the_order_given(store, which, expected):
    selected = fits(selection(**which).of(store))
    assert [fit for fit in selected if fit in expected] == expected


def test_a_suite_shows_what_was_measured_by_a_given_sampler_where_nothing_else_was(tmp_path, cell):
    measured = ["fid:sampler=sgld", "is", "is:sampler=sgld"]
    for metric in measured:
        result = cell("jem", metric, value=Value(0.5, 0.4, 0.6, 9))
        Store(tmp_path).write_cell(dataclasses.replace(result, id=stable_hash(metric)), {})
    (part,) = selection("hybrid").of(Store(tmp_path)).parts
    (of_fit,) = part.rows.values()
    for shown in (part.metrics, of_fit):
        assert [metric for metric in shown if metric in (*measured, "fid")] == [
            "is",
            "fid:sampler=sgld",
        ]


def test_rows_and_columns_have_the_order_asked_for(store):
    asked = {"models": "jem,baseline", "recipe": "digits", "columns": "fpr95-in,accuracy,auroc"}
    results = OpenStore(store.root).results(**asked)
    (table,) = results.document.tables()[:1]
    assert [row[0].value for row in table.rows] == ["jem", "baseline"]
    assert [
        heading.label
        for table in results.document.tables()
        for heading in table.headings
        if not heading.identifies
    ] == [*("accuracy", "FPR95 (in)", "AUROC")]
    results = OpenStore(store.root).results(
        models=["baseline", "jem"], metrics="ood,acc*", recipe="digits", seeds=1
    )
    assert [row.label for row in results] == ["auroc", "fpr95-in", "accuracy"] * 2
    assert [(row.model, row.seeds) for row in results][::3] == [("baseline", (1,)), ("jem", (1,))]


def test_columns_leave_out_the_other_published_numbers(store):
    records = OpenStore(store.root).results("hybrid", columns="accuracy").document.records()
    assert {row["label"] for row in records if row["source"]} == {"accuracy"}


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ({"models": "jam"}, r"no model among these results named 'jam'\. Nearest: jem"),
        ({"dataset": "cifar10"}, r"no dataset among these results named 'cifar10'.*Known: digits"),
        ({"recipe": "digit"}, r"no recipe among these results named 'digit'\. Nearest: digits"),
        ({"seeds": 7}, r"no seed among these results named '7'.*Known: 0, 1\."),
        (
            {"metrics": "acuracy"},
            r"no metric among these results named 'acuracy'\. Nearest: accuracy",
        ),
        ({"columns": "aurocs"}, r"no column among these results named 'aurocs'\. Nearest: auroc"),
        (
            {"suite": "hybrid", "columns": "auroc"},
            r"'auroc'\. Nearest: acc.*\. hybrid shows only accuracy, .*; leave the "
            r"suite out to choose among all",
        ),
        (
            {"names": {"jam": "JEM"}},
            r"no model or column among these results named 'jam'\. Nearest: jem",
        ),
        (
            {"models": "jem", "names": {"baseline": "B"}},
            r"named 'baseline'\..* Known: AUROC, .* jem, ood, ood:set",
        ),
        (
            {"models": "jem", "dataset": "stripes"},
            r"no model among these results named 'jem'\. Known: baseline:norm=batch\.",
        ),
        ({"names": {"jem": "baseline"}}, r"'baseline' would be the name of baseline and of jem"),
        ({"names": {"jem": "A", "baseline": "A"}}, r"'A' would be the name of"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest_name(store, which, message):
    with pytest.raises(SpecError, match=message):
        selection(**which).of(store)


def test_a_bare_name_has_its_display_name_whatever_the_spec_on_another_dataset(store):
    which = selection(models="baseline*", names={"baseline": "Classifier"})
    names = which.of(store).names
    assert names.models == {
        ("baseline", "digits"): "Classifier",
        ("baseline:norm=batch", "fast"): "Classifier",
    }


def test_a_display_name_is_shown_and_changes_nothing_else(store):
    plain, named = (
        OpenStore(store.root).results(names=names) for names in ({}, {"jem": "JEM (ours)"})
    )
    assert [dataclasses.replace(row, name=row.model) for row in named] == list(plain)
    assert "JEM (ours)" in str(named)


def test_the_values_of_each_seed(store):
    results = OpenStore(store.root).results(
        models="jem", recipe="digits", columns="auroc", names={"jem": "JEM"}
    )
    lines = list(csv.DictReader(io.StringIO(results.per_seed().table("csv"))))
    assert [(line["seeds"], line["name"], line["label"]) for line in lines] == [
        ("0", "JEM", "auroc"),
        ("1", "JEM", "auroc"),
    ]
    with pytest.raises(SpecError, match="The values of each seed are for programs"):
        results.per_seed().table("markdown")


JEM = Trained(Spec("jem"), Spec("digits"), "digits")
BASELINE = Trained(Spec("baseline"), Spec("digits"), "digits")
BATCH = Trained(Spec("baseline:norm=batch"), Spec("digits"), "digits")
IN_FOLDER = (
    Trained(Spec("jem:net=small-12"), Spec("imagefolder:root=/a"), "fast"),
    Trained(Spec("baseline"), Spec("imagefolder:root=/a"), "fast"),
)
FITS = [JEM, BASELINE, BATCH, *IN_FOLDER]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("jem", "baseline", (JEM, BASELINE)),
        ("baseline", "jem", (BASELINE, JEM)),
        ("jem", "baseline:norm=batch", (JEM, BATCH)),
        # a default, and the distribution
        ("jembench-jem/jem:net=auto", "baseline: norm=batch", (JEM, BATCH)),
        ("jem:net=small-12", "baseline", IN_FOLDER),
    ],
)
def test_a_spec_however_it_is_written(a, b, expected):
    assert find_pair(FITS, a, b) == expected


def test_the_same_recipe_goes_before_others():
    first = Trained(Spec("jem"), Spec("digits"), "a")
    second = Trained(Spec("jem"), Spec("digits"), "b")
    baseline = Trained(Spec("baseline"), Spec("digits"), "b")
    fits = [first, second, baseline]
    assert find_pair(fits, "jem", "baseline") == (second, baseline)
    assert find_pair(fits, "jem", "baseline", recipe="a", recipe_b="b") == (first, baseline)
    assert find_pair(fits, "jem", "jem", recipe="a", recipe_b="b") == (first, second)
    assert find_pair([first, baseline], "jem", "baseline") == (first, baseline)


def test_a_dataset_tells_pairs_apart():
    datasets = ("digits", "imagefolder:root=/a")
    pairs = itertools.product(("jem", "baseline"), datasets)
    fits = [Trained(Spec(model), Spec(dataset), "r") for model, dataset in pairs]
    with pytest.raises(
        SpecError, match=r"\(1\) jem on digits, recipe r, with baseline on digits, recipe r; \(2\) "
    ):
        find_pair(fits, "jem", "baseline")
    a, b = find_pair(fits, "jem", "baseline", dataset="imagefolder")
    assert a.dataset == b.dataset == "imagefolder:root=/a"


@pytest.mark.parametrize(
    ("a", "b", "which", "message"),
    [
        ("jam", "baseline", {}, r"There is no model among these results named 'jam'. Nearest: jem"),
        (
            "jem",
            "baseline",
            {"dataset": "cifar10"},
            "There is no dataset among these results named 'cifar10'",
        ),
        ("jem", "baseline", {"recipe": "x"}, r"no recipe among these results named 'x'"),
        (
            "jem",
            "jem",
            {},
            r"jem and jem are not two models on one dataset: jem on digits, recipe digits\.",
        ),
        ("jem", "base*", {}, r"More than one comparison is meant by jem and base\*"),
    ],
)
def test_no_pair_or_several_are_refused(a, b, which, message):
    with pytest.raises(SpecError, match=message):
        find_pair(FITS, a, b, **which)


def test_a_suite_shows_a_variant_of_its_metrics_if_it_is_asked_for(tmp_path, cell):
    root = Store(tmp_path / "runs")
    values = {"ece_scaled": Value(0.5, 0.4, 0.6, 9, "%", "lower")}
    root.write_cell(cell("jem", "ece:scaling=temperature", **values), {})
    opened = OpenStore(root.root)
    for choice in ({"metrics": "ece:scaling=temperature"}, {"columns": "ece-scaled"}):
        (table,) = opened.results("hybrid", **choice).document.tables()
        assert [text.value for text in table.rows[0]] == ["jem", "0.50"]


def test_a_metric_that_a_suite_does_not_show_is_refused_with_what_it_shows(store):
    with pytest.raises(SpecError, match=r"'ood'.* hybrid shows only accuracy, .*leave the suite"):
        OpenStore(store.root).results("hybrid", metrics="ood")
