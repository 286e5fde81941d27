"""Hashes of user code, which changes without a new version.

Installed code has a version: the files that the RECORD of a distribution lists (unless it is
installed with ``pip install -e``), the standard library, and jembench itself. Other files have no
reliable version, so a hash of their code is part of a component's identity, and no result is
attributed to changed code. A module is hashed without importing it; only its parent packages are
imported.
"""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType


def code(module: str, *, of_package: bool = False) -> str:
    """Return a module's code hash, without comments and layout; "" if installed.

    Files beside the module that it imports count too. A loaded module keeps its hash, even if the
    file changes later.

    Args:
        module: the full name of the module.
        of_package: True to hash all modules of its top-level package.
    """
    loaded = sys.modules.get(module)
    if loaded and (loaded, of_package) in _of_loaded:
        return _of_loaded[loaded, of_package]
    hashed, file = "", _file(module)
    if file is not None and not _is_installed(file, module):
        depth = _depth(file, module)
        package = of_package and depth > 0
        files = _files_of(file.parents[depth - 1]) if package else _imported_files(file, module)
        hashed = _hash(files, _digest)
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
    """Return whether a module's file belongs to installed code.

    Installed code belongs to a distribution, the standard library or jembench.
    """
    root = file.parents[_depth(file, module)]
    line = f"\n{file.relative_to(root).as_posix()},"
    return (
        root.resolve() in _STANDARD_LIBRARY
        or file.is_relative_to(_JEMBENCH)
        or any(line in record for record in _records(root))
    )


def _depth(file: Path, module: str) -> int:
    """Return how many folders a module's file lies below ``sys.path``."""
    return module.count(".") + (file.name == "__init__.py")


_of_loaded: dict[tuple[ModuleType, bool], str] = {}
_JEMBENCH = Path(__file__).parents[1]
_STANDARD_LIBRARY = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
_STANDARD_LIBRARY |= {folder / "lib-dynload" for folder in _STANDARD_LIBRARY}


@functools.cache
def digest(package: str) -> str:
    """Return a digest of a package's or module's files; "" without files.

    The package need not be installed.
    """
    file = _file(package)
    if file is None:
        return ""
    files = _files_of(file.parent) if file.name == "__init__.py" else {"": file}
    return _hash(files, lambda source: hashlib.sha256(source).hexdigest())[:8]


def _files_of(folder: Path) -> dict[str, Path]:
    """Return a folder's modules by path, without hidden files and folders."""
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if path.is_file() and not any(part[0] == "." for part in place.parts):
            files[place.as_posix()] = path
    return files


def _imported_files(file: Path, module: str) -> dict[str, Path]:
    """Return a module's file, and files beside it that it imports.

    Indirect imports count too. Imports are read from syntax trees, also in functions; installed
    modules are left out.
    """
    root = file.parents[_depth(file, module)]
    imported, waiting = {"": file}, [(file, module)]
    while waiting:
        path, name = waiting.pop()
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for name in _imports(path.read_bytes(), package):
            beside = _beside(root, name)
            if beside and beside not in imported.values() and not _is_installed(beside, name):
                imported[beside.relative_to(root).as_posix()] = beside
                waiting.append((beside, name))
    return dict(sorted(imported.items()))


def _beside(root: Path, module: str) -> Path | None:
    """Return the file of a module below a folder."""
    place = root.joinpath(*module.split("."))
    suffixes = (".py", *EXTENSION_SUFFIXES)
    candidates = [place / "__init__.py"]
    candidates += [place.with_name(place.name + suffix) for suffix in suffixes]
    return next(filter(Path.is_file, candidates), None)


@functools.lru_cache(maxsize=1000)
def _imports(source: bytes, package: str) -> tuple[str, ...]:
    """Return the full names of modules that code in a package may import, with their parents."""
    names: list[str] = []
    with suppress(SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Import():
                    names += [alias.name for alias in node.names]
                case ast.ImportFrom():
                    name = "." * node.level + (node.module or "")
                    start = f"{name}." if node.module else name
                    names += [name, *(start + alias.name for alias in node.names)]
                case ast.Call(args=[ast.Constant(value=str(name)), *_]):
                    if ast.unparse(node.func).endswith(("import_module", "__import__")):
                        names.append(name)
                # the argument of a loader by path
                case ast.Constant(value=str(name)) if re.fullmatch(r"[\w/]+\.py", name):
                    names.append("." + name.removesuffix(".py").replace("/", "."))
    modules: dict[str, None] = {}
    for name in names:
        level = len(name) - len(name.lstrip("."))  # 1: within the package itself
        folders = package.split(".")
        parents = folders[: len(folders) + 1 - level] if level else []
        parts = [part for part in (*parents, *name.split(".")) if part]
        modules |= dict.fromkeys(itertools.accumulate(parts, "{}.{}".format))
    return tuple(modules)


def _hash(files: Mapping[str, Path], digest: Callable[[bytes], str]) -> str:
    """Return a hash of files and of their names."""
    together = hashlib.sha256()
    for name, path in files.items():
        together.update(f"{name}:{digest(path.read_bytes())};".encode())
    return together.hexdigest()[:16]


def _file(module: str) -> Path | None:
    origin = getattr(sys.modules.get(module), "__file__", None)
    # errors of its parent package: loading the component raises them again
    with suppress(Exception, SystemExit):
        spec = None if origin else importlib.util.find_spec(module)
        origin = spec.origin if spec else origin
    path = Path(origin or "")
    return path if path.suffix == ".py" and path.is_file() else None


@functools.cache
def _records(folder: Path) -> tuple[str, ...]:
    """Return the RECORD of each distribution in a folder, without editable ones.

    A line break precedes each line.
    """
    records = []
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        origin = distribution.read_text("direct_url.json") or ""
        if not re.search(r'"editable":\s*true', origin):
            records.append(f"\n{distribution.read_text('RECORD') or ''}")
    return tuple(records)


@functools.lru_cache(maxsize=1000)
def _digest(source: bytes) -> str:
    # code with syntax errors is hashed unparsed; the import repeats warnings about escapes
    with suppress(SyntaxError, ValueError, RecursionError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = ast.unparse(ast.parse(source)).encode()
    return hashlib.sha256(source).hexdigest()
