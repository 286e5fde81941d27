"""Every check of suites, recipes and published numbers catches the faults planted for it, and no other does."""

import pytest

from jembench.catalog import packages
from jembench.errors import SpecError
from jembench.experiment import recipe_files as recipe
from jembench.experiment import suite_files as suite
from jembench.testing import check_recipe, check_reference, check_suite, perform
from jembench.testing.checks import PROMISES

FILES = {
    ("", "zoo"): """
title = "A zoo"
models = ["zoo_of_tests:jem"]
datasets = ["zoo_of_tests:data"]
metrics = ["zoo_of_tests:score"]
reference = ["found/table"]
recipe = "sound"
""",
    ("recipes", "sound"): """
title = "A few steps"
models = ["baseline"]
default_for = ["svhn"]
epochs = 1
batch_size = 9
log_every = 3
checkpoint_every = 9
optimizer = { name = "adam", learning_rate = 1e-2 }
data = { noise = 0.03, validation = 9 }
chains = { sampler = "sgld:steps=2" }
""",
    ("reference", "found"): """
[paper]
title = "On zoos"
cite = "A. Keeper, Journal of zoos, 2020"
url = ""
status = "published"

[[table]]
name = "table"
where = "Table 1"
dataset = "animals"
columns = [{ label = "accuracy", unit = "%", better = "higher" }]
rows = [{ model = "jem", label = "JEM", accuracy = 92.9 }]
""",
}
CHECKS = {("", "zoo"): check_suite, ("recipes", "sound"): check_recipe, ("reference", "found"): check_reference}
OF_SUITE, OF_RECIPE, OF_REFERENCE = CHECKS

FAULTS = [
    (OF_SUITE, "can-be-read", "metrics =", "metric ="),
    (OF_SUITE, "can-be-read", 'title = "A zoo"', 'title = "A zoo'),
    (OF_SUITE, "title", "A zoo", " "),
    (OF_SUITE, "names-what-exists", "zoo_of_tests:data", "zoo_of_tests:data:size=3"),
    (OF_SUITE, "names-what-exists", "zoo_of_tests:jem", "gem"),
    (OF_SUITE, "names-what-exists", "zoo_of_tests:score", "zoo_of_tests:score:colour=blue"),
    (OF_SUITE, "names-what-exists", '"sound"', '"unsound"'),
    (OF_SUITE, "published-numbers", "found/table", "found/tables"),
    (OF_SUITE, "published-numbers", "found/table", "lost/table"),
    (OF_SUITE, "can-begin", "zoo_of_tests:jem", "zoo_of_tests:no_module"),
    (OF_SUITE, "can-begin", "zoo_of_tests:jem", "zoo_of_tests:untrainable"),
    (OF_SUITE, "no-metric-in-vain", '"zoo_of_tests:score"', '"zoo_of_tests:score", "bits-per-dim"'),
    (OF_RECIPE, "recipe-can-be-read", "epochs = 1", 'epochs = "few"'),
    (OF_RECIPE, "recipe-can-be-read", "epochs = 1", "epoch = 1"),
    (OF_RECIPE, "recipe-title", "A few steps", ""),
    (OF_RECIPE, "sampler-exists", "sgld:steps=2", "sgld:stops=2"),
    (OF_RECIPE, "sampler-exists", "sgld:steps=2", "sgdl"),
    (OF_RECIPE, "made-for-what-exists", "baseline", "base-line"),
    (OF_RECIPE, "made-for-what-exists", "svhn", "shvn"),
    (OF_RECIPE, "the-only-default", 'models = ["baseline"]', ""),
    (OF_RECIPE, "the-only-default", '["baseline"]\ndefault_for = ["svhn"]', '["glow"]\ndefault_for = ["digits"]'),
    (OF_REFERENCE, "reference-can-be-read", "cite =", "site ="),
    (OF_REFERENCE, "reference-can-be-read", "accuracy = 92.9", "acuracy = 92.9"),
]
"""The file, the check that fails, and what is written there in place of what."""


@pytest.fixture
def results(tmp_path, monkeypatch, zoo_of_tests):
    """What becomes of each check of a file that is installed with the others, once something in it was replaced."""

    def results(which, old="", new=""):
        assert old in FILES[which]
        texts = {**FILES, which: FILES[which].replace(old, new)} if old else FILES
        own = {}
        for (folder, name), text in texts.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            own[folder, name] = tmp_path / folder / f"{name}.toml"
            own[folder, name].write_text(text)
        ordinary = packages.files

        def files(folder=""):
            return ordinary(folder) | {name: path for (where, name), path in own.items() if where == folder}

        monkeypatch.setattr(packages, "files", files)
        return {result.check.name: result for result in map(perform, CHECKS[which](which[1]))}

    return results


@pytest.mark.parametrize("which", CHECKS, ids=str)
def test_what_is_sound_passes_every_check(results, which):
    assert {name: found.message for name, found in results(which).items() if found.status != "passed"} == {}


@pytest.mark.parametrize(("which", "check", "old", "new"), FAULTS)
def test_a_planted_fault_fails_its_check_and_no_other(results, which, check, old, new):
    failed = {name: found.message for name, found in results(which, old, new).items() if found.status == "failed"}
    assert list(failed) == [check], failed
    assert failed[check].endswith(".")
    assert "Error:" not in failed[check]  # a sentence for a user


def test_every_check_has_a_fault_that_it_catches():
    assert {promise.name for kind in ("suites", "recipes", "references") for promise in PROMISES[kind]} == {
        check for _, check, _, _ in FAULTS
    }


def test_what_follows_from_a_fault_says_whose_business_it_is(results):
    found = results(OF_SUITE, "metrics =", "metric =")
    assert found["can-begin"].message == "See the check can-be-read."
    found = results(OF_SUITE, "zoo_of_tests:jem", "gem")
    assert found["no-metric-in-vain"].message == "See the check names-what-exists."


def test_what_is_not_at_hand_is_skipped_with_the_remedy(results):
    found = results(OF_SUITE, "zoo_of_tests:data", "cifar10:root=nowhere")
    assert found["can-begin"].status == found["no-metric-in-vain"].status == "skipped"
    assert "nowhere" in found["can-begin"].message


@pytest.mark.parametrize("check", [check_suite, check_recipe, check_reference])
def test_a_name_that_nothing_has(check):
    with pytest.raises(SpecError, match="named 'nobody'"):
        check("nobody")


FIRST_PARTY = [
    *((check_suite, name) for name in suite.names()),
    *((check_recipe, name) for name in recipe.names()),
    *((check_reference, name) for name in packages.files("reference")),
]


@pytest.mark.parametrize(("checks", "name"), FIRST_PARTY)
def test_everything_that_we_bring_is_sound(checks, name):
    assert {found.check.name: found.message for found in map(perform, checks(name)) if not found.is_fine} == {}
