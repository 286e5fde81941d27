"""What the tests of core share."""

from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden outputs of tests/golden anew")


@pytest.fixture
def zoo_of_tests(monkeypatch):
    """The folder of ``zoo_of_tests.py``, which can be imported: models, metrics and a recipe ``tiny.toml``."""
    folder = Path(__file__).parent / "zoo"
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def pictures(monkeypatch):
    """Whole fits draw no pictures, which would take longer than they do; gives those that were asked for."""
    drawn = []
    monkeypatch.setattr("jembench.training.fit.draw_energies", lambda *arguments: drawn.append(arguments))
    return drawn
