"""The papers' claims: what the files say, which models they mean, and when one holds."""

import dataclasses
import functools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from jembench.catalog import discovery, registry
from jembench.catalog.spec import Spec
from jembench.cli.attack import attack as attack_command
from jembench.cli.run import run as run_command
from jembench.errors import PluginError
from jembench.experiment import suite as suites
from jembench.experiment.attacks import attack_suite
from jembench.experiment.claims import Claim, Fit, Paper, load, of_table, read
from jembench.experiment.crossing import make_plan
from jembench.experiment.plan import plan_fit
from jembench.interfaces import Value
from jembench.report.claims import CLAIM_FIELDS, _pairs, document, judge
from jembench.stats.intervals import wilson
from jembench.store.outcome import Cell, FitKey, Outcome

CLAIMS = load()
MEASURED = [claim for claim in CLAIMS if claim.metric]
PAPER = Paper("A paper", "Somebody", "")
N = 300


# --- the files ------------------------------------------------------------------------------------


def by_id(claim):
    return claim.id


def test_every_claim_has_a_name_of_its_own():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", MEASURED, ids=by_id)
def test_its_commands_measure_it(claim):
    installed = {component.name for component in discovery.components("models")}
    if not {Spec(model).bare for model in claim.models} <= installed:
        pytest.skip("its models are not installed")
    planned = {}
    for cell in (cell for command in claim.measure for cell in plan(command).cells):
        planned.setdefault(cell.fit.key.names, set()).add(without(claim.free, str(cell.metric)))
    for metric in (*claim.metric, *claim.than_metric):
        registry.resolve("metrics", metric)
    measured = [[planned[fit] for fit in pair] for pair in _pairs(claim, planned)]
    ways = zip(claim.metric, claim.than_metric or claim.metric, strict=True)
    asked = [tuple(registry.canonical("metrics", metric) for metric in way) for way in ways]
    assert any(a in own and b in other for own, other in measured for a, b in asked)


def without(options, metric):
    return Spec(metric).without(*options)


@functools.cache
def plan(command):
    words = shlex.split(command)
    if words[:2] == ["jembench", "attack"]:
        given = attack_command.make_context("attack", words[2:], resilient_parsing=True).params
        what = {name: given[name] for name in ("norm", "refine", "eot") if given[name]}
        suite = attack_suite(given["attack"], what, given["dataset"])
        return make_plan(suite.replaced(models=given["models"], seeds=given["seeds"]))
    assert words[:2] == ["jembench", "run"]
    given = run_command.make_context("run", words[2:], resilient_parsing=True).params
    chosen = {"models": given["models"], "datasets": given["dataset"], "seeds": given["seeds"]}
    chosen["metrics"] = given["metrics"]
    suite = suites.load(given["suite"]).replaced(
        **{name: value for name, value in chosen.items() if value}
    )
    return make_plan(suite, recipe=given["recipe"])


FILE = """
[paper]
title = "A paper"
cite = "Somebody"
url = ""
[[claim]]
id = "one"
text = "One"
where = "Table 1"
metric = "accuracy"
higher = "jem"
than = 0.5
measure = ["jembench run hybrid"]
"""


def test_a_file(tmp_path):
    (claim,) = read("mine", written(tmp_path, FILE))
    assert claim == Claim(
        id="mine/one",
        paper=PAPER,
        text="One",
        where="Table 1",
        metric=("accuracy",),
        direction="higher",
        fits=(Fit("jem"),),
        number=0.5,
        measure=("jembench run hybrid",),
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "A paper"\n', "", "lacks paper.title"),
        ("than = 0.5\n", "", "one has neither than nor than_metric: nothing to be higher than"),
        (
            'higher = "jem"',
            'higher = "jem"\nlower = "jem"',
            "one must have one of higher and lower",
        ),
        ('higher = "jem"', "", "one must have one of higher and lower"),
        (
            "than = 0.5",
            "than = 0.5\nthen = 1",
            "There is no key in claim mine/one named 'then'. Nearest: than",
        ),
        ('metric = "accuracy"\n', "", "one lacks metric. "),
        ("[paper]", "[paper", "Expected"),
        (
            "than = 0.5",
            'than = ["baseline", "igebm"]',
            "one must name as many of than as of higher",
        ),
    ],
)
def test_a_file_that_is_not_of_the_layout(tmp_path, old, new, problem):
    with pytest.raises(
        PluginError,
        match=rf"The file of claims .*mine\.toml cannot be used: .*{re.escape(problem)}",
    ):
        read("mine", written(tmp_path, FILE.replace(old, new)))


def written(folder, text) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


# --- judging --------------------------------------------------------------------------------------


class Store:
    """Cells with their arrays, by hand."""

    def __init__(self):
        self.cells, self.arrays = [], {}

    def add(
        self,
        model,
        metric,
        value,
        arrays,
        *,
        recipe="digits",
        seed=0,
        dataset="digits",
        protocol=None,
        details=(),
        ends=(None, None),
    ):
        fit = FitKey(
            model=Spec(model),
            dataset=Spec(dataset),
            recipe=recipe,
            seed=seed,
            id=f"{model}/{dataset}/{recipe}/{seed}",
        )
        label = {"ood": "auroc"}.get(metric.partition(":")[0], metric.partition(":")[0])
        values = {label: Value(value, *ends, N, "%" if label == "accuracy" else "")}
        outcome = Outcome(
            status="ok", protocol=protocol or metric, values=values, details=dict(details)
        )
        cell = Cell(id=f"{fit.id}/{metric}", fit=fit, metric=Spec(metric), outcome=outcome)
        self.cells.append(cell)
        self.arrays[cell.id] = arrays

    def accuracy(self, model, share, **more):
        correct = np.arange(N) < share * N
        self.add(model, "accuracy", 100 * correct.mean(), {"correct": correct}, **more)

    def ood(self, model, metric, shift):
        rng = np.random.default_rng(0)
        inside, outside = rng.normal(shift, 1, N), rng.normal(0, 1, N)
        auroc = (inside[:, None] > outside).mean()
        self.add(model, metric, auroc, {"inside": inside, "outside": outside})

    def judge(self, *claims):
        return judge(claims, self.cells, lambda cell: self.arrays[cell.id], resamples=1000)

    def verdicts(self, *claims):
        return [finding.row.verdict for finding in self.judge(*claims)]


@pytest.fixture
def store():
    return Store()


def claim(**fields):
    """A claim that JEM's accuracy is higher than the baseline's, but for these fields in the form
    of a file.
    """
    table = {
        "id": "one",
        "text": "One",
        "where": "Table 1",
        "metric": "accuracy",
        "measure": ["jembench run hybrid"],
    }
    table |= {"than": "baseline"} | fields
    if "unmeasured" in table:
        table = {key: table[key] for key in ("id", "text", "where", "unmeasured")}
    elif "lower" not in table:
        table.setdefault("higher", "jem")
    return of_table("mine", table, PAPER)


@pytest.mark.parametrize(
    ("jem", "verdict"),
    [(0.9, "one seed only (for)"), (0.7, "one seed only (against)"), (0.8, "no difference seen")],
)
def test_higher_and_lower(store, jem, verdict):
    store.accuracy("jem", jem)
    store.accuracy("baseline", 0.8)
    assert store.verdicts(claim()) == [verdict]
    opposite = {
        "one seed only (for)": "one seed only (against)",
        "one seed only (against)": "one seed only (for)",
    }
    assert store.verdicts(claim(lower="jem")) == [opposite.get(verdict, verdict)]


@pytest.mark.parametrize(("direction", "verdict"), [("higher", "held"), ("lower", "against")])
def test_three_seeds_are_enough_for_a_verdict_without_reserve(store, direction, verdict):
    for seed, better in enumerate((0.1, 0.11, 0.12)):
        store.accuracy("jem", 0.8 + better, seed=seed)
        store.accuracy("baseline", 0.8, seed=seed)
    asked = claim(**{direction: "jem"})
    assert store.verdicts(asked) == [verdict]
    del store.cells[-2:]
    assert store.verdicts(asked) == [
        f"two seeds only ({ {'held': 'for', 'against': 'against'}[verdict] })"
    ]


def test_an_auroc_of_1_is_not_held_against_a_number_by_the_bootstrap_of_a_constant(store):
    # as many as 300 images of each kind, without one that is ranked wrong
    store.ood("jem", "ood:set=uniform", 40.0)
    (found,) = store.judge(claim(metric="ood:set=uniform", label="auroc", than=0.99))
    assert found.row.difference == pytest.approx(0.01)
    assert found.row.images.low == pytest.approx(wilson(N, N).low - 0.99)
    assert found.row.verdict == "no difference seen"


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
    (found,) = store.judge(claim(metric="ood:set=interp,score=log-px", than=0.5))
    assert (found.row.verdict, found.row.label, found.row.b.value) == (verdict, "auroc", 0.5)


def test_two_metrics_of_one_model(store):
    store.ood("jem", "ood:score=grad-norm,set=interp", 2.0)
    store.ood("jem", "ood:set=interp", 0.5)
    both = {
        "metric": "ood:score=grad-norm,set=interp",
        "than_metric": "ood:score=log-px,set=interp",
    }
    (found,) = store.judge(claim(label="auroc", than="jem", **both))
    assert found.row.verdict == "one seed only (for)"
    assert (found.row.b.model, found.row.b.recipe) == (found.row.a.model, found.row.a.recipe)


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
    (found,) = store.judge(claim(than="glow"))
    assert (found.row.verdict, found.row.difference) == ("not comparable", None)
    assert found.row.reason == "measured under different protocols: source=buffer; source=direct"
    assert store.verdicts(claim(than="glow", alike=["images"])) == ["one seed only (for)"]


def test_two_values_of_two_metrics(store):
    rng = np.random.default_rng(0)
    for metric, shift in (("accuracy", 0.0), ("brier", 0.2)):
        store.add("jem", metric, shift, {"correct": rng.random(N) < 0.5 + shift})
    asked = {"than_metric": "brier", "than": "jem", "lower": "jem", "label": "accuracy"}
    assert store.verdicts(claim(**asked)) == ["not measured"]
    (found,) = store.judge(claim(**asked, than_label="brier"))
    assert (found.row.a.value, found.row.b.value) == (0.0, 0.2)


def test_options_that_a_claim_leaves_free_are_the_same_under_both_metrics(store):
    for options, share in (("", 0.9), (",scaling=temperature", 0.8)):
        store.add("jem", f"ece:bins=15{options}", share, {}, protocol=f"ece{options}")
        store.add("jem", f"ece:bins=10{options}", 0.5, {}, protocol=f"ece{options}")
    asked = {"metric": "ece:bins=15", "than_metric": "ece:bins=10", "than": "jem"}
    assert len(store.judge(claim(**asked))) == 1
    found = store.judge(claim(**asked, free=["scaling"]))
    assert [("scaling" in row.metric, row.a.value, row.b.value) for _, row, *_ in found] == [
        (False, 0.9, 0.5),
        (True, 0.8, 0.5),
    ]


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
    other = dataclasses.replace(claim(), id="theirs/one", paper=PAPER._replace(cite="Others, 2021"))
    findings = store.judge(claim(), other, other, other)
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


# --- which models ---------------------------------------------------------------------------------


def sides(store, asked):
    """The model, dataset and recipe of both sides of each finding."""
    rows = [row for _, row, *_ in store.judge(asked)]
    return [
        ((row.a.model, row.dataset, row.a.recipe), (row.b.model, row.dataset, row.b.recipe))
        for row in rows
    ]


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
    jem, igebm = (
        [["jem", "digits"], ["jem", "paper"]],
        [["igebm:width=16,l2=0.1", "igebm-digits"], ["igebm", "igebm"]],
    )
    own, other = ("jem", "digits", "digits"), ("igebm:l2=0.1,width=16", "digits", "igebm-digits")
    assert sides(store, claim(higher=jem, than=igebm)) == [(own, other)]
    assert sides(store, claim(higher=igebm, than=jem)) == [(other, own)]
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
    ((own, other),) = sides(store, claim())
    assert own[0].startswith("jem:net=")
    assert other[0].startswith("baseline:net=")
    assert own[2] == other[2] == "digits-quick"


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
    plain, few = claim(), claim(higher=[["jem", "few"]], than=[["baseline", "few"]])
    apart = [dataclasses.replace(one, paper=PAPER._replace(apart=("few",))) for one in (plain, few)]
    recipes = [[own[2] for own, _ in sides(store, one)] for one in apart]
    assert recipes == [["digits", "digits+epochs=5"], ["few"]]


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
    (found,) = store.judge(claim(**fields))
    assert (found.row.verdict, found.row.reason) == ("not measured", reason)


# --- shown ----------------------------------------------------------------------------------------


def test_every_claim_is_shown_once(store):
    store.accuracy("jem", 0.9)
    store.accuracy("baseline", 0.8)
    found = store.judge(*CLAIMS)
    shown = document(found)
    texts = [row[0].value for grid in shown.tables() for row in grid.rows]
    notes = "\n".join(note.text for grid in shown.tables() for note in grid.footnotes)
    for finding in found:
        if finding.row.verdict == "not measured":
            assert f"{notes}\n".count(f"\n· {finding.claim.text}\n") == 1
        else:
            assert texts.count(finding.claim.text) == 1
    records = list(shown.records())
    assert len(records) == len(found)
    assert all(set(record) == set(CLAIM_FIELDS) for record in records)


def test_a_claim_says_which_value_dataset_and_recipes_it_is_of(store):
    for dataset in ("digits", "svhn"):
        store.accuracy("jem", 0.9, dataset=dataset, recipe="a+c=1")
        store.accuracy("jem", 0.8, dataset=dataset, recipe="a")
    grids = document(store.judge(claim(higher=[["jem", "a+c=1"]], than=[["jem", "a"]]))).tables()
    titles = [
        f"Claims · Somebody · dataset {dataset} · recipe a+c=1" for dataset in ("digits", "svhn")
    ]
    assert [grid.title for grid in grids] == titles
    assert [[row[0].value for row in grid.rows] for grid in grids] == [
        ["One · recipes a+c=1 and a"]
    ] * 2


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
    expected = (
        f"not the paper's protocol (cifar10, svhn; recipe paper): {departure}" if departure else ""
    )
    assert next(iter(shown.records()))["reason"] == expected
    (grid,) = shown.tables()
    (verdict,) = [cell for (*_, cell) in grid.rows]
    assert [note.text for note in grid.footnotes if note.mark in verdict.marks] == [
        expected
    ] * bool(departure)


def test_a_model_at_chance_is_marked_in_claims_on_its_other_values_too_and_so_is_a_limit(store):
    rng = np.random.default_rng(0)
    for model, share in (("jem", 0.1), ("baseline", 0.9)):
        ends = [100 * end for end in wilson(int(share * N), N)]
        store.accuracy(model, share, details={"chance": 10.0}, ends=ends)
        store.add(model, "brier", share, {"brier": rng.normal(share, 0.1, N)})
    note = "jem at chance: not above the 10 % of guessing, by the 95 % interval"
    assert [finding.remarks for finding in store.judge(claim(), claim(metric="brier"))] == [
        (note,),
        (note,),
    ]
    store.cells = [dataclasses.replace(cell, provenance={"limit": 50}) for cell in store.cells]
    limited = "on 50 of the test images, by --limit"
    assert [finding.remarks for finding in store.judge(claim())] == [(limited, note)]
