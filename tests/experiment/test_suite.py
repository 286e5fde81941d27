"""Suites, as they are read from their files."""

import pytest

from jembench.catalog import packages
from jembench.errors import SpecError
from jembench.experiment import suite_files as suite
from jembench.experiment.planning import make_plan


@pytest.mark.parametrize("name", ["samplers", "divergence"])
@pytest.mark.parametrize("dataset", ["digits", "cifar10"])
def test_each_way_to_train_is_there_guarded_and_unguarded(name, dataset):
    variants = suite.load(name).variants_on(dataset)
    arms = {
        watched: [v for v in variants if ("guard.mode=watch" in v.settings) == watched] for watched in (False, True)
    }
    assert [(f"{v.name}, unguarded", (*v.settings, "guard.mode=watch")) for v in arms[False]] == [
        (v.name, v.settings) for v in arms[True]
    ]
    assert "stability" in suite.load(name).metrics


def test_an_unknown_suite():
    assert "hybrid" in suite.names()
    with pytest.raises(SpecError, match=r"^There is no suite named 'hybird'\. Nearest: hybrid\. Known: "):
        suite.load("hybird")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"title = ", "zoo.toml is not valid TOML: "),
        (b"\xff", "zoo.toml is not valid TOML: "),
        (b"title = " + b"[" * 5000 + b"]" * 5000, "zoo.toml is not valid TOML: maximum recursion depth"),
        (b"title = " + b"9" * 5000, "zoo.toml is not valid TOML: Exceeds the limit"),
        (b'title = ""\ndatasets = []\nmetrics = []', "suite zoo lacks models. Add it to the file."),
        (b'title = ""\nmodles = ["jem"]', "There is no key in suite zoo named 'modles'. Nearest: models"),
        (b'name = "other"', "There is no key in suite zoo named 'name'."),
        (
            b'title = ""\nmodels = "jem"\ndatasets = []\nmetrics = []',
            "In suite zoo, models is 'jem'; it must be a list.",
        ),
        (b'title = ""\nmodels = []\ndatasets = []\nmetrics = []\nseeds = ["0"]', "In suite zoo, seeds[0] is '0'; "),
    ],
)
def test_a_suite_is_read_strictly(tmp_path, monkeypatch, content, expected):
    path = tmp_path / "zoo.toml"
    path.write_bytes(content)
    monkeypatch.setattr(packages, "files", lambda folder: {"zoo": path})
    with pytest.raises(SpecError) as caught:
        suite.load("zoo")
    assert expected in str(caught.value)


def test_the_ablation_of_norms_starts_chains_where_networks_with_norms_train():
    """From uniform noise they do not: the chains stay 3 to 130 nats above the data, see benchmarks/results."""
    fits = make_plan(suite.load("ablations")).fits
    normed = {fit.model.bound.arguments["norm"]: fit for fit in fits if str(fit.model).startswith("jem:norm=")}
    assert normed.keys() == {"batch", "instance", "layer"}
    for norm, fit in normed.items():
        assert fit.sampler.bound.arguments["start"] == "class-gaussian"
        assert fit.recipe.chains.mode == ("train" if norm == "batch" else "eval")
