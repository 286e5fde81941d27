"""The ids of everything that is shipped, as they were frozen: under another id, what was trained is
trained again.

A test that fails here asks for a decision. Where the change is meant, say so in the changelog and
write the file anew: ``FREEZE=1 pytest tests/test_frozen_ids.py``. Code is left out, so that an
editable installation has the same ids.
"""

import json
import os
from pathlib import Path

import pytest

from jembench.catalog import code_identity, discovery, registry
from jembench.catalog.spec import stable_hash
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import CellPlan, plan_fit

FILE = Path(__file__).with_name("frozen_ids.json")
CORE = "jembench"
FIRST_PARTY = {
    CORE,
    "jembench-dat",
    "jembench-density",
    "jembench-diffusion",
    "jembench-energy-ood",
    "jembench-generation",
    "jembench-glow",
    "jembench-igebm",
    "jembench-jdat",
    "jembench-jem",
    "jembench-residual-flow",
    "jembench-robustness",
    "jembench-vera",
    "jembench-wrn",
    "jembench-zoo",
}
NEEDED = {
    "datasets": {
        "celeba": "root=celeba",
        "hf": "source=table.parquet",
        "imagefolder": "root=folder",
        "npz": "file=arrays.npz",
        "torchvision": "name=FashionMNIST",
        "toy": "kind=rings",
    },
    "metrics": {
        "autoattack": "eps=8/255",
        "ood": "set=interp",
        "ood-attacked": "set=interp",
        "ood-group": "group=near",
        "shift": "set=interp",
    },
    "ood_sets": {"openood": "name=tin"},
    "models": {
        "adapted": "model=baseline",
        "hf": "vit",
        "timm": "resnet18",
        "torchscript": "file=",
        "torchvision": "resnet18",
    },
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
    (tmp_path / "arrays.npz").write_bytes(b"arrays")
    (tmp_path / "table.parquet").touch()
    monkeypatch.setattr("jembench_zoo.data._rows", lambda path: [{"label": 0}])
    (tmp_path / "celeba" / "img_align_celeba").mkdir(parents=True)
    (tmp_path / "celeba" / "img_align_celeba" / "1.jpg").write_bytes(b"1")
    (tmp_path / "celeba" / "img_align_celeba" / "2.jpg").write_bytes(b"2")
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("1.jpg 0\n2.jpg 2\n")
    data = {
        "name": "digits",
        "shape": [1, 8, 8],
        "num_classes": 10,
        "class_names": [],
        "bounds": [-1, 1],
    }
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
    frozen = {
        "recipes": {name: stable_hash(recipes.load(name).identity) for name in recipes.names()}
    }
    for kind in ("datasets", "features", "metrics", "models", "ood_sets", "samplers"):
        frozen[kind] = {
            name: stable_hash(registry.resolve(kind, spec(kind, name)).identity)
            for name in shipped(kind)
        }
    accuracy = registry.resolve("metrics", "accuracy")
    fits = {name: plan_fit(spec("models", name), "digits") for name in shipped("models")}
    frozen["fits on digits"] = {name: fit.key.id for name, fit in fits.items()}
    frozen["accuracy on digits"] = {
        name: CellPlan(fit=fit, metric=accuracy, limit=None).id for name, fit in fits.items()
    }
    return frozen


def test_no_id_has_changed(found):
    if os.environ.get("FREEZE"):
        FILE.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    advice = "If entry points have changed, install the package again: pip install -e ."
    assert found == json.loads(FILE.read_text()), advice
