"""From rows to tables: digits, marks and footnotes; main tables, options of one metric, grids;
nothing blank.
"""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jembench.catalog.spec import Spec
from jembench.experiment.names import DisplayNames
from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid, compares_with_itself, covers
from jembench.interfaces import Value
from jembench.report.layout import Report
from jembench.report.published import published_numbers as load
from jembench.report.table import Footnote, Table, TableCell, decimals_for, fixed, numbered
from jembench.store.outcome import Outcome


def texts(table):
    return [[cell.value for cell in row] for row in table.rows]


def labels(table):
    return [heading.label for heading in table.headings]


def notes(table):
    return {note.mark: note.text for note in table.footnotes if note.mark}


def part(cells, *texts, grids=(), title=""):
    metrics = tuple(map(Spec, texts))

    def asked(dataset):
        places = [
            place for grid in grids if covers(grid.datasets, dataset) for place in grid.places
        ]
        every = [*metrics, *(place.metric for place in places)]
        return tuple(metric for metric in every if not compares_with_itself(metric, dataset))

    rows = {cell.fit.names: asked(cell.fit.dataset) for cell in cells}
    return Part(title, metrics, tuple(grids), rows)


def only(tables):
    (table,) = tables
    return table


def test_samples_by_a_given_sampler_and_features_of_own_images_have_one_note_each(cell):
    drawn = 'source="sgld:start=uniform,steps=20"'
    own = f"data=photos,data_content=1,features=photos-cnn@2,{drawn}"
    protocols = {
        "is:sampler=sgld": f"is:{own}",
        "fid:sampler=sgld": f"fid:{own}",
        "kid": "kid:features=digits-cnn@3",
    }
    labels = {
        "is:sampler=sgld": "is-photos-cnn",
        "fid:sampler=sgld": "fid-photos-cnn",
        "kid": "kid-digits-cnn",
    }
    cells = [
        cell(
            metric=metric,
            outcome=Outcome(
                status="ok", protocol=protocol, values={labels[metric]: Value(1, 0, 2, 9)}
            ),
        )
        for metric, protocol in protocols.items()
    ]
    remarks = [note.text for note in only(Report(cells).tables()).footnotes]
    assert remarks[:2] == [
        "Inception score, FID: samples by new chains, not by chains of the model: sgld, start "
        "uniform, steps 20.",
        "Inception score, FID: features of a small network trained on these images: they are "
        "under 32 pixels or Inception's weights are missing (--set "
        "fid.features=inception:download=true).",
    ]
    assert not any("KID" in remark for remark in remarks)


def test_footnotes_are_numbered_as_they_are_read_and_stand_once():
    def table(*lines, remarks=()):
        rows = tuple(
            tuple(TableCell(text, notes=tuple(notes.split())) for text, notes in line)
            for line in lines
        )
        return Table(title="", rows=rows, footnotes=tuple(map(Footnote, remarks)))

    first = table(
        [("a", "x y"), ("b", "")], [("c", "y"), ("d", "z")], remarks=["of both", "of both"]
    )
    second = table([("e", "z v")], remarks=["of both", "of this"])
    first, second = numbered([first, second])
    assert [cell.marks for line in first.rows for cell in line] == [("1", "2"), (), ("2",), ("3",)]
    assert first.footnotes == (("of both", ""), ("x", "1"), ("y", "2"), ("z", "3"))
    assert second.rows[0][0].marks == ("3", "4")
    assert second.footnotes == (("of this", ""), ("v", "4"))
    assert numbered([first, second]) == [first, second]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((97.4812, 95.4321, 98.5678), "97.5 [95.4, 98.6]"),
        ((0.091344, 0.06321, 0.12344), "0.091 [0.063, 0.123]"),
        ((1234.5, 1100.2, 1400.9), "1234 [1100, 1401]"),
        ((-0.01, -3.2, 3.1), "0.0 [-3.2, 3.1]"),
        ((0.5, None, None), "0.5000"),
        ((21.3712, None, 30.0), "21.37"),
        ((1.5e-9, 1.4e-9, 1.6e-9), "1.50e-09 [1.40e-09, 1.60e-09]"),
        ((3.0, 3.0, 3.0), "3.000 [3.000, 3.000]"),
    ],
)
def test_a_value_shows_the_digits_that_its_interval_allows(cell, numbers, text):
    assert only(Report([cell(accuracy=Value(*numbers, 1))]).tables()).rows[0][1].in_one_line == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_said_and_not_printed(cell, number):
    table = only(Report([cell(accuracy=Value(number, 0.0, 1.0, 397))]).tables())
    assert (table.rows[0][1].value, notes(table)) == ("not finite", {"1": f"the value is {number}"})


def test_differing_protocols_in_a_column_are_flagged(cell):
    def one(model, images, protocol="nll:data=digits,images={},split=test"):
        values = {"nll": Value(0.1, 0.08, 0.12, images)}
        return cell(
            model,
            "nll",
            outcome=Outcome(status="ok", protocol=protocol.format(images), values=values),
        )

    table = only(Report([one("jem", 397), one("glow", 100), one("baseline", 397)]).tables())
    assert [row[1].marks for row in table.rows] == [(), ("†",), ()]
    assert notes(table)["†"].endswith("do not compare: glow: images=100; the others: images=397")
    free = only(Report([one("jem", 397), one("baseline", 100, "my own words")]).tables())
    assert "baseline: my own words" in notes(free)["†"]


def test_different_sources_of_samples_have_their_remedy(cell):
    def fid(model, source):
        outcome = Outcome(
            status="ok",
            protocol=f"fid:images=1000,source={source}",
            values={"fid-cnn": Value(3.0, 2.0, 4.0, 1000, "", "lower")},
        )
        return cell(model, "fid", outcome=outcome)

    table = only(Report([fid("jem", "fresh"), fid("igebm", "fresh"), fid("glow", "kept")]).tables())
    assert notes(table)["†"].endswith(
        "`--set fid.source=fresh --set fid.images=1000` of `jembench run` measures all alike"
    )


@pytest.mark.parametrize(("seeds", "common"), [((0, 1), "1"), ((0,), "none"), ((1, 2), "")])
def test_different_seeds_are_said(cell, seeds, common):
    value = Value(90.0, 89.0, 91.0, 100, "%", "higher")
    cells = [cell("jem", seed=seed, accuracy=value) for seed in (1, 2)]
    cells += [cell("glow", seed=seed, accuracy=value) for seed in seeds]
    (table,) = Report(cells).tables()
    said = [note.text for note in table.footnotes if "different seeds" in note.text]
    expected = [f"The values are of different seeds; in common: {common}."] if common else []
    assert said == expected


def test_a_suite_of_several_parts_has_a_table_for_each(cell):
    cells = [
        cell(recipe="paper", accuracy=Value(1.0, 0.9, 1.1, 9)),
        cell("jem", "ece", ece=Value(1.0, 0.9, 1.1, 9)),
    ]
    parts = [
        part(cells[:1], "accuracy", title="First"),
        part(cells[1:], "ece", "nll", title="Second"),
    ]
    layout = Report(cells, parts=parts)
    assert [table.title.split(" · ")[0] for table in layout.tables()] == ["First", "Second"]
    assert [labels(table)[1:] for table in layout.tables()] == [["accuracy"], ["ECE", "NLL"]]
    assert [(row.metric, row.status) for row in layout.rows] == [
        ("accuracy", "ok"),
        ("ece", "ok"),
        ("nll", "not run"),
    ]


def test_what_models_share_is_in_the_title_and_the_rest_in_columns(cell):
    value = Value(97.5, 95.4, 98.6, 397)
    table = only(
        Report([cell(accuracy=value), cell(dataset="svhn", recipe="fast", accuracy=value)]).tables()
    )
    assert table.title == "Results · seed 0"
    assert labels(table) == ["model", "dataset", "recipe", "accuracy"]
    assert texts(table)[1][:3] == ["jem", "svhn", "fast"]


def test_a_variant_is_called_by_its_name_with_its_recipe_below(cell):
    cells = [
        cell(recipe=recipe, accuracy=Value(9.0, 8.0, 10.0, 9))
        for recipe in ("digits", "digits+epochs=7")
    ]
    names = DisplayNames(recipes={"digits+epochs=7": "longer"})
    table = only(Report(cells, parts=[part(cells, "accuracy")], names=names).tables())
    assert texts(table)[1][:2] == ["jem", "longer"]
    assert "longer: recipe digits+epochs=7." in [note.text for note in table.footnotes]


def test_a_note_on_a_model_is_marked_at_its_name(cell):
    repaired = {"interventions": ["rolled back at 300"]}
    made = cell(accuracy=Value(97.5, 95.4, 98.6, 397))
    table = only(Report([replace(made, provenance=repaired)]).tables())
    assert table.rows[0][0].marks == ("1",)
    assert notes(table) == {"1": "training of seed 0 diverged and was repaired rolled back at 300"}


def test_published_tables_stand_below_and_say_whether_they_are_of_our_data(full_cells, cell):
    _, published, quoted = Report(
        full_cells, published=load(["jem-iclr2020/table1", "later-work/hybrid"])
    ).tables()
    assert "CIFAR-10" in published.title
    assert "not for comparison" in published.title
    rows = {row[0].value: row for row in published.rows}
    assert [cell.value for cell in rows["JEM"]] == ["JEM", "CIFAR-10", "92.9", "8.76", "38.4"]
    assert [cell.value for cell in rows["Wide-ResNet (baseline)"]][2:5] == ["95.8", "—", "—"]
    assert notes(published)[rows["JEM"][0].marks[-1]].startswith(
        "published: Grathwohl et al., ICLR 2020, Table 1"
    )
    assert {notes(quoted)[row[0].marks[-1]].partition(":")[0] for row in quoted.rows} == {
        "as quoted"
    }
    ours = cell(dataset="cifar10:download=true", accuracy=Value(92.0, 91.5, 92.5, 10000))
    assert (
        "not for comparison"
        not in Report([ours], published=load(["jem-iclr2020/table1"])).tables()[1].title
    )


BUDGET = "images=25,norm=l2,restarts=2,search=minimal,steps=10"


@pytest.fixture
def pgd(cell):
    """A cell of a model under PGD; ``defence`` is options of the metric, which its protocol
    repeats.
    """

    def make(model, level, defence="", budget=BUDGET, norm="l2", **protocol):
        options = {
            "refine": 0,
            **dict(part.split("=") for part in defence.split(",") if part),
            **protocol,
        }
        parts = ",".join(f"{key}={value}" for key, value in options.items())
        values = {f"pgd-{norm}": Value(level, level - 1, level + 1, 25, "1/255", "higher")}
        outcome = Outcome(status="ok", protocol=f"pgd:data=digits,{budget},{parts}", values=values)
        return cell(model, f"pgd:budget=quick{',' * bool(defence)}{defence}", outcome=outcome)

    return make


def test_an_attack_has_a_line_for_each_defence_and_its_budget_in_the_title(pgd, cell):
    without = cell(
        "baseline",
        "pgd:budget=quick,refine=10",
        outcome=Outcome(status="na", reason="needs samples"),
    )
    refined = pgd("jem", 200, "refine=10", eot=5, grad="through")
    cells = [pgd("jem", 100), refined, pgd("baseline", 50), without]
    for parts in ((), [part(cells, "pgd:budget=quick", "pgd:budget=quick,refine=10")]):
        table = only(Report(cells, parts=parts).tables())
        assert texts(table) == [
            ["0", "jem", "100.0"],
            ["0", "baseline", "50.0"],
            ["10", "jem", "200.0"],
            ["10", "baseline", "N/A"],
        ]
        assert labels(table) == ["refinement steps", "model", "PGD L2"]
        budget = (
            "norm L2, images 25, restarts 2, steps 10, averaged chains 5, gradient through the "
            "chains"
        )
        assert f" · {budget} · dataset digits · recipe digits · seed 0" in table.title
        assert not any("†" in one.marks for row in table.rows for one in row)


def test_an_option_that_the_label_tells_has_no_column(pgd):
    linf = pgd("jem", 10, "norm=linf,refine=1", BUDGET.replace("norm=l2,", ""), "linf", eot=1)
    table = only(Report([pgd("jem", 100), pgd("jem", 90, "refine=1", eot=1), linf]).tables())
    assert labels(table) == ["refinement steps", "model", "PGD L2", "PGD L∞"]
    assert texts(table) == [["0", "jem", "100.0", "—"], ["1", "jem", "90.0", "10.0"]]


@pytest.mark.parametrize(("single", "has_column"), [(91, False), (70, True)])
def test_the_accuracy_of_one_prediction_has_a_column_if_it_says_something_else(
    cell, single, has_column
):
    def attacked(refine, **values):
        protocol = f"pgd:data=digits,{BUDGET},refine={refine}"
        outcome = Outcome(status="ok", protocol=protocol, values=values)
        return cell("jem", f"pgd:budget=quick,refine={refine}", outcome=outcome)

    most = Value(92, 75, 98, 25, "%", "higher")
    values = {
        "pgd-l2@64/255": most,
        "pgd-l2@64/255-expected": Value(single, 60, 99, 25, "%", "higher"),
    }
    table = only(Report([attacked(0), attacked(10, **values)]).tables())
    assert ("(expected)" in " ".join(labels(table))) == has_column
    repeats = [note for note in table.footnotes if "`--format csv` lists them" in note.text]
    assert bool(repeats) != has_column


SCORES, SETS = ("log-px", "max-py"), ("svhn", "interp", "celeba:root=/data")
AXES = {"rows": {"score": SCORES}, "columns": {"set": SETS}}
GRID = Grid(title="Outliers", metric="outlier_metrics:ood", values=("auroc",), **AXES)


def number(model, score, set):
    """A number of its own for every place."""
    return (
        0.5
        + (["jem", "baseline"].index(model) * 6 + SCORES.index(score) * 3 + SETS.index(set)) / 100
    )


@pytest.fixture
def ood(cell):
    """A cell of the grid, or the same with a gap."""

    def make(model, score, set, *, seed=0, dataset="cifar10", outcome=None, label="auroc", n=10000):
        options = {"set": set} | ({"score": score} if score != "log-px" else {})
        metric = (
            f"outlier_metrics:ood:{','.join(f'{key}={options[key]}' for key in sorted(options))}"
        )
        value = number(model, score, set)
        values = {label: Value(value, value - 0.01, value + 0.01, n, "", "higher")}
        values |= {"fpr95-in": Value(1 - value, None, None, n, "", "lower")}
        protocol = (
            f"ood:content=ab,data={dataset},data_noise=0.03,images={n},outliers={n},"
            f"score={score},set={set},split=test"
        )
        outcome = outcome or Outcome(status="ok", protocol=protocol, values=values)
        return cell(model, metric, seed=seed, dataset=dataset, recipe="paper", outcome=outcome)

    return make


@pytest.fixture
def full(ood):
    return [ood(*where) for where in itertools.product(("jem", "baseline"), SCORES, SETS)]


def pivots(cells, *metrics, grid=GRID, **others):
    return Report(cells, parts=[part(cells, *metrics, grids=[grid])], **others).tables()


def test_every_number_is_in_its_place(full):
    pivot = only(pivots(full))
    assert pivot.title == "Outliers · AUROC ↑ · dataset cifar10 · recipe paper · seed 0"
    assert labels(pivot) == ["score", "model", "svhn", "interp", "celeba"]
    assert texts(pivot) == [
        [score, model, *(f"{number(model, score, set):.3f}" for set in SETS)]
        for score in SCORES
        for model in ("jem", "baseline")
    ]
    assert pivot.rows[0][2].interval == "[0.490, 0.510]"


def test_a_set_has_a_column_although_the_score_tells_the_rows_apart(ood):
    chosen = [ood("jem", "max-py", "interp"), ood("jem", "log-px", "svhn")]
    table = only(Report(chosen).tables())
    assert labels(table)[:3] == ["score", "set", "model"]
    assert {tuple(row[:2]) for row in texts(table)} == {("max-py", "interp"), ("log-px", "svhn")}


def test_folders_of_outliers_are_told_apart_by_their_names(cell):
    """Their protocols have no paths, and are equal."""
    protocol = 'ood:score=log-px,set="imagefolder:unlabelled=true"'
    outcome = Outcome(status="ok", protocol=protocol, values={"auroc": Value(0.5, None, None, 9)})
    cells = [cell("jem", nll=Value(1.0, None, None, 9))]
    for name in ("flat", "birds"):
        folder = Spec.of("imagefolder", {"root": f"/a/{name}", "unlabelled": True})
        metric = str(Spec.of("ood", {"set": folder}))
        cells.append(cell("jem", metric, outcome=outcome))
    table = only(Report(cells[1:]).tables())
    assert [row[0] for row in texts(table)] == ["flat", "birds"]
    table = only(Report(cells, parts=[part(cells, *[cell.metric for cell in cells])]).tables())
    assert [heading.detail for heading in table.headings[2:]] == ["log-px, flat", "log-px, birds"]


def test_a_row_option_of_one_value_is_said_in_the_title(full):
    grid = Grid(
        title="Outliers", metric=GRID.metric, rows={"score": ("max-py",)}, columns=GRID.columns
    )
    pivot = pivots([cell for cell in full if "max-py" in cell.metric], grid=grid)[0]
    assert pivot.title.startswith("Outliers · AUROC ↑ · score max-py · ")
    assert labels(pivot)[0] == "model"


def test_gaps_of_single_places_have_their_own_marks(ood):
    no_energy, broken = (
        Outcome(status="na", reason="needs energy"),
        Outcome(status="failed", reason="NaN"),
    )
    gaps = {("jem", "max-py", "svhn"): broken} | {
        ("baseline", "log-px", set): no_energy for set in SETS
    }
    pivot = only(
        pivots(
            [
                ood(*w, outcome=gaps.get(w))
                for w in itertools.product(("jem", "baseline"), SCORES, SETS)
            ]
        )
    )
    assert [(cell.value, cell.marks) for cell in pivot.rows[1][2:]] == [("N/A", ("1",))] * 3
    assert (pivot.rows[2][2].value, pivot.rows[2][2].marks) == ("failed", ("2",))


def test_outliers_that_are_the_dataset_itself_have_no_place(ood, full):
    cells = [ood("jem", score, set, dataset="svhn") for score in SCORES for set in SETS[1:]]
    assert labels(pivots(cells)[0])[2:] == ["interp", "celeba"]
    pivot = only(pivots([*cells, *full]))
    assert labels(pivot) == ["score", "model", "dataset", "svhn", "interp", "celeba"]
    assert ["log-px", "jem", "svhn", "—"] in [row[:4] for row in texts(pivot)]


def test_a_grid_of_other_datasets_shows_none_of_these(full):
    others = Grid(title="Others", metric=GRID.metric, **AXES, datasets=("!cifar10",))
    tables = Report(full, parts=[part(full, grids=[GRID, others])]).tables()
    assert only(tables).title.startswith("Outliers")


def test_a_value_named_after_a_feature_network_is_found(ood):
    where = list(itertools.product(("jem", "baseline"), SCORES, SETS))
    cells = [
        ood(*w, dataset=data, label=label)
        for data, label in (("digits", "auroc-cnn"), ("a", "auroc"))
        for w in where
    ]
    on_digits, elsewhere = pivots(cells)
    assert [table.title.split(" · ")[1] for table in (on_digits, elsewhere)] == [
        "AUROC CNN ↑",
        "AUROC ↑",
    ]
    assert len(on_digits.rows) == len(elsewhere.rows) == 4


def test_several_column_options_and_values_that_are_no_names(cell):
    grid = Grid(
        title="Chains",
        metric="outlier_metrics:inception",
        columns={"pooling": ("one", "five"), "top": ("0.1", "0.5")},
        fixed={"selection": "model"},
    )
    cells = [
        cell("jem", place.metric, score=Value(index, None, None, 9))
        for index, place in enumerate(grid.places)
    ]
    pivot = only(pivots(cells, grid=grid))
    assert labels(pivot) == ["model", "one top 0.1", "one top 0.5", "five top 0.1", "five top 0.5"]
    assert texts(pivot) == [["jem", "0.000", "1.000", "2.000", "3.000"]]


def test_published_rows_stand_below_ours_in_each_line(full):
    pivot, left = pivots(
        full, published=load(["jem-iclr2020/table7-log-px", "jem-iclr2020/table7-max-py"])
    )[:2]
    lines = texts(pivot)
    assert [row[:2] for row in lines[:3]] == [
        ["log-px", name] for name in ("jem", "baseline", "JEM · published")
    ]
    assert ["log-px", "JEM · published", "0.67", "0.65", "0.75"] in lines
    assert ["max-py", "WRN-baseline · published", "0.93", "0.77", "0.62"] in lines
    assert len(lines) == 4 + 1 + 2
    assert labels(left)[2:] == ["svhn", "uniform", "constant", "interp", "cifar100", "celeba"]
    assert [row[0] for row in texts(left)] == [
        "Unconditional Glow",
        "Class-Conditional Glow",
        "IGEBM",
        "JEM",
    ]
    assert "Protocols differ in: noise on test images, set." in [
        note.text for note in left.footnotes
    ]


floats = st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf])
numbers = st.builds(Value, floats, st.none() | floats, st.none() | floats, st.integers(1, 9))
keys = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2))


@given(st.dictionaries(keys, st.sampled_from(["na", "failed"]) | numbers, min_size=1))
def test_no_place_is_blank_and_every_mark_has_its_footnote(cell, results):
    cells = []
    for (model, metric, seed), result in results.items():
        gap = Outcome(status=result, reason=f"reason {seed}") if isinstance(result, str) else None
        value = {} if gap else {metric: result}
        cells.append(cell(model, metric, seed=seed, outcome=gap, **value))
    table = Report(cells, parts=[part(cells, "x", "w", "y", "z")]).tables()[0]
    shown = [cell for row in table.rows for cell in row]
    assert all(cell.value and "nan" not in cell.value for cell in shown)
    assert {mark for cell in shown for mark in cell.marks} == notes(table).keys()


def test_the_column_of_a_single_ood_metric_names_the_score_and_the_set(cell):
    made = cell(metric="ood", auroc=Value(0.9, 0.8, 0.95, 100))
    outcome = replace(made.outcome, protocol="ood:score=log-px,set=interp")
    (table,) = Report([replace(made, outcome=outcome)]).tables()
    assert table.headings[-1][:2] == ("AUROC", "log-px, interp")


def test_the_digest_of_imported_weights_is_in_records_alone(cell):
    recipes, value = ("pretrained+source=ab12", "pretrained+source=cd34"), Value(9.0, 8.0, 10.0, 9)
    document = Report(
        [cell(m, recipe=r, accuracy=value) for m, r in zip("xy", recipes, strict=True)]
    )
    table = only(document.tables())
    assert (labels(table), "recipe pretrained · " in table.title) == (["model", "accuracy"], True)
    assert [row["recipe"] for row in document.records()] == [*recipes]


@pytest.mark.parametrize(
    ("value", "uncertainty", "expected"),
    [
        (1.0, 1e-9, "1.000000"),
        (0.123456789, 1e-12, "0.123457"),
        (1234567.5, 0.5, "1.23456750e+06"),
        (53_000_000.0, 1e6, "5.30e+07"),
        (2.5e-9, 1e-10, "2.50e-09"),
        (0.0, 1e-9, "0"),
    ],
)
def test_a_value_that_is_far_more_certain_than_large_keeps_its_digits(value, uncertainty, expected):
    assert fixed(value, decimals_for(value, uncertainty)) == expected
