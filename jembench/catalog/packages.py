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
    """Return the TOML files of suite packages by their stems.

    ``folder`` is the subfolder of each package that holds them.

    Raises:
        SpecError: if two packages have a file of the same name.
    """
    files: dict[str, Traversable] = {}
    for component in discovery.components("suites"):
        for file in _files_of(component, folder):
            stem = file.name.removesuffix(".toml")
            if stem in files:
                raise SpecError(
                    f"Two packages have a file of the same name: {files[stem]} and {file}. "
                    "Uninstall one package, or ask its author for another file name."
                )
            files[stem] = file
    return files


def _files_of(component: discovery.Component, folder: str) -> list[Traversable]:
    """Return the TOML files in a folder of a suite package, by name."""
    with suppress(JembenchError):  # `jembench list` shows the error
        is_package = hasattr(discovery.load(component), "__path__")
        place = importlib.resources.files(component.module) if is_package else None
        if place and folder:
            place = place.joinpath(folder)
        if place and place.is_dir():
            files = [file for file in place.iterdir() if file.name.endswith(".toml")]
            return sorted(files, key=lambda file: file.name)
    return []


class TomlFile(NamedTuple):
    """The file of a suite or a recipe."""

    name: str
    content: bytes
    where: str  # its path
    is_installed: bool


def source(kind: str, name: str, folder: str = "") -> TomlFile:
    """Return the file of a suite or a recipe, given by name or path.

    Code that an installed file names is allowed from then on.

    Args:
        kind: "suite" or "recipe", for errors.
        name: of an installed file, or a path that ends in ``.toml`` or contains a separator.
        folder: the subfolder of the suite packages.

    Raises:
        SpecError: if there is no such file, it is not TOML, or it names code and is not installed.
    """
    installed = files(folder)
    is_path = name not in installed and (name.endswith(".toml") or "/" in name or os.sep in name)
    file: Traversable | None = Path(name) if is_path else installed.get(name)
    if file is None:
        listing = f"jembench list {kind}s"
        raise discovery.plugin_of(f"{kind}s", name) or unknown(kind, name, installed, listing)
    if not file.is_file():
        raise SpecError(
            f"There is no {kind} file {name}. Check the path, or name one of "
            f"{', '.join(sorted(installed))}."
        )
    content = file.read_bytes()
    table = validation.parse(content, str(file))
    if is_path:
        trust.refuse_code([table], f"The {kind} {file}")
    else:
        trust.allow([table])
    return TomlFile(file.name.removesuffix(".toml"), content, str(file), not is_path)
