"""Unions of suites, grids, variants and recipes of suites, and the plans that they make."""

import dataclasses

import pytest

from jembench.catalog import packages
from jembench.errors import SpecError
from jembench.experiment import suite_files as suite
from jembench.experiment.claims import Claim, Fit, Paper
from jembench.experiment.planning import display_names_of, fit_names_of, make_plan, parts_of
from jembench.experiment.suite import of_attack
from jembench.store.outcome import FitKey

ANY = "jembench.sampling.factories:sgld"
"""A model's factory as far as planning can tell: it is imported, and never called."""

FEW = f'title = "Few"\nmodels = ["{ANY}"]\ndatasets = ["digits", "cifar10"]\n'
GRID = """
[[grid]]
title = "Outliers"
metric = "outlier_metrics:ood"
values = ["auroc"]
rows = { score = ["log-px", "max-py"] }
columns = { set = ["cifar10", "cifar100"] }
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install suites, each given by its text."""

    def install(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.toml").write_text(text)
        files = {name: tmp_path / f"{name}.toml" for name in texts}
        ordinary = packages.files
        monkeypatch.setattr(packages, "files", lambda folder="": ordinary(folder) if folder else files)

    return install


def metrics_on(plan, dataset):
    return list(dict.fromkeys(str(cell.metric) for cell in plan.cells if str(cell.fit.dataset) == dataset))


def test_a_grid_adds_its_metrics_to_those_of_the_suite(installed):
    installed(few=FEW + 'metrics = ["accuracy"]\n' + GRID)
    plan = make_plan(suite.load("few"))
    name = "outlier_metrics:ood"
    of_10, of_100 = ([f"{name}:set={data}", f"{name}:score=max-py,set={data}"] for data in ("cifar10", "cifar100"))
    assert metrics_on(plan, "digits") == ["accuracy", of_10[0], of_100[0], of_10[1], of_100[1]]
    assert metrics_on(plan, "cifar10") == ["accuracy", *of_100]  # its own images are no outliers
    assert len(plan.cells) == 5 + 3


@pytest.mark.parametrize(("line", "on"), [('on = ["digits"]', ["digits"]), ('except = ["digits"]', ["cifar10"])])
def test_a_grid_for_some_datasets_alone(installed, line, on):
    installed(few=FEW + GRID + line)
    assert {str(fit.dataset) for fit in make_plan(suite.load("few")).fits} == set(on)


def test_a_suite_of_which_nothing_is_for_the_dataset(installed):
    installed(few=FEW + GRID + 'on = ["svhn"]')
    with pytest.raises(SpecError, match="nothing to run: no metric of the suite few is for digits, cifar10"):
        make_plan(suite.load("few"))


def test_settings_of_a_grid_s_metric(installed):
    installed(few=FEW + GRID)
    settings = ["outlier_metrics:ood.images=9", "outlier_metrics:ood.score=max-py"]
    plan = make_plan(suite.load("few"), settings=settings)
    assert metrics_on(plan, "cifar10") == ["outlier_metrics:ood:images=9,score=max-py,set=cifar100"]
    (part,) = plan.parts
    assert [place.metric for place in part.grids[0].places][1:] == metrics_on(plan, "cifar10")


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("", {"digits": "digits", "cifar10": "paper"}),
        ('recipe = "code"', {"digits": "code", "cifar10": "code"}),
        ('recipe = { digits = "fast" }', {"digits": "fast", "cifar10": "paper"}),
        ('recipe = { digits = "fast", default = "code" }', {"digits": "fast", "cifar10": "code"}),
    ],
)
def test_the_recipe_of_a_suite(installed, recipe, expected):
    installed(few=FEW + 'metrics = ["nll"]\n' + recipe)
    loaded = suite.load("few")
    assert {str(fit.dataset): fit.recipe.name for fit in make_plan(loaded).fits} == expected
    assert {fit.recipe.name for fit in make_plan(loaded, recipe="sada").fits} == {"sada"}


VARIANTS = """
metrics = ["nll"]
[[variant]]
name = "as it is"
[[variant]]
name = "short-run"
settings = ["chains.sampler=sgld:steps=7"]
on = ["digits"]
[[variant]]
name = "proximal"
models = ["jembench.sampling.factories:proximal"]
"""


def test_variants_are_all_that_is_trained(installed):
    installed(few=FEW + VARIANTS)
    plan = make_plan(suite.load("few"))
    other = "jembench.sampling.factories:proximal"
    assert [(fit.key.dataset, fit.key.recipe, fit.key.model) for fit in plan.fits] == [
        ("digits", "digits", ANY),
        ("digits", "digits+chains.sampler=sgld:steps=7", ANY),
        ("digits", "digits", other),
        ("cifar10", "paper", ANY),
        ("cifar10", "paper", other),
    ]
    assert plan.parts[0].variants == {"digits+chains.sampler=sgld:steps=7": "short-run"}
    assert parts_of(suite.load("few"), [])[0].variants == plan.parts[0].variants


def test_the_command_line_is_stronger_than_a_variant_and_its_recipe_has_the_name_all_the_same(installed):
    installed(few=FEW + VARIANTS)
    plan = make_plan(suite.load("few"), settings=["epochs=1", "chains.sampler=sgld:steps=2"])
    label = "digits+epochs=1+chains.sampler=sgld:steps=2"
    assert [fit.key.recipe for fit in plan.fits if fit.key.dataset == "digits"] == [label, label]
    assert plan.parts[0].variants == {label: "short-run"}


UNION = 'title = "Both"\ninclude = ["few", "more"]\nreference = ["jem-iclr2020/figure4"]\n'
MORE = (
    FEW.replace("Few", "More") + 'metrics = ["nll", "accuracy"]\nseeds = [0, 1]\nreference = ["jem-iclr2020/table1"]\n'
)


def test_a_union_is_the_work_of_all_each_once(installed):
    installed(both=UNION, few=FEW + 'metrics = ["nll"]', more=MORE)
    both = suite.load("both")
    cells = {cell.id: cell for name in ("few", "more") for cell in make_plan(suite.load(name)).cells}
    plan = make_plan(both)
    assert [cell.id for cell in plan.cells] == list(cells)
    assert [(part.title, part.metrics) for part in plan.parts] == [("Few", ("nll",)), ("More", ("nll", "accuracy"))]
    assert both.references == ["jem-iclr2020/figure4"]
    installed(both=UNION.replace("reference", "#"), few=FEW + 'metrics = ["nll"]', more=MORE)
    assert suite.load("both").references == ["jem-iclr2020/table1"]


def test_a_union_may_name_the_recipes_and_include_unions(installed):
    texts = {
        "few": FEW + 'metrics = ["nll"]\nrecipe = { default = "code" }',
        "more": MORE,
        "both": UNION + 'recipe = { digits = "fast" }',
    }
    installed(all='title = "All"\ninclude = ["both", "few"]', **texts)
    whole = suite.load("all")
    assert [(part.name, dict(part.recipe)) for part in whole.parts] == [
        ("few", {"default": "code"}),
        ("more", {"digits": "fast"}),
    ]
    assert [part.recipe for part in suite.load("both").parts] == [
        {"default": "code", "digits": "fast"},
        {"digits": "fast"},
    ]


def test_suites_that_include_each_other(installed):
    installed(both=UNION, few='title = ""\ninclude = ["more"]', more='title = ""\ninclude = ["few"]')
    with pytest.raises(SpecError, match=r"^The suite few includes more includes few\. Leave one of these out\.$"):
        suite.load("both")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('include = ["nowhere"]', "There is no suite named 'nowhere'."),
        ('include = "few"', "include of suite both is 'few'; it must be a list of suites' names."),
        ('include = ["few"]\n[[variant]]\nname = "v"', "suite both includes others, and has variants of its own."),
        (FEW + GRID.replace("columns", "colums"), "There is no key in grid[0] of suite both named 'colums'."),
        (FEW + GRID + 'vlaues = ["fpr95"]', "There is no key in grid[0] of suite both named 'vlaues'. Nearest: values"),
        (FEW + "metrics = []\n[[variant]]\nsettings = []", "suite both lacks variant[0].name."),
    ],
)
def test_a_union_a_grid_and_a_variant_are_read_strictly(installed, text, expected):
    installed(both=text if "title" in text else f'title = ""\n{text}', few=FEW + 'metrics = ["nll"]')
    with pytest.raises(SpecError) as caught:
        suite.load("both")
    assert str(caught.value).startswith(expected)


def test_parts_that_measure_the_same_are_shown_as_one(installed):
    installed(both=UNION, few=FEW + 'metrics = ["nll"]', more=MORE.replace("cifar10", "svhn"))
    both = suite.load("both")
    same = tuple(dataclasses.replace(part, metrics=("ece",)) for part in both.included)
    (part,) = make_plan(dataclasses.replace(both, included=same)).parts
    assert {dataset for _, dataset, _ in part.rows} == {"digits", "cifar10", "svhn"}


def test_results_that_are_there_are_shown_in_the_parts_that_train_by_their_recipe(installed):
    installed(both=UNION, few=FEW + 'metrics = ["nll"]\nrecipe = "code"', more=MORE)
    recipes_seen = ["code", "code+epochs=1", "digits", "digits-paper"]
    keys = [FitKey(model="m", dataset="digits", recipe=recipe, seed=0, id="") for recipe in recipes_seen]
    few, more = parts_of(suite.load("both"), keys)
    assert sorted(recipe for *_, recipe in few.rows) == ["code", "code+epochs=1", "digits-paper"]
    assert sorted(recipe for *_, recipe in more.rows) == ["digits", "digits-paper"]


def test_the_grids_of_all_suites_that_can_be_used(installed):
    broken = FEW + GRID.replace("outlier_metrics:ood", "no_such_metric")
    installed(few=FEW + GRID, again=FEW + GRID.replace('values = ["auroc"]', ""), broken=broken, torn="title = ")
    (grid,) = suite.all_grids()
    assert (grid.title, grid.values) == ("Outliers", ())


# --- models with tables, attacks, settings, and what a file says in place of the suites that it includes --------------

OTHER = "jembench.sampling.factories:proximal"
TABLES = f"""
title = "Mine"
models = ["{ANY}"]
datasets = ["digits"]
metrics = ["accuracy", "ece"]
seeds = [0, 1]
settings = ["epochs=20", "ece.bins=9"]
limit = 30
[[model]]
spec = "{OTHER}"
name = "Ours"
recipe = "fast"
settings = ["epochs=3"]
seeds = [7]
"""


def fits_of(plan):
    return [(fit.key.model, fit.key.recipe, fit.seed) for fit in plan.fits]


def test_a_model_with_a_table_has_a_recipe_settings_and_seeds_of_its_own(installed):
    installed(mine=TABLES)
    mine = suite.load("mine")
    plan = make_plan(mine)
    assert fits_of(plan) == [(ANY, "digits+epochs=20", 0), (ANY, "digits+epochs=20", 1), (OTHER, "fast+epochs=3", 7)]
    assert {str(cell.metric) for cell in plan.cells} == {"accuracy", "ece:bins=9"}
    assert {cell.limit for cell in plan.cells} == {30}
    assert parts_of(mine, [])[0].metrics == ("accuracy", "ece:bins=9")


def test_the_command_line_is_stronger_than_the_table_of_a_model(installed):
    installed(mine=TABLES)
    mine = suite.load("mine").choose(models=[OTHER], seeds=[2])
    assert fits_of(make_plan(mine)) == [(OTHER, "fast+epochs=3", 2)]
    plan = make_plan(mine, recipe="code", settings=["epochs=1", "ece.bins=4"], limit=5)
    assert fits_of(plan) == [(OTHER, "code+epochs=1", 2)]
    assert {(str(cell.metric), cell.limit) for cell in plan.cells} == {("accuracy", 5), ("ece:bins=4", 5)}


def test_a_recipe_that_a_suite_names_alone_is_that_of_all_its_models(installed):
    text = 'title = ""\nmodels = ["jem", "glow"]\ndatasets = ["digits"]\nmetrics = ["accuracy"]\n'
    installed(one=text + 'recipe = "fast"', each=text + 'recipe = { digits = "fast" }')
    recipes_of = {name: [recipe for _, recipe, _ in fits_of(make_plan(suite.load(name)))] for name in ("one", "each")}
    assert recipes_of == {"one": ["fast", "fast"], "each": ["fast", "glow-digits"]}


def test_of_images_that_are_elsewhere_every_default_recipe_is_meant(installed, tmp_path):
    installed(few=FEW.replace('"digits", "cifar10"', f'"imagefolder:root={tmp_path}/gone"') + 'metrics = ["accuracy"]')
    assert {recipe for _, _, recipe, _ in fit_names_of(suite.load("few"))} == {"paper", "small-images"}
    (training,) = make_plan(suite.load("few").choose(datasets=["digits"])).fits
    (names,) = fit_names_of(suite.load("few").choose(datasets=["digits"]))
    assert names == (*training.key.names, training.seed)


TWICE = """
title = "Twice"
datasets = ["digits", "cifar10"]
metrics = ["accuracy"]
models = ["jem"]
[[model]]
spec = "jem"
name = "JEM, long"
recipe = "digits"
settings = ["epochs=90"]
[[model]]
spec = "jem"
name = "JEM"
[[model]]
spec = "baseline"
name = "Classifier"
"""


def test_models_of_one_spec_have_names_by_their_recipes(installed):
    installed(twice=TWICE.replace('models = ["jem"]', ""))
    names = {("jem", "digits+epochs=90"): "JEM, long", ("jem", "digits"): "JEM", ("jem", "paper"): "JEM"}
    names[("baseline", "")] = "Classifier"  # one name alone is that of every recipe
    assert display_names_of(suite.load("twice")) == names == make_plan(suite.load("twice")).names


def test_two_spellings_of_one_spec_have_names_by_their_recipes_too(installed):
    installed(twice=TWICE.replace('spec = "jem"\nname = "JEM"', 'spec = "jembench-jem/jem"\nname = "JEM"'))
    names = display_names_of(suite.load("twice").choose(datasets=["digits"]))
    assert names["jem", "digits+epochs=90"] == "JEM, long"
    assert names["jembench-jem/jem", "digits"] == "JEM"


def test_what_the_command_line_makes_one_training_has_both_names(installed):
    installed(twice=TWICE)
    plan = make_plan(suite.load("twice").choose(datasets=["digits"]), settings=["epochs=1"])
    assert plan.names == {("jem", "digits+epochs=1"): "JEM, long / JEM", ("baseline", ""): "Classifier"}


CLAIM = """
[[claim]]
id = "accurate"
text = "JEM is as accurate"
metric = "accuracy"
higher = "jem"
than = "baseline"
within = 1.0
"""


def test_a_suite_makes_claims_with_the_fields_of_those_of_papers(installed):
    installed(both='title = "Both"\ninclude = ["few"]\n' + CLAIM, few=FEW + 'metrics = ["accuracy"]')
    claims = suite.load("both").claims
    paper = Paper(title="suite both", cite="Both", url="")
    given = {"id": "both/accurate", "text": "JEM is as accurate", "where": "", "measure": ("jembench run both",)}
    given |= {"metric": ("accuracy",), "fits": (Fit("jem"),), "than": (Fit("baseline"),), "within": 1.0}
    assert claims == [Claim(**given, paper=paper)]


def test_a_suite_that_is_included_twice_makes_its_claims_once(installed):
    few = FEW + 'metrics = ["accuracy"]' + CLAIM
    of_few = 'title = "Of few"\ninclude = ["few"]\n'
    installed(few=few, one=of_few, other=of_few, both='title = "Both"\ninclude = ["one", "other"]\n')
    assert [claim.id for claim in suite.load("both").claims] == ["few/accurate"]


ATTACK = """
[[attack]]
name = "pgd"
norm = ["linf", "l2"]
refine = 1
images = 5
"""


def test_the_attacks_of_a_suite_are_those_of_the_command(installed):
    installed(few=FEW + ATTACK)
    options = {"norm": ["linf", "l2"], "refine": "1", "images": 5}
    attacked = of_attack("pgd", options, models=[ANY], datasets=["digits", "cifar10"], seeds=[0])
    plan, ours = make_plan(attacked), make_plan(suite.load("few"))
    assert [cell.id for cell in ours.cells] == [cell.id for cell in plan.cells]
    assert metrics_on(ours, "digits")[0] == "pgd:budget=quick,images=5"
    assert [part.title for part in ours.parts] == ["Robustness: pgd"] * 2
    assert [part.rows for part in parts_of(suite.load("few"), [])] == [frozenset()] * 2


def test_what_a_file_names_stands_in_place_of_that_of_the_suites_that_it_includes(installed):
    mine = f'title = ""\ninclude = ["both"]\nmodels = ["{OTHER}"]\nseeds = [4]\nrecipe = "fast"\nlimit = 8\n'
    installed(mine=mine + ATTACK, both=UNION, few=FEW + 'metrics = ["nll"]', more=MORE)
    plan = make_plan(suite.load("mine"))
    by_hand = make_plan(suite.load("both").choose(models=[OTHER], seeds=[4]), recipe="fast", limit=8)
    ids = [cell.id for cell in plan.cells]
    assert ids[: len(by_hand.cells)] == [cell.id for cell in by_hand.cells]
    assert {cell.metric.component.name for cell in plan.cells[len(by_hand.cells) :]} == {"pgd"}
    assert {(model, seed) for model, _, seed in fits_of(plan)} == {(OTHER, 4)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ATTACK + "nrom = 3", "There is no key in attack[0] of suite mine named 'nrom'. Nearest: norm"),
        ('[[attack]]\nname = "pdg"', "There is no attack named 'pdg'. Nearest: pgd"),
        (
            '[[model]]\nspec = "jem"\nname = "A"\n[[model]]\nspec = "jem"\nname = "B"',
            "suite mine gives jem the names 'A' and 'B', and trains both by the same recipe.",
        ),
        (
            'metrics = ["ece"]' + CLAIM,
            "The claim mine/accurate of suite mine is about accuracy, which is not measured.",
        ),
        (
            CLAIM.replace('than = "baseline"', ""),
            "mine/accurate has neither than nor than_metric: nothing to be higher",
        ),
        ("[run]\nmax_hours = 0", "In suite mine, run.max_hours is 0; it must be greater than 0."),
    ],
)
def test_the_tables_of_a_file_are_read_strictly(installed, text, expected):
    installed(mine=FEW + text)
    with pytest.raises(SpecError) as caught:
        suite.load("mine")
    assert str(caught.value).startswith(expected)


def test_an_experiment_in_a_file_of_its_own_is_named_by_its_path_in_errors(tmp_path):
    (tmp_path / "mine.toml").write_text('title = ""\n[[model]]\nspec = "math:sqrt"')
    path = str(tmp_path / "mine.toml")
    with pytest.raises(SpecError, match=f"^The suite {path} names math:sqrt, which runs code that you did not name"):
        suite.load(path)
    (tmp_path / "mine.toml").write_text('title = ""\nlimits = 3')
    with pytest.raises(SpecError, match=f"^There is no key in {path} named 'limits'. Nearest: limit"):
        suite.load(path)
