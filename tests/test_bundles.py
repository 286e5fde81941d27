"""The trained models of real images in the repository: intact, of the present code, with the
results that are shown.
"""

from pathlib import Path

import pytest

from jembench.catalog import registry
from jembench.cli.main import main
from jembench.interfaces import DataSpec
from jembench.store import checkpoint
from jembench.store.store import Store
from jembench.store.walk import verify

ROOT = Path(__file__).parents[1]
BUNDLES = sorted((ROOT / "benchmarks" / "bundles").glob("*.zip"))
SUITE = str(ROOT / "benchmarks" / "gpu" / "field-images.toml")


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    """A store with all of them."""
    store = tmp_path_factory.mktemp("bundles") / "images"
    assert main(["fetch", *map(str, BUNDLES), "--store", str(store)]) == 0
    return Store(store)


def test_they_are_small():
    assert BUNDLES
    assert sum(path.stat().st_size for path in BUNDLES) < 25e6


def test_their_files_are_intact_and_their_weights_fit_the_models_of_today(fetched):
    assert {finding.status for finding in verify(fetched)} == {"ok"}
    records = fetched.trained()
    assert len(records) == len(BUNDLES)
    for record in records:
        model = registry.resolve("models", record.key.model).make(
            DataSpec(name="cifar10-jpeg", shape=(3, 16, 16), num_classes=10)
        )
        checkpoint.load_weights(
            model, checkpoint.read(fetched.fit_folder(record.key) / "model.safetensors")
        )


def test_their_report_is_the_one_that_is_shown(fetched, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["report", SUITE, "--store", str(fetched.root)]) == 0
    table = capsys.readouterr().out.split("\n\n* on the Pareto front")[0].strip()
    shown = (ROOT / "benchmarks" / "bundles" / "README.md").read_text()
    assert [line.rstrip() for line in table.splitlines()] == shown.split("```text\n")[1].split(
        "\n```"
    )[0].splitlines()
