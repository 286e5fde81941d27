"""Pivot tables: every number of a grid in its place, gaps explained once, nothing of them in the main table."""

import csv
import dataclasses
import io
import itertools
import json

import pytest

from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid, compares_with_itself
from jembench.interfaces import Value
from jembench.report import sections
from jembench.report.formats import render
from jembench.report.layout import document, tables
from jembench.report.references import load
from jembench.report.sections import build
from jembench.store.outcome import Outcome

SCORES, SETS = ("log-px", "max-py"), ("svhn", "interp", "celeba:root=/data")
GRID = Grid(
    title="Outliers",
    metric="outlier_metrics:ood",
    values=("auroc",),
    rows={"score": SCORES},
    columns={"set": SETS},
)


def number(model, score, set):
    """A number of its own for every place."""
    return 0.5 + (["jem", "baseline"].index(model) * 6 + SCORES.index(score) * 3 + SETS.index(set)) / 100


@pytest.fixture
def ood(cell):
    """A cell of the grid, or the same with a gap or under more options."""

    def make(
        model, score, set, *, seed=0, dataset="cifar10", outcome=None, extra="", recipe="paper", label="auroc", n=10000
    ):
        options = (
            {"set": set} | ({"score": score} if score != "log-px" else {}) | dict([extra.split("=")] if extra else [])
        )
        metric = f"outlier_metrics:ood:{','.join(f'{key}={options[key]}' for key in sorted(options))}"
        value = number(model, score, set)
        values = {label: Value(value, value - 0.01, value + 0.01, n, "", "higher")}
        values |= {"fpr95-in": Value(1 - value, None, None, n, "", "lower")}
        protocol = (
            f"ood:content=ab,data={dataset},data_noise=0.03,images={n},outliers={n},score={score},set={set},split=test"
        )
        outcome = outcome or Outcome(status="ok", protocol=protocol, values=values)
        return cell(model, metric, seed=seed, dataset=dataset, recipe=recipe, outcome=outcome)

    return make


@pytest.fixture
def full(ood):
    return [ood(*where) for where in itertools.product(("jem", "baseline"), SCORES, SETS)]


def part(cells, *metrics, grids=(GRID,), title=""):
    def asked(dataset):
        of_grids = [place.metric for grid in grids if grid.covers(dataset) for place in grid.places]
        return tuple(metric for metric in (*metrics, *of_grids) if not compares_with_itself(metric, dataset))

    return Part(title, metrics, tuple(grids), {cell.fit.names: asked(cell.fit.dataset) for cell in cells})


def pivots(cells, *metrics, grid=GRID, **others):
    return tables(build(cells, parts=[part(cells, *metrics, grids=[grid])], **others))


def texts(grid):
    return [[text.value for text in row] for row in grid.rows]


def labels(grid):
    return [heading.label for heading in grid.headings]


def test_every_number_is_in_its_place(full):
    (pivot,) = pivots(full)
    assert pivot.title == "Outliers · auroc ↑ · dataset cifar10 · recipe paper · seed 0"
    assert labels(pivot) == ["score", "model", "svhn", "interp", "celeba"]
    assert texts(pivot) == [
        [score, model, *(f"{number(model, score, set):.3f}" for set in SETS)]
        for score in SCORES
        for model in ("jem", "baseline")
    ]
    assert pivot.rows[0][2].interval == "[0.490, 0.510]"


def test_the_main_table_is_as_it_was(full, cell):
    accuracies = [
        cell(model, dataset="cifar10", recipe="paper", accuracy=Value(92.0, 91.0, 93.0, 9))
        for model in ("jem", "baseline")
    ]
    (alone,) = tables(build(accuracies))
    main, pivot = pivots([*accuracies, *full], "accuracy")
    assert main == alone
    assert labels(pivot)[0] == "score"
    assert not any("95 % interval" in note.text for note in pivot.footnotes)  # said above


def test_a_row_option_of_one_value_is_said_in_the_title(full):
    cells = [cell for cell in full if "max-py" in cell.metric]
    one = Grid(title="Outliers", metric=GRID.metric, rows={"score": ("max-py",)}, columns=GRID.columns)
    pivot = pivots(cells, grid=one)[0]
    assert pivot.title.startswith("Outliers · auroc ↑ · score max-py · ")
    assert labels(pivot)[0] == "model"


def test_a_column_without_anything_has_one_footnote_with_the_remedy(ood):
    def outcome(set):
        return Outcome(status="na", reason="CelebA is not there: fetch it.") if "celeba" in set else None

    cells = [ood(*w, outcome=outcome(w[-1])) for w in itertools.product(("jem", "baseline"), SCORES, SETS)]
    (pivot,) = pivots(cells)
    assert {(row[-1].value, row[-1].marks) for row in pivot.rows} == {("N/A", ("1",))}
    assert [note for note in pivot.footnotes if note.mark] == [("CelebA is not there: fetch it.", "1")]


def test_gaps_of_single_places_have_their_own_marks(ood):
    no_energy, broken = Outcome(status="na", reason="needs energy"), Outcome(status="failed", reason="NaN")
    cells = [
        ood(
            *w,
            outcome=no_energy
            if w[:2] == ("baseline", "log-px")
            else broken
            if w == ("jem", "max-py", "svhn")
            else None,
        )
        for w in itertools.product(("jem", "baseline"), SCORES, SETS)
    ]
    (pivot,) = pivots(cells)
    assert [(text.value, text.marks) for text in pivot.rows[1][2:]] == [("N/A", ("1",))] * 3
    assert (pivot.rows[2][2].value, pivot.rows[2][2].marks) == ("failed", ("2",))


def test_seeds_and_differing_protocols_are_as_in_the_main_table(ood):
    cells = [ood("jem", score, set, seed=seed) for score in SCORES for set in SETS for seed in (0, 1)]
    cells += [ood("baseline", score, set, n=100 if set == "svhn" else 10000) for score in SCORES for set in SETS]
    (pivot,) = pivots(cells)
    assert labels(pivot)[1:3] == ["model", "seeds"]
    assert pivot.rows[0][3].value == "0.500 ± 0.000"
    assert "±: standard deviation over the seeds" in " ".join(note.text for note in pivot.footnotes)
    daggers = [note.text for note in pivot.footnotes if note.mark == "†"]
    assert daggers[0] == (
        "auroc (log-px, svhn) was measured under different protocols, do not compare: "
        "jem: images=10000, outliers=10000; baseline: images=100, outliers=100"
    )
    assert len(daggers) == 2


def test_outliers_that_are_the_dataset_itself_have_no_place(ood):
    cells = [ood("jem", score, set, dataset="svhn") for score in SCORES for set in SETS[1:]]
    assert labels(pivots(cells)[0])[2:] == ["interp", "celeba"]
    both = [*cells, *(ood("jem", score, set) for score in SCORES for set in SETS)]
    (pivot,) = pivots(both)
    assert labels(pivot) == ["score", "model", "dataset", "svhn", "interp", "celeba"]
    assert texts(pivot)[0][:4] == ["log-px", "jem", "svhn", "—"]
    assert any(note.text.startswith("—: not asked for there.") for note in pivot.footnotes)


def test_a_grid_of_other_datasets_shows_none_of_these(full):
    others = Grid(title="Others", metric=GRID.metric, rows=GRID.rows, columns=GRID.columns, datasets=("!cifar10",))
    assert [grid.title.split(" · ")[0] for grid in tables(build(full, parts=[part(full, grids=[GRID, others])]))] == [
        "Outliers"
    ]


def test_data_stay_flat_and_hold_what_was_asked_for_and_no_more(full, ood):
    cells = [*full, *(ood("jem", score, set, dataset="svhn") for score in SCORES for set in SETS[1:])]
    table = build(cells, parts=[part(cells)])
    jem, baseline, svhn = json.loads(render(document(table), "json"))["rows"]
    assert len(jem["values"]) == len(baseline["values"]) == 12
    assert len(svhn["values"]) == 8
    assert {value["status"] for value in svhn["values"]} == {"ok"}
    lines = list(csv.DictReader(io.StringIO(render(document(table), "csv"))))
    assert len(lines) == 12 + 12 + 8
    assert {(line["metric"], line["label"]) for line in lines} >= {("outlier_metrics:ood:set=svhn", "fpr95-in")}


def test_more_options_than_the_grid_has_make_another_table(full, ood):
    more = [ood("jem", score, set, extra="images=7") for score in SCORES for set in SETS]
    plain, other = pivots([*full, *more])
    assert plain.title.startswith("Outliers · auroc")
    assert other.title.startswith("Outliers · images=7 · auroc")
    assert [row[:2] for row in texts(other)] == [["log-px", "jem"], ["max-py", "jem"]]  # nothing of the baseline


def test_a_metric_of_one_grid_is_not_in_another_that_says_nothing_of_its_options(cell):
    metric = "outlier_metrics:inception"
    pooled = Grid(title="Pooled", metric=metric, columns={"pooling": ("one", "five")})
    top = Grid(title="Top", metric=metric, columns={"top": ("0.1", "0.5")})
    metrics = [place.metric for grid in (pooled, top) for place in grid.places]
    cells = [cell("jem", metric, score=Value(index, None, None, 9)) for index, metric in enumerate(metrics)]
    found = tables(build(cells, parts=[part(cells, grids=[pooled, top])]))
    assert [labels(grid) for grid in found] == [["model", "one", "five"], ["model", "top 0.1", "top 0.5"]]
    assert texts(found[1]) == [["jem", "2.000", "3.000"]]


def test_a_value_named_after_a_feature_network_is_found(ood):
    def cells(dataset, label):
        return [
            ood(model, *w, dataset=dataset, label=label)
            for model in ("jem", "baseline")
            for w in itertools.product(SCORES, SETS)
        ]

    on_digits, on_cifar = pivots([*cells("digits", "auroc-cnn"), *cells("cifar10", "auroc")])
    assert [grid.title.split(" · ")[1] for grid in (on_digits, on_cifar)] == ["auroc-cnn ↑", "auroc ↑"]
    assert len(on_digits.rows) == len(on_cifar.rows) == 4


def test_a_value_that_the_metric_does_not_give_says_so(full):
    odd = Grid(title="Odd", metric=GRID.metric, values=("aurok",), rows=GRID.rows, columns=GRID.columns)
    (pivot,) = pivots(full, grid=odd)
    assert {text.value for row in pivot.rows for text in row[2:]} == {"N/A"}
    assert "gives auroc here, not aurok" in " ".join(note.text for note in pivot.footnotes)


def test_several_column_options_and_values_that_are_no_names(cell):
    grid = Grid(
        title="SavedChains",
        metric="outlier_metrics:inception",
        columns={"pooling": ("one", "five"), "top": ("0.1", "0.5")},
        fixed={"selection": "model"},
    )
    cells = [cell("jem", place.metric, score=Value(index, None, None, 9)) for index, place in enumerate(grid.places)]
    (pivot,) = pivots(cells, grid=grid)
    assert labels(pivot) == ["model", "one top 0.1", "one top 0.5", "five top 0.1", "five top 0.5"]
    assert texts(pivot) == [["jem", "0.000", "1.000", "2.000", "3.000"]]


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [("cifar10", ["accuracy", "accuracy:data_noise=0.03", "ece"]), ("digits", ["accuracy", "ece"])],
)
def test_a_grid_without_options_is_a_column_of_the_main_table_on_its_datasets(cell, dataset, expected):
    cells = [
        cell("jem", metric, dataset=dataset, **{metric: Value(1.0, 0.9, 1.1, 9)}) for metric in ("accuracy", "ece")
    ]
    grid = Grid(title="Noisy", metric="accuracy", fixed={"data_noise": "0.03"}, datasets=("!digits",))
    (table,) = pivots(cells, "accuracy", "ece", grid=grid)
    assert labels(table)[1:] == expected


def test_published_rows_below_ours_in_each_line(full):
    tables = load(["jem-iclr2020/table7-log-px", "jem-iclr2020/table7-max-py"])
    pivot, left = pivots(full, published=tables)[:2]
    found = texts(pivot)
    assert [row[:2] for row in found[:3]] == [["log-px", name] for name in ("jem", "baseline", "JEM · published")]
    assert ["log-px", "JEM · published", "0.67", "0.65", "0.75"] in found
    assert ["max-py", "WRN-baseline · published", "0.93", "0.77", "0.62"] in found
    assert len(found) == 4 + 1 + 2
    assert labels(left)[2:-1] == ["svhn", "uniform", "constant", "interp", "cifar100", "celeba"]
    assert [row[0] for row in texts(left)] == ["Unconditional Glow", "Class-Conditional Glow", "IGEBM", "JEM"]
    assert "Protocols differ in: noise on test images, set." in [note.text for note in left.footnotes]


def test_published_rows_do_not_stand_beside_other_data_or_fewer_images(ood):
    tables = load(["jem-iclr2020/table7-log-px"])
    for others, reason in (
        ({"dataset": "digits"}, "dataset"),
        ({"n": 100}, "images"),
    ):
        cells = [ood("jem", score, set, **others) for score in SCORES for set in SETS]
        pivot, left = pivots(cells, published=tables)
        assert len(pivot.rows) == 2
        assert reason in left.footnotes[1].text.removeprefix("Protocols differ in: ")


def test_a_suite_of_several_parts_has_a_table_for_each(full, cell):
    def measured(metric, recipe):
        return cell("jem", metric, dataset="cifar10", recipe=recipe, x=Value(1.0, 0.9, 1.1, 9))

    first, second = [measured("accuracy", "paper")], [measured("ece", "code")]
    parts = [
        part(first, "accuracy", grids=[], title="First"),
        part(second, "ece", grids=[], title="Second"),
        part(full, title="Third"),
    ]
    found = tables(build([*first, *second, *full], parts=parts))
    assert [grid.title.split(" · ")[0] for grid in found] == ["First", "Second", "Outliers"]
    assert [labels(grid)[1:] for grid in found[:2]] == [["x"], ["x"]]
    content = json.loads(render(document(build([*first, *second, *full], parts=parts)), "json"))["rows"]
    assert [len(row["values"]) for row in content] == [13, 1, 12]


def test_a_variant_is_called_by_its_name_with_its_recipe_as_a_footnote(cell):
    cells = [cell(recipe=recipe, accuracy=Value(9.0, 8.0, 10.0, 9)) for recipe in ("digits", "digits+epochs=7")]
    named = [sections.everything(cells)._replace(variants={"digits+epochs=7": "longer"})]
    (grid,) = tables(build(cells, parts=named))
    assert texts(grid)[1][:2] == ["jem", "longer"]
    assert [note.text for note in grid.footnotes if note.mark] == ["recipe digits+epochs=7"]
    assert "longer" not in render(document(build(cells, parts=named)), "json")


SMALLER = dataclasses.replace(GRID, title="Two sets of outliers", columns={"set": SETS[:2]})


def titles(cells, *parts):
    return [table.title.split(" · ")[0] for table in tables(build(cells, parts=parts))]


@pytest.mark.parametrize("grids", [(GRID, SMALLER), (SMALLER, GRID)])
def test_a_table_whose_results_stand_in_another_one_is_left_out(full, ood, grids):
    assert titles(full, part(full, grids=grids)) == ["Outliers"]
    assert titles(full, *(part(full, grids=[grid], title=grid.title) for grid in grids)) == ["Outliers"]
    both = [ood("jem", score, set) for score in SCORES for set in SETS[:2]]
    assert titles(both, Part("", tuple(cell.metric for cell in both), grids)) == [grids[0].title]
    only_there = dataclasses.replace(SMALLER, title="Third score", rows={"score": (*SCORES, "grad-norm")})
    more = dataclasses.replace(full[0], metric="outlier_metrics:ood:score=grad-norm,set=svhn")
    assert titles([*full, more], part([*full, more], grids=(GRID, only_there))) == ["Outliers", "Third score"]


def test_a_metric_stands_in_the_grid_that_leaves_fewer_of_its_options_open(ood):
    near = dataclasses.replace(GRID, title="Near", fixed={"images": "5"})
    cell = ood("jem", "max-py", "svhn", extra="images=5")
    cells = [dataclasses.replace(cell, metric=f"{cell.metric},with=more")]
    (table,) = tables(build(cells, parts=[part(cells, grids=(GRID, near))]))
    assert table.title.startswith("Near · with=more · ")


def test_what_a_grid_of_other_data_holds_is_in_the_main_table(ood):
    cells = [ood("jem", "log-px", set, dataset=dataset) for set in SETS for dataset in ("cifar10", "digits")]
    grid = dataclasses.replace(GRID, datasets=("digits",))
    metrics = tuple(dict.fromkeys(cell.metric for cell in cells))
    main, pivot = tables(build(cells, parts=[Part("", metrics, (grid,))]))
    assert "dataset cifar10" in main.title
    assert "dataset digits" in pivot.title
    assert len(main.rows[0]) == 1 + 2 * len(SETS)  # two values each
