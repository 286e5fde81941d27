"""Suites: how their files are read, what their blocks cross, and what a command line puts in place
of what they say.
"""

import dataclasses

import pytest

from jembench.catalog import packages
from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment import suite as suites
from jembench.experiment.attacks import attack_suite
from jembench.experiment.claims import Claim, NamedFit, Paper
from jembench.experiment.crossing import fit_names_of, make_plan, presentation
from jembench.experiment.names import DisplayNames
from jembench.experiment.recipe import load as load_recipe
from jembench.experiment.stored import with_imports
from jembench.experiment.sweep import covers
from jembench.store.fits import FitRecord
from jembench.store.outcome import FitKey
from jembench.store.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:The recipe .* flips images:jembench.errors.Remark")

ANY = "jembench.sampling.factories:sgld"
OTHER = "jembench.sampling.factories:proximal"
"""Models' factories as far as planning can tell: they are imported, and never called."""

FEW = f'title = "Few"\nmodels = ["{ANY}"]\ndatasets = ["digits", "cifar10"]\n'
NLL = 'metrics = ["nll"]\n'
OOD = "outlier_metrics:ood"
GRID = f"""
[[grid]]
title = "Outliers"
metric = "{OOD}"
values = ["auroc"]
rows = {{ score = ["log-px", "max-py"] }}
columns = {{ set = ["cifar10", "cifar100"] }}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install suites, each given by its text, and load the first one."""

    def install(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.toml").write_text(text)
        files = {name: tmp_path / f"{name}.toml" for name in texts}
        ordinary = packages.files
        monkeypatch.setattr(
            packages, "files", lambda folder="": ordinary(folder) if folder else files
        )
        return suites.load(next(iter(texts)))

    return install


def fits_of(plan):
    return [(fit.key.dataset, fit.key.model, fit.key.recipe, fit.seed) for fit in plan.fits]


def metrics_on(plan, dataset):
    return list(
        dict.fromkeys(str(cell.metric) for cell in plan.cells if str(cell.fit.dataset) == dataset)
    )


BLOCKS = f"""
metrics = ["nll"]
seeds = [0, 1]
settings = ["epochs=20", "ece.bins=9"]
[[run]]
[[run]]
label = "short-run"
datasets = ["digits"]
seeds = [0]
settings = ["chains.sampler=sgld:steps=7"]
[[run]]
name = "Ours"
models = ["{OTHER}"]
datasets = ["!digits"]
recipe = "fast"
metrics = ["ece"]
seeds = [7]
"""


def test_a_block_is_crossed_by_itself_and_takes_what_it_leaves_out_from_the_head(installed):
    plan = make_plan(installed(few=FEW + BLOCKS))
    assert fits_of(plan) == [
        *(("digits", ANY, "digits-quick+epochs=20", seed) for seed in (0, 1)),
        *(("cifar10", ANY, "paper+epochs=20", seed) for seed in (0, 1)),
        ("digits", ANY, "digits-quick+epochs=20+chains.sampler=sgld:steps=7", 0),
        ("cifar10", OTHER, "fast+epochs=20", 7),
    ]
    assert (metrics_on(plan, "digits"), metrics_on(plan, "cifar10")) == (
        ["nll"],
        ["nll", "ece:bins=9"],
    )
    names = DisplayNames(
        models={(OTHER, "fast+epochs=20"): "Ours"},
        recipes={"digits-quick+epochs=20+chains.sampler=sgld:steps=7": "short-run"},
    )
    assert plan.names == names == presentation(plan.suite, [])[1]
    (part,) = plan.parts
    assert part.rows[OTHER, "cifar10", "fast+epochs=20"] == ("ece:bins=9",)
    assert fit_names_of(plan.suite) == {(*fit.key.names, fit.seed) for fit in plan.fits}


def test_a_model_that_is_not_installed_has_the_names_of_its_block(installed):
    block = 'name = "Gone"\nlabel = "two epochs"\nrecipe = "paper"\nsettings = ["epochs=2"]\n'
    suite = installed(few=FEW.replace(f'"{ANY}"', '"gone"') + NLL + f"[[run]]\n{block}")
    keys = []
    for recipe in ("paper+epochs=2+gone.width=3", "code"):
        made = FitKey(
            model=Spec("gone:width=3"), dataset=Spec("cifar10"), recipe=recipe, seed=0, id=recipe
        )
        keys.append(made)
    _, names = presentation(suite, keys)
    recipe = "paper+epochs=2+gone.width=3"
    assert names.models == {("gone:width=3", recipe): "Gone"}
    assert names.recipes == {recipe: "two epochs"}
    again = dataclasses.replace(keys[0], model=Spec("gone:width=4"))
    _, names = presentation(suite, [keys[0], again])  # which of both is not known
    assert names == DisplayNames()


def test_results_are_in_the_order_of_the_suite(installed):
    few = installed(
        few=FEW.replace(f'"{ANY}"', '"jem", "baseline"')
        + NLL
        + '[[run]]\n[[run]]\nsettings = ["epochs=9"]\n'
    )
    shown = [
        ("glow", "glow"),
        ("baseline", "code"),
        ("jem", "paper+epochs=9"),
        ("baseline", "paper"),
        ("jem", "paper"),
    ]
    keys = [
        FitKey(model=Spec(model), dataset=Spec("cifar10"), recipe=recipe, seed=0, id=model)
        for model, recipe in shown
    ]
    (part,), _ = presentation(few, keys)
    assert [(model, recipe) for model, _, recipe in part.rows] == [
        *(("jem", "paper"), ("baseline", "code"), ("baseline", "paper")),
        *(("jem", "paper+epochs=9"), ("glow", "glow")),
    ]


def test_the_command_line_stands_in_place_of_what_blocks_say(installed):
    few = installed(few=FEW + BLOCKS)
    digits = few.replaced(datasets=["jembench/digits"], metrics=["ece"], seeds=[5])
    settings = ["epochs=1", "chains.sampler=sgld:steps=2", "ece.bins=4"]
    plan = make_plan(digits, recipe="code", settings=settings, limit=3)
    label = "code+epochs=1+data.flip=false+chains.sampler=sgld:steps=2"
    assert fits_of(plan) == [("digits", ANY, label, 5)]
    assert [(str(cell.metric), cell.limit) for cell in plan.cells] == [("ece:bins=4", 3)]
    assert plan.names == DisplayNames(recipes={label: "short-run"})
    # of a block's own models, those remain
    twice = few.replaced(datasets=["cifar10"], models=[OTHER, ANY])
    assert [
        (model, recipe) for _, model, recipe, _ in dict.fromkeys(fits_of(make_plan(twice)))
    ] == [
        *([(OTHER, "paper+epochs=20")] * 2),
        *([(ANY, "paper+epochs=20")] * 2),
        (OTHER, "fast+epochs=20"),
    ]


def test_an_imported_fit_has_its_own_recipe_name_and_seed_in_every_block(installed, tmp_path):
    recipe, about = (
        load_recipe("pretrained", ["source=0123456789ab"]),
        {"imported": {"name": "theirs"}},
    )
    key = FitKey(model=Spec("glow"), dataset=Spec("digits"), recipe=recipe.label, seed=4, id="0")
    record = FitRecord(key, "imported", "", dataclasses.asdict(recipe), 0, None, 0.0, (), (), about)
    Store(tmp_path).write_fit(record)
    claim = CLAIM.replace('"accuracy"', '"nll"').replace('"jem"', '"theirs"')
    few = installed(few=FEW.replace(', "cifar10"', "") + NLL + "seeds = [0, 1]" + claim)
    few = with_imports(few.replaced(models=["baseline", "theirs"]), Store(tmp_path))
    assert few.claims[0].fits == (NamedFit("glow", recipe.label),)
    plan = make_plan(few, settings=["epochs=3"])
    label = "pretrained+source=0123456789ab"
    assert [fit[1:] for fit in fits_of(plan)] == [
        ("baseline:net=half-32", "digits-quick+epochs=3", 0),
        ("baseline:net=half-32", "digits-quick+epochs=3", 1),
        ("glow", label, 4),
    ]
    assert plan.fits[-1].asked == "theirs"


def test_a_model_that_no_block_takes_is_refused(installed):
    few = installed(few=f'title = ""\ndatasets = ["digits"]\n{NLL}[[run]]\nmodels = ["{ANY}"]')
    with pytest.raises(
        SpecError, match=rf"^No block of the suite few takes the model jem: .* which are {ANY}\."
    ):
        few.replaced(models=["jem"])


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("", ["digits-quick", "glow-digits", "paper", "glow"]),
        ('recipe = "code"', ["code", "code", "code", "code"]),
        ('recipe = { digits = "fast" }', ["fast", "glow-digits", "paper", "glow"]),
        ('recipe = { digits = "fast", default = "code" }', ["fast", "glow-digits", "code", "glow"]),
    ],
)
def test_the_recipe_of_a_block(installed, recipe, expected):
    few = installed(few=FEW.replace(f'"{ANY}"', '"jem", "glow"') + NLL + recipe)
    assert [fit.recipe.name for fit in make_plan(few).fits] == expected
    assert {fit.recipe.name for fit in make_plan(few, recipe="sada").fits} == {"sada"}


def test_what_the_command_line_makes_one_training_has_both_names(installed):
    blocks = '[[run]]\nname = "Long"\nsettings = ["epochs=9"]\n[[run]]\nname = "Short"\n'
    plan = make_plan(
        installed(few=FEW + NLL + blocks).replaced(datasets=["digits"]), settings=["epochs=1"]
    )
    assert plan.names.models == {(ANY, "digits-quick+epochs=1"): "Long / Short"}


def test_a_grid_adds_its_metrics_to_those_of_its_block(installed):
    few = installed(few=FEW + 'metrics = ["accuracy"]\n' + GRID)
    plan = make_plan(few)
    of_10, of_100 = (
        [f"{OOD}:set={data}", f"{OOD}:score=max-py,set={data}"] for data in ("cifar10", "cifar100")
    )
    assert metrics_on(plan, "digits") == ["accuracy", of_10[0], of_100[0], of_10[1], of_100[1]]
    assert metrics_on(plan, "cifar10") == ["accuracy", *of_100]  # its own images are no outliers
    plan = make_plan(few, settings=[f"{OOD}.images=9", f"{OOD}.score=max-py"])
    assert metrics_on(plan, "cifar10") == ["accuracy", f"{OOD}:images=9,score=max-py,set=cifar100"]
    assert [place.metric for place in plan.parts[0].grids[0].places][1:] == metrics_on(
        plan, "cifar10"
    )[1:]


def test_an_attack_on_several_datasets_has_a_block_for_each():
    options = {"norm": ["linf", "l2"], "refine": "1", "images": 5, "eps": None}
    plan = make_plan(attack_suite("pgd", options, ["digits", "cifar10"]).replaced(models=[ANY]))
    assert metrics_on(plan, "digits") == [
        "pgd:budget=quick,images=5",
        "pgd:budget=quick,images=5,refine=1",
        "pgd:budget=quick,images=5,norm=l2",
        "pgd:budget=quick,images=5,norm=l2,refine=1",
    ]
    assert metrics_on(plan, "cifar10")[-1] == "pgd:images=5,norm=l2,refine=1"
    assert [part.title for part in plan.parts] == [
        "Robustness: pgd, digits",
        "Robustness: pgd, cifar10",
    ]
    spec = attack_suite("pgd:steps=5", {"norm": "l2"}, ["cifar10"])
    assert metrics_on(make_plan(spec.replaced(models=[ANY])), "cifar10") == ["pgd:norm=l2,steps=5"]
    with pytest.raises(
        SpecError,
        match=r"^There is no attack named 'pdg'\. Nearest: pgd\. Known: boundary, distal, pgd,",
    ):
        attack_suite("pdg", {}, ["digits"])


BOTH = 'title = "Both"\ninclude = ["few", "more"]\n'
MORE = (
    FEW.replace("Few", "More")
    + 'metrics = ["nll", "ece"]\nseeds = [0, 1]\nreference = ["jem-iclr2020/table1"]\n'
)


def test_included_suites_stand_one_after_the_other(installed):
    both = installed(both=BOTH, few=FEW + NLL, more=MORE)
    plan, cells = (
        make_plan(both),
        [cell.id for name in ("few", "more") for cell in make_plan(suites.load(name)).cells],
    )
    assert [cell.id for cell in plan.cells] == list(dict.fromkeys(cells))
    assert [(part.title, part.metrics) for part in plan.parts] == [
        ("Few", ("nll",)),
        ("More", ("nll", "ece")),
    ]
    assert both.references == ("jem-iclr2020/table1",)
    (part,) = make_plan(both.replaced(metrics=["brier"])).parts
    assert (part.title, set(part.rows.values())) == ("Both", {("brier",)})


def test_what_a_file_says_stands_in_place_of_what_the_suites_say_that_it_includes(installed):
    mine = f'models = ["{OTHER}"]\nseeds = [4]\nrecipe = "fast"\nlimit = 8\nreference = []\n'
    loaded = installed(
        mine='title = ""\ninclude = ["both"]\n' + mine, both=BOTH, few=FEW + NLL, more=MORE
    )
    by_hand = make_plan(
        suites.load("both").replaced(models=[OTHER], seeds=[4]), recipe="fast", limit=8
    )
    assert [cell.id for cell in make_plan(loaded).cells] == [cell.id for cell in by_hand.cells]
    assert loaded.references == ()


def test_a_block_may_include_suites_for_some_datasets_and_with_other_metrics(installed):
    blocks = (
        '[[run]]\ninclude = ["few"]\ndatasets = ["cifar10", "svhn"]\n'
        '[[run]]\ninclude = ["few"]\nmetrics = ["ece"]\n'
    )
    few = FEW + '[[run]]\ndatasets = ["!svhn"]\nmetrics = ["nll"]\n'
    plan = make_plan(
        installed(both='title = "Both"\n' + blocks, few=few).replaced(
            datasets=["digits", "cifar10"]
        )
    )
    assert (metrics_on(plan, "digits"), metrics_on(plan, "cifar10")) == (["ece"], ["nll", "ece"])
    assert [part.title for part in plan.parts] == ["Few", "Both"]


def test_recipes_for_datasets_are_for_included_suites_that_name_none(installed):
    texts = {"few": FEW + NLL + 'recipe = { default = "code" }', "more": MORE}
    both = installed(both=BOTH + 'recipe = { digits = "fast", default = "sada" }', **texts)
    recipes = [{"default": "code", "digits": "fast"}, {"digits": "fast", "default": "sada"}]
    assert [run.recipe for run in both.runs] == recipes


def test_only_installed_suites_are_included(tmp_path):
    (tmp_path / "mine.toml").write_text(f'title = ""\ninclude = ["{tmp_path}/few.toml"]')
    (tmp_path / "few.toml").write_text('title = ""')
    with pytest.raises(
        SpecError, match=r"^The suite mine includes the file .*few\.toml; it may include installed"
    ):
        suites.load(str(tmp_path / "mine.toml"))


def test_suites_that_include_each_other(installed):
    with pytest.raises(
        SpecError, match=r"^The suite few includes more includes few\. Leave one of these out\.$"
    ):
        installed(few='title = ""\ninclude = ["more"]', more='title = ""\ninclude = ["few"]')


def test_results_are_shown_with_the_blocks_that_train_by_their_recipe(installed):
    both = installed(both=BOTH, few=FEW + NLL + 'recipe = "code"', more=MORE)
    recipes_seen = ["code", "code+epochs=1", "digits-quick", "digits-paper"]
    keys = [
        FitKey(model=Spec("m"), dataset=Spec("digits"), recipe=recipe, seed=0, id="")
        for recipe in recipes_seen
    ]
    (few, more), _ = presentation(both, keys)
    assert {recipe: metrics for (_, _, recipe), metrics in few.rows.items()} == dict.fromkeys(
        ("code", "code+epochs=1", "digits-paper"), ("nll",)
    )
    assert sorted(recipe for *_, recipe in more.rows) == ["digits-paper", "digits-quick"]


CLAIM = """
[[claim]]
id = "accurate"
text = "JEM is as accurate"
metric = "accuracy"
higher = "jem"
than = "baseline"
within = 1.0
"""


def test_a_suite_makes_claims_with_the_fields_of_those_of_papers_and_each_once(installed):
    of_few = 'title = "Of few"\ninclude = ["few"]\n'
    both = 'title = "Both"\ninclude = ["one", "other"]\n' + CLAIM
    loaded = installed(
        both=both, one=of_few, other=of_few, few=FEW + 'metrics = ["accuracy"]' + CLAIM
    )
    assert [claim.id for claim in loaded.claims] == ["both/accurate", "few/accurate"]
    given = {
        "id": "both/accurate",
        "text": "JEM is as accurate",
        "where": "",
        "measure": ("jembench run both",),
    }
    given |= {
        "metric": ("accuracy",),
        "fits": (NamedFit("jem"),),
        "than": (NamedFit("baseline"),),
        "within": 1.0,
    }
    assert loaded.claims[0] == Claim(**given, paper=Paper(title="suite both", cite="Both", url=""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title = ", "zoo.toml is not valid TOML: "),
        (
            "title = " + "[" * 5000 + "]" * 5000,
            "zoo.toml is not valid TOML: maximum recursion depth",
        ),
        ("title = " + "9" * 5000, "zoo.toml is not valid TOML: Exceeds the limit"),
        (
            'title = ""\nmodles = ["jem"]',
            "There is no key in suite zoo named 'modles'. Nearest: models",
        ),
        ('name = ""', "suite zoo lacks title."),
        ('title = ""\nmodels = "jem"', "In suite zoo, models is 'jem'; it must be a list."),
        (FEW, "suite zoo lacks metrics. Add it to the file."),
        (FEW + NLL + 'seeds = ["0"]', "In suite zoo, seeds[0] is '0'; "),
        (
            FEW + NLL + "claim = 3",
            "In suite zoo, claim is 3; it must be tables, each under a line [[claim]].",
        ),
        (FEW + GRID + 'on = ["digits"]', "There is no key in grid[0] of suite zoo named 'on'."),
        (FEW + '[run]\nstore = "runs"', "it must be tables, each under a line [[run]]."),
        (
            FEW + '[[run]]\n[[run]]\nlabels = ""',
            "There is no key in run[1] of suite zoo named 'labels'. Nearest: label",
        ),
        (
            FEW + '[[run]]\nname = "A"\nmodels = ["a", "b"]',
            "suite zoo gives a, b the name 'A', which is that of one model",
        ),
        (
            FEW + GRID + 'datasets = ["digits"]',
            "In suite zoo, grid[0].datasets is ['digits']; it must be left out",
        ),
        (
            FEW + '[[run]]\ninclude = "few"',
            "include of suite zoo is 'few'; it must be a list of suites' names.",
        ),
        (FEW + 'include = ["nowhere"]', "There is no suite named 'nowhere'."),
        (
            FEW + 'metrics = ["ece"]' + CLAIM,
            "The claim zoo/accurate of suite zoo is about accuracy, which is not",
        ),
        (
            FEW + NLL + CLAIM.replace('than = "baseline"', ""),
            "zoo/accurate has neither than nor than_metric: nothing to be",
        ),
        (
            FEW + "[execution]\nmax_hours = 0",
            "In suite zoo, execution.max_hours is 0; it must be greater than 0.",
        ),
    ],
)
def test_a_suite_is_read_strictly(tmp_path, monkeypatch, text, expected):
    path = tmp_path / "zoo.toml"
    path.write_text(text)
    monkeypatch.setattr(packages, "files", lambda folder: {"zoo": path})
    with pytest.raises(SpecError) as caught:
        suites.load("zoo")
    assert expected in str(caught.value)


def test_an_experiment_is_named_by_its_path_in_errors(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = ""\n[[run]]\nmodels = ["math:sqrt"]')
    with pytest.raises(
        SpecError, match=f"^The suite {path} names math:sqrt, which runs code that you did not name"
    ):
        suites.load(str(path))
    path.write_text('title = ""\nlimits = 3')
    with pytest.raises(
        SpecError, match=f"^There is no key in {path} named 'limits'. Nearest: limit"
    ):
        suites.load(str(path))


@pytest.mark.parametrize("name", ["samplers", "divergence"])
@pytest.mark.parametrize("dataset", ["digits", "cifar10"])
def test_each_way_to_train_is_there_guarded_and_unguarded(name, dataset):
    blocks = [
        (run.label, run.settings) for run in suites.load(name).runs if covers(run.datasets, dataset)
    ]
    guarded = [
        (label or "as the recipe has it", own)
        for label, own in blocks
        if "guard.mode=watch" not in own
    ]
    unguarded = [block for block in blocks if block[0].endswith("unguarded")]
    assert all(
        "guard.mode=watch" in own
        for label, own in blocks
        if label.endswith((", watched", "unguarded"))
    )
    assert [
        (f"{label}, unguarded", (*own, "guard.mode=watch")) for label, own in guarded
    ] == unguarded
    assert "stability" in suites.load(name).metric_names


def test_the_ablation_of_norms_starts_chains_where_networks_with_norms_train():
    """From uniform noise they do not: the chains stay 3 to 130 nats above the data, see
    benchmarks/results.
    """
    fits = make_plan(suites.load("ablations")).fits
    normed = {
        fit.model.arguments["norm"]: fit for fit in fits if str(fit.model).startswith("jem:norm=")
    }
    assert normed.keys() == {"batch", "instance", "layer"}
    for norm, fit in normed.items():
        assert fit.sampler.arguments["start"] == "class-gaussian"
        assert fit.recipe.chains.mode == ("train" if norm == "batch" else "eval")
