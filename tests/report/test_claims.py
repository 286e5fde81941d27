"""The papers' claims: what the files say, which models they mean, and when one holds."""

import dataclasses
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from jembench.catalog import discovery, registry, spec
from jembench.cli.attack import attack as attack_command
from jembench.cli.run import run as run_command
from jembench.errors import DamagedError, PluginError
from jembench.experiment import suite_files as suites
from jembench.experiment.claims import Claim, Paper, Recipes, load, read
from jembench.experiment.planning import make_plan
from jembench.experiment.recipe_files import made_for
from jembench.experiment.suite import of_attack
from jembench.experiment.sweep import bare_name, with_options
from jembench.interfaces import Value
from jembench.report import verdicts
from jembench.report.judging import judge
from jembench.stats import wilson
from jembench.store.outcome import Cell, FitKey, Outcome

CLAIMS = load()
MEASURED = [claim for claim in CLAIMS if claim.metric]
PAPER = Paper("A paper", "Somebody", "")
N = 300


# --- the files --------------------------------------------------------------------------------------------------------


def by_id(claim):
    return claim.id


def test_every_claim_has_a_name_of_its_own():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", MEASURED, ids=by_id)
def test_its_metrics_exist(claim):
    for metric in filter(None, (claim.metric, claim.than_metric)):
        options = {option: values[0] for option, values in claim.each.items()}
        registry.resolve("metrics", with_options(metric, options))


@pytest.mark.parametrize("claim", MEASURED, ids=by_id)
def test_its_commands_measure_it(claim):
    """Every model, metric and recipe of the claim is among what the commands plan."""
    installed = {component.name for component in discovery.components("models")}
    if not set(map(bare_name, claim.models)) <= installed:
        pytest.skip("its models are not installed")
    plans = {
        (meant(cell.fit.key.model, claim.models), without(claim.free, str(cell.metric)), cell.fit.key.recipe)
        for command in claim.measure
        for cell in plan(command).cells
    }
    other = claim.model if isinstance(claim.than, float) else claim.than
    own_recipes = {made_for(bare_name(model), data) for model in claim.models for data in ("digits", "cifar10")}
    each = [{option: value} for option, values in claim.each.items() for value in values] or [{}]
    pairs = [
        ((claim.model, metric, recipe), (other, than, others))
        for options in each
        for recipes in claim.recipes
        for recipe in {recipe for _, _, recipe in plans}
        for others in (recipes.other_of(recipe), *(theirs for _, _, theirs in plans if {recipe, theirs} & own_recipes))
        for metric, than in [[asked(text, options) for text in (claim.metric, claim.than_metric or claim.metric)]]
    ]
    assert any({one, two} <= plans for one, two in pairs)


def meant(model, models):
    """The one of a claim's models that a planned one is, the most special of several."""
    own = spec.parse(model)
    found = [
        text
        for text in models
        if bare_name(text) == bare_name(model) and set(spec.parse(text).arguments) <= set(own.arguments)
    ]
    return max(found, key=len, default=model)


def without(options, metric):
    parsed = spec.parse(metric)
    return str(spec.Spec(parsed.name, tuple(pair for pair in parsed.arguments if pair[0] not in options)))


def asked(metric, options):
    return registry.canonical("metrics", with_options(metric, options))


def plan(command):
    """What a command would run."""
    words = shlex.split(command)
    if words[:2] == ["jembench", "attack"]:
        given = attack_command.make_context("attack", words[2:], resilient_parsing=True).params
        what = {name: given[name] for name in ("norm", "refine", "eot") if given[name]}
        chosen = {"models": given["models"], "datasets": given["dataset"], "seeds": given["seeds"]}
        return make_plan(of_attack(given["attack"], what, **chosen))
    assert words[:2] == ["jembench", "run"]
    given = run_command.make_context("run", words[2:], resilient_parsing=True).params
    suite = suites.load(given["suite"])
    changes = {
        "models": tuple(given["models"] or suite.models),
        "datasets": tuple(given["dataset"] or suite.datasets),
        "seeds": given["seeds"] or suite.seeds,
    }
    return make_plan(dataclasses.replace(suite, **changes), recipe=given["recipe"])


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
        metric="accuracy",
        direction="higher",
        model="jem",
        than=0.5,
        measure=("jembench run hybrid",),
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "A paper"\n', "", "lacks paper.title"),
        ("than = 0.5\n", "", "one has neither than nor than_metric: nothing to be higher than"),
        ('higher = "jem"', 'higher = "jem"\nlower = "jem"', "one must have one of higher and lower"),
        ('higher = "jem"', "", "one must have one of higher and lower"),
        ("than = 0.5", "than = 0.5\nthen = 1", "There is no key in claim mine/one named 'then'. Nearest: than"),
        ('metric = "accuracy"\n', "", "one lacks metric. "),
        ("[paper]", "[paper", "Expected"),
    ],
)
def test_a_file_that_is_not_of_the_layout(tmp_path, old, new, problem):
    with pytest.raises(PluginError, match=rf"The file of claims .*mine\.toml cannot be used: .*{re.escape(problem)}"):
        read("mine", written(tmp_path, FILE.replace(old, new)))


def written(folder, text) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("own", "other", "label", "expected"),
    [
        ("*", "*", "digits+epochs=5", "digits+epochs=5"),
        ("*+conditional=true", "*", "digits+conditional=true", "digits"),
        ("*+conditional=true", "*", "digits", None),
        ("*-labels", "*-labels", "digits-100-labels", "digits-100-labels"),
        ("sada", "paper", "sada", "paper"),
        ("sada", "paper", "sada+epochs=5", None),
        ("ab*ba", "*", "aba", None),
    ],
)
def test_the_recipe_that_belongs_to_another(own, other, label, expected):
    assert Recipes(own, other).other_of(label) == expected


# --- judging ----------------------------------------------------------------------------------------------------------


class Store:
    """Cells with their arrays, by hand."""

    def __init__(self):
        self.cells, self.arrays = [], {}

    def add(self, model, metric, value, arrays, *, recipe="digits", seed=0, dataset="digits", protocol=None):
        fit = FitKey(model=model, dataset=dataset, recipe=recipe, seed=seed, id=f"{model}/{dataset}/{recipe}/{seed}")
        label = {"ood": "auroc"}.get(metric.partition(":")[0], metric.partition(":")[0])
        outcome = Outcome(status="ok", protocol=protocol or metric, values={label: Value(value, None, None, N)})
        cell = Cell(id=f"{fit.id}/{metric}", fit=fit, metric=metric, outcome=outcome)
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
    given = {"metric": "accuracy", "model": "jem", "than": "baseline", "measure": ("jembench run hybrid",)}
    return Claim(**{"id": "mine/one", "paper": PAPER, "text": "One", "where": "Table 1", **given, **fields})


def test_a_model_with_a_recipe_of_its_own_is_compared_whatever_the_other_was_trained_by(store):
    store.accuracy("jem", 0.9)
    store.accuracy("igebm:l2=0.1,width=16", 0.7, recipe="igebm-digits")
    assert store.verdicts(claim(than="igebm")) == ["one seed only (for)"]
    assert store.verdicts(claim(model="igebm", than="jem")) == ["one seed only (against)"]


def test_two_recipes_that_are_nobody_s_own_are_not_compared(store):
    store.accuracy("jem", 0.9)
    store.accuracy("baseline", 0.7, recipe="digits-paper")
    assert store.verdicts(claim()) == ["not measured"]


def test_arrays_that_cannot_be_read_leave_a_reason(store):
    store.accuracy("jem", 0.9)
    store.accuracy("baseline", 0.7)

    def read(cell):
        raise DamagedError("torn")

    (finding,) = judge([claim()], store.cells, read, resamples=200)
    assert (finding.row.reason, finding.row.images_p) == ("torn", None)


@pytest.mark.parametrize(
    ("jem", "direction", "verdict"),
    [
        (0.9, "higher", "one seed only (for)"),
        (0.9, "lower", "one seed only (against)"),
        (0.7, "higher", "one seed only (against)"),
        (0.7, "lower", "one seed only (for)"),
        (0.8, "higher", "no difference seen"),
        (0.8, "lower", "no difference seen"),
    ],
)
def test_higher_and_lower(store, jem, direction, verdict):
    store.accuracy("jem", jem)
    store.accuracy("baseline", 0.8)
    assert store.verdicts(claim(direction=direction)) == [verdict]


@pytest.mark.parametrize(("direction", "verdict"), [("higher", "held"), ("lower", "against")])
def test_three_seeds_are_enough_for_a_verdict_without_reserve(store, direction, verdict):
    for seed, better in enumerate((0.1, 0.11, 0.12)):
        store.accuracy("jem", 0.8 + better, seed=seed)
        store.accuracy("baseline", 0.8, seed=seed)
    assert store.verdicts(claim(direction=direction)) == [verdict]
    del store.cells[-2:]
    tendency = {"held": "for", "against": "against"}[verdict]
    assert store.verdicts(claim(direction=direction)) == [f"two seeds only ({tendency})"]


def test_an_auroc_of_1_is_not_held_against_a_number_by_the_bootstrap_of_a_constant(store):
    store.ood("jem", "ood:set=uniform", 40.0)  # as many as 300 images of each kind, without one that is ranked wrong
    (found,) = store.judge(claim(metric="ood", label="auroc", than=0.99, each={"set": ("uniform",)}))
    assert found.row.difference == pytest.approx(0.01)
    assert found.row.images_low == pytest.approx(wilson(N, N).low - 0.99)
    assert found.row.verdict == "no difference seen"


@pytest.mark.parametrize(
    ("jem", "direction", "within", "verdict"),
    [
        (0.78, "higher", 10.0, "one seed only (for)"),  # 2 points below: less than 10
        (0.60, "higher", 10.0, "one seed only (against)"),
        (0.70, "higher", 10.0, "no difference seen"),
        (0.82, "lower", 10.0, "one seed only (for)"),
        (0.99, "lower", 10.0, "one seed only (against)"),
    ],
)
def test_within_so_much(store, jem, direction, within, verdict):
    store.accuracy("jem", jem)
    store.accuracy("baseline", 0.8)
    assert store.verdicts(claim(direction=direction, within=within)) == [verdict]


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(1.0, "one seed only (for)"), (-1.0, "one seed only (against)"), (0.05, "no difference seen")],
)
def test_than_a_number(store, shift, verdict):
    store.ood("jem", "ood:set=interp", shift)
    (found,) = store.judge(claim(metric="ood:set=interp,score=log-px", than=0.5))
    assert (found.row.verdict, found.row.label, found.row.b) == (verdict, "auroc", 0.5)


def test_each_value_that_was_measured(store):
    store.ood("jem", "ood:set=interp", 1.0)
    store.ood("jem", "ood:set=uniform", -1.0)
    found = store.judge(claim(metric="ood", than=0.5, each={"set": ("interp", "inverted", "uniform")}))
    assert [(finding.row.metric, finding.row.verdict) for finding in found] == [
        ("ood:set=interp", "one seed only (for)"),
        ("ood:set=uniform", "one seed only (against)"),
        ("ood", "not measured"),
    ]


def test_two_metrics_of_one_model(store):
    store.ood("jem", "ood:score=grad-norm,set=interp", 2.0)
    store.ood("jem", "ood:set=interp", 0.5)
    asked = claim(
        metric="ood:score=grad-norm",
        than_metric="ood:score=log-px",
        label="auroc",
        than="jem",
        each={"set": ("interp",)},
    )
    (found,) = store.judge(asked)
    assert found.row.verdict == "one seed only (for)"
    assert (found.row.model_b, found.row.recipe_b) == (found.row.model_a, found.row.recipe_a)


def test_parts_of_two_protocols_that_must_be_alike(store):
    for metric, images in (("accuracy", 100), ("ece", 1000)):
        store.add("jem", metric, 1.0, {}, protocol=f"is:images={images},source={metric}")
    asked = {"metric": "accuracy", "than_metric": "ece", "than": "jem"}
    (free,) = store.judge(claim(**asked))
    assert (free.row.verdict, free.row.difference) == ("not testable", 0.0)
    (bound,) = store.judge(claim(**asked, alike=("images",)))
    assert (bound.row.verdict, bound.row.reason) == (
        "not comparable",
        "measured under different protocols: images=100; images=1000",
    )


def test_other_protocols_are_not_compared(store):
    store.accuracy("jem", 0.9, protocol="accuracy:data_noise=0")
    store.accuracy("baseline", 0.7, protocol="accuracy:data_noise=0.03")
    (found,) = store.judge(claim())
    assert (found.row.verdict, found.row.difference) == ("not comparable", None)
    assert found.row.reason == "measured under different protocols: data_noise=0; data_noise=0.03"


def test_a_model_with_options_is_compared_with_the_same_without_them(store):
    for options, share in (("", 0.8), (":norm=batch", 0.9), (":dropout=0.1,norm=batch", 0.7), (":dropout=0.1", 0.6)):
        store.accuracy(f"baseline{options}", share)
    found = store.judge(claim(model="baseline", than="baseline:norm=batch", direction="lower"))
    assert [(sides(finding)[0][0], sides(finding)[1][0], finding.row.verdict) for finding in found] == [
        ("baseline", "baseline:norm=batch", "one seed only (for)"),
    ]


def test_two_values_of_two_metrics(store):
    """Each has its own label: the distance that PGD finds, and that which the boundary attack finds."""
    rng = np.random.default_rng(0)
    for metric, shift in (("accuracy", 0.0), ("brier", 0.2)):
        store.add("jem", metric, shift, {"correct": rng.random(N) < 0.5 + shift})
    asked = claim(metric="accuracy", than_metric="brier", than="jem", direction="lower")
    assert store.verdicts(dataclasses.replace(asked, label="accuracy")) == ["not measured"]
    (found,) = store.judge(dataclasses.replace(asked, label="accuracy", than_label="brier"))
    assert (found.row.a, found.row.b) == (0.0, 0.2)


def test_values_that_were_not_measured_are_named_with_the_reason(store):
    store.ood("jem", "ood:set=interp", 1.0)
    asked = claim(
        metric="ood", than=0.5, each={"set": ("svhn", "interp", "celeba")}, not_on_digits="which has no other images"
    )
    judged, missing = store.judge(asked)
    assert judged.row.verdict == "one seed only (for)"
    assert (missing.row.verdict, missing.each) == ("not measured", ("celeba", "svhn"))
    assert missing.row.reason == "not by digits, which has no other images: `jembench run hybrid --dataset cifar10`"
    notes = verdicts.of_claims([judged, missing]).tables()[-1].footnotes
    assert "only celeba, svhn" in notes[0].text


def test_parts_of_the_protocol_that_a_claim_passes_over(store):
    """Samples that are drawn directly, and those of kept chains."""
    for model, share, source in (("jem", 0.9, "buffer"), ("glow", 0.7, "direct")):
        store.accuracy(model, share, recipe="r", protocol=f"accuracy:images=300,source={source}")
    assert store.verdicts(claim(than="glow")) == ["not comparable"]
    assert store.verdicts(claim(than="glow", alike=("images",))) == ["one seed only (for)"]


def test_holm_is_over_all_claims(store):
    store.accuracy("jem", 0.82)
    store.accuracy("baseline", 0.80)
    (alone,) = store.judge(claim())
    several = store.judge(*(claim(id=f"mine/{number}") for number in range(4)))
    assert alone.row.p == pytest.approx(2**-5)  # McNemar: six images are right for jem alone
    assert alone.row.verdict == "one seed only (for)"
    assert [finding.row.p for finding in several] == pytest.approx([4 * alone.row.p] * 4)
    assert {finding.row.verdict for finding in several} == {"no difference seen"}


# --- which models -----------------------------------------------------------------------------------------------------


def sides(finding):
    """Model, dataset and recipe of both."""
    row = finding.row
    return (row.model_a, row.dataset, row.recipe_a), (row.model_b, row.dataset, row.recipe_b)


def test_pairs_share_dataset_recipe_and_options(store):
    for dataset in ("digits", "svhn"):
        for recipe in ("digits", "paper"):
            for options in ("", ":norm=batch"):
                store.accuracy(f"jem{options}", 0.9, dataset=dataset, recipe=recipe)
                if (dataset, recipe) != ("svhn", "paper"):
                    store.accuracy(f"baseline{options}", 0.8, dataset=dataset, recipe=recipe)
    pairs = [sides(finding) for finding in store.judge(claim())]
    assert pairs == [
        (("jem", *place), ("baseline", *place))
        for place in (("digits", "digits"), ("digits", "paper"), ("svhn", "digits"))
    ]


def test_changed_models_and_recipes_where_there_are_no_others(store):
    for model in ("jem", "baseline"):
        store.accuracy(f"{model}:norm=batch", 0.9, recipe="digits")
        store.accuracy(model, 0.9, recipe="digits+epochs=5")
    assert [sides(finding)[0] for finding in store.judge(claim())] == [
        ("jem:norm=batch", "digits", "digits"),
        ("jem", "digits", "digits+epochs=5"),
    ]
    for model in ("jem", "baseline"):
        store.accuracy(model, 0.9)
    assert [sides(finding)[0] for finding in store.judge(claim())] == [("jem", "digits", "digits")]


def test_variants_of_one_model_are_left_out_beside_another_that_has_only_changed_options(store):
    store.accuracy("igebm:width=16", 0.9, recipe="igebm-digits")
    for recipe in ("digits", "digits+guard.mode=watch", "digits+epochs=5"):
        store.accuracy("jem", 0.9, recipe=recipe)
    store.accuracy("jem:norm=batch", 0.9, recipe="digits")
    found = [sides(finding) for finding in store.judge(claim(than="igebm"))]
    assert found == [(("jem", "digits", "digits"), ("igebm:width=16", "digits", "igebm-digits"))]


def test_a_change_of_the_recipe(store):
    asked = claim(than="jem", direction="lower", recipes=(Recipes("*+c=true", "*"), Recipes("paper-c", "paper")))
    store.accuracy("jem", 0.9)
    store.accuracy("jem", 0.7, recipe="digits+c=true")
    store.accuracy("jem", 0.7, recipe="paper-c")
    (found,) = store.judge(asked)
    assert found.row.verdict == "one seed only (for)"
    assert [found.row.recipe_a, found.row.recipe_b] == ["digits+c=true", "digits"]


def test_a_recipe_that_a_claim_names_is_for_such_claims_alone(store):
    for model in ("jem", "baseline"):
        store.accuracy(model, 0.9, recipe="digits")
        store.accuracy(model, 0.9, recipe="digits-100-labels")
    few = claim(id="mine/few", recipes=(Recipes("*-labels", "*-labels"),))
    found = [(finding.claim.id, finding.row.recipe_a) for finding in store.judge(claim(), few)]
    assert found == [("mine/one", "digits"), ("mine/few", "digits-100-labels")]
    assert len(store.judge(claim())) == 2  # another paper may see no difference


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "`jembench run hybrid`"),
        ({"measure": ("jembench run a", "jembench run b")}, "`jembench run a` and `jembench run b`"),
        ({"than": "igebm-of-nobody"}, "no model igebm-of-nobody is installed"),
        ({"metric": "", "unmeasured": "no suite attacks models yet"}, "no suite attacks models yet"),
    ],
)
def test_what_was_not_measured_says_what_measures_it(store, fields, reason):
    store.accuracy("jem", 0.9)
    (found,) = store.judge(claim(**fields))
    assert (found.row.verdict, found.row.reason) == ("not measured", reason)


# --- shown ------------------------------------------------------------------------------------------------------------


def test_every_claim_is_shown_once(store):
    store.accuracy("jem", 0.9)
    store.accuracy("baseline", 0.8)
    found = store.judge(*CLAIMS)
    shown = verdicts.of_claims(found)
    texts = [row[0].value for grid in shown.tables() for row in grid.rows]
    notes = " ".join(note.text for grid in shown.tables() for note in grid.footnotes)
    for finding in found:
        if finding.row.verdict == "not measured":
            assert notes.count(f"{finding.claim.text} ({finding.claim.paper.cite}") == 1
        else:
            assert texts.count(finding.claim.text) == 1
    assert len(shown.records()) == len(found)
    assert all(set(record) == set(verdicts.CLAIM_FIELDS) for record in shown.records())


def test_a_claim_says_which_value_dataset_and_recipes_it_is_of(store):
    for dataset in ("digits", "svhn"):
        store.accuracy("jem", 0.9, dataset=dataset, recipe="a+c=1")
        store.accuracy("jem", 0.8, dataset=dataset, recipe="a")
    asked = claim(than="jem", recipes=(Recipes("*+c=1", "*"),))
    (grid,) = verdicts.of_claims(store.judge(asked)).tables()
    assert [row[0].value for row in grid.rows] == [
        "One · digits · recipes a+c=1 and a",
        "One · svhn · recipes a+c=1 and a",
    ]
