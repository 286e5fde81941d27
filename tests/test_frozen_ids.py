"""The ids of everything that is shipped, as they were frozen: under another id, what was trained is trained again.

A test that fails here asks for a decision. Where the change is meant, say so in the changelog and write the file anew:
``FREEZE=1 pytest tests/test_frozen_ids.py``. Where it is not, see ``added_later`` of ``jembench.catalog.spec``
(options) and of ``jembench.experiment.recipe`` (fields). Code is left out, so that an editable installation has the
same ids.
"""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from jembench.catalog import code_identity, discovery, registry
from jembench.catalog.spec import stable_hash
from jembench.experiment import recipe_files as recipes
from jembench.experiment.plan import CellPlan, plan_fit
from jembench.experiment.recipe import Recipe, Schedule, added_later

FILE = Path(__file__).with_name("frozen_ids.json")
CORE = "jembench"
FIRST_PARTY = {
    CORE,
    "jembench-glow",
    "jembench-igebm",
    "jembench-jem",
    "jembench-residual-flow",
    "jembench-robustness",
    "jembench-wrn",
}
NEEDED = {
    "datasets": {"celeba": "root=celeba", "imagefolder": "root=folder"},
    "metrics": {"ensemble": "eps=8/255", "ood": "set=interp"},
    "models": {"generator": "module=weights.bin", "imported": "file=weights.bin"},
}
"""Options that must be given."""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Every id, as it is now."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code_identity, "code", lambda module, of_package=False: "")
    discovery.catalogue.cache_clear()
    for split in ("train", "test"):
        (tmp_path / "folder" / split / "cat").mkdir(parents=True)
        (tmp_path / "folder" / split / "cat" / "0.png").write_bytes(split.encode())
    (tmp_path / "celeba" / "img_align_celeba").mkdir(parents=True)
    (tmp_path / "celeba" / "img_align_celeba" / "1.jpg").write_bytes(b"1")
    (tmp_path / "celeba" / "img_align_celeba" / "2.jpg").write_bytes(b"2")
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("1.jpg 0\n2.jpg 2\n")
    data = {"name": "digits", "shape": [1, 8, 8], "num_classes": 10, "class_names": [], "bounds": [-1, 1]}
    header = {"schema": 1, "model": "jem", "sampler": "", "data": data, "source": {}, "unused": []}
    text = json.dumps({"__metadata__": {"jembench-import": json.dumps(header)}}).encode()
    (tmp_path / "weights.bin").write_bytes(len(text).to_bytes(8, "little") + text)
    yield ids()
    discovery.catalogue.cache_clear()


def shipped(kind):
    return sorted(one.name for one in discovery.components(kind) if one.distribution in FIRST_PARTY)


def spec(kind, name):
    options = NEEDED.get(kind, {}).get(name)
    return f"{name}:{options}" if options else name


def ids():
    found = {"recipes": {name: stable_hash(recipes.load(name).identity) for name in recipes.names()}}
    for kind in ("datasets", "features", "metrics", "models", "ood_sets", "samplers"):
        found[kind] = {name: stable_hash(registry.resolve(kind, spec(kind, name)).identity) for name in shipped(kind)}
    accuracy = registry.resolve("metrics", "accuracy")
    fits = {name: plan_fit(spec("models", name), "digits") for name in shipped("models")}
    found["fits on digits"] = {name: fit.key.id for name, fit in fits.items()}
    found["accuracy on digits"] = {
        name: CellPlan(fit=fit, metric=accuracy, limit=None).id for name, fit in fits.items()
    }
    return found


def test_no_id_has_changed(found):
    if os.environ.get("FREEZE"):
        FILE.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    assert found == json.loads(FILE.read_text())


# --- what is added later ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Grown(Schedule):
    one_cycle: bool = added_later(False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrownRecipe(Recipe):
    swag: float = added_later(0.0)


def grown(**fields):
    """The recipe of digits, in a version that has two more fields."""
    before = recipes.load("digits")
    old = {one.name: getattr(before, one.name) for one in dataclasses.fields(before)}
    schedule = {one.name: getattr(before.schedule, one.name) for one in dataclasses.fields(before.schedule)}
    one_cycle = fields.pop("one_cycle", False)
    return GrownRecipe(**{**old, "schedule": Grown(**schedule, one_cycle=one_cycle), **fields})


def test_a_neutral_field_changes_nothing_and_another_value_does():
    before = recipes.load("digits").identity
    assert grown().identity == before
    assert grown().settings["swag"] == 0.0
    assert grown(swag=0.5).identity == {**before, "swag": 0.5}
    assert grown(one_cycle=True).identity["schedule"] == {**before["schedule"], "one_cycle": True}


def test_a_fit_of_a_grown_recipe_is_found_again():
    fit = plan_fit("jem", "digits")
    assert dataclasses.replace(fit, recipe=grown()).key == fit.key
    assert dataclasses.replace(fit, recipe=grown(swag=0.5)).key.id != fit.key.id


def test_every_setting_that_is_not_neutral_is_part_of_the_identity():
    """Of the guard, its ladder; beside it stand the defaults of two settings that it once had."""
    for name, corrections in (("digits", {"corrections": {"warm-up": "i / W"}}), ("digits-paper", {})):
        settings = recipes.load(name).settings
        assert settings["data"].pop("epoch") == "marginal"
        assert settings["data"].pop("augmentation") == settings["schedule"].pop("name") == ""
        assert settings["guard"].pop("mode") == "repair"
        assert settings.pop("least_iterations") == 0
        assert settings.pop("processes") == 1
        settings["guard"] |= {"gap": 3.0, "outlier": 10.0}
        assert recipes.load(name).identity == settings | corrections
