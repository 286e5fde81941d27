"""New plugins: complete distributions, written from the templates in this folder.

A template is a file whose name ends in ``.template``, with ``$name`` and its like where something is filled in, and
``PACKAGE`` and ``NAME`` in its path. What all kinds share lies in ``templates/shared``; a kind may have one of its own.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import keyword
import re
import string
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, packages
from jembench.errors import SpecError
from jembench.interfaces import API

LONGEST = 40
"""Characters of a name."""


FOLDERS: Mapping[str, str] = {"tests": "its tests", "dist": "what is built of it", "runs": "results"}
"""What lies beside the package, under names that it cannot have."""


class Kind(NamedTuple):
    """What can be written: the templates are called as it is."""

    group: discovery.Kind
    module: str  # that holds the component, in the package; "" if the package is all there is
    summary: str
    run: str  # the command that uses it


KINDS: Mapping[str, Kind] = {
    "model": Kind(
        "models",
        "model",
        "A small convolutional network, read as p(y|x) and as p(x)",
        "jembench run hybrid --models $name",
    ),
    "sampler": Kind(
        "samplers",
        "sampler",
        "Langevin dynamics that cools down",
        "jembench run hybrid --models jem --set chains.sampler=$name",
    ),
    "metric": Kind(
        "metrics",
        "metric",
        "The margin between the two most probable classes",
        "jembench run hybrid --metrics accuracy,$name",
    ),
    "dataset": Kind(
        "datasets", "data", "Discs, rings and crosses", "jembench run hybrid --dataset $name --recipe digits"
    ),
    "tracker": Kind(
        "trackers", "log", "A log of training as lines of JSON", "jembench run hybrid --trackers $name:file=log.jsonl"
    ),
    "suite": Kind("suites", "", "How well models classify digits from 200 labels", "jembench run $name"),
}


def render(kind: str, name: str) -> dict[str, str]:
    """The files of a new distribution, by their paths in its folder.

    Args:
        kind: one of ``KINDS``.
        name: of the distribution and of its component; that of the package has underscores for hyphens.

    Raises:
        SpecError: if a distribution or a package cannot be called so, or something else is.
    """
    _check(kind, name)
    root = importlib.resources.files(__package__) / "templates"
    templates = dict(_templates(root / "shared")) | dict(_templates(root / kind))
    filled_in = _placeholders(kind, name)
    return {
        path.replace("PACKAGE", filled_in["package"]).replace("NAME", name): string.Template(text).substitute(filled_in)
        for path, text in sorted(templates.items())
    }


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a new distribution to a folder that is empty or not yet there: all of it, or nothing.

    Returns:
        its files, in ``folder``.

    Raises:
        SpecError: as :func:`render`; or if the folder cannot be written, or holds something.
    """
    files = render(kind, name)
    if folder.exists() and not (folder.is_dir() and next(folder.iterdir(), None) is None):
        raise SpecError(f"{folder} is there already, and not an empty folder. Choose another one with --folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            complete = Path(temporary) / "complete"
            for path, text in files.items():
                (complete / path).parent.mkdir(parents=True, exist_ok=True)
                (complete / path).write_text(text, encoding="utf-8")
            complete.replace(folder)
    except OSError as error:
        raise SpecError(f"Cannot write {folder}: {error.strerror}. Choose another place with --folder.") from error
    return [folder / path for path in files]


def commands(kind: str, name: str) -> tuple[str, str]:
    """The commands that check and use what was written, once it is installed."""
    return f"jembench plugin check {name}", string.Template(KINDS[kind].run).substitute(name=name)


def _templates(folder: Traversable, inside: str = "") -> Iterator[tuple[str, str]]:
    """The path of each file in a distribution, and its template."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from _templates(item, f"{inside}{item.name}/")
        elif item.name.endswith(".template"):
            path = inside + item.name.removesuffix(".template")
            yield (".gitignore" if path == "gitignore" else path), item.read_text(encoding="utf-8")


def _placeholders(kind: str, name: str) -> dict[str, str]:
    package, about = name.replace("-", "_"), KINDS[kind]
    check, run = commands(kind, name)
    return {
        "name": name,
        "package": package,
        "kind": kind,
        "group": about.group,
        "module": about.module,
        "target": f"{package}:build" if about.module else package,
        "summary": about.summary,
        "check": check,
        "run": run,
        "api": str(API),
    }


def _check(kind: str, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) > LONGEST:
        raise SpecError(
            f"{name!r} cannot be the name of a plugin. A name is small letters and digits, with single hyphens between "
            f"them, begins with a letter and has at most {LONGEST} characters: my-{kind}."
        )
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package == "test":
        raise SpecError(f"{name!r} cannot be the name of a plugin: Python itself uses {package}. Try my-{name}.")
    if package in FOLDERS:
        raise SpecError(
            f"{name!r} cannot be the name of a plugin: {package}/ is for {FOLDERS[package]}. Try my-{name}."
        )
    taken = _taken_by(kind, name)
    if taken:
        raise SpecError(f"The name {name!r} is taken by {taken}. Choose another one, such as my-{name}.")


def _taken_by(kind: str, name: str) -> str:
    """What is installed under that name; "" if nothing is."""
    if any(importlib.metadata.distributions(name=name)):
        return "a distribution that is installed"
    for component in discovery.components(KINDS[kind].group):
        if component.name == name:
            return f"the {kind} of {component.distribution}"
    if kind == "suite" and (name in packages.files() or name in packages.files("recipes")):
        return "a suite or a recipe that is installed"
    return ""
