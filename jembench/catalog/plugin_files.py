"""Plugin files: ``--plugin my_ebm.py`` registers a file's components."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from jembench.catalog import discovery, trust, validation
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.validation import Format, Rule
from jembench.errors import JembenchError, PluginError, error_text
from jembench.files import digest, same_folder
from jembench.stopping import is_request

VARIABLE = "JEMBENCH_PLUGIN"
"""Environment variable: files of plugins, as for ``--plugin``."""

_FORM = Format(PluginError, "Correct the file.", "json")
_Name = Annotated[str, Rule("a name such as my-ebm", re.compile(r"[A-Za-z_][\w.-]*").fullmatch)]


class _Declared(NamedTuple):
    """The variable of a plugin file that declares its components."""

    ENTRY_POINTS: Mapping[Kind, Mapping[_Name, str]] = {}


loaded: list[Path] = []
"""The files that were added as plugins."""


def add(path: Path) -> None:
    """Import a Python file as a plugin of this process, and register its components.

    The mapping ``ENTRY_POINTS`` of the file names components like entry points of a distribution:
    ``ENTRY_POINTS = {"models": {"my-ebm": "build"}}``.

    Raises:
        PluginError: if ``path`` is no Python file, has another module's name, or cannot be
            imported.
    """
    if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
        raise PluginError(
            f"--plugin is {path}; it must be an existing Python file, named like a module: "
            "my_ebm.py."
        )
    _check_free(path)
    if path.absolute().parent == Path.cwd():
        trust.make_current_folder_importable()  # for modules in the same folder
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
        assert spec is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        # the loader could take an older version of the file from its cache
        with same_folder():
            exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        declared = validation.read(_Declared, vars(module), str(path), form=_FORM).ENTRY_POINTS
    except BaseException as error:
        sys.modules.pop(path.stem, None)
        if isinstance(error, JembenchError) or is_request(error):
            raise
        raise PluginError(
            f"The plugin {path} cannot be imported: {error_text(error)}. Correct the file."
        ) from error
    version = f"sha256:{digest(path)[:12]}"
    others = [component for component in discovery.added if component.distribution != path.name]
    discovery.added[:] = others
    for kind, names in declared.items():
        for name, attribute in names.items():
            discovery.added.append(Component(kind, name, path.name, version, path.stem, attribute))
    loaded.append(path)
    trust.plugin_modules.add(path.stem)
    discovery.catalogue.cache_clear()


def _check_free(path: Path) -> None:
    origin: str | None = "of this program"
    with suppress(ValueError):  # for modules without a spec, such as __main__
        spec = importlib.util.find_spec(path.stem)
        origin = spec.origin if spec else None
    if origin is not None and not (Path(origin).exists() and path.samefile(origin)):
        raise PluginError(
            f"The plugin {path} has the name of another module, {path.stem} ({origin}). Rename "
            "the file."
        )


def forget() -> None:
    """Remove all plugin files from this process."""
    loaded.clear()
    trust.plugin_modules.clear()
    if discovery.added:
        discovery.added.clear()
        discovery.catalogue.cache_clear()
