import dataclasses
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jembench.catalog import packages, registry
from jembench.data import image_files
from jembench.errors import SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import plan_fit
from jembench.experiment.recipe import Optimizer, Schedule, TrainingData

MINIMAL = """
title = "Mine"
epochs = 2
batch_size = 8
log_every = 5
checkpoint_every = 10
[optimizer]
name = "sgd"
learning_rate = 0.1
[data]
noise = 0
validation = 10
[chains]
sampler = "sgld"
"""


@pytest.fixture
def write(tmp_path):
    """Write a recipe file, MINIMAL with some text replaced; gives its path."""

    def write(old="", new="", name="mine.toml"):
        assert old in MINIMAL
        path = tmp_path / name
        path.write_text(MINIMAL.replace(old, new, 1) if old else MINIMAL)
        return str(path)

    return write


def message(*arguments):
    with pytest.raises(SpecError) as caught:
        recipes.load(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


PUBLISHED = {
    "paper": {"epochs": 150, "decay_epochs": (50, 100), "warmup_iterations": 0, "validation": 0},
    "code": {
        "epochs": 200,
        "decay_epochs": (160, 180),
        "warmup_iterations": 1000,
        "validation": 5000,
    },
}
"""The differences between the paper (Table 4 and section 5) and its authors' code."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_recipes(name):
    recipe = recipes.load(name)
    differing = PUBLISHED[name]
    assert (recipe.epochs, recipe.batch_size) == (differing["epochs"], 64)
    assert recipe.optimizer == Optimizer(
        name="adam", learning_rate=1e-4, betas=(0.9, 0.999), momentum=0, weight_decay=0
    )
    assert recipe.schedule == Schedule(
        warmup_iterations=differing["warmup_iterations"],
        decay=0.3,
        decay_epochs=differing["decay_epochs"],
    )
    assert recipe.data == TrainingData(
        noise=0.03, validation=differing["validation"], stratified=False, pad=4, flip=True
    )
    assert recipe.data.augment_marginal
    assert (recipe.optimizer.sharpness, recipe.optimizer.average, recipe.energy_l2) == (0, 0, 0)
    assert recipe.model == {}
    assert not recipe.chains.conditional
    assert recipe.chains.mode == "eval"
    sampler = registry.resolve("samplers", recipe.chains.sampler)
    assert (sampler.name, sampler.arguments) == (
        "pcd",
        {
            "steps": 20,
            "step_size": 1.0,
            "noise": 0.01,
            "buffer": 10_000,
            "reinit": 0.05,
            "clip": None,
            "bounded": False,
            "start": "uniform",
        },
    )


def test_svhn_is_trained_as_the_paper_says_but_never_mirrored():
    paper, svhn = recipes.load("paper"), recipes.load(recipes.default("jem", "svhn"))
    assert not svhn.data.flip
    assert dataclasses.replace(svhn.data, flip=True) == paper.data
    assert (svhn.optimizer, svhn.schedule, svhn.chains) == (
        paper.optimizer,
        paper.schedule,
        paper.chains,
    )


@pytest.mark.parametrize(
    ("dataset", "recipe"),
    [
        ("digits", "digits-quick"),
        ("cifar10", "paper"),
        ("cifar100", "paper"),
        ("svhn", "svhn"),
        ("a:b", "paper"),
    ],
)
def test_the_default_recipe_of_a_dataset(dataset, recipe):
    assert recipes.default("jem", dataset) == recipe


def test_every_shipped_recipe_can_be_read_and_its_sampler_made():
    assert {"paper", "code", "digits"} <= set(recipes.names())
    for name in recipes.names():
        recipe = recipes.load(name)
        assert (recipe.name, recipe.label, recipe.overrides) == (name, name, ())
        assert recipe.title
        if recipe.chains.sampler:
            registry.resolve("samplers", recipe.chains.sampler)


def test_the_schedule_s_factor():
    schedule = Schedule(warmup_iterations=4, decay=0.5, decay_epochs=(1, 2.5))
    factors = [schedule.make()(iteration, 10, 100) for iteration in (0, 1, 3, 4, 9, 10, 24, 25)]
    assert factors == [0, 0.25, 0.75, 1, 1, 0.5, 0.5, 0.25]  # i / 4, as in the code of JEM


@given(
    warmup=st.integers(0, 30),
    epochs=st.sets(st.integers(0, 6)),
    per_epoch=st.integers(1, 8),
    decay=st.floats(0.1, 0.9),
)
def test_a_warm_up_overwrites_the_decays_within_it_for_good(warmup, epochs, per_epoch, decay):
    """The rule as a recursion over iterations: the warm-up sets the rate, and a milestone
    multiplies the last one.
    """
    schedule = Schedule(
        warmup_iterations=warmup, decay=decay, decay_epochs=tuple(sorted(epochs))
    ).make()
    rate = 1.0
    for iteration in range(60):
        is_milestone = iteration in {epoch * per_epoch for epoch in epochs}
        rate = (
            iteration / warmup
            if warmup and iteration <= warmup
            else rate * (decay if is_milestone else 1)
        )
        assert schedule(iteration, per_epoch, 60) == pytest.approx(rate, rel=1e-12)


def test_a_rate_falls_linearly_to_0_after_a_share_of_the_training():
    schedule = Schedule(linear_from=0.5)
    assert [schedule.make()(iteration, 10, 100) for iteration in (0, 50, 75, 99)] == pytest.approx(
        [1, 1, 0.5, 0.02]
    )
    assert Schedule(linear_from=0).make()(25, 10, 100) == 0.75


def test_options_of_the_model_are_written_as_in_a_spec():
    overrides = ["model.norm=batch", "model.width=8", "model.deep=true"]
    assert recipes.load("digits-paper", overrides).model == {
        "norm": "batch",
        "width": "8",
        "deep": "true",
    }


def test_shared_images_cannot_be_others():
    with pytest.raises(SpecError, match=r"data\.shared trains p\(x\) on the images of p"):
        recipes.load("digits-paper", ["data.shared=true", "data.labelled=100"])


def test_a_cosine_falls_from_1_to_0_over_the_whole_budget_and_multiplies_the_rest():
    cosine = Schedule(cosine=True)
    factors = [cosine.make()(iteration, 10, 120) for iteration in (0, 20, 30, 40, 60, 80, 90, 120)]
    root = 3**0.5 / 2, 0.5**0.5
    expected = [2, 1 + root[0], 1 + root[1], 1.5, 1, 0.5, 1 - root[1], 0]
    assert factors == pytest.approx([value / 2 for value in expected], abs=1e-12)
    together = Schedule(cosine=True, warmup_iterations=40, decay=0.5, decay_epochs=(5,))
    assert together.make()(19, 10, 120) == pytest.approx(19 / 40 * cosine.make()(19, 10, 120))
    assert together.make()(60, 10, 120) == pytest.approx(0.5 * 0.5)


def test_a_file(write):
    recipe = recipes.load(write())
    assert (recipe.name, recipe.title, recipe.epochs, recipe.data.noise) == (
        "mine",
        "Mine",
        2.0,
        0.0,
    )
    assert isinstance(recipe.epochs, float)
    assert recipe.schedule == Schedule()


def test_a_file_that_is_not_there():
    assert message("nowhere/mine.toml").startswith(
        "There is no recipe file nowhere/mine.toml. Check the path, or "
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epochs = 2\n", "epochs = ", "mine.toml is not valid TOML: "),
        (
            "epochs = 2\n",
            "epoch = 2\n",
            "There is no key in recipe mine named 'epoch'. Nearest: epochs",
        ),
        ("title", 'name = "yours"\ntitle', "There is no key in recipe mine named 'name'."),
        ("noise = 0\nvalidation = 10\n", "", "recipe mine lacks data.noise, data.validation."),
        (
            "epochs = 2",
            'epochs = "2"',
            "In recipe mine, epochs is '2'; it must be a finite number.",
        ),
        (
            "epochs = 2",
            "epochs = nan",
            "In recipe mine, epochs is nan; it must be a finite number.",
        ),
        (
            "batch_size = 8",
            "batch_size = 8.0",
            "In recipe mine, batch_size is 8.0; it must be a whole number.",
        ),
        (
            "batch_size = 8",
            "batch_size = true",
            "In recipe mine, batch_size is True; it must be a whole number.",
        ),
        (
            "noise = 0",
            "noise = 0\nflip = 1",
            "In recipe mine, data.flip is 1; it must be true or false.",
        ),
        ('"Mine"', "5", "In recipe mine, title is 5; it must be text."),
        ('"Mine"', '"Mine"\nschedule = 3', "In recipe mine, schedule is 3; it must be a table."),
        (
            '"sgd"',
            '"sgd"\nbetas = [0.9, "x"]',
            "In recipe mine, optimizer.betas[1] is 'x'; it must be a finite number.",
        ),
        (
            "[optimizer]",
            '[guard]\nladder = ["pray"]\n[optimizer]',
            "ladder[0] is 'pray'; it must be one of seed, steps",
        ),
        (
            "validation = 10\n",
            'validation = 0\n[selection]\nmetric = "nll"\n',
            "In recipe mine, selection.metric is nll, and no images are held out to measure it on.",
        ),
        ('"sgd"', '"lion"', "There is no optimizer named 'lion'. Known: adam, sgd."),
        (
            "[optimizer]",
            "[model]\nnorm = [3]\n[optimizer]",
            "In recipe mine, model.norm is [3]; it must be text, a number",
        ),
    ],
)
def test_a_file_is_read_strictly(write, old, new, expected):
    assert expected in message(write(old, new))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("epochs=1e300", "epochs is 1e+300; it must be greater than 0 and at most 1,000,000."),
        ("optimizer.betas=[0.9,1]", "optimizer.betas[1] is 1; it must be at least 0 and below 1."),
        ("optimizer.betas=[0.9]", "optimizer.betas is [0.9]; it must be a list of 2."),
        ("schedule.decay_epochs=[1,-1]", "schedule.decay_epochs[1] is -1; it must be at least 0."),
        (
            "checkpoint_every=7",
            "checkpoint_every is 7 and log_every 5: the first must be a multiple of the second.",
        ),
    ],
)
def test_values_that_cannot_be(write, override, expected):
    assert message(write(), [override]) == f"In recipe mine, {expected}"


def test_overrides_of_every_kind(write):
    recipe = recipes.load(
        write(),
        [
            "epochs=5",
            "optimizer.learning_rate=1e-3",
            "schedule.decay_epochs=[1, 2.5]",
            "data.flip=true",
            "optimizer.name=adam",
            "chains.sampler=pcd:steps=2,buffer=50",
        ],
    )
    assert (recipe.epochs, recipe.optimizer.learning_rate, recipe.optimizer.name) == (
        5.0,
        1e-3,
        "adam",
    )
    assert recipe.schedule.decay_epochs == (1.0, 2.5)
    assert recipe.data.flip is True
    assert recipe.chains.sampler == "pcd:steps=2,buffer=50"
    assert recipe.optimizer.weight_decay == recipes.load(write()).optimizer.weight_decay
    assert recipe.label == (
        "mine+epochs=5+optimizer.name=adam+optimizer.learning_rate=0.001+data.flip=true"
        "+chains.sampler=pcd:steps=2,buffer=50+schedule.decay_epochs=[1,2.5]"
    )


@pytest.mark.parametrize(
    ("overrides", "label"),
    [
        (["epochs=5"], "mine+epochs=5"),
        (["epochs=5.0"], "mine+epochs=5"),
        (["epochs=7", "epochs=5"], "mine+epochs=5"),
        (["batch_size=4", "epochs=5"], "mine+epochs=5+batch_size=4"),
        (["epochs=5", "batch_size=4"], "mine+epochs=5+batch_size=4"),
        (["epochs=2", "title=Yours"], "mine"),
        (
            ["model.norm=layer", 'guard.ladder=["seed","rate"]'],
            "mine+guard.ladder=[seed,rate]+model.norm=layer",
        ),
    ],
)
def test_one_recipe_has_one_label_however_it_is_asked_for(write, overrides, label):
    assert recipes.load(write(), overrides).label == label


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "epochs",
            "'epochs' does not say what to set. Write --set key=value, for example --set epochs=5.",
        ),
        (
            "epochs=5,batch_size=4",
            "'epochs=5,batch_size=4' sets several keys. Repeat the option: --set epochs=5 --set",
        ),
        ("data.nois=1", "There is no key in data of recipe mine named 'nois'. Nearest: noise"),
        (
            "epochs.more=1",
            "In recipe mine, 'epochs' is not a table, so 'epochs.more' cannot be set.",
        ),
        ("epochs=1e999", "In recipe mine, epochs is inf; it must be a finite number."),
    ],
)
def test_an_override_that_does_not_fit(write, override, expected):
    assert message(write(), [override]).startswith(expected)


def leaves(value, path=()):
    """The paths of all fields that hold no dataclass."""
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield from leaves(inner, (*path, field.name))
        else:
            yield (*path, field.name)


def changed(value, path):
    """The dataclass with another value at ``path``."""
    name, *rest = path
    inner = getattr(value, name)
    if rest:
        return dataclasses.replace(value, **{name: changed(inner, rest)})
    if isinstance(inner, bool):
        other = not inner
    elif isinstance(inner, int | float):
        other = inner + 1
    elif isinstance(inner, Mapping):
        other = {**inner, "norm": "x"}
    else:
        other = inner + ("x" if isinstance(inner, str) else ("x",))
    return dataclasses.replace(value, **{name: other})


PATHS = list(leaves(recipes.load("digits")))
INCIDENTAL = {("name",), ("title",), ("overrides",)}


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_all_but_names_and_titles_is_identity(path):
    recipe = recipes.load("digits")
    before, after = (
        json.dumps(r.identity, sort_keys=True) for r in (recipe, changed(recipe, path))
    )
    assert (before == after) == (path in INCIDENTAL)


def test_guards_that_change_nothing_are_one_recipe():
    watching = [
        ["guard.mode=watch"],
        ["guard.mode=off"],
        ["guard.ladder=[]"],
        ["guard.mode=off", "guard.ladder=[]"],
    ]
    first, *others = [recipes.load("digits", overrides).identity for overrides in watching]
    assert all(other == first for other in others)
    assert first != recipes.load("digits").identity


def test_the_recipe_of_a_model_and_a_dataset_has_their_names(monkeypatch):
    found = dict.fromkeys(["cats", "lion", "lion-cats", "tiger", "paper"])
    quick = dict.fromkeys(["cats-quick", "lion-cats-quick"])
    monkeypatch.setattr(packages, "files", lambda folder: found)
    assert recipes.default("lion:net=small-2", "cats:side=8") == "lion-cats"
    assert recipes.default("lion", "dogs") == "lion"
    assert recipes.default("tiger", "cats") == "tiger"
    assert recipes.default("bear", "cats") == "cats"
    assert recipes.default("bear", "dogs") == "paper"
    assert [recipes.default(name, "zoo/cats", {"cats": "mine"}) for name in ("bear", "tiger")] == [
        "mine",
        "tiger",
    ]
    assert recipes.default("bear", "dogs", {"default": "mine"}) == "mine"
    monkeypatch.setattr(packages, "files", lambda folder: found | quick)
    assert [recipes.default(name, "cats") for name in ("lion", "tiger", "bear")] == [
        "lion-cats-quick",
        "tiger",
        "cats-quick",
    ]


def test_the_recipe_of_a_folder_goes_by_its_training_images(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for part, count in (("train", 5), ("test", 1)):
        for number in range(count):
            (tmp_path / "set" / part / "cat").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 17)).save(tmp_path / "set" / part / "cat" / f"{number}.png")
    folder = f"imagefolder:root={tmp_path / 'set'}"
    assert recipes.default("jem", folder) == plan_fit("jem", folder).recipe.name == "small-images"
    assert recipes.extent_of(folder) == (5, 16)
    assert recipes.extent_of("imagefolder:root=nowhere") is None
    assert recipes.default("jem", f"{folder},size=15") == "digits"
    assert recipes.default("jem", "imagefolder:root=nowhere") == "paper"
    assert recipes.default("glow", "imagefolder:root=nowhere") == "glow"
    first = tmp_path / "set" / "train" / "cat" / "0.png"
    monkeypatch.setattr(
        image_files, "_list_images", lambda folder: {f"cat/{n}": first for n in range(5001)}
    )
    recipes.extent_of.cache_clear()
    assert recipes.default("jem", folder) == "paper"
    recipes.extent_of.cache_clear()


@pytest.mark.parametrize("text", ["7414016", "12e4567", '"7414016"'])
def test_an_id_of_digits_is_text(text):
    assert recipes.load("digits", [f"start_from={text}"]).start_from == text.strip('"')
