"""Plugins that are files, and plugins that were written for another version of the interface."""

import sys

import pytest

from jembench import registry
from jembench.errors import Incompatible, PluginError, SpecError
from jembench.interfaces import API

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
    registry.forget_files()
    for name in ("plugin_of_tests", "future_zoo"):
        sys.modules.pop(name, None)


@pytest.fixture
def write(tmp_path):
    def write(content=SOURCE, name="plugin_of_tests.py"):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_can_be_named_by_its_module_and_by_what_it_declares(write):
    path = write()
    registry.add_file(path)
    by_path = registry.resolve("models", "plugin_of_tests:build:width=3")
    by_name = registry.resolve("models", "of-file:width=3")
    assert by_path.make(None) == by_name.make(None) == 3
    assert by_name.component.distribution == "plugin_of_tests.py"
    assert by_name.component.version.startswith("sha256:")
    assert registry.resolve("models", "plugin_of_tests.py/of-file").make(None) == 2


def test_without_declarations_a_file_is_a_module(write):
    registry.add_file(write("def build(data):\n    return 5\n"))
    assert registry.resolve("models", "plugin_of_tests:build").make(None) == 5
    assert "plugin_of_tests.py" not in {component.distribution for component in registry.components("models")}


def test_a_file_that_is_added_again_is_read_again(write):
    registry.add_file(write())
    registry.add_file(write(SOURCE.replace("width: int = 2", "width: int = 7")))
    assert registry.resolve("models", "of-file").make(None) == 7


def test_a_name_that_an_installed_plugin_has_too_must_be_told_apart(write):
    registry.add_file(write(SOURCE.replace("of-file", "jem")))
    with pytest.raises(SpecError, match=r"offered by more than one distribution: .*plugin_of_tests\.py/jem"):
        registry.resolve("models", "jem")


def test_files_are_forgotten(write):
    registry.add_file(write())
    registry.forget_files()
    with pytest.raises(SpecError, match="There is no model named 'of-file'"):
        registry.resolve("models", "of-file")


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        (SOURCE, "my-plugin.py", "must be an existing Python file, named like a module"),
        (SOURCE, "plugin.txt", "must be an existing Python file"),
        (SOURCE, "json.py", "bears the name of another module, json"),
        ("1 / 0", "plugin_of_tests.py", "cannot be imported: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "plugin_of_tests.py", "cannot be imported: SystemExit: 3"),
        ("def f(:", "plugin_of_tests.py", "cannot be imported: SyntaxError"),
        ("ENTRY_POINTS = {'modells': {}}", "plugin_of_tests.py", "must map kinds to names and attributes"),
        ("ENTRY_POINTS = {'suites': {'a': 'b'}}", "plugin_of_tests.py", "but no suites"),
        ("ENTRY_POINTS = 3", "plugin_of_tests.py", "must map kinds"),
    ],
)
def test_what_is_no_plugin_is_told(content, name, text, write):
    with pytest.raises(PluginError) as caught:
        registry.add_file(write(content, name))
    assert text in str(caught.value)
    assert "plugin_of_tests" not in sys.modules


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(PluginError, match="must be an existing Python file"):
        registry.add_file(tmp_path / "nowhere.py")


# --- versions of the interface ----------------------------------------------------------------------------------------


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
        registry.catalogue.cache_clear()

    yield install
    monkeypatch.undo()
    registry.catalogue.cache_clear()


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("api", [[], [str(API)]])
def test_a_plugin_of_this_version_works(api, torn, installed):
    installed(api, torn=torn)
    assert registry.resolve("models", "future").make(None) == 1


@pytest.mark.parametrize("torn", [False, True])
def test_a_plugin_of_another_version_is_found_but_not_used(torn, installed):
    installed([str(API), str(API + 1)], torn=torn)
    component = registry.find("models", "future")
    assert (component.api, component.is_compatible) == (API + 1, False)
    with pytest.raises(Incompatible) as caught:
        registry.load(component)
    assert str(caught.value) == (
        f"future-zoo 1.0 was written for version {API + 1} of jembench's plugin interface, and this jembench has "
        f"version {API}. Update jembench, or uninstall future-zoo."
    )
    assert "future_zoo" not in sys.modules


def test_a_version_that_is_no_number_makes_a_distribution_unreadable(installed):
    installed(["one"])
    assert [u.distribution for u in registry.catalogue().unreadable] == ["future-zoo"]
    assert registry.find("models", "jem").distribution == "jembench-jem"
