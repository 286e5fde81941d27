"""The models of a store that a claim is about."""

import dataclasses

import pytest
from judged_store import PAPER, JudgedStore, claim

from jembench.experiment.plan import plan_fit
from jembench.store.outcome import Trained


@pytest.fixture
def store():
    return JudgedStore()


def sides(store, asked):
    """Return the fits on both sides of each finding."""
    pairs = []
    for finding in store.judge(asked):
        row = finding.row
        a = Trained(row.a.model, row.dataset, row.a.recipe)
        b = Trained(row.b.model, row.dataset, row.b.recipe)
        pairs.append((a, b))
    return pairs


def test_a_claim_without_recipes_is_about_those_that_both_have_and_about_no_other_spec(store):
    for dataset in ("digits", "svhn"):
        for recipe in ("digits", "paper"):
            for options in ("", ":norm=batch"):
                store.accuracy(f"jem{options}", 0.9, dataset=dataset, recipe=recipe)
                if (dataset, recipe) != ("svhn", "paper"):
                    store.accuracy(f"baseline{options}", 0.8, dataset=dataset, recipe=recipe)
    places = (("digits", "digits"), ("digits", "paper"), ("svhn", "digits"))
    assert sides(store, claim()) == [(("jem", *place), ("baseline", *place)) for place in places]


def test_recipes_that_a_claim_names(store):
    store.accuracy("jem", 0.9)
    store.accuracy("igebm:l2=0.1,width=16", 0.7, recipe="igebm-digits")
    jem = [["jem", "digits"], ["jem", "paper"]]
    igebm = [["igebm:width=16,l2=0.1", "igebm-digits"], ["igebm", "igebm"]]
    of_jem = ("jem", "digits", "digits")
    of_igebm = ("igebm:l2=0.1,width=16", "digits", "igebm-digits")
    assert sides(store, claim(higher=jem, than=igebm)) == [(of_jem, of_igebm)]
    assert sides(store, claim(higher=igebm, than=jem)) == [(of_igebm, of_jem)]
    assert store.verdicts(claim(than="igebm")) == ["not measured"]


def test_a_claim_names_a_model_without_the_options_that_its_recipe_adds(store):
    for model, share in (("jem", 0.9), ("baseline", 0.8)):
        quick = str(plan_fit(model, "digits", "digits-quick").model)
        assert quick.startswith(f"{model}:net=")
        for trained, recipe in (
            (quick, "digits-quick"),
            (quick, "digits"),
            (model, "digits-quick"),
        ):
            store.accuracy(trained, share, recipe=recipe)
    ((a, b),) = sides(store, claim())
    assert a.model.startswith("jem:net=")
    assert b.model.startswith("baseline:net=")
    assert a.recipe == b.recipe == "digits-quick"


def test_a_recipe_that_a_claim_names_is_meant_without_further_changes(store):
    asked = claim(
        lower=[["jem", "digits+c=true"], ["jem", "paper-c"]],
        than=[["jem", "digits"], ["jem", "paper"]],
    )
    for recipe in (
        "digits",
        "digits+epochs=5",
        "digits+epochs=5+c=true",
        "digits+c=true",
        "paper-c",
    ):
        store.accuracy("jem", 0.9, recipe=recipe)
    assert sides(store, asked) == [
        (("jem", "digits", "digits+c=true"), ("jem", "digits", "digits"))
    ]


def test_recipes_that_stand_apart_are_for_the_claims_that_name_them(store):
    for model in ("jem", "baseline"):
        for recipe in ("digits", "digits+epochs=5", "few", "few+epochs=5"):
            store.accuracy(model, 0.9, recipe=recipe)
    paper = PAPER._replace(apart=("few",))
    plain = dataclasses.replace(claim(), paper=paper)
    few = claim(higher=[["jem", "few"]], than=[["baseline", "few"]])
    of_few = dataclasses.replace(few, paper=paper)
    assert [a.recipe for a, _ in sides(store, plain)] == ["digits", "digits+epochs=5"]
    assert [a.recipe for a, _ in sides(store, of_few)] == ["few"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "`jembench run hybrid`"),
        (
            {"measure": ["jembench run a", "jembench run b"]},
            "`jembench run a` and `jembench run b`",
        ),
        ({"than": "igebm-of-nobody"}, "no model igebm-of-nobody is installed"),
        ({"unmeasured": "no suite attacks models yet"}, "no suite attacks models yet"),
    ],
)
def test_what_was_not_measured_says_what_measures_it(store, fields, reason):
    store.accuracy("jem", 0.9)
    (finding,) = store.judge(claim(**fields))
    assert (finding.row.verdict, finding.row.reason) == ("not measured", reason)
