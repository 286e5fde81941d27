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
import site
import sys
import sysconfig
import tokenize
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary


def code(module: str, *, of_package: bool = False) -> str:
    """A hash of a module's code without comments and blank lines; empty for what is installed.

    Of a module that is imported it is that of the code that runs, whatever becomes of the file meanwhile.

    Args:
        module: its full name.
        of_package: whether all modules of its package count, not it alone.
    """
    if loaded := sys.modules.get(module):
        known = _as_loaded.setdefault(loaded, {})
        if of_package not in known:
            known[of_package] = _code(module, of_package)
        return known[of_package]
    return _code(module, of_package)


_as_loaded: WeakKeyDictionary[ModuleType, dict[bool, str]] = WeakKeyDictionary()


def _code(module: str, of_package: bool) -> str:
    found = _file(module)
    if found is None or _is_installed(found):
        return ""
    folder = _package_folder(module, found) if of_package else None
    together = hashlib.sha256()
    for file in _files(folder) if folder else [found]:
        place = file.relative_to(folder).as_posix() if folder else ""
        together.update(f"{place}:{_digest(file.read_bytes())};".encode())
    return together.hexdigest()[:16]


def _files(package: Path) -> list[Path]:
    """The modules of a package, and not what editors and notebooks leave beside them."""
    found = (path for path in package.rglob("*.py") if path.is_file())
    return sorted(path for path in found if not any(part[0] == "." for part in path.relative_to(package).parts))


def _file(module: str) -> Path | None:
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(module)
        except (Exception, SystemExit):  # of the package that holds it: whoever uses it will say so
            return None
        origin = spec.origin if spec and spec.has_location else None
    path = Path(origin or "")
    return path if path.suffix == ".py" and path.is_file() else None


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
    """Python without comments and blank lines, whatever ends its lines."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = io.TextIOWrapper(io.BytesIO(source), encoding, newline=None).read()
    lines = [f"{line}\n" for line in text.split("\n")]  # not by splitlines, which knows more ends than Python does
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row = token.start[0] - 1
        if token.type == tokenize.COMMENT:
            lines[row] = lines[row][: token.start[1]].rstrip() + "\n"
        elif token.type == tokenize.NL and not lines[row].strip():
            lines[row] = ""
    return "".join(lines).rstrip("\n").encode()
