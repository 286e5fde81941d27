"""Verdicts beside a baseline: tolerances, pairs of models, and what cannot be judged."""

import dataclasses
import math

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.errors import Remark, SpecError
from jembench.interfaces import Value
from jembench.report import gate
from jembench.report.check import Measured, against
from jembench.report.comparison import Difference, Side, Uncertainty
from jembench.store.outcome import Cell, FitKey, Outcome

N = 400


class Results:
    """Results of a store, made by hand."""

    def __init__(self):
        self.cells = []
        self.arrays = {}

    def add(self, metric, value, *, model="net:Net", recipe="r", seed=0, arrays=None, **fields):
        place = {"model": Spec(model), "dataset": Spec("d"), "recipe": recipe, "seed": seed}
        fit = FitKey(**place, id=f"{model}{recipe}{seed}")
        outcome = value
        if not isinstance(value, Outcome):
            protocol = fields.pop("protocol", f"{metric}:images={N}")
            values = {metric: Value(**{"value": value, "low": None, "high": None} | fields)}
            outcome = Outcome(status="ok", protocol=protocol, values=values)
        cell = Cell(id=f"{fit.id}{metric}", fit=fit, metric=Spec(metric), outcome=outcome)
        self.cells.append(cell)
        self.arrays[cell.id] = arrays or {}
        return self

    def accuracy(self, share, **fields):
        correct = np.arange(N) < share * N
        value = 100 * correct.mean()
        ends = {"low": value - 3, "high": value + 3}
        more = {"n": N, "unit": "%", "better": "higher", **ends, **fields}
        return self.add("accuracy", value, arrays={"correct": correct}, **more)

    @property
    def measured(self):
        return Measured(self.cells, lambda cell: self.arrays[cell.id])


def judged(now, baseline, **options):
    return against(now.measured, baseline.measured, **options)


def only(now, baseline, **options):
    (value,) = judged(now, baseline, **options)
    return value


@pytest.mark.parametrize(
    ("share", "tolerance", "verdict"),
    [
        (0.9, None, "equal"),
        (0.8, None, "worse"),
        (0.8, 9.0, "worse"),
        (0.8, 10.0, "undecided"),
        (0.8, 20.0, "no worse"),
        (0.895, None, "undecided"),
        (0.895, 5.0, "no worse"),
        (0.95, None, "no worse"),
    ],
)
def test_a_loss_fails_if_it_is_significant_and_above_the_tolerance(share, tolerance, verdict):
    stated = {} if tolerance is None else {"accuracy": tolerance}
    value = only(Results().accuracy(share), Results().accuracy(0.9), tolerance=stated)
    assert value.verdict == verdict
    if verdict != "equal":
        assert value.images.test == "McNemar"  # each store's own images were read


@pytest.mark.parametrize(
    ("better", "difference", "tolerance", "verdict"),
    [
        ("higher", -1.0, 1.0, "undecided"),
        ("higher", -1.0, 0.999, "worse"),
        ("higher", 1.0, 0.0, "no worse"),
        ("lower", 1.0, 0.999, "worse"),
        ("lower", -1.0, 0.0, "no worse"),
        ("", 1.0, 0.0, "not judged"),
    ],
)
def test_the_direction_of_a_metric(better, difference, tolerance, verdict):
    row = Difference(
        metric="m",
        label="m",
        better=better,
        a=Side(value=difference),
        b=Side(value=0.0),
        difference=difference,
        images=Uncertainty(difference - 0.5, difference + 0.5, 0.001),
        p=0.001,
    )
    unseen = dataclasses.replace(row, p=0.06)
    judged, unseen = gate.judged([row, unseen], {"m": tolerance})
    assert judged.verdict == verdict
    assert unseen.verdict != "worse"


def test_a_time_is_not_judged():
    times = {"low": 1.9, "high": 2.1, "n": 5, "unit": "s", "better": "lower"}
    now = Results().add("pass-time", 4.0, **{**times, "low": 3.9, "high": 4.1})
    value = only(now, Results().add("pass-time", 2.0, **times))
    assert (value.verdict, value.reason, value.p) == ("not judged", "times vary by machine", None)


@pytest.mark.parametrize(("tolerance", "refused"), [(99.9, False), (100.0, True), (500.0, True)])
def test_a_tolerance_that_lets_every_value_pass(tolerance, refused):
    now, before = Results().accuracy(0.1), Results().accuracy(0.9)
    if not refused:
        assert only(now, before, tolerance={"accuracy": tolerance}).verdict == "no worse"
        return
    message = "lets every value pass: accuracy lies between 0 and 100. Give a smaller one"
    with pytest.raises(SpecError, match=message):
        judged(now, before, tolerance={"accuracy": tolerance})


def test_p_values_are_adjusted_for_all_tested_values():
    now, before = Results(), Results()
    for model in ("net:A", "net:B", "net:C"):
        now.accuracy(0.985, model=model)
        before.accuracy(1.0, model=model)
    values = judged(now, before)
    assert [value.p for value in values] == pytest.approx([3 * value.images.p for value in values])
    assert [value.verdict for value in values] == ["undecided"] * 3
    assert only(Results().accuracy(0.985), Results().accuracy(1.0)).verdict == "worse"


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"model": "net:Net:width=2"}, "the baseline's model is net:Net"),
        ({"recipe": "r+epochs=2"}, ""),
        ({"model": "Mine-0123456789"}, "the baseline's model is net:Net"),
    ],
)
def test_the_only_model_is_compared_under_another_name(now, reason):
    value = only(Results().accuracy(0.8, **now), Results().accuracy(0.9))
    assert value.verdict == "worse"
    assert value.reason == reason
    (table,) = gate.document([value]).tables()
    assert table.title.endswith("recipes r+epochs=2 and r") == ("recipe" in now)


def test_two_models_of_one_name_are_paired_by_their_names_in_full_alone():
    before = Results().accuracy(0.9).accuracy(0.9, model="net:Net:width=2")
    now = Results().accuracy(0.9).accuracy(0.8, model="net:Net:width=4")
    verdicts = {value.a.model: value.verdict for value in judged(now, before)}
    assert verdicts == {
        "net:Net": "equal",
        "net:Net:width=2": "missing",
        "net:Net:width=4": "not judged",
    }


def test_what_the_selection_leaves_out_is_not_missing():
    before = Results().accuracy(0.9).accuracy(0.9, model="other:Net")
    verdicts = [value.verdict for value in judged(Results().accuracy(0.9), before)]
    assert verdicts == ["equal", "missing"]
    with pytest.warns(Remark, match="The file does not ask for accuracy of other:Net of the"):
        value = only(Results().accuracy(0.9), before, narrowed=True, noted=True)
    assert value == only(Results().accuracy(0.9), before, narrowed=True)
    assert value.verdict == "equal"


@pytest.mark.parametrize(
    ("now", "verdict", "reason"),
    [
        (Outcome(status="failed", reason="no memory"), "missing", "seed 0: no memory"),
        (Outcome(status="na", reason="needs labels"), "missing", "seed 0: needs labels"),
        (
            Outcome(
                status="ok",
                protocol="accuracy:images=9",
                values={"accuracy": Value(80.0, 1.0, 99.0, 9, "%", "higher")},
            ),
            "not comparable",
            "measured under different protocols: images=9; images=400",
        ),
        (
            Outcome(
                status="ok",
                protocol="accuracy:images=400",
                values={"accuracy": Value(math.nan, None, None, 9, "%", "higher")},
            ),
            "not testable",
            "a value is not finite",
        ),
    ],
)
def test_what_cannot_be_judged(now, verdict, reason):
    value = only(Results().add("accuracy", now), Results().accuracy(0.9))
    assert (value.verdict, value.reason) == (verdict, reason)


def test_a_value_without_an_interval_or_images_cannot_be_judged():
    fields = {"n": N, "better": "higher"}
    value = only(Results().add("m", 1.0, **fields), Results().add("m", 2.0, **fields))
    assert value.verdict == "not testable"


def test_seeds_of_one_side_alone():
    before = Results().accuracy(0.9).accuracy(0.9, seed=1)
    value = only(Results().accuracy(0.8), before)
    assert (value.seeds, value.verdict) == ((0,), "worse")
    assert value.reason == "on the seeds that both have: 0"
    none = only(Results().accuracy(0.9, seed=2), before)
    assert (none.reason, none.verdict) == ("no seed in common: 2 and 0, 1", "not testable")


def test_a_seed_that_failed_is_not_passed_over():
    before = Results().accuracy(0.9).accuracy(0.9, seed=1)
    now = Results().accuracy(0.9).add("accuracy", Outcome(status="failed", reason="x"), seed=1)
    value = only(now, before)
    assert (value.verdict, value.reason) == ("missing", "seed 1: x")


def test_three_seeds_have_to_agree():
    now, before = Results(), Results()
    for seed, (share, earlier) in enumerate([(0.5, 0.9), (0.9, 0.9), (0.9, 0.85)]):
        now.accuracy(share, seed=seed)
        before.accuracy(earlier, seed=seed)
    value = only(now, before)
    assert value.images.p < 0.01
    assert value.verdict == "undecided"  # seeds differ by as much


def test_columns_and_tolerances_of_no_value():
    now, before = Results().accuracy(0.9), Results().accuracy(0.9)
    for options in ({"tolerance": {"acuracy": 1.0}}, {"columns": ["acuracy"]}):
        with pytest.raises(SpecError, match="no column among these results named 'acuracy'"):
            judged(now, before, **options)


@pytest.mark.parametrize(
    ("verdicts", "code", "strict"),
    [
        (["equal", "not judged"], 0, 0),
        (["no worse", "undecided"], 0, 1),
        (["undecided"], 0, 1),
        (["equal", "missing"], 2, 2),
        (["undecided", "not comparable"], 2, 1),
        (["worse", "not testable"], 1, 1),
        (["not judged"], 2, 2),
        ([], 2, 2),
    ],
)
def test_exit_codes(verdicts, code, strict):
    rows = [Difference(metric="m", a=Side(), b=Side(), verdict=verdict) for verdict in verdicts]
    assert gate.document(rows).about["exit_code"] == code
    assert gate.document(rows, strict=True).about["exit_code"] == strict


def test_the_tables_and_the_summary():
    before = Results().accuracy(0.9).accuracy(0.9, model="other:Net")
    now = Results().accuracy(0.8)
    document = gate.document(judged(now, before), strict=True)
    assert document.about["summary"] == (
        "1 failed (accuracy of net:Net), 1 could not be judged (accuracy of other:Net). "
        "The exit code is 1."
    )
    tables = document.tables()
    assert [table.title for table in tables] == [
        "Check of net:Net · dataset d · recipe r",
        "Check of other:Net · dataset d · recipe r",
    ]
    assert [[cell.value for cell in row] for table in tables for row in table.rows] == [
        ["accuracy % ↑", "80.0", "90.0", "-10.0", "worse"],
        ["accuracy % ↑", "—", "—", "—", "missing"],
    ]
    assert [record["outcome"] for record in document.records()] == ["failed", "error"]
