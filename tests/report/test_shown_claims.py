"""Verdicts on claims for people and for programs."""

import dataclasses

import numpy as np
import pytest
from judged_store import PAPER, JudgedStore, N, claim

from jembench.experiment.claims import load
from jembench.report.claims import CLAIM_FIELDS, document
from jembench.stats.intervals import wilson


@pytest.fixture
def store():
    return JudgedStore()


def test_every_claim_is_shown_once(store):
    store.accuracy("jem", 0.9)
    store.accuracy("baseline", 0.8)
    findings = store.judge(*load())
    shown = document(findings)
    texts, notes = [], []
    for table in shown.tables():
        texts += [row[0].value for row in table.rows]
        notes += [note.text for note in table.footnotes]
    lines = "\n".join(notes).split("\n")
    for finding in findings:
        if finding.row.verdict == "not measured":
            assert lines.count(f"· {finding.claim.text}") == 1
        else:
            assert texts.count(finding.claim.text) == 1
    records = list(shown.records())
    assert len(records) == len(findings)
    assert all(set(record) == set(CLAIM_FIELDS) for record in records)


def test_a_claim_says_which_value_dataset_and_recipes_it_is_of(store):
    for dataset in ("digits", "svhn"):
        store.accuracy("jem", 0.9, dataset=dataset, recipe="a+c=1")
        store.accuracy("jem", 0.8, dataset=dataset, recipe="a")
    findings = store.judge(claim(higher=[["jem", "a+c=1"]], than=[["jem", "a"]]))
    tables = document(findings).tables()
    assert [table.title for table in tables] == [
        "Claims · Somebody · dataset digits · recipe a+c=1",
        "Claims · Somebody · dataset svhn · recipe a+c=1",
    ]
    for table in tables:
        assert [row[0].value for row in table.rows] == ["One · recipes a+c=1 and a"]


@pytest.mark.parametrize(
    ("dataset", "recipe", "departure"),
    [
        ("cifar10:root=/data", "paper", ""),
        ("cifar10", "mine", "recipe mine"),
        ("digits", "paper", "dataset digits"),
        ("cifar10", "paper+epochs=1+a.b=2", "recipe paper+epochs=1+a.b=2"),
        ("digits", "digits+epochs=1", "dataset digits; recipe digits+epochs=1"),
    ],
)
def test_a_verdict_that_departs_from_the_protocol_of_the_paper_has_a_mark(
    store, dataset, recipe, departure
):
    for model, share in (("jem", 0.9), ("baseline", 0.7)):
        store.accuracy(model, share, dataset=dataset, recipe=recipe)
    paper = PAPER._replace(recipes=("paper", "svhn"), datasets=("cifar10", "svhn"))
    shown = document(store.judge(dataclasses.replace(claim(), paper=paper)))
    expected = []
    if departure:
        expected = [f"not the paper's protocol (cifar10, svhn; recipe paper): {departure}"]
    (record,) = shown.records()
    assert [record["reason"]] == (expected or [""])
    (table,) = shown.tables()
    ((*_, verdict),) = table.rows
    assert [note.text for note in table.footnotes if note.mark in verdict.marks] == expected


def test_a_model_at_chance_is_marked_in_claims_on_its_other_values_too_and_so_is_a_limit(store):
    rng = np.random.default_rng(0)
    for model, share in (("jem", 0.1), ("baseline", 0.9)):
        ends = [100 * end for end in wilson(int(share * N), N)]
        store.accuracy(model, share, details={"chance": 10.0}, ends=ends)
        store.add(model, "brier", share, {"brier": rng.normal(share, 0.1, N)})
    note = "jem at chance: not above the 10 % of guessing, by the 95 % interval"
    of_accuracy, of_brier = store.judge(claim(), claim(metric="brier"))
    assert of_accuracy.remarks == of_brier.remarks == (note,)
    store.cells = [dataclasses.replace(cell, provenance={"limit": 50}) for cell in store.cells]
    limited = "on 50 of the test images, by --limit"
    (finding,) = store.judge(claim())
    assert finding.remarks == (limited, note)
