"""Verdicts beside a baseline: tolerances, pairs of models, and what cannot be judged."""

import dataclasses
import math

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.report import check
from jembench.report.check import Measured, against
from jembench.report.comparison import Difference, Side, Uncertainty
from jembench.report.gate import exit_code, outcome_of
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
    ("share", "tolerance", "verdict", "outcome"),
    [
        (0.9, None, "equal", "passed"),
        (0.8, None, "worse", "failed"),
        (0.8, 9.0, "worse", "failed"),
        (0.8, 10.0, "tolerated", "undecided"),
        (0.8, 20.0, "tolerated", "passed"),
        (0.895, None, "no worse", "undecided"),
        (0.895, 5.0, "no worse", "passed"),
        (0.95, None, "better", "passed"),
    ],
)
def test_a_loss_fails_if_it_is_significant_and_above_the_tolerance(
    share, tolerance, verdict, outcome
):
    stated = {} if tolerance is None else {"accuracy": tolerance}
    value = only(Results().accuracy(share), Results().accuracy(0.9), tolerance=stated)
    assert (value.row.verdict, value.outcome) == (verdict, outcome)
    if verdict != "equal":
        assert value.row.images.test == "McNemar"  # each store's own images were read


@pytest.mark.parametrize(
    ("better", "difference", "tolerance", "outcome"),
    [
        ("higher", -1.0, 1.0, "undecided"),
        ("higher", -1.0, 0.999, "failed"),
        ("higher", 1.0, None, "passed"),
        ("lower", 1.0, 0.999, "failed"),
        ("lower", -1.0, None, "passed"),
        ("", 1.0, None, "skipped"),
    ],
)
def test_the_direction_of_a_metric(better, difference, tolerance, outcome):
    row = Difference(
        metric="m",
        better=better,
        a=Side(value=difference),
        b=Side(value=0.0),
        difference=difference,
        images=Uncertainty(difference - 0.5, difference + 0.5, 0.001),
        p=0.001,
    )
    assert outcome_of(row, tolerance) == outcome
    assert outcome_of(dataclasses.replace(row, p=0.06), tolerance) != "failed"


def test_a_time_is_judged_if_a_tolerance_names_it():
    times = {"low": 1.9, "high": 2.1, "n": 5, "unit": "s", "better": "lower"}
    now = Results().add("pass-time", 4.0, **{**times, "low": 3.9, "high": 4.1})
    before = Results().add("pass-time", 2.0, **times)
    value = only(now, before)
    assert (value.row.verdict, value.outcome) == ("not judged", "skipped")
    assert value.row.reason == "times vary by machine; a tolerance has them judged"
    assert only(now, before, tolerance={"pass-time": 0.5}).row.verdict == "worse"


def test_p_values_are_adjusted_for_all_tested_values():
    now, before = Results(), Results()
    for model in ("net:A", "net:B", "net:C"):
        now.accuracy(0.985, model=model)
        before.accuracy(1.0, model=model)
    values = judged(now, before)
    assert [value.row.p for value in values] == pytest.approx(
        [3 * value.row.images.p for value in values]
    )
    assert [value.row.verdict for value in values] == ["no worse"] * 3
    assert only(Results().accuracy(0.985), Results().accuracy(1.0)).row.verdict == "worse"


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"model": "net:Net:width=2"}, "the baseline's is net:Net, recipe r"),
        ({"recipe": "r+epochs=2"}, "the baseline's is net:Net, recipe r"),
        ({"model": "Mine-0123456789"}, "the baseline's is net:Net, recipe r"),
    ],
)
def test_the_only_model_is_compared_under_another_name(now, reason):
    value = only(Results().accuracy(0.8, **now), Results().accuracy(0.9))
    assert value.row.verdict == "worse"
    assert reason in value.row.reason


def test_two_models_of_one_name_are_paired_by_their_names_in_full_alone():
    before = Results().accuracy(0.9).accuracy(0.9, model="net:Net:width=2")
    now = Results().accuracy(0.9).accuracy(0.8, model="net:Net:width=4")
    verdicts = {value.row.a.model: value.row.verdict for value in judged(now, before)}
    assert verdicts == {"net:Net": "equal", "net:Net:width=2": "missing", "net:Net:width=4": "new"}


def test_what_the_selection_leaves_out_is_not_missing():
    before = Results().accuracy(0.9).accuracy(0.9, model="other:Net")
    assert [value.outcome for value in judged(Results().accuracy(0.9), before)] == [
        "passed",
        "error",
    ]
    assert only(Results().accuracy(0.9), before, narrowed=True).outcome == "passed"


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
    assert (value.row.verdict, value.row.reason, value.outcome) == (verdict, reason, "error")


def test_a_value_without_an_interval_or_images_cannot_be_judged():
    fields = {"n": N, "better": "higher"}
    value = only(Results().add("m", 1.0, **fields), Results().add("m", 2.0, **fields))
    assert (value.row.verdict, value.outcome) == ("not testable", "error")


def test_seeds_of_one_side_alone():
    before = Results().accuracy(0.9).accuracy(0.9, seed=1)
    value = only(Results().accuracy(0.8), before)
    assert (value.row.seeds, value.row.verdict) == ((0,), "worse")
    assert value.row.reason == "on the seeds that both have: 0"
    none = only(Results().accuracy(0.9, seed=2), before)
    assert (none.row.reason, none.outcome) == ("no seed in common: 2 and 0, 1", "error")


def test_a_seed_that_failed_is_not_passed_over():
    before = Results().accuracy(0.9).accuracy(0.9, seed=1)
    now = Results().accuracy(0.9).add("accuracy", Outcome(status="failed", reason="x"), seed=1)
    value = only(now, before)
    assert (value.row.verdict, value.row.reason, value.outcome) == ("missing", "seed 1: x", "error")


def test_three_seeds_have_to_agree():
    now, before = Results(), Results()
    for seed, (share, earlier) in enumerate([(0.5, 0.9), (0.9, 0.9), (0.9, 0.85)]):
        now.accuracy(share, seed=seed)
        before.accuracy(earlier, seed=seed)
    value = only(now, before)
    assert value.row.images.p < 0.01
    assert value.row.verdict == "no worse"  # seeds differ by as much


def test_columns_and_tolerances_of_no_value():
    now, before = Results().accuracy(0.9), Results().accuracy(0.9)
    for options in ({"tolerance": {"acuracy": 1.0}}, {"columns": ["acuracy"]}):
        with pytest.raises(SpecError, match="no column among these results named 'acuracy'"):
            judged(now, before, **options)


@pytest.mark.parametrize(
    ("outcomes", "code", "strict"),
    [
        (["passed", "skipped"], 0, 0),
        (["passed", "undecided"], 0, 1),
        (["passed", "error"], 2, 2),
        (["undecided", "error"], 2, 1),
        (["failed", "error"], 1, 1),
        (["skipped"], 2, 2),
        ([], 2, 2),
    ],
)
def test_exit_codes(outcomes, code, strict):
    assert exit_code(outcomes, strict=False) == code
    assert exit_code(outcomes, strict=True) == strict


def test_the_tables_and_the_summary():
    before = Results().accuracy(0.9).accuracy(0.9, model="other:Net")
    now = Results().accuracy(0.8)
    document = check.document(judged(now, before), strict=True)
    assert document.about["summary"] == (
        "1 failed (accuracy of net:Net), 1 could not be judged (accuracy of other:Net). "
        "The exit code is 1."
    )
    (table,) = document.tables()
    assert table.title == "Check · dataset d · recipe r"
    assert [[cell.value for cell in row] for row in table.rows] == [
        ["net:Net", "accuracy % ↑", "80.0", "90.0", "-10.0", "worse"],
        ["other:Net", "accuracy % ↑", "—", "—", "—", "missing"],
    ]
    assert [record["outcome"] for record in document.records()] == ["failed", "error"]
