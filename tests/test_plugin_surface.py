"""Plugins import ``jembench.interfaces`` and ``jembench.plugin`` alone, and ``jembench.testing`` in their tests."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import jembench
from jembench import plugin

ROOT = Path(jembench.__file__).parents[1]
TEMPLATES = ROOT / "jembench/testing/scaffold/templates"
GUIDES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("plugins/**/*.md"))]
SOURCES = [
    *sorted(ROOT.glob("plugins/*/jembench_*/*.py")),
    *sorted(ROOT.glob("tests/*_plugin/jembench_*/*.py")),
    *sorted(TEMPLATES.rglob("*.py.template")),
    *GUIDES,
]
KIT = sorted((ROOT / "jembench/testing").rglob("*.py"))
SURFACE = {"jembench.interfaces", "jembench.plugin"}


def python(path):
    """The Python code of a file: a module, a template, or every block of a guide."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return text.replace("$package", "package")


def core_imports(path):
    """The modules of core that a file imports; ``from jembench import a`` counts as ``jembench.a``."""
    found = set()
    for node in ast.walk(ast.parse(python(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"jembench.{alias.name}" for alias in node.names} if node.module == "jembench" else {node.module}
    return {module for module in found if module.split(".")[0] == "jembench"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_imports_the_surface_alone(path):
    may_test = path.parent.name == "tests" or path.suffix == ".md"
    public_api = {"jembench"} if path.suffix == ".md" else set()
    assert core_imports(path) - SURFACE - public_api - ({"jembench.testing"} if may_test else set()) == set()


def test_every_name_is_used_by_a_plugin_or_recommended_by_a_check():
    code = "\n".join([*map(python, SOURCES), *(path.read_text() for path in KIT)])
    assert {name for name in names() if not re.search(rf"\b{name}\b", code)} <= {
        "content_of",
        "incidental",
        "PartDone",
        *("Document", "csv_text", "Drawing", "Planned", "Result", "needs", "new_figure"),  # formats and figures
    }  # marks that the guide explains


def test_the_guide_lists_every_name():
    guide = (ROOT / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    assert {name for name in names() if f"`{name}`" not in guide} == set()


def names():
    """The names that the source re-exports, those for type checkers included."""
    tree = ast.parse(Path(plugin.__file__).read_text(encoding="utf-8"))
    found = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return {alias.asname for alias in found if alias.asname}


@pytest.mark.parametrize("name", sorted(names()))
def test_every_name_can_be_had(name):
    assert getattr(plugin, name) is not None


def test_the_surface_costs_no_torch():
    code = "import sys, jembench.plugin, jembench.interfaces; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_that_is_not_there_is_said():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        plugin.Nothing  # noqa: B018


def test_what_messages_and_guides_name_exists():
    pattern = re.compile(r"\bjembench\.(interfaces|plugin|errors)\.([A-Z]\w+)")
    texts = [path.read_text(encoding="utf-8") for path in (*ROOT.glob("jembench/**/*.py"), *GUIDES)]
    named = {found for text in texts for found in pattern.findall(text)}
    assert len(named) > 20
    assert {(module, name) for module, name in named if not hasattr(import_module(f"jembench.{module}"), name)} == set()
