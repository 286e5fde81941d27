"""No import points up, and what must answer at once imports no heavy library.

Read from the source with ``ast``: an import inside a function counts as well, for it ties the
layers all the same.
"""

import ast
import graphlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import jembench

PACKAGE = Path(jembench.__file__).parent

LAYERS = [
    {
        "drawing",
        "errors",
        "files",
        "interfaces",
        "limits",
        "progress",
        "seeds",
        "stopping",
        "version",
    },
    {"catalog", "stats"},
    {"store"},
    {"experiment"},
    {"data"},
    {"models"},
    {"sampling"},
    {"attacks"},
    {"training", "metrics"},
    {"running"},
    {"report", "trackers"},
    {"api"},
    {"plugin", "parts"},
    {"testing"},
    {"cli"},
    {"__main__"},
]
"""From the bottom up."""

DOORS = {
    "api/reproduction.py",  # datasets of the caller
    "cli/options.py",  # --format
    "cli/output.py",  # --format
    "data/ood_sets/resolve.py",  # an option of metrics
    "metrics/sample_protocol.py",  # the source of samples
    "report/claims.py",  # models of papers
    "report/protocols.py",  # protocols of outcomes and of papers
    "report/respects.py",  # respects.toml
    "report/select.py",  # the words of the user
    "running/imports.py",  # names of imports
    "running/selection.py",  # an option of recipes
    "training/optimizers.py",  # an option of recipes
}
"""Modules outside ``catalog`` and ``experiment`` in which a text becomes a spec."""

SOCIABLE = LAYERS[0]
"""Modules that may import their neighbours in the same layer."""

LIGHT = {
    "errors",
    "files",
    "interfaces",
    "plugin",
    "progress",
    "stopping",
    "catalog",
    "experiment",
    "report",
    "cli",
}
"""Modules that answer at once, with every ``factories.py``."""

HEAVY = {"foolbox", "matplotlib", "scipy", "sklearn", "torch", "torch_fidelity", "torchvision"}

RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}


class Import(NamedTuple):
    """One imported module; ``late`` if it is imported inside a function, or for type checkers
    alone.
    """

    module: str
    line: int
    late: bool


@cache
def imports(path):
    """Every import of a file. ``from a import b`` counts as both ``a`` and ``a.b``."""
    assert path.suffix == ".py"
    imported = []

    def visit(node, late):
        if isinstance(node, ast.Import):
            imported.extend(Import(alias.name, node.lineno, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            imported.append(Import(node.module, node.lineno, late))
            imported.extend(
                Import(f"{node.module}.{alias.name}", node.lineno, late) for alias in node.names
            )
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        late = (
            late
            or typing_only
            or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        )
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return imported


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOT = "jembench"


def unit(module):
    """The part of the package that a module belongs to: ``jembench.data.digits`` -> ``data``."""
    return module.split(".")[1]


def upward(module, path):
    """The imports of a file that its layer forbids."""
    importer = unit(module)
    for imported in imports(path):
        parent, _, name = imported.module.rpartition(".")
        if parent == ROOT and imported.module not in MODULES:
            yield f"{path}:{imported.line}: {importer} imports {name} from the root"
        if (
            imported.module not in MODULES
            or imported.module == ROOT
            or unit(imported.module) == importer
        ):
            continue
        target = unit(imported.module)
        beside = RANK[target] == RANK[importer] and importer in SOCIABLE
        if not (RANK[target] < RANK[importer] or beside):
            yield f"{path}:{imported.line}: {importer} imports {target}"


def loaded_with(module):
    waiting, seen, heavy = [module], set(), {}
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for imported in imports(MODULES[current]):
            if imported.late:
                continue
            top = imported.module.split(".")[0]
            if top in HEAVY:
                heavy.setdefault(top, f"{MODULES[current]}:{imported.line}")
            parts = imported.module.split(".")
            parents = {".".join(parts[: n + 1]) for n in range(len(parts))}
            waiting.extend(parents & MODULES.keys())
    return heavy


def is_light(module):
    return (
        module in {ROOT, "jembench.testing", "jembench.testing.checks"}
        or module.endswith(".factories")
        or unit(module) in LIGHT
    )


def test_every_part_has_its_layer():
    assert {unit(module) for module in MODULES if module != ROOT} <= RANK.keys()


@pytest.mark.parametrize("module", [module for module in MODULES if module != ROOT])
def test_no_import_points_up(module):
    assert list(upward(module, MODULES[module])) == []


@pytest.mark.parametrize("module", [module for module in MODULES if is_light(module)])
def test_what_answers_at_once_imports_no_heavy_library(module):
    assert loaded_with(module) == {}


def needed(path, known):
    """Return the modules a file imports: of ``from package import module`` the latter."""
    at_import = {
        (imported.module, imported.line) for imported in imports(path) if imported.module in known
    }
    inner = {(module.rpartition(".")[0], line) for module, line in at_import}
    return {module for module, _ in at_import - inner}


def cycle(paths):
    """Return the modules of an import cycle, lazy imports and those for types included; None if
    there is none.
    """
    graph = {module: needed(path, paths.keys() - {module, ROOT}) for module, path in paths.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_specs_are_parsed_where_texts_come_in():
    """Everywhere else a name is a value: ``cell.metric.name``, ``cell.fit.model.options``."""
    parsing = set()
    for path in MODULES.values():
        room, *rest = path.relative_to(PACKAGE).parts
        calls = re.search(r"(?<!\w)Spec\(|map\(Spec,", path.read_text(encoding="utf-8"))
        if calls and rest and room not in ("catalog", "experiment"):
            parsing.add("/".join((room, *rest)))
    assert parsing == DOORS


def test_no_modules_import_each_other():
    assert cycle(MODULES) is None


def test_a_cycle_is_found(tmp_path):
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("def late():\n    import jembench.second\n")
    second.write_text("import jembench.first\n")
    assert cycle({"jembench.first": first, "jembench.second": second})


def test_an_import_that_points_up_is_found(tmp_path):
    path = tmp_path / "errors.py"
    path.write_text("def late():\n    from jembench.catalog import registry\n")
    assert set(upward("jembench.errors", path)) == {f"{path}:2: errors imports catalog"}


def test_an_import_from_the_root_is_found(tmp_path):
    path = tmp_path / "errors.py"
    path.write_text("from jembench import __version__\n")
    expected = f"{path}:1: errors imports __version__ from the root"
    assert list(upward("jembench.errors", path)) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch.nn as nn", [("torch.nn", False)]),
        ("from torch import nn", [("torch", False), ("torch.nn", False)]),
        ("def f():\n    import torch", [("torch", True)]),
        ("class A:\n    import torch", [("torch", False)]),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", [("torch", False)]),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
            [("torch", True)],
        ),
    ],
)
def test_imports_are_read(tmp_path, text, expected):
    path = tmp_path / "it.py"
    path.write_text(text)
    read = [
        (imported.module, imported.late)
        for imported in imports(path)
        if "typing" not in imported.module
    ]
    assert read == expected
