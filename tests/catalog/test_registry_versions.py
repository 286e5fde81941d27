"""Plugins that were written for another version of the interface."""

import sys

import pytest

from jembench.catalog import discovery, registry
from jembench.errors import Incompatible
from jembench.interfaces import API


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution with one model and what it says of the interface."""

    def install(api, *, torn=False):
        folder = tmp_path / "future_zoo-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: future-zoo\nVersion: 1.0\n")
        stated = "".join(f"{line} = future_zoo\n" for line in api)
        group = f"[jembench.api]\n{stated}" if api else ""
        (folder / "entry_points.txt").write_text(f"[jembench.models]\nfuture = future_zoo:build\n{group}")
        (tmp_path / "future_zoo.py").write_text("def build(data):\n    return 1\n")
        if torn:  # another distribution, which makes the registry read the careful way
            (tmp_path / "torn-1.0.dist-info").mkdir()
            (tmp_path / "torn-1.0.dist-info" / "METADATA").write_text("Name: torn\nVersion: 1\n")
            (tmp_path / "torn-1.0.dist-info" / "entry_points.txt").write_text("[jembench.models]\nnot a line\n")
        monkeypatch.syspath_prepend(tmp_path)
        discovery.catalogue.cache_clear()

    yield install
    monkeypatch.undo()
    sys.modules.pop("future_zoo", None)
    discovery.catalogue.cache_clear()


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("api", [[str(API)], ["1", str(API)]])
def test_a_plugin_of_this_version_works(api, torn, installed):
    installed(api, torn=torn)
    assert registry.resolve("models", "future").make(None) == 1


@pytest.mark.parametrize("torn", [False, True])
def test_a_plugin_of_another_version_is_found_but_not_used(torn, installed):
    installed([str(API), str(API + 1)], torn=torn)
    component = discovery.find("models", "future")
    assert (component.api, component.is_compatible) == (API + 1, False)
    with pytest.raises(Incompatible) as caught:
        discovery.load(component)
    assert str(caught.value) == (
        f"future-zoo 1.0 was written for version {API + 1} of jembench's plugin interface, and this jembench has "
        f"version {API}. Update jembench, or uninstall future-zoo."
    )
    assert "future_zoo" not in sys.modules


@pytest.mark.parametrize("torn", [False, True])
def test_a_plugin_that_states_no_version_was_written_for_the_first(torn, installed):
    installed([], torn=torn)
    with pytest.raises(Incompatible, match=r"for version 1 of .* Update future-zoo, or uninstall future-zoo"):
        registry.resolve("models", "future")


def test_the_group_of_api_1_for_ood_sets_is_found_and_refused(tmp_path, monkeypatch):
    info = tmp_path / "old_zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: old-zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jembench.outliers]\nbears = old_zoo:bears\n[jembench.api]\n1 = old_zoo\n")
    monkeypatch.syspath_prepend(tmp_path)
    discovery.catalogue.cache_clear()
    with pytest.raises(Incompatible, match=r"old-zoo 1\.0 was written for version 1 of jembench's plugin interface"):
        registry.resolve("ood_sets", "bears")
    monkeypatch.undo()
    discovery.catalogue.cache_clear()


def test_a_version_that_is_no_number_makes_a_distribution_unreadable(installed):
    installed(["one"])
    assert [u.distribution for u in discovery.catalogue().unreadable] == ["future-zoo"]
    assert discovery.find("models", "jem").distribution == "jembench-jem"
