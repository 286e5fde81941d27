import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jembench.errors import SpecError
from jembench.interfaces import API
from jembench.testing.scaffold import KINDS, render, write

LONGEST = "a-name-of-exactly-as-many-signs-as-may-be"[:40]
NAMES = ["q7", "my-own-plugin", LONGEST]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_nothing_is_left_to_fill_in(self, kind, name):
        for path, text in render(kind, name).items():
            assert "$" not in text, path
            assert not {"PACKAGE", "NAME"} & set(
                path.replace(".", "/").replace("_", "/").split("/")
            )

    def test_it_is_a_distribution_with_a_package_tests_and_instructions(self, kind, name):
        package = name.replace("-", "_")
        files = {"pyproject.toml", "README.md", "tox.ini", ".gitignore", f"{package}/__init__.py"}
        assert files | {f"tests/test_{package}.py"} <= render(kind, name).keys()

    def test_python_and_toml_are_valid(self, kind, name):
        for path, text in render(kind, name).items():
            if path.endswith(".py"):
                assert ast.get_docstring(ast.parse(text)), path
            if path.endswith(".toml"):
                tomllib.loads(text)

    def test_lines_are_short(self, kind, name):
        for path, text in render(kind, name).items():
            limit = 200 if path.endswith(".md") else 120  # a row of a table is one line
            assert max(map(len, text.splitlines())) <= limit, path

    def test_the_project_names_its_component_and_the_plugin_api(self, kind, name):
        project = tomllib.loads(render(kind, name)["pyproject.toml"])["project"]
        package = name.replace("-", "_")
        group = f"jembench.{KINDS[kind].group}"
        assert project["name"] == name
        assert project["entry-points"] == {
            "jembench.api": {str(API): package},
            group: {name: package if kind == "suite" else f"{package}:build"},
        }


@pytest.mark.skipif(
    not shutil.which("ruff", path=Path(sys.executable).parent), reason="ruff is not installed"
)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_linter_has_nothing_to_say(kind, name, tmp_path):
    write(kind, name, tmp_path / name)
    for command in (["check"], ["format", "--diff"]):  # as its own tox.ini says
        ruff = [Path(sys.executable).with_name("ruff"), *command, "--no-cache", "."]
        done = subprocess.run(
            ruff, cwd=tmp_path / name, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_all_files_are_written_and_nothing_else_stays(tmp_path):
    written = write("model", "my-ebm", tmp_path / "deep" / "folder")
    there = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert there == set(written)
    assert [path.relative_to(tmp_path / "deep/folder").as_posix() for path in written] == list(
        render("model", "my-ebm")
    )
    assert list((tmp_path / "deep").iterdir()) == [tmp_path / "deep" / "folder"]


def test_an_empty_folder_is_filled(tmp_path):
    assert write("metric", "my-metric", tmp_path)[0].is_file()


@pytest.mark.parametrize("existing", ["file", "folder"])
def test_what_is_there_is_left_as_it_is(tmp_path, existing):
    target = tmp_path / "my-ebm"
    if existing == "folder":
        target.mkdir()
    kept = target / "thesis.txt" if existing == "folder" else target
    kept.write_text("mine")
    with pytest.raises(
        SpecError,
        match=r"exists already and is not an empty folder\. Choose another one with --fold",
    ):
        write("model", "my-ebm", target)
    assert kept.read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]


def test_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"Cannot write .*my-ebm"):
        write("model", "my-ebm", tmp_path / "file" / "my-ebm")


@pytest.mark.parametrize(
    "name",
    ["", "My-EBM", "my_ebm", "7up", "-ebm", "ebm-", "my--ebm", "my ebm", "../ebm", "ébm", "e" * 41],
)
def test_a_name_that_cannot_be_says_how_a_name_looks(name, tmp_path):
    with pytest.raises(SpecError) as error:
        write("model", name, tmp_path / "new")
    assert str(error.value) == (
        f"{name!r} cannot be the name of a plugin. A name is small letters and digits, with "
        "single hyphens between them, begins with a letter and has at most 40 characters: "
        "my-model."
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["class", "random", "test", "tests", "dist"])
def test_a_package_with_another_meaning_is_refused(name):
    with pytest.raises(SpecError, match=f"{name} has another meaning\\. Try my-{name}"):
        render("model", name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("model", "torch"),
        ("metric", "accuracy"),
        ("sampler", "pcd"),
        ("suite", "hybrid"),
        ("suite", "digits"),
    ],
)
def test_a_name_that_is_taken_is_refused(kind, name):
    with pytest.raises(
        SpecError, match=f"The name '{name}' is taken. Choose another one, such as my-{name}"
    ):
        render(kind, name)


def test_the_name_of_another_kind_of_component_is_free():
    assert render("model", "digits")
