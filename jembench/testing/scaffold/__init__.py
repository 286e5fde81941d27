"""New plugins: complete distributions, written from the templates in this folder.

A template is a file whose name ends in ``.template``, with placeholders such as ``$name``, and
``PACKAGE`` and ``NAME`` in its path. All kinds share ``templates/shared``; a kind may replace its
files.
"""

import importlib.metadata
import importlib.resources
import keyword
import re
import string
import sys
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, packages
from jembench.errors import SpecError
from jembench.interfaces import API

NAME = r"(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*"
"""The pattern of names: at most 40 lower-case letters and digits, with single hyphens between them.
"""

RESERVED = sys.stdlib_module_names | {"test", "tests", "dist", "runs"}
"""Names of Python's modules, and of folders beside the package."""


class Kind(NamedTuple):
    """A kind of plugin with templates."""

    group: discovery.Kind
    module: str  # of the component, in the package; "" for a package of TOML files
    summary: str
    run: str  # a command that uses the component


_RUN = "jembench run hybrid"

KINDS: Mapping[str, Kind] = {
    "model": Kind(
        "models",
        "model",
        "A small convolutional network, read as p(y|x) and p(x)",
        f"{_RUN} --models $name",
    ),
    "sampler": Kind(
        "samplers",
        "sampler",
        "Langevin dynamics that cools down",
        f"{_RUN} --models jem --set chains.sampler=$name",
    ),
    "metric": Kind(
        "metrics",
        "metric",
        "The margin between the two most probable classes",
        f"{_RUN} --metrics accuracy,$name",
    ),
    "dataset": Kind(
        "datasets", "data", "Discs, rings and crosses", f"{_RUN} --dataset $name --recipe digits"
    ),
    "tracker": Kind(
        "trackers",
        "log",
        "A log of training as lines of JSON",
        f"{_RUN} --trackers $name:file=log.jsonl",
    ),
    "suite": Kind(
        "suites", "", "How well models classify digits from 200 labels", "jembench run $name"
    ),
}


def render(kind: str, name: str) -> dict[str, str]:
    """Return the files of a new distribution, by their paths.

    Args:
        kind: one of ``KINDS``.
        name: of the distribution and its component; the package has underscores for hyphens.

    Raises:
        SpecError: if the name is not valid for a distribution and a package, or is taken.
    """
    _check_name(kind, name)
    package, about = name.replace("-", "_"), KINDS[kind]
    check, run = commands(kind, name)
    target = f"{package}:build" if about.module else package
    values = about._asdict() | {"name": name, "package": package, "kind": kind, "target": target}
    values |= {"check": check, "run": run, "api": str(API)}
    root = importlib.resources.files(__package__) / "templates"
    templates = dict(_read_templates(root / "shared")) | dict(_read_templates(root / kind))
    files = {}
    for path, text in sorted(templates.items()):
        path = path.replace("PACKAGE", package).replace("NAME", name)
        files[path] = string.Template(text).substitute(values)
    return files


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a new distribution to a new or empty folder.

    Returns:
        its files, in ``folder``.

    Raises:
        SpecError: as for :func:`render`; or if the folder cannot be written, or is not empty.
    """
    files = render(kind, name)
    if folder.exists() and not (folder.is_dir() and next(folder.iterdir(), None) is None):
        raise SpecError(
            f"{folder} exists already and is not an empty folder. Choose another one with --folder."
        )
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(
            f"Cannot write {folder}: {error.strerror}. Choose another place with --folder."
        ) from error
    return [folder / path for path in files]


def commands(kind: str, name: str) -> tuple[str, str]:
    """Return the commands to check and to use a new distribution."""
    return f"jembench plugin check {name}", string.Template(KINDS[kind].run).substitute(name=name)


def _read_templates(folder: Traversable, inside: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each file in a distribution, and its template."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from _read_templates(item, f"{inside}{item.name}/")
        elif item.name.endswith(".template"):
            path = inside + item.name.removesuffix(".template")
            if path == "gitignore":
                path = ".gitignore"
            yield path, item.read_text(encoding="utf-8")


def _check_name(kind: str, name: str) -> None:
    refusal, package = f"{name!r} cannot be the name of a plugin", name.replace("-", "_")
    if not re.fullmatch(NAME, name):
        raise SpecError(
            f"{refusal}. A name is small letters and digits, with single hyphens between them, "
            f"begins with a letter and has at most 40 characters: my-{kind}."
        )
    if keyword.iskeyword(package) or package in RESERVED:
        raise SpecError(f"{refusal}: {package} has another meaning. Try my-{name}.")
    taken = {component.name for component in discovery.components(KINDS[kind].group)}
    if kind == "suite":
        taken = taken.union(packages.files(), packages.files("recipes"))
    if name in taken or any(importlib.metadata.distributions(name=name)):
        raise SpecError(f"The name {name!r} is taken. Choose another one, such as my-{name}.")
