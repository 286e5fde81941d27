"""From cells to rows: means over seeds by hand, gaps with their reasons, protocols that differ."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jembench.experiment.plan import Part
from jembench.experiment.sweep import Grid
from jembench.interfaces import Value
from jembench.report import grids
from jembench.report.layout import NOTHING, tables
from jembench.report.references import load
from jembench.report.sections import build
from jembench.store.outcome import Outcome


def entry(table, label, row=0):
    (column,) = [column for column in table.columns if column.label == label]
    return table.rows[row].records[column]


def footnotes(table):
    return {note.mark: note.text for grid in tables(table) for note in grid.footnotes if note.mark}


def shown(table, row=0, column=1):
    return tables(table)[0].rows[row][column]


def said(table, row=0, column=1):
    text = shown(table, row, column)
    return text.value, text.marks


def test_a_metric_measured_with_other_options_alone_has_its_place_in_the_suite(cell):
    """The suite's own column is shown where a fit has it, or none has any."""
    suite = [Part("", ("is", "accuracy", "fid"), ())]

    def columns(*measured):
        cells = [cell(model, metric, value=Value(1, 0, 2, 9)) for model, metric in measured]
        return [column.metric for column in build(cells, parts=suite).columns]

    of_all = [("jem", "accuracy"), ("jem", "is:features=cnn"), ("baseline", "accuracy")]
    assert columns(*of_all) == ["is:features=cnn", "accuracy", "fid"]
    assert columns(*of_all, ("baseline", "is")) == ["is", "accuracy", "fid", "is:features=cnn"]
    assert columns(*of_all, ("jem", "is")) == ["is", "accuracy", "fid"]


def test_places_are_looked_up_once_a_metric_and_not_once_a_cell(cell, monkeypatch):
    grid = Grid(title="", metric="ood", columns={"set": ("interp", "uniform")})
    looked_up, look_up = [], grids.Places._of
    monkeypatch.setattr(grids.Places, "_of", lambda *both: (looked_up.append(both), look_up(*both))[1])

    def lookups(models):
        metrics = [place.metric for place in grid.places]
        cells = [
            cell(f"jem:net=small-{n}", metric, auroc=Value(1, 0, 1, 9)) for n in range(models) for metric in metrics
        ]
        parts = [Part("", (), (grid,), dict.fromkeys((one.fit.model, "digits", "r") for one in cells))]
        del looked_up[:]
        build(cells, parts=parts)
        return len(looked_up)

    assert lookups(50) == lookups(5) > 0


def test_a_metric_of_several_values_has_several_columns(cell):
    prc = {"precision": Value(0.9, 0.85, 0.94, 500), "recall": Value(0.7, 0.6, 0.8, 397)}
    missing = Outcome(status="na", reason="needs samples")
    table = build([cell("jem", "prc", **prc), cell("baseline", "prc", outcome=missing)])
    assert [column.label for column in table.columns] == ["precision", "recall"]
    assert [each.status for each in table.rows[1].records.values()] == ["na", "na"]


def test_a_value_shows_the_digits_that_its_interval_allows(cell):
    def text(value, low, high):
        return shown(build([cell(accuracy=Value(value, low, high, 1))])).in_one_line

    assert text(97.4812, 95.4321, 98.5678) == "97.5 [95.4, 98.6]"
    assert text(0.091344, 0.06321, 0.12344) == "0.091 [0.063, 0.123]"
    assert text(1234.5, 1100.2, 1400.9) == "1234 [1100, 1401]"
    assert text(-0.01, -3.2, 3.1) == "0.0 [-3.2, 3.1]"
    assert text(0.5, None, None) == "0.5000"
    assert text(21.3712, None, 30.0) == "21.37"
    assert text(1.5e-9, 1.4e-9, 1.6e-9) == "1.50e-09 [1.40e-09, 1.60e-09]"
    assert text(3.0, 3.0, 3.0) == "3.000 [3.000, 3.000]"


def test_seeds_give_mean_and_standard_deviation_beside_the_mean_interval(cell):
    seeds = {0: (96.0, 94.0, 97.0), 1: (97.0, 95.0, 98.5), 2: (99.0, 96.0, 99.5)}
    table = build([cell(seed=seed, accuracy=Value(*numbers, 397, "%", "higher")) for seed, numbers in seeds.items()])
    found = entry(table, "accuracy")
    assert found.value == pytest.approx(292 / 3)
    assert found.sd == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert (found.low, found.high) == pytest.approx((95.0, 295 / 3))
    assert found.seeds == table.rows[0].seeds == (0, 1, 2)
    assert shown(table).in_one_line == "97.3 ± 1.5 [95.0, 98.3]"
    assert "standard deviation over the seeds" in " ".join(note.text for note in tables(table)[0].footnotes)


def test_an_interval_that_one_seed_lacks_is_absent(cell):
    table = build([cell(fid=Value(20, 19, 21, 9)), cell(seed=1, fid=Value(22, None, None, 7))])
    found = entry(table, "fid")
    assert (found.value, found.low, found.high, found.n) == (21, None, None, 7)
    assert shown(table).in_one_line == "21.0 ± 1.4"


def test_a_seed_without_value_is_left_out_and_named(cell):
    good = Value(97.5, 95.4, 98.6, 397)
    broken = cell(seed=2, outcome=Outcome(status="failed", reason="the disk is full"))
    other = cell("jem", "ece", seed=3, ece=Value(1, None, None, 1))
    table = build([cell(accuracy=good), cell(seed=1, accuracy=good), broken, other])
    assert entry(table, "accuracy").seeds == (0, 1)
    assert shown(table).marks == ("1",)
    assert footnotes(table)["1"] == "seed 2 failed: the disk is full; seed 3 not run"


def test_what_has_no_value_says_why(full_cells):
    table = build(full_cells)
    assert said(table, row=1, column=5) == ("failed", ("1",))
    assert said(table, row=2, column=4) == said(table, row=2, column=5) == ("N/A", ("2",))
    assert footnotes(table) == {
        "1": "Diverged: a feature is not 100% finite_",
        "2": "needs samples: baseline has logits | energy only",
    }


def test_a_failure_of_one_seed_outweighs_what_the_others_lack(cell):
    gaps = [Outcome(status="na", reason="needs samples"), Outcome(status="failed", reason="broken")]
    table = build([cell(seed=seed, outcome=outcome) for seed, outcome in enumerate(gaps)])
    (found,) = table.rows[0].records.values()
    assert (found.status, found.reason) == ("failed", "broken")


def test_a_metric_that_failed_with_a_value_that_is_not_finite_says_so(cell):
    wild = {"accuracy": Value(math.nan, None, None, 397)}
    table = build([cell(outcome=Outcome(status="failed", reason="accuracy is not a finite number", values=wild))])
    found = entry(table, "accuracy")
    assert (found.status, found.reason, found.value) == ("failed", "accuracy is not a finite number", None)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_said_and_not_printed(cell, number):
    table = build([cell(accuracy=Value(number, 0.0, 1.0, 397))])
    assert said(table) == ("not finite", ("1",))
    assert footnotes(table) == {"1": f"the value is {number}"}


def test_differing_protocols_in_a_column_are_flagged(cell):
    def one(model, images, protocol="nll:data=digits,images={},split=test"):
        values = {"nll": Value(0.1, 0.08, 0.12, images)}
        return cell(model, "nll", outcome=Outcome(status="ok", protocol=protocol.format(images), values=values))

    same = build([one("jem", 397), one("baseline", 397)])
    assert [shown(same, row).marks for row in (0, 1)] == [(), ()]
    table = build([one("jem", 397), one("baseline", 100)])
    assert [shown(table, row).marks for row in (0, 1)] == [("†",), ("†",)]
    assert footnotes(table)["†"].endswith("do not compare: jem: images=397; baseline: images=100")
    three = build([one("jem", 397), one("glow", 100), one("baseline", 397)])
    assert [shown(three, row).marks for row in (0, 1, 2)] == [(), ("†",), ()]
    assert footnotes(three)["†"].endswith("do not compare: glow: images=100; the others: images=397")
    free = build([one("jem", 397), one("baseline", 100, "my own words")])
    assert "baseline: my own words" in footnotes(free)["†"]


def test_other_datasets_have_other_protocols_of_course(cell):
    value = Value(97.5, 95.4, 98.6, 397)
    table = build([cell(accuracy=value), cell(dataset="svhn", accuracy=value)])
    assert [row.dataset for row in table.rows] == ["digits", "svhn"]
    assert all(each.comparable for row in table.rows for each in row.records.values())
    grid = tables(table)[0]
    assert [heading.label for heading in grid.headings] == ["model", "dataset", "accuracy"]
    assert "digits" not in grid.title.replace("recipe digits", "")


def test_seeds_under_different_protocols_are_not_averaged(cell):
    def one(seed, images):
        values = {"nll": Value(0.1, 0.08, 0.12, images)}
        return cell("jem", "nll", seed=seed, outcome=Outcome(status="ok", protocol=f"nll:{images=}", values=values))

    table = build([one(0, 397), one(1, 100)])
    assert entry(table, "nll").value is None
    assert footnotes(table) == {"1": "measured under protocols that must not be averaged: images=397; images=100"}


def test_two_variants_of_a_metric_are_told_apart(cell):
    cells = [cell("jem", f"ece:bins={bins}", ece=Value(bins / 10, None, None, 1)) for bins in (10, 15)]
    headings = [heading.label for heading in tables(build(cells))[0].headings]
    assert headings == ["model", "ece (ece:bins=10)", "ece (ece:bins=15)"]


def test_a_value_under_another_name_is_not_blank(cell):
    small, large = Value(21, 19, 24, 1000), Value(38, 36, 40, 1000)
    table = build([cell("jem", "fid", fid_digits_cnn=small), cell("jem", "fid", dataset="cifar10", fid=large)])
    assert [[each.status for each in row.records.values()] for row in table.rows] == [["ok", "na"], ["na", "ok"]]
    assert "fid gives fid-digits-cnn here, not fid" in footnotes(table).values()


def test_direct_samples_stand_beside_kept_chains_with_a_note(cell):
    def made(model, source):
        value = {"fid": Value(3.0, 2.0, 4.0, 1000)}
        found = cell(model, "fid", **value)
        protocol = f"fid:data=digits,source={source},splits=10"
        return dataclasses.replace(found, outcome=dataclasses.replace(found.outcome, protocol=protocol))

    table = build([made("jem", "buffer"), made("glow", "direct"), made("gan", "direct")])
    assert all(next(iter(row.records.values())).comparable for row in table.rows)
    note = "its samples are drawn directly; those of the others are the chains that training kept"
    assert [row.notes for row in table.rows] == [(), (note,), (note,)]
    assert build([made("glow", "direct"), made("gan", "direct")]).rows[0].notes == ()
    new_chains = build([made("glow", "direct"), made("jem", "chains:steps=5")])
    assert not any(next(iter(row.records.values())).comparable for row in new_chains.rows)


def test_no_rows_says_so():
    (grid,) = tables(build([], parts=[Part("", ("accuracy",), ())]))
    assert grid.rows == ()
    assert [note.text for note in grid.footnotes] == [NOTHING]


def test_published_rows_are_marked(full_cells):
    table = build(full_cells, published=load(["jem-iclr2020/table1", "later-work/hybrid"]))
    _, published, quoted = tables(table)
    assert "CIFAR-10" in published.title
    assert "not for comparison" in published.title
    rows = {row[0].value: row for row in published.rows}
    assert [text.value for text in rows["JEM"]] == ["JEM", "CIFAR-10", "92.9", "8.76", "38.4", "published"]
    assert [text.value for text in rows["Wide-ResNet (baseline)"]][2:5] == ["95.8", "—", "—"]
    assert all(text.interval == "" for row in published.rows for text in row)
    assert footnotes(table)[rows["JEM"][-1].marks[0]].startswith("Grathwohl et al., ICLR 2020, Table 1, https://")
    assert {row[-1].value for row in quoted.rows} == {"as quoted"}


def test_published_rows_of_our_dataset_may_be_compared(cell):
    value = {"accuracy": Value(92.0, 91.5, 92.5, 10000)}
    table = build([cell(dataset="cifar10:download=true", **value)], published=load(["jem-iclr2020/table1"]))
    assert "not for comparison" not in tables(table)[1].title


def mended(cell, *what, seed=0, **stability):
    """A cell of a fit in whose training the guard stepped in, or saw a divergence."""
    made = cell(seed=seed, accuracy=Value(97.0 + seed, 95.0, 99.0, 397))
    known = {"stability": stability or None, "interventions": list(what)}
    return dataclasses.replace(made, provenance={**made.provenance, **known})


def test_a_fit_that_was_mended_says_so_beside_its_numbers(cell):
    what = "at iteration 8 (it broke): it went back", "at iteration 9 (again): it went back"
    table = build([mended(cell, *what, diverged_at=8, reason="it broke", ended_with="20 sampling steps")])
    note = f"training diverged and was repaired {'; '.join(what)}; it ended with 20 sampling steps"
    assert table.rows[0].notes == (note,)
    assert note in [footnote.text for footnote in tables(table)[0].footnotes]


def test_a_fit_that_diverged_and_was_only_watched_says_so(cell):
    table = build([mended(cell, diverged_at=8, reason="loss was nan", ended_with="")])
    assert table.rows[0].notes == ("training diverged at iteration 8 (loss was nan) and was not repaired",)


def test_of_several_seeds_the_note_names_the_one_that_was_mended(cell):
    table = build([mended(cell), mended(cell, "it broke", seed=1), mended(cell, "so did this", seed=3)])
    assert table.rows[0].notes == (
        "training of seed 1 diverged and was repaired it broke",
        "training of seed 3 diverged and was repaired so did this",
    )


def test_other_models_rows_have_no_such_note(cell):
    table = build([mended(cell, "it broke"), cell("baseline", accuracy=Value(97.5, 95.4, 98.6, 397))])
    assert [len(row.notes) for row in table.rows] == [1, 0]


def with_details(cell, seed=0, **details):
    made = cell(seed=seed, accuracy=Value(97.0 + seed, 95.0, 99.0, 397))
    return dataclasses.replace(made, outcome=dataclasses.replace(made.outcome, details=details))


def test_what_is_suspicious_or_not_yet_whole_says_so_beside_the_numbers(cell):
    made = with_details(cell, suspicious=["a gradient is 0", "more steps help"], partial="25 of 300 images")
    notes = (
        "accuracy: 25 of 300 images so far; the same command goes on",
        "accuracy is suspicious: a gradient is 0",
        "accuracy is suspicious: more steps help",
    )
    table = build([made])
    assert table.rows[0].notes == notes
    assert set(notes) <= {footnote.text for footnote in tables(table)[0].footnotes}


def test_of_several_seeds_it_names_the_suspicious_one(cell):
    table = build([with_details(cell), with_details(cell, seed=1, suspicious=["a gradient is 0"])])
    assert table.rows[0].notes == ("accuracy of seed 1 is suspicious: a gradient is 0",)


@pytest.mark.parametrize(
    ("specs", "shown"),
    [
        (["imagefolder:root=photos"], ["photos"]),
        (["imagefolder:root=photos", "digits"], ["photos", "digits"]),
        (["imagefolder:root=photos", "imagefolder:root=b/photos"],) * 2,
        (["imagefolder:root=photos", "photos"],) * 2,
    ],
)
def test_a_dataset_is_called_what_its_results_are_filed_under_if_no_other_is(cell, specs, shown):
    def measured(dataset):
        name = "photos" if "photos" in dataset else dataset
        outcome = Outcome(
            status="ok", protocol=f"accuracy:data={name},images=9", values={"accuracy": Value(9.0, None, None, 9)}
        )
        return cell(dataset=dataset, outcome=outcome)

    report = build([measured(dataset) for dataset in specs])
    assert [row.dataset for row in report.rows] == specs
    (table,) = tables(report)
    if len(specs) == 1:
        assert table.title == f"Results · dataset {shown[0]} · recipe digits · seed 0"
    else:
        assert [row[1].value for row in table.rows] == shown


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
    table = build(cells, parts=[Part("", ("x", "w", "y", "z"), ())])
    texts = [text for row in tables(table)[0].rows for text in row]
    assert all(text.value and "nan" not in text.value for text in texts)
    assert {mark for text in texts for mark in text.marks} == footnotes(table).keys()
