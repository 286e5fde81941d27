import dataclasses
import json

import pytest

from jembench.experiment import twins
from jembench.experiment.plan import plan_fit
from jembench.store.fits import FitRecord
from jembench.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture
def fits():
    return [plan_fit("jem", "digits", "digits", seed=seed) for seed in (0, 1)]


def keep(store, fit, change, **fields):
    """Write the record of a fit whose identity was another one."""
    identity = json.loads(json.dumps(fit.identity))
    change(identity)
    key = dataclasses.replace(fit.key, id=f"old{fit.seed}", family="old")
    record = FitRecord(
        key=key,
        status="done",
        reason="",
        recipe={},
        iteration=1,
        validation_accuracy=None,
        seconds=1.0,
        iteration_seconds=[],
        interventions=[],
        provenance={},
        identity=identity,
    )
    store.write_fit(record._replace(**fields))


def told(store, fits):
    return twins.differences(fits, store)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("model", "code"), {"jembench_jem:jem": "old"}, "the code of the model"),
        (("model", "arguments", "net"), "small-2", "model.net: small-2 -> auto"),
        (("recipe", "epochs"), 3.0, "recipe.epochs: 3.0 -> "),
        (("recipe", "of_old"), 1, "recipe.of_old: 1 -> none"),
        (
            ("recipe", "optimizer", "betas"),
            [0.5, 0.9],
            "recipe.optimizer.betas: [0.5, 0.9] -> [0.9, 0.999]",
        ),
        (
            ("recipe", "chains", "sampler", "arguments", "steps"),
            7,
            "recipe.chains.sampler.steps: 7 -> ",
        ),
        (("recipe", "chains", "sampler"), None, "recipe.chains.sampler: none -> pcd"),
    ],
)
def test_each_difference_is_named_once_for_all_seeds(store, fits, path, value, text):
    def change(identity):
        *tables, key = path
        for table in tables:
            identity = identity[table]
        identity[key] = value

    for fit in fits:
        keep(store, fit, change)
    (line,) = told(store, fits)
    assert line.startswith(
        f"A trained jem of this recipe ({fits[0].key.recipe}, on digits) exists; it differs in: "
    )
    assert text in line
    assert line.endswith(". Seeds 0, 1 are trained again.")


def test_code_that_is_gone_is_a_difference_too(store, fits):
    keep(
        store, fits[0], lambda identity: identity["dataset"].update(code={"own.data:build": "old"})
    )
    assert (
        "it differs in: the code of the dataset. Seed 0 is trained again." in told(store, fits)[0]
    )


def test_files_of_another_content_are_named(store, fits, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for split in ("train", "test"):
        (tmp_path / "pets" / split / "cat").mkdir(parents=True)
        (tmp_path / "pets" / split / "cat" / "0.png").write_bytes(b"a cat")
    before = plan_fit("jem", f"imagefolder:root={tmp_path / 'pets'}", "digits")
    keep(store, before, lambda identity: None)
    (tmp_path / "pets" / "test" / "cat" / "0.png").write_bytes(b"a dog")
    after = plan_fit("jem", f"imagefolder:root={tmp_path / 'pets'}", "digits")
    (line,) = told(store, [after])
    assert "it differs in: the content of the files of dataset.root." in line


def test_the_nearest_of_several_is_the_one_that_is_compared(store, fits):
    fit = fits[0]
    keep(store, fit, lambda identity: identity["recipe"].update(epochs=3.0, batch_size=1))
    other = dataclasses.replace(fit.key, id="older0", family="older")
    keep(store, fit, lambda identity: identity["recipe"].update(batch_size=2), key=other)
    (line,) = told(store, [fit])
    assert "batch_size: 2 ->" in line
    assert "epochs" not in line


@pytest.mark.parametrize("status", ["failed", "done"])
def test_nothing_is_said_of_what_failed_or_is_the_same(store, fits, status):
    key = fits[0].key if status == "done" else dataclasses.replace(fits[0].key, id="old")
    keep(store, fits[0], lambda identity: None, key=key, status=status)
    assert told(store, fits) == []
