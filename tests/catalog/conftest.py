"""Distributions that are faked as ``NAME-VERSION.dist-info`` folders on ``sys.path``."""

import sys
from pathlib import Path

import pytest

from jembench.catalog import discovery
from jembench.interfaces import API

API_ENTRY = f"[jembench.api]\n{API} = zoo\n"


class Site:
    """A folder of ``sys.path`` where distributions are faked the way their installation leaves
    them.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def install(self, name, entry_points, version="1.0", below="", api=API_ENTRY):
        """Write a distribution's metadata; ``entry_points`` is text or raw bytes."""
        info = self.folder / below / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        content = (
            entry_points if isinstance(entry_points, bytes) else f"{entry_points}\n{api}".encode()
        )
        (info / "entry_points.txt").write_bytes(content)

    def module(self, name, text):
        """Write a module that can be imported."""
        (self.folder / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A :class:`Site`, with a fresh catalogue, and its modules forgotten afterwards."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    discovery.catalogue.cache_clear()
    before = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    discovery.catalogue.cache_clear()
