"""Claims that a value is at least, or at most, a number."""

import math

import pytest
from judged_store import PAPER, JudgedStore

from jembench.errors import SpecError
from jembench.experiment.claims import of_table
from jembench.report import gate


def threshold(**fields):
    usual = {"metric": "accuracy", "where": "", "measure": ["jembench run mine.toml"]}
    return of_table("mine", usual | fields, PAPER)


def store_of(value, low=None, high=None, **more):
    store = JudgedStore()
    store.add("jem", "accuracy", value, {}, ends=(low, high), **more)
    return store


@pytest.mark.parametrize(
    ("key", "number", "by_interval", "by_value"),
    [
        ("at_least", 90.0, "held", "held"),
        ("at_least", 93.0, "held", "held"),
        ("at_least", 94.0, "undecided", "held"),
        ("at_least", 95.0, "undecided", "held"),
        ("at_least", 96.0, "undecided", "against"),
        ("at_least", 98.0, "against", "against"),
        ("at_most", 98.0, "held", "held"),
        ("at_most", 96.0, "undecided", "held"),
        ("at_most", 94.0, "undecided", "against"),
        ("at_most", 92.0, "against", "against"),
    ],
)
def test_by_the_interval_and_by_the_value(key, number, by_interval, by_value):
    store = store_of(95.0, 93.0, 97.0)
    outcomes = {"held": "passed", "undecided": "undecided", "against": "failed"}
    for by, verdict in (("interval", by_interval), ("value", by_value)):
        (finding,) = store.judge(threshold(**{key: number}, by=by))
        assert finding.row.verdict == f"{verdict} by the {by}"
        assert finding.outcome == outcomes[verdict]
        assert finding.row.p is None  # nothing is adjusted for it
    assert store.verdicts(threshold(**{key: number})) == [f"{by_interval} by the interval"]


def test_the_mean_over_seeds_and_of_the_ends_of_intervals():
    store = store_of(95.0, 94.0, 96.0)
    store.add("jem", "accuracy", 91.0, {}, ends=(88.0, 94.0), seed=1)
    (finding,) = store.judge(threshold(at_least=92))
    assert (finding.row.a.value, finding.row.difference) == (93.0, 1.0)
    assert (finding.row.images.low, finding.row.images.high) == pytest.approx((-1.0, 3.0))
    assert finding.row.verdict == "undecided by the interval"


def test_every_model_is_judged_or_those_that_are_named():
    store = store_of(95.0, 94.0, 96.0)
    store.add("baseline", "accuracy", 80.0, {}, ends=(79.0, 81.0))
    findings = store.judge(threshold(at_least=90))
    assert [(finding.row.a.model, finding.outcome) for finding in findings] == [
        ("jem", "passed"),
        ("baseline", "failed"),
    ]
    (finding,) = store.judge(threshold(at_least=90, models=["jem"]))
    assert finding.outcome == "passed"
    (finding,) = store.judge(threshold(at_least=90, models=["glow"]))
    assert (finding.row.verdict, finding.outcome) == ("not measured", "error")


def test_a_model_without_the_value_cannot_be_judged():
    store = store_of(95.0, 94.0, 96.0)
    store.add("baseline", "ece", 1.0, {})
    _, finding = store.judge(threshold(at_least=90))
    assert (finding.row.verdict, finding.outcome) == ("not measured", "error")
    assert finding.row.reason == "`jembench run mine.toml`"


@pytest.mark.parametrize("value", [(95.0, None, None), (math.nan, 94.0, 96.0)])
def test_without_an_interval_or_a_number(value):
    (finding,) = store_of(*value).judge(threshold(at_least=90))
    assert (finding.row.verdict, finding.outcome) == ("not testable", "error")


def test_the_text_says_the_metric_the_model_and_what_decides():
    judged = gate.document((), store_of(95.0, 94.0, 96.0).judge(threshold(at_least=90)))
    (table,) = judged.tables()
    assert [cell.in_one_line for cell in table.rows[0]] == [
        "accuracy at least 90 · jem",
        "95.0",
        "90.0",
        "5.0 [4.0, 6.0]",
        "held by the interval",
    ]
    (record,) = judged.records()
    assert (record["claim"], record["outcome"]) == ("mine/accuracy-at-least-90", "passed")
    assert judged.about["summary"] == "1 passed. The exit code is 0."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"at_least": 1, "at_most": 2}, "A threshold is one of at_least and at_most"),
        ({"at_least": 1, "higher": "jem"}, "A threshold is one of at_least and at_most"),
        ({"at_least": 1, "metric": ["accuracy", "ece"]}, "of one metric"),
        ({"at_least": "95"}, "at_least of a claim of mine is '95'; it must be a finite number"),
        ({"at_least": 1, "by": "p"}, "it must be one of"),
        ({"at_least": 1, "tolerance": 1}, "There is no key in claim mine/accuracy-at-least-1"),
    ],
)
def test_thresholds_that_cannot_be_read(fields, message):
    with pytest.raises(SpecError) as raised:
        threshold(**fields)
    assert message in str(raised.value)
