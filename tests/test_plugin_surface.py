"""Plugins import ``jembench.interfaces``, ``plugin`` and ``parts`` alone, and ``jembench.testing``
in their tests.
"""

import ast
import re
import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path

import pytest

import jembench
from jembench import interfaces, parts, plugin, testing

ROOT = Path(jembench.__file__).parents[1]
TEMPLATES = ROOT / "jembench/testing/scaffold/templates"
OF_CORE = ROOT / "docs" / "through-the-layers.md"
"""The page for those who change jembench itself."""

GUIDES = [
    ROOT / "README.md",
    *sorted({*ROOT.glob("docs/**/*.md")} - {OF_CORE}),
    *sorted(ROOT.glob("plugins/**/*.md")),
]
SOURCES = [
    *sorted(ROOT.glob("plugins/*/jembench_*/*.py")),
    *sorted(ROOT.glob("tests/*_plugin/jembench_*/*.py")),
    *sorted(TEMPLATES.rglob("*.py.template")),
    *GUIDES,
]
KIT = sorted((ROOT / "jembench/testing").rglob("*.py"))
SURFACE = {"jembench.interfaces", "jembench.plugin", "jembench.parts"}
BESIDE = {
    "jembench-density": {
        "jembench.catalog.spec",
        "jembench.data.grid",
        "jembench.data.pixels",
        "jembench.drawing",
        "jembench.interfaces.data",
        "jembench.interfaces.evaluation",
        "jembench.metrics.base",
        "jembench.metrics.classification",
        "jembench.metrics.densities",
        "jembench.metrics.feature_scores",
        "jembench.metrics.sample_protocol",
        "jembench.models.capabilities",
        "jembench.models.energies",
        "jembench.models.predictions",
        "jembench.progress",
        "jembench.report.figures.base",
        "jembench.report.figures.images",
        "jembench.report.rows",
        "jembench.sampling.starts",
        "jembench.stats.intervals",
    },
    "jembench-energy-ood": {
        "jembench.data.pixels",
        "jembench.drawing",
        "jembench.metrics.base",
        "jembench.metrics.classification",
        "jembench.metrics.densities",
        "jembench.metrics.ood",
        "jembench.metrics.samples",
        "jembench.models",
        "jembench.report.figures.base",
        "jembench.report.rows",
        "jembench.stats.intervals",
    },
    "jembench-generation": {
        "jembench.data.grid",
        "jembench.drawing",
        "jembench.metrics.base",
        "jembench.metrics.feature_scores",
        "jembench.metrics.generation",
        "jembench.metrics.pretrained",
        "jembench.metrics.sample_protocol",
        "jembench.progress",
        "jembench.report.figures.base",
        "jembench.report.figures.images",
        "jembench.report.headings",
        "jembench.stats.intervals",
    },
    "jembench-jem": {"jembench.models"},
    "jembench-zoo": {
        "jembench.catalog.contents",
        "jembench.data.arrays",
        "jembench.data.datasets",
        "jembench.data.decoding",
        "jembench.data.labels",
        "jembench.errors",
        "jembench.models",
        "jembench.models.adapted",
        "jembench.models.labels",
        "jembench.models.preparation",
    },
    "jembench-ray": {
        "jembench.interfaces.running",
        "jembench.store.fits",
        "jembench.store.merge",
        "jembench.store.store",
        "jembench.store.works",
    },
    "jembench-slurm": {"jembench.interfaces.running"},
    "jembench-robustness": {
        "jembench.attacks",
        "jembench.attacks.eps",
        "jembench.attacks.gradient",
        "jembench.attacks.pgd",
        "jembench.attacks.target",
        "jembench.attacks.threat",
        "jembench.catalog",
        "jembench.catalog.options",
        "jembench.catalog.registry",
        "jembench.catalog.spec",
        "jembench.data.images",
        "jembench.data.ood_sets.resolve",
        "jembench.data.pixels",
        "jembench.drawing",
        "jembench.files",
        "jembench.metrics",
        "jembench.interfaces.metrics",
        "jembench.metrics.base",
        "jembench.metrics.classification",
        "jembench.metrics.decisions",
        "jembench.metrics.ood",
        "jembench.metrics.pgd",
        "jembench.models",
        "jembench.models.predictions",
        "jembench.report.headings",
        "jembench.report.rows",
        "jembench.sampling.starts",
        "jembench.stats",
        "jembench.report.figures.base",
        "jembench.stats.paired",
    },
    "example_plugin": {"jembench.report.figures.base", "jembench.report.formats"},
}
"""Modules beside the surface, by the folder of a plugin: executors carry stores about, attacks
build on those of core, an importer reads foreign files, and a format and a figure are given objects
of the report.
"""
MOST = 83


def python(path):
    """The Python code of a file: a module, a template, or every block of a guide."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return text.replace("$package", "package")


def core_imports(path):
    """Modules of core a file imports; ``from jembench import a``: ``jembench.a``."""
    modules = set()
    for node in ast.walk(ast.parse(python(path))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= (
                {f"jembench.{alias.name}" for alias in node.names}
                if node.module == "jembench"
                else {node.module}
            )
    return {module for module in modules if module.split(".")[0] == "jembench"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_imports_the_surface_alone(path):
    allowed = SURFACE | BESIDE.get(path.parent.parent.name, set())
    if path.parent.name == "tests" or path.suffix == ".md":
        allowed |= {"jembench.testing"}
    if path.suffix == ".md":
        allowed |= {"jembench"}
    assert core_imports(path) <= allowed


UNUSED = {"Content", "Incidental", "NotInFiles"}
"""Marks of options, for which no shipped plugin has a use."""


def test_every_name_is_used_by_a_plugin_or_recommended_by_a_check():
    code = "\n".join([*map(python, SOURCES), *(path.read_text() for path in KIT)])
    assert {name for name in names() if not re.search(rf"\b{name}\b", code)} <= UNUSED


def test_the_guide_lists_every_name():
    guide = (ROOT / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")
    assert {name for name in names() if f"`{name}`" not in guide} == set()


def names():
    """Return the names that ``plugin`` and ``parts`` export."""
    return {name for module in (plugin, parts) for name in vars(module) if name[0] != "_"} - {
        "annotations"
    }


def test_an_author_faces_few_names():
    modules = [
        value for name, value in vars(interfaces).items() if isinstance(value, types.ModuleType)
    ]
    exported = [name for module in modules for name in module.__all__]
    assert len(names()) + len(exported) + len(testing.__all__) <= MOST


OPTIONAL = re.compile(r"(?:getattr|hasattr)\((?!self, )[^,()]*(?:\(\))?, \"([a-z_]+)\"")
COMPONENTS = ("data", "experiment", "metrics", "models", "running", "sampling", "training")
NOT_OF_COMPONENTS = {
    *("inner_exception", "sched_getaffinity", "getloadavg", "__file__", "__metadata__"),
    *("getbands", "n_frames", "tile"),  # of Pillow's images
    *("__array__", "__getitem__", "__len__", "detach", "tensors"),  # of arrays
    *("classes", "dataset"),  # of torch's datasets
}


def test_an_optional_attribute_of_a_component_is_declared_in_its_protocol():
    core = [path for unit in COMPONENTS for path in (ROOT / "jembench" / unit).rglob("*.py")]
    read = {
        name for path in core for name in OPTIONAL.findall(path.read_text())
    } - NOT_OF_COMPONENTS
    declared = "".join(path.read_text() for path in (ROOT / "jembench/interfaces").glob("*.py"))
    assert len(read) > 10
    assert {
        name
        for name in read
        if not re.search(rf"def {name}\(|^    {name}:|``{name}(: |\()", declared, re.MULTILINE)
    } == set()


def test_the_surface_costs_no_torch():
    code = "import sys, jembench.plugin, jembench.interfaces; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_messages_and_guides_name_exists():
    pattern = re.compile(r"\bjembench\.(interfaces|plugin|parts|errors)\.([A-Z]\w+)")
    texts = [path.read_text(encoding="utf-8") for path in (*ROOT.glob("jembench/**/*.py"), *GUIDES)]
    named = {found for text in texts for found in pattern.findall(text)}
    assert len(named) > 15
    assert {
        (module, name)
        for module, name in named
        if not hasattr(import_module(f"jembench.{module}"), name)
    } == set()
