"""Plugins that are files."""

import sys

import pytest

from jembench.catalog import discovery, plugin_files, registry
from jembench.errors import SpecError

SOURCE = '''
"""A user's file."""

def build(data, *, width: int = 2):
    """A model of one's own."""
    return width

ENTRY_POINTS = {"models": {"of-file": "build"}}
'''


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    plugin_files.forget()
    sys.modules.pop("plugin_of_tests", None)


@pytest.fixture
def write(tmp_path):
    def write(content=SOURCE, name="plugin_of_tests.py"):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


def test_a_file_can_be_named_by_its_module_and_by_what_it_declares(write):
    path = write()
    plugin_files.add(path)
    by_path = registry.resolve("models", "plugin_of_tests:build:width=3")
    by_name = registry.resolve("models", "of-file:width=3")
    assert by_path.make(None) == by_name.make(None) == 3
    assert by_name.component.distribution == "plugin_of_tests.py"
    assert by_name.component.version.startswith("sha256:")
    assert registry.resolve("models", "plugin_of_tests.py/of-file").make(None) == 2


def test_without_declarations_a_file_is_a_module(write):
    plugin_files.add(write("def build(data):\n    return 5\n"))
    assert registry.resolve("models", "plugin_of_tests:build").make(None) == 5
    assert "plugin_of_tests.py" not in {component.distribution for component in discovery.components("models")}


def test_a_file_that_is_added_again_is_read_again(write):
    plugin_files.add(write())
    plugin_files.add(write(SOURCE.replace("width: int = 2", "width: int = 7")))
    assert registry.resolve("models", "of-file").make(None) == 7


def test_a_name_that_an_installed_plugin_has_too_must_be_told_apart(write):
    plugin_files.add(write(SOURCE.replace("of-file", "jem")))
    with pytest.raises(SpecError, match=r"offered by more than one distribution: .*plugin_of_tests\.py/jem"):
        registry.resolve("models", "jem")


def test_files_are_forgotten(write):
    plugin_files.add(write())
    plugin_files.forget()
    with pytest.raises(SpecError, match="There is no model named 'of-file'"):
        registry.resolve("models", "of-file")
