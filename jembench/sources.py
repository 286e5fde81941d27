"""The code of users, which changes without a version of it changing.

What is installed has a version. A file of one's own, and a package installed with ``pip install -e``, have none to be
relied on: their code is part of what a component is, so that nothing is shown as the result of code that did not give
it. Of what is looked at, nothing is imported but the packages that hold it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import re
import site
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_IMPORT_PATH = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_][\w.]*")


def code(module: str, *, of_package: bool = False) -> str:
    """A hash of a module's code without comments and blank lines; empty for what is installed.

    Args:
        module: its full name.
        of_package: whether all modules of its package count, not it alone.
    """
    found = _file(module)
    if found is None or _is_installed(found):
        return ""
    folder = _package_folder(module, found) if of_package else None
    files = sorted(folder.rglob("*.py")) if folder else [found]
    together = hashlib.sha256()
    for file in files:
        place = file.relative_to(folder).as_posix() if folder else ""
        together.update(f"{place}:{_digest(file.read_bytes())};".encode())
    return together.hexdigest()[:16]


def code_of_options(options: Mapping[str, object]) -> dict[str, str]:
    """The same of the modules that options lead to, ``net=mypackage.nets:build``; by the names of the options."""
    paths = {name: _IMPORT_PATH.fullmatch(value) for name, value in options.items() if isinstance(value, str)}
    found = {name: code(path.group(1)) for name, path in paths.items() if path}
    return {name: digest for name, digest in found.items() if digest}


def _file(module: str) -> Path | None:
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):  # whoever uses it will say so
            return None
        origin = spec.origin if spec and spec.has_location else None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _is_installed(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in _installed_folders())


@functools.cache
def _installed_folders() -> frozenset[Path]:
    """Where packages with a version lie: the standard library, site-packages, and jembench itself."""
    paths = sysconfig.get_paths()
    folders: Iterable[str] = (
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        str(Path(__file__).parent),
    )
    return frozenset(path for folder in folders for path in (Path(folder), Path(folder).resolve()))


def _package_folder(module: str, file: Path) -> Path | None:
    """The folder of a module's outermost package; None for a module that is in none."""
    depth = module.count(".") + (file.name == "__init__.py")
    return file.parents[depth - 1] if depth else None


@functools.lru_cache(maxsize=1000)
def _digest(source: bytes) -> str:
    with suppress(tokenize.TokenError, SyntaxError):  # which nobody can import
        source = _bare(source)
    return hashlib.sha256(source).hexdigest()


def _bare(source: bytes) -> bytes:
    """Python without comments and blank lines."""
    lines: list[str] = []
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        row = token.start[0] - 1
        if token.type == tokenize.ENCODING:
            lines = source.decode(token.string).splitlines(keepends=True)
        elif token.type == tokenize.COMMENT:
            lines[row] = lines[row][: token.start[1]].rstrip() + "\n"
        elif token.type == tokenize.NL and not lines[row].strip():
            lines[row] = ""
    return "".join(lines).encode()
