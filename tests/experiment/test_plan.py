"""Plans: what is crossed, and what makes a fit or a cell another one."""

import dataclasses
import inspect
import warnings

import pytest

from jembench.catalog import discovery, options, registry
from jembench.errors import Remark, SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment import suite
from jembench.experiment.crossing import make_plan
from jembench.experiment.plan import plan_fit, resolve_model
from jembench.experiment.suite import Run, Suite
from jembench.sampling import factories as samplers

ANY = "jembench.sampling.factories:sgld"
"""A model's factory as far as planning can tell: it is imported, and never called."""


def suite_of(on, **lists):
    """Make a suite of one block that is run on some datasets."""
    block = Run(**{key: tuple(values) for key, values in lists.items()})
    return Suite(name="zoo", title="", datasets=tuple(on), runs=(block,))


@pytest.fixture
def make(zoo_of_tests):
    """Make a plan of the zoo's components, by their names there."""

    def make(
        models="jem",
        metrics="score",
        *,
        seeds=(0,),
        settings=(),
        limit=None,
        recipe="tiny",
        dataset="data",
    ):
        named = {"models": models.split(), "metrics": metrics.split()}
        listed = {key: [f"zoo_of_tests:{name}" for name in names] for key, names in named.items()}
        chosen = suite_of(
            [f"zoo_of_tests:{dataset}" if dataset == "data" else dataset], seeds=seeds, **listed
        )
        path = str(zoo_of_tests / f"{recipe}.toml") if recipe == "tiny" else recipe
        return make_plan(chosen, recipe=path, settings=settings, limit=limit)

    return make


def fit_id(plan):
    (fit,) = plan.fits
    return fit.key.id


def cell_id(plan):
    (cell,) = plan.cells
    return cell.id


def test_a_plan_crosses_everything(make):
    plan = make("jem classifier", "score energy", seeds=(0, 1))
    crossed = [(str(cell.fit.model), cell.fit.seed, str(cell.metric)) for cell in plan.cells]
    assert crossed == [
        (f"zoo_of_tests:{model}", seed, f"zoo_of_tests:{metric}")
        for model in ("jem", "classifier")
        for seed in (0, 1)
        for metric in ("score", "energy")
    ]
    assert len({cell.id for cell in plan.cells}) == 8
    assert [fit.seed for fit in plan.fits] == [0, 1, 0, 1]
    for fit in plan.fits:
        assert {cell.fit.key.id for cell in plan.cells_of(fit)} == {fit.key.id}
        assert len(plan.cells_of(fit)) == 2


def test_what_is_asked_for_twice_is_done_once(make):
    plan = make(
        "jem jem:unused=0 jem:unused=1", "score score:weight=1 score:weight=1.0", seeds=(3, 3)
    )
    assert len(plan.fits) == 2
    assert len(plan.cells) == 2


def counted(monkeypatch, owner, name):
    """Count the calls of a function."""
    calls, function = [], getattr(owner, name)
    monkeypatch.setattr(
        owner, name, lambda *args, **kwargs: (calls.append(args), function(*args, **kwargs))[1]
    )
    return calls


def test_what_seeds_share_is_worked_out_once(make, monkeypatch):
    recipes._loaded.cache_clear()
    watched = [
        (registry.code_identity, "code"),
        (discovery, "load"),
        (recipes, "read"),
        (recipes.packages, "source"),
    ]
    calls = [counted(monkeypatch, owner, name) for owner, name in watched]
    make("jem classifier", "score energy")
    for_one = [len(made) for made in calls]
    plan = make("jem classifier", "score energy", seeds=range(20))
    for made, before in zip(calls, for_one, strict=True):
        assert before > 0
        assert len(made) - before <= before
    assert len(plan.cells) == 80


@pytest.mark.parametrize("lacking", ["models", "datasets", "metrics", "seeds"])
def test_a_suite_that_was_left_with_nothing(lacking):
    with pytest.raises(SpecError, match=f"the suite hybrid has a block without {lacking}."):
        make_plan(suite.load("hybrid").replaced(**{lacking: []}))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [("svhn", "no block of the suite zoo is for svhn"), ("cifar10", "no metric of the suite")],
)
def test_a_suite_of_which_nothing_is_for_the_dataset(dataset, expected):
    chosen = suite_of([dataset], models=[ANY], datasets=["cifar10"], metrics=["ood:set=cifar10"])
    with pytest.raises(SpecError, match=f"^There is nothing to run: {expected}"):
        make_plan(chosen)


def test_settings_go_to_the_metric_that_they_name_or_to_the_recipe(make):
    settings = ["zoo_of_tests:score.weight=2.5", "epochs=3", "optimizer.learning_rate=0.5"]
    plan = make("jem", "score energy", settings=settings)
    assert [str(cell.metric) for cell in plan.cells] == [
        "zoo_of_tests:score:weight=2.5",
        "zoo_of_tests:energy",
    ]
    assert plan.fits[0].key.recipe == "tiny+epochs=3+optimizer.learning_rate=0.5"


def test_a_setting_of_a_registered_metric():
    chosen = suite_of(["digits"], models=[ANY], metrics=["ece", "nll", "ece:bins=10"])
    plan = make_plan(chosen, settings=["ece.bins=15"])
    assert [str(cell.metric) for cell in plan.cells] == ["ece:bins=15", "nll"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "zoo_of_tests:score.wieght=2",
            "There is no option of zoo_of_tests:score named 'wieght'. Nearest: weight",
        ),
        (
            "zoo_of_tests:score.weight=much",
            "weight of zoo_of_tests:score is 'much'; it must be a finite number",
        ),
        ("ece.bins=15", "'ece.bins=15' sets an option of the metric ece, which is not measured."),
        ("epoch=15", "There is no key in recipe tiny named 'epoch'. Nearest: epochs"),
        ("chains.sampler=pdc", "There is no sampler named 'pdc'. Nearest: pcd"),
    ],
)
def test_a_setting_that_does_not_fit(make, setting, expected):
    with pytest.raises(SpecError) as caught:
        make(settings=[setting])
    assert str(caught.value).startswith(expected)


SAMPLER = "pcd:steps=3,buffer=30,step_size=0.1"


@pytest.mark.parametrize(
    "same",
    [
        {"models": "jem:unused=0"},
        {"settings": ["epochs=4.0"]},
        {"settings": ["title=Another"]},
        {"settings": ["chains.sampler=pcd:step_size=0.10,buffer=30,steps=3"]},
        {"settings": ["chains.sampler=jembench/pcd:steps=3,buffer=30,step_size=1/10,reinit=0.05"]},
        {"metrics": "energy"},
        {"limit": 5},
    ],
)
def test_one_fit_has_one_id_however_it_is_written(make, same):
    assert fit_id(make(**same)) == fit_id(make())


@pytest.mark.parametrize(
    "other",
    [
        {"models": "jem:unused=1"},
        {"models": "classifier"},
        {"dataset": "digits"},
        {"seeds": (1,)},
        {"settings": ["epochs=5"]},
        {"settings": ["data.stratified=false"]},
        {"settings": [f"chains.sampler={SAMPLER},noise=0.02"]},
        {"settings": ["chains.sampler=sgld:steps=3"]},
    ],
)
def test_another_fit_has_another_id(make, other):
    assert fit_id(make(**other)) != fit_id(make())


def test_cells_differ_by_metric_and_limit_as_well(make):
    plans = [
        make(),
        make(metrics="energy"),
        make(metrics="score:weight=2"),
        make(limit=5),
        make(limit=6),
    ]
    assert len({cell_id(plan) for plan in plans}) == 5
    assert len({fit_id(plan) for plan in plans}) == 1


@pytest.mark.parametrize(
    ("factory", "option"),
    [("jem", "unused"), ("score", "weight"), ("pcd", "reinit"), ("pcd", "noise")],
)
def test_a_default_that_changes_makes_it_another_cell(make, monkeypatch, factory, option):
    import zoo_of_tests as zoo

    # a process reads the defaults once
    monkeypatch.setattr(options, "options_of", options.options_of.__wrapped__)
    before = cell_id(make())
    changed = inspect.unwrap(getattr(samplers if factory == "pcd" else zoo, factory))
    value = changed.__kwdefaults__[option] + 1
    monkeypatch.setattr(changed, "__kwdefaults__", {**changed.__kwdefaults__, option: value})
    assert cell_id(make()) != before


def test_a_default_that_changes_leaves_what_was_given_by_hand(make, monkeypatch):
    import zoo_of_tests as zoo

    before = cell_id(make(models="jem:unused=0"))
    monkeypatch.setattr(zoo.jem, "__kwdefaults__", {"unused": 1})
    assert cell_id(make(models="jem:unused=0")) == before


def component(distribution, name="lion", version="1.0"):
    return discovery.Component("models", name, distribution, version, "zoo_of_tests", "jem")


def test_what_else_is_installed_changes_no_id_but_another_distribution_does(make, monkeypatch):
    """A second ``lion`` only makes the first one's name longer; a ``lion`` from elsewhere is
    another model.
    """
    ids, names = [], []
    for installed in (["a"], ["a", "b"], ["b"]):
        others = tuple(c for c in discovery.catalogue().components if c.name != "lion")
        catalogue = discovery.Catalogue((*others, *map(component, installed)), ())
        monkeypatch.setattr(discovery, "catalogue", lambda catalogue=catalogue: catalogue)
        chosen = f"{installed[0]}/lion"
        plan = make_plan(suite_of(["digits"], models=[chosen], metrics=["nll"]))
        ids.append(fit_id(plan))
        names.append(plan.fits[0].key.model)
    assert names == ["lion", "a/lion", "lion"]
    assert ids[0] == ids[1] != ids[2]


def test_an_update_of_a_plugin_keeps_the_id(make, monkeypatch):
    ids = set()
    for version in ("1.0", "1.1"):
        others = tuple(c for c in discovery.catalogue().components if c.name != "lion")
        catalogue = discovery.Catalogue((*others, component("a", version=version)), ())
        monkeypatch.setattr(discovery, "catalogue", lambda catalogue=catalogue: catalogue)
        ids.add(fit_id(make_plan(suite_of(["digits"], models=["lion"], metrics=["nll"]))))
    assert len(ids) == 1


@pytest.fixture
def with_model_options(zoo_of_tests, tmp_path):
    """A recipe like the zoo's that says so of the model."""

    def write(options):
        text = (zoo_of_tests / "tiny.toml").read_text() + "\n[model]\n" + options
        (tmp_path / "tiny-with.toml").write_text(text)
        return recipes.load(str(tmp_path / "tiny-with.toml"))

    return write


@pytest.mark.parametrize(
    ("options", "spec", "arguments"),
    [
        ('unused = "3"', "jem", {"unused": 3}),
        ('unused = "3"', "jem:unused=1", {"unused": 1}),
        ('unused = "3"', "jem:unused=0", {"unused": 0}),  # the default, said
        ('unused = "3"', "classifier:width=8", {"width": 8}),
        ('width = "6"\nfails = "true"', "painter", {"fails": True}),
        ('width = "6"\nfails = "true"', "classifier", {"width": 6}),
    ],
)
def test_the_recipe_s_options_fill_in_what_the_spec_leaves_out(
    with_model_options, options, spec, arguments
):
    assert resolve_model(f"zoo_of_tests:{spec}", with_model_options(options)).arguments == arguments


def test_a_plan_s_models_have_the_recipe_s_options(make):
    plan = make("jem jem:unused=1 classifier", settings=['model.unused="1"'])
    assert [fit.key.model for fit in plan.fits] == [
        "zoo_of_tests:jem:unused=1",
        "zoo_of_tests:classifier",
    ]


def test_a_recipe_without_chains_names_no_sampler():
    (fit,) = make_plan(suite_of(["digits"], models=["glow"], metrics=["accuracy"])).fits
    assert fit.sampler is None
    assert {component.name for component in fit.components} == {"glow", "digits"}


# --- datasets that are never mirrored ---


def has_flips(model, dataset, *settings, recipe=None):
    """Return the label of the recipe of a fit, and whether its images are flipped."""
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always", Remark)
        chosen = plan_fit(model, dataset, recipe, settings).recipe
    return chosen.label, chosen.data.flip, [str(remark.message) for remark in remarks]


@pytest.mark.parametrize("name", [name for name in recipes.names() if recipes.load(name).data.flip])
@pytest.mark.parametrize("dataset", ["svhn", "digits", "toy:rings"])
def test_no_recipe_flips_digits_or_toys(name, dataset):
    label, flips, remarks = has_flips("baseline", dataset, recipe=name)
    assert not flips
    assert label.endswith("data.flip=false")
    assert any(f"The recipe {name} flips images" in remark for remark in remarks)
    assert has_flips("baseline", "cifar10", recipe=name) == (name, True, [])


def test_flips_that_a_setting_asks_for_are_kept():
    assert has_flips("baseline", "svhn", "data.flip=true", recipe="code") == ("code", True, [])


@pytest.mark.filterwarnings("ignore::jembench.errors.Remark")
@pytest.mark.parametrize("name", suite.names())
def test_no_suite_flips_svhn(name):
    plan = make_plan(suite.load(name).replaced(datasets=["svhn"]))
    assert not [fit.recipe.label for fit in plan.fits if fit.recipe.data.flip]


@pytest.mark.parametrize(
    ("name", "held"),
    [("svhn-code", "code"), ("svhn-4000-labels", "paper-4000-labels")],
)
def test_recipes_for_svhn_are_those_of_photographs_without_flips(name, held):
    of_svhn, photographs = recipes.load(name), recipes.load(held)
    data = dataclasses.replace(of_svhn.data, flip=True)
    named = {"name": held, "title": photographs.title}
    assert dataclasses.replace(of_svhn, data=data, **named) == photographs


@pytest.mark.parametrize(("dataset", "budget"), [("digits", "budget=quick"), ("cifar10", "")])
def test_the_suite_of_robustness_has_every_curve_of_the_paper(dataset, budget):
    """Figures 5, 14 and 15 of Grathwohl et al. (2020) and of its Appendix G."""
    plan = make_plan(suite.load("robustness").replaced(datasets=[dataset]))
    planned = {(cell.fit.model.name, str(cell.metric)) for cell in plan.cells}
    for attack in ("boundary", "pointwise"):
        for refine in ("", "refine=1", "refine=10"):
            options = ",".join(filter(None, (budget, refine)))
            assert ("jem", f"{attack}:{options}".rstrip(":")) in planned
    for model, refine in (("igebm", "refine=10"), ("smoothadv", "")):
        for norm in ("", "norm=l2"):
            options = ",".join(filter(None, (budget, norm, refine)))
            assert (model, f"pgd:{options}".rstrip(":")) in planned
