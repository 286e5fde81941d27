"""Trust in import paths.

Only paths that the user or installed code names are loaded, never those that only a file names.

A spec in a file (the header of an imported model, a cell of a store, a recipe) may have any author,
and importing a module runs its code. Such a spec and its options may therefore only name installed
components.

During a command, an import path is allowed if it is on the command line or in an environment
variable of jembench, if a ``--plugin`` file defines it (rather than imports it), or if installed
code names it (the default of an option, a suite package). Others are refused by
:func:`jembench.catalog.discovery.find`. Without a command, Python code calls the library and is
trusted for its own strings; functions that read a spec from a file pass it to :func:`refuse_code`
in both cases. Import paths in ``JEMBENCH_TRUST`` are always allowed. The same holds for files of
TorchScript, ``torchscript:FILE``, whose code runs.

The state belongs to the process, not to a thread or a context, so that other threads have the same
permissions.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

from jembench.catalog.spec import Spec, specs_in
from jembench.errors import SpecError

VARIABLE = "JEMBENCH_TRUST"
"""Environment variable: import paths that files and stores may name, separated by commas."""

SCRIPT = "torchscript:"
"""The beginning of the name of a file of TorchScript, which stands beside import paths."""

plugin_modules: set[str] = set()
"""The modules of ``--plugin`` files."""

_named: set[str] | None = None  # import paths; None: no command is running
# values of installed code, searched only when an import path is to be loaded
_of_installed: list[Any] = []
_DEEPEST = 20  # options within options
_LONGEST = 10_000  # characters of a spec


@contextmanager
def command(texts: Iterable[str] = ()) -> Iterator[None]:
    """Allow only the import paths that a command's user names within the context.

    The current folder is importable within the context if an import path names a module there that
    is not installed.

    Args:
        texts: the words of the command line: specs, lists of specs, settings ``key=value``, and
            other words. The words of all environment variables ``JEMBENCH_...`` count too. The name
            of an existing file, such as a store ``x:y``, is no import path.
    """
    global _named, _of_installed
    before, path = (_named, _of_installed), list(sys.path)
    _named, _of_installed = set(), []
    words = list(texts)
    for variable, value in os.environ.items():
        if variable.startswith("JEMBENCH_"):
            words += value.split()
    for text in words:
        if ":" in text:
            with suppress(SpecError, OSError):  # a text or a file name is too long
                _named.update(name for name in code_in(text) if not Path(name).exists())
    if any(map(_is_here, _named)):
        make_current_folder_importable()
    try:
        yield
    finally:
        _named, _of_installed = before
        sys.path[:] = path


def make_current_folder_importable() -> None:
    """Add the current folder to ``sys.path``, after all that is installed."""
    if "" not in sys.path:
        sys.path.append("")


def _is_here(name: str) -> bool:
    top = name.partition(":")[0].partition(".")[0]
    with suppress(ValueError):  # for modules without a spec, such as __main__
        return find_spec(top) is None and PathFinder.find_spec(top, [str(Path.cwd())]) is not None
    return False


def allow(values: Iterable[Any]) -> None:
    """Allow the import paths in values of installed code."""
    if _named is not None:
        _of_installed.extend(values)


def check(name: str) -> None:
    """Check that an import path may be loaded.

    Raises:
        SpecError: if a command is running, and neither its user nor installed code named it.
    """
    if _named is not None:
        _check(name, "A file")


def refuse_code(values: Iterable[Any], where: str, typed: Iterable[str] = ()) -> None:
    """Check that specs of a file only name installed components.

    Args:
        values: specs, lists of specs, settings ``key=value``, or tables that contain these.
        where: the file.
        typed: texts of the user, whose import paths are allowed.

    Raises:
        SpecError: if an import path is not allowed, or a spec is too long; the message names the
            file.
    """
    typed_names = set(code_in(list(typed)))
    for name in code_in(list(values)):
        if name not in typed_names:
            _check(name, where)


def _check(name: str, where: str) -> None:
    while _named is not None and _of_installed:
        with suppress(SpecError):
            _named.update(code_in(_of_installed.pop()))
    if name in os.environ.get(VARIABLE, "").split(",") or name in (_named or ()):
        return
    module, _, attributes = name.partition(":")
    if module in plugin_modules:
        with suppress(AttributeError):  # a plugin file's own definitions only
            if attrgetter(attributes)(sys.modules[module]).__module__ == module:
                return
    plugin = f"--plugin {module.rpartition('.')[2]}.py, or "
    if name.startswith(SCRIPT):
        plugin = ""
    raise SpecError(
        f"{where} names {name}, which runs code that you did not name: a file may name installed "
        f"components only. If you trust it, give {plugin}{name} on the command line "
        f"or in {VARIABLE}={name}."
    )


def code_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the import paths and TorchScript files in JSON or TOML, also in options of specs.

    Args:
        value: a spec, a list of specs, ``key=value``, or JSON that contains such texts; or a list
            or a table of these, without a table's ``title``.
        depth: the number of options that contain the value.

    Raises:
        SpecError: if a text is too long or nested too deeply.
    """
    if isinstance(value, Mapping):
        value = [item for key, item in value.items() if key != "title"]
    if isinstance(value, list | tuple):
        for item in value:
            yield from code_in(item, depth)
    if not isinstance(value, str):
        return
    text = value
    if depth > _DEEPEST or len(text) > _LONGEST:
        raise SpecError(
            f"{text[:30]!r}... is longer than {_LONGEST} characters, or nested in {_DEEPEST} "
            "other options."
        )
    try:
        parsed = Spec(text)
    except SpecError:
        pieces, value = specs_in(text), text.partition("=")[2]
        inner = pieces if len(pieces) > 1 else []
        if value:
            inner.append(value)
        if text.lstrip()[:1] in ('"', "[", "{"):
            with suppress(ValueError, RecursionError):
                inner.append(json.loads(text))
    else:
        inner = list(parsed.options.values())
        if ":" in parsed.name:
            yield parsed.name
        if parsed.bare == SCRIPT[:-1]:
            yield SCRIPT + parsed.options.get("file", "")
    for part in inner:
        yield from code_in(part, depth + 1)
