"""The data that suite packages bring: TOML files found through the entry-point group ``jembench.suites``."""

from __future__ import annotations

import functools
import importlib.resources
from importlib.resources.abc import Traversable

from jembench.catalog import registry
from jembench.catalog.registry import Catalogue, Component
from jembench.errors import JembenchError, SpecError


def files(folder: str = "") -> dict[str, Traversable]:
    """The TOML files of every suite package, in its subfolder ``folder``, by the stem of their names.

    Folders are listed once, until the catalogue is read again.

    Raises:
        SpecError: if two packages bring a file of the same name.
    """
    return _files(registry.catalogue(), folder)


@functools.lru_cache(maxsize=100)
def _files(catalogue: Catalogue, folder: str) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    origin: dict[str, str] = {}
    for component in catalogue.of("suites"):
        try:
            brought = files_of(component, folder)
        except JembenchError:
            continue  # `jembench plugin list` shows it
        for name, file in brought.items():
            if name in found:
                raise SpecError(
                    f"Both {origin[name]} and {component.distribution} bring {folder or 'the suite'} {file.name}. "
                    "Uninstall one of the two, or ask its author for another name."
                )
            found[name], origin[name] = file, component.distribution
    return found


def files_of(component: Component, folder: str = "") -> dict[str, Traversable]:
    """The TOML files of one suite package, in its subfolder ``folder``, by the stem of their names.

    Raises:
        PluginError: if it cannot be imported.
    """
    package = registry.load(component)
    if not hasattr(package, "__path__"):
        return {}  # a module, not a package
    root = importlib.resources.files(component.module)
    return {file.name.removesuffix(".toml"): file for file in _toml_files(root / folder if folder else root)}


def _toml_files(folder: Traversable) -> list[Traversable]:
    if not folder.is_dir():
        return []
    return sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
