"""The command as tests call it: in this process, with faked distributions."""

import itertools
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from jembench.catalog import discovery
from jembench.cli.main import main
from jembench.interfaces import API


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def jembench(capsys, monkeypatch, tmp_path):
    """Call the command with arguments in an empty folder; nothing of the user's own environment
    reaches it.
    """
    for name in [name for name in os.environ if name.startswith("JEMBENCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "1000")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def tiny(zoo_of_tests):
    """The options with which a model of ``zoo_of_tests`` is trained in a moment."""
    return ["--dataset", "zoo_of_tests:data", "--recipe", zoo_of_tests / "tiny.toml"]


@pytest.fixture
def run(jembench, tiny):
    """``jembench run hybrid`` for quick models and metrics, with more options behind."""
    models, metrics = (
        "zoo_of_tests:jem,zoo_of_tests:classifier",
        "accuracy,ece,zoo_of_tests:brightness",
    )

    def call(*arguments, models=models, metrics=metrics):
        return jembench(
            "run", "hybrid", "--models", models, "--metrics", metrics, *tiny, *arguments
        )

    return call


@pytest.fixture
def outcomes():
    """Every outcome in a store, by model, seed and metric."""

    def read(store):
        cells = [
            json.loads(path.read_text()) for path in sorted((Path(store) / "cells").glob("*.json"))
        ]
        return {
            (cell["fit"]["model"], cell["fit"]["seed"], cell["metric"]): cell["outcome"]
            for cell in cells
        }

    return read


@pytest.fixture
def values(outcomes):
    return lambda store: {key: outcome["values"] for key, outcome in outcomes(store).items()}


@pytest.fixture
def table():
    """The rows of the first table of an output, as words."""

    def read(out):
        lines = iter(out.splitlines())
        for line in lines:
            if line.strip().startswith("───"):
                return [line.split() for line in itertools.takewhile(str.strip, lines)]
        return []

    return read


@pytest.fixture
def contents():
    """The bytes of every file in a folder."""

    def read(folder):
        return {
            path.relative_to(folder): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }

    return read


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A distribution ``zoo-park`` with what works and what does not; the folder that it is
    installed in.
    """
    folder = tmp_path / "site-packages"
    info = folder / "zoo_park-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-park\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[jembench.models]\nlion = zoo_cli_park:lion\nraises = zoo_cli_raises:build\n"
        f"[jembench.suites]\nzoo = zoo_cli_suites\n[jembench.api]\n{API} = zoo_cli_park\n"
    )
    (folder / "zoo_cli_park.py").write_text(
        "print('a plugin that talks')\n"
        "def lion(data_spec, *, net: str, width: int = 2, lr: float | None = None):\n"
        '    """Roars [loudly]."""\n'
    )
    (folder / "zoo_cli_raises.py").write_text("raise RuntimeError('no food')\n")
    suites = folder / "zoo_cli_suites"
    suites.mkdir()
    (suites / "__init__.py").write_text("")
    (suites / "feeding.toml").write_text('title = "Feeding time"\n')
    (suites / "torn.toml").write_text("title = \n")
    (suites / "notes.txt").write_text("no suite")
    monkeypatch.syspath_prepend(folder)
    discovery.catalogue.cache_clear()
    yield folder
    for module in ("zoo_cli_park", "zoo_cli_raises", "zoo_cli_suites"):
        sys.modules.pop(module, None)
    discovery.catalogue.cache_clear()


@pytest.fixture
def unreadable(zoo):
    """One more distribution, whose entry points nobody can read."""
    info = zoo / "cage-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cage\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("no header\n")
    discovery.catalogue.cache_clear()
