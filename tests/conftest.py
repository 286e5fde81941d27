import os
import sys
from pathlib import Path

import forks
import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden outputs of tests/golden anew"
    )


@pytest.fixture
def zoo_of_tests(monkeypatch):
    """The folder of ``zoo_of_tests.py``, which can be imported: models, metrics and a recipe
    ``tiny.toml``.
    """
    folder = Path(__file__).parent / "zoo"
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture(scope="session")
def programs():
    """The folder of the programs ``python`` and ``jembench`` whose commands run in forks."""
    if sys.platform != "linux":
        pytest.skip("only Linux sends streams to an abstract address, and forks safely")
    return forks.programs(Path(os.environ["JEMBENCH_TESTS_FOLDER"]) / "programs")


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures are empty files: drawing them takes longer than the rest of a report."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *arguments, **options: None)
