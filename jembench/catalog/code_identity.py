"""Hashes of user code, which changes without a new version.

Installed code has a version: the files that the RECORD of a distribution lists (unless it is installed with
``pip install -e``), the standard library, and jembench itself. Other files have no reliable version, so a hash of their
code is part of a component's identity, and no result is attributed to other code. A module is hashed without importing
it; only its parent packages are imported.
"""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType


def code(module: str, *, of_package: bool = False) -> str:
    """Return a hash of a module's syntax tree, without comments and layout; empty for an installed one.

    For an imported module it is the hash of the imported code, even if the file has changed since.

    Args:
        module: the full name of the module.
        of_package: True to hash all modules of its package.
    """
    loaded = sys.modules.get(module)
    if loaded and (loaded, of_package) in _of_loaded:
        return _of_loaded[loaded, of_package]
    hashed, file = "", _file(module)
    if file is not None and not _is_installed(file, module):
        depth = _depth(file, module)
        folder = file.parents[depth - 1] if of_package and depth else None  # of its outermost package
        hashed = _hash_modules(file, folder, _digest)
    if loaded:
        _of_loaded[loaded, of_package] = hashed
    return hashed


def has_version(module: ModuleType) -> bool:
    """Return whether a loaded module is installed, or a part of Python."""
    file, spec = getattr(module, "__file__", None), getattr(module, "__spec__", None)
    if not file:
        return getattr(spec, "origin", None) in ("built-in", "frozen")
    return _is_installed(Path(file), module.__name__)


def _is_installed(file: Path, module: str) -> bool:
    """Return whether the file of a module belongs to a distribution, the standard library or jembench."""
    root = file.parents[_depth(file, module)]
    line = f"\n{file.relative_to(root).as_posix()},"
    return (
        root.resolve() in _STANDARD_LIBRARY
        or file.is_relative_to(_JEMBENCH)
        or any(line in record for record in _records(root))
    )


def _depth(file: Path, module: str) -> int:
    """Return the number of folders of a module's file below an entry of ``sys.path``."""
    return module.count(".") + (file.name == "__init__.py")


_of_loaded: dict[tuple[ModuleType, bool], str] = {}
_JEMBENCH = Path(__file__).parents[1]
_STANDARD_LIBRARY = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
_STANDARD_LIBRARY |= {folder / "lib-dynload" for folder in _STANDARD_LIBRARY}


@functools.cache
def digest(package: str) -> str:
    """Return a digest of the files of a package or module, installed or not; "" if there are no files."""
    found = _file(package)
    folder = found.parent if found and found.name == "__init__.py" else None
    return _hash_modules(found, folder, lambda source: hashlib.sha256(source).hexdigest())[:8] if found else ""


def _hash_modules(file: Path, folder: Path | None, digest: Callable[[bytes], str]) -> str:
    """Return a hash of a module, or of all modules in ``folder``, without hidden files and folders of editors."""
    together = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")) if folder else [file]:
        place = path.relative_to(folder or file)
        if path.is_file() and not any(part[0] == "." for part in place.parts):
            name = place.as_posix() if folder else ""
            together.update(f"{name}:{digest(path.read_bytes())};".encode())
    return together.hexdigest()[:16]


def _file(module: str) -> Path | None:
    origin = getattr(sys.modules.get(module), "__file__", None)
    with suppress(Exception, SystemExit):  # of its parent package; loading the component raises the error again
        spec = None if origin else importlib.util.find_spec(module)
        origin = spec.origin if spec else origin
    path = Path(origin or "")
    return path if path.suffix == ".py" and path.is_file() else None


@functools.cache
def _records(folder: Path) -> tuple[str, ...]:
    """Return the RECORD of each distribution in a folder that is not editable, with a line break before each line."""
    found = importlib.metadata.distributions(path=[str(folder)])
    versioned = [one for one in found if not re.search(r'"editable":\s*true', one.read_text("direct_url.json") or "")]
    return tuple(f"\n{one.read_text('RECORD') or ''}" for one in versioned)


@functools.lru_cache(maxsize=1000)
def _digest(source: bytes) -> str:
    # code that cannot be imported is hashed as it is; the import repeats warnings about escapes
    with suppress(SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ast.unparse(ast.parse(source)).encode()
    return hashlib.sha256(source).hexdigest()
