"""Suite packages: TOML files of the entry-point group ``jembench.suites``."""

import importlib.resources
import os
from contextlib import suppress
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from jembench.catalog import discovery, trust, validation
from jembench.errors import JembenchError, SpecError, unknown


def files(folder: str = "") -> dict[str, Traversable]:
    """Return the TOML files of every suite package by their stems.

    They are in its subfolder ``folder``.

    Raises:
        SpecError: if two packages have a file of the same name.
    """
    found: dict[str, Traversable] = {}
    for component in discovery.components("suites"):
        brought: dict[str, Traversable] = {}
        with suppress(JembenchError):  # `jembench list` shows the error
            if not hasattr(discovery.load(component), "__path__"):
                continue  # a module, not a package
            place = importlib.resources.files(component.module).joinpath(*filter(None, [folder]))
            inside = sorted(place.iterdir(), key=lambda file: file.name) if place.is_dir() else []
            brought = {
                file.name.removesuffix(".toml"): file
                for file in inside
                if file.name.endswith(".toml")
            }
        if both := sorted(found.keys() & brought.keys()):
            raise SpecError(
                f"Two packages bring a file of one name: {found[both[0]]} and {brought[both[0]]}. "
                "Uninstall one of the two, or ask its author for another name."
            )
        found |= brought
    return found


class Source(NamedTuple):
    """The file of a suite or a recipe."""

    name: str
    content: bytes
    where: str  # its path
    is_installed: bool


def source(kind: str, name: str, folder: str = "") -> Source:
    """Return the file of a suite or a recipe, given by name or path.

    The code that an installed file names is allowed then.

    Args:
        kind: "suite" or "recipe", for errors.
        name: of an installed one, or a path: it ends in ``.toml`` or contains a separator.
        folder: of the suite packages.

    Raises:
        SpecError: if there is no such file, it is not TOML, or it names code and is not installed.
    """
    known = files(folder)
    is_path = name not in known and (name.endswith(".toml") or "/" in name or os.sep in name)
    file: Traversable | None = Path(name) if is_path else known.get(name)
    if file is None:
        raise discovery.plugin_of(f"{kind}s", name) or unknown(
            kind, name, known, f"jembench list {kind}s"
        )
    if not file.is_file():
        raise SpecError(
            f"There is no {kind} file {name}. Check the path, or name one of "
            f"{', '.join(sorted(known))}."
        )
    found = Source(file.name.removesuffix(".toml"), file.read_bytes(), str(file), not is_path)
    table = validation.parse(found.content, found.where)
    if found.is_installed:
        trust.allow([table])
    else:
        trust.refuse_code([table], f"The {kind} {file}")
    return found
