"""When a claim holds: sides, margins, protocols, and p values within a paper."""

import dataclasses

import numpy as np
import pytest
from judged_store import PAPER, JudgedStore, N, claim

from jembench.report.claims import document
from jembench.stats.intervals import wilson


@pytest.fixture
def store():
    return JudgedStore()


@pytest.mark.parametrize(
    ("jem", "verdict", "opposite"),
    [
        (0.9, "one seed only (for)", "one seed only (against)"),
        (0.7, "one seed only (against)", "one seed only (for)"),
        (0.8, "no difference seen", "no difference seen"),
    ],
)
def test_higher_and_lower(store, jem, verdict, opposite):
    store.accuracy("jem", jem)
    store.accuracy("baseline", 0.8)
    assert store.verdicts(claim()) == [verdict]
    assert store.verdicts(claim(lower="jem")) == [opposite]


@pytest.mark.parametrize(("direction", "verdict"), [("higher", "held"), ("lower", "against")])
def test_three_seeds_are_enough_for_a_verdict_without_reserve(store, direction, verdict):
    for seed, better in enumerate((0.1, 0.11, 0.12)):
        store.accuracy("jem", 0.8 + better, seed=seed)
        store.accuracy("baseline", 0.8, seed=seed)
    asked = claim(**{direction: "jem"})
    assert store.verdicts(asked) == [verdict]
    del store.cells[-2:]
    side = "for" if verdict == "held" else "against"
    assert store.verdicts(asked) == [f"two seeds only ({side})"]


def test_an_auroc_of_1_is_not_held_against_a_number_by_the_bootstrap_of_a_constant(store):
    # as many as 300 images of each kind, without one that is ranked wrong
    store.ood("jem", "ood:set=uniform", 40.0)
    (finding,) = store.judge(claim(metric="ood:set=uniform", label="auroc", than=0.99))
    assert finding.row.difference == pytest.approx(0.01)
    assert finding.row.images.low == pytest.approx(wilson(N, N).low - 0.99)
    assert finding.row.verdict == "no difference seen"


@pytest.mark.parametrize(
    ("jem", "direction", "verdict"),
    [
        (0.78, "higher", "one seed only (for)"),  # 2 points below: less than 10
        (0.60, "higher", "one seed only (against)"),
        (0.70, "higher", "no difference seen"),
        (0.82, "lower", "one seed only (for)"),
        (0.99, "lower", "one seed only (against)"),
    ],
)
def test_within_so_much(store, jem, direction, verdict):
    store.accuracy("jem", jem)
    store.accuracy("baseline", 0.8)
    assert store.verdicts(claim(within=10.0, **{direction: "jem"})) == [verdict]


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(1.0, "one seed only (for)"), (-1.0, "one seed only (against)"), (0.05, "no difference seen")],
)
def test_than_a_number(store, shift, verdict):
    store.ood("jem", "ood:set=interp", shift)
    (finding,) = store.judge(claim(metric="ood:set=interp,score=log-px", than=0.5))
    assert (finding.row.verdict, finding.row.label, finding.row.b.value) == (verdict, "auroc", 0.5)


def test_two_metrics_of_one_model(store):
    store.ood("jem", "ood:score=grad-norm,set=interp", 2.0)
    store.ood("jem", "ood:set=interp", 0.5)
    both = {
        "metric": "ood:score=grad-norm,set=interp",
        "than_metric": "ood:score=log-px,set=interp",
    }
    (finding,) = store.judge(claim(label="auroc", than="jem", **both))
    assert finding.row.verdict == "one seed only (for)"
    assert (finding.row.b.model, finding.row.b.recipe) == (
        finding.row.a.model,
        finding.row.a.recipe,
    )


def test_parts_of_two_protocols_that_must_be_alike(store):
    for metric, images in (("accuracy", 100), ("ece", 1000)):
        store.add("jem", metric, 1.0, {}, protocol=f"is:images={images},source={metric}")
    asked = {"metric": "accuracy", "than_metric": "ece", "than": "jem"}
    (free,) = store.judge(claim(**asked))
    assert (free.row.verdict, free.row.difference) == ("not testable", 0.0)
    (bound,) = store.judge(claim(**asked, alike=["images"]))
    assert (bound.row.verdict, bound.row.reason) == (
        "not comparable",
        "measured under different protocols: images=100; images=1000",
    )


def test_parts_of_the_protocol_that_a_claim_passes_over(store):
    for model, share, source in (("jem", 0.9, "buffer"), ("glow", 0.7, "direct")):
        store.accuracy(model, share, recipe="r", protocol=f"accuracy:images=300,source={source}")
    (finding,) = store.judge(claim(than="glow"))
    assert (finding.row.verdict, finding.row.difference) == ("not comparable", None)
    assert finding.row.reason == "measured under different protocols: source=buffer; source=direct"
    assert store.verdicts(claim(than="glow", alike=["images"])) == ["one seed only (for)"]


def test_two_values_of_two_metrics(store):
    rng = np.random.default_rng(0)
    for metric, shift in (("accuracy", 0.0), ("brier", 0.2)):
        store.add("jem", metric, shift, {"correct": rng.random(N) < 0.5 + shift})
    asked = {"than_metric": "brier", "than": "jem", "lower": "jem", "label": "accuracy"}
    assert store.verdicts(claim(**asked)) == ["not measured"]
    (finding,) = store.judge(claim(**asked, than_label="brier"))
    assert (finding.row.a.value, finding.row.b.value) == (0.0, 0.2)


def test_options_that_a_claim_leaves_free_are_the_same_under_both_metrics(store):
    for options, share in (("", 0.9), (",scaling=temperature", 0.8)):
        store.add("jem", f"ece:bins=15{options}", share, {}, protocol=f"ece{options}")
        store.add("jem", f"ece:bins=10{options}", 0.5, {}, protocol=f"ece{options}")
    asked = {"metric": "ece:bins=15", "than_metric": "ece:bins=10", "than": "jem"}
    assert len(store.judge(claim(**asked))) == 1
    plain, scaled = store.judge(claim(**asked, free=["scaling"]))
    assert "scaling" not in plain.row.metric
    assert (plain.row.a.value, plain.row.b.value) == (0.9, 0.5)
    assert "scaling" in scaled.row.metric
    assert (scaled.row.a.value, scaled.row.b.value) == (0.8, 0.5)


def test_metrics_that_were_not_measured_are_named_with_the_reason(store):
    store.ood("jem", "ood:set=interp", 1.0)
    sets = [f"ood:set={name}" for name in ("svhn", "interp", "celeba")]
    judged, missing = store.judge(
        claim(metric=sets, than=0.5, not_on_digits="which has no other images")
    )
    assert (judged.row.metric, judged.row.verdict) == ("ood:set=interp", "one seed only (for)")
    assert (missing.row.verdict, missing.metrics) == ("not measured", (sets[0], sets[2]))
    assert (
        missing.row.reason
        == "not by digits, which has no other images: `jembench run hybrid --dataset cifar10`"
    )
    notes = document([judged, missing]).tables()[-1].footnotes
    assert "only ood:set=svhn, ood:set=celeba" in notes[0].text


def test_holm_is_over_all_claims_of_a_paper(store):
    store.accuracy("jem", 0.82)
    store.accuracy("baseline", 0.80)
    (alone,) = store.judge(claim())
    several = store.judge(*(claim(id=f"mine/{number}") for number in range(4)))
    assert alone.row.p == pytest.approx(2**-5)  # McNemar: six images are right for jem alone
    assert alone.row.verdict == "one seed only (for)"
    assert [finding.row.p for finding in several] == pytest.approx([4 * alone.row.p] * 4)
    verdicts = {finding.row.verdict for finding in several}
    assert verdicts == {"for, but not significant after adjustment (one seed)"}


def test_the_claims_of_other_papers_change_no_verdict(store):
    store.accuracy("jem", 0.82)
    store.accuracy("baseline", 0.80)
    paper = PAPER._replace(cite="Others, 2021")
    theirs = dataclasses.replace(claim(), id="theirs/one", paper=paper)
    findings = store.judge(claim(), theirs, theirs, theirs)
    p = 2**-5
    assert [finding.row.p for finding in findings] == pytest.approx([p, 3 * p, 3 * p, 3 * p])
    against = "for, but not significant after adjustment (one seed)"
    assert [finding.row.verdict for finding in findings] == ["one seed only (for)", *[against] * 3]
    notes = " ".join(note.text for note in document(findings).tables()[-1].footnotes)
    assert "adjusted by Holm for the values of each paper (1, 3)" in notes


@pytest.mark.parametrize(("direction", "side"), [("higher", "for"), ("lower", "against")])
def test_an_interval_over_seeds_on_one_side_is_never_no_difference(store, direction, side):
    for seed, better in enumerate((0.03, 0.05, 0.07)):
        store.accuracy("jem", 0.8 + better, seed=seed)
        store.accuracy("baseline", 0.8, seed=seed)
    claims = [claim(id=f"mine/{number}", **{direction: "jem"}) for number in range(9)]
    for finding in store.judge(*claims):
        assert finding.row.training.low > 0
        assert finding.row.verdict == f"{side}, but not significant after adjustment (three seeds)"
