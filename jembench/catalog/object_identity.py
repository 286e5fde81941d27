"""Identities of Python objects: a digest of everything that their code can read.

Attributes, tensors and containers count by their values, functions by byte code, closures and the
globals that they name. Installed classes and functions have a version and count by their names.
Values that cannot be compared, such as open files, are reported by their places. The digest misses
files that code reads, and environment variables whose names code computes.
"""

import copy
import copyreg
import dis
import functools
import hashlib
import importlib
import io
import os
import re
import sys
import types
import warnings
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from jembench.catalog import code_identity

_PLAIN = (type(None), bool, float, complex, str, bytes, range, type(Ellipsis), type(NotImplemented))
_BY_NAME = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_UNSHARED = (tuple, frozenset, types.CodeType, types.MethodType, weakref.ref)
"""Types hashed at every occurrence: Python may copy objects; cycles pass through other types."""

_OF_CLASSES = {
    *(
        "__abstractmethods__",
        "__annotations__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
    ),
    *("__orig_bases__", "__parameters__", "__slotnames__", "__static_attributes__", "__weakref__"),
    "_abc_impl",
}
"""Members of classes that no computation reads, or that Python adds later."""

_OF_MODULES = {
    *("training", "_compiled_call_impl", "_graph", "_is_full_backward_hook", "_is_torch_compile"),
}
"""Attributes of an ``nn.Module`` that evaluation sets, or that repeat other attributes in another
form.
"""

_DYNAMIC = {"eval", "exec", "globals", "__import__"}
"""Builtins by which code reads globals that its byte code does not name."""

_MANGLED = re.compile(rb"___torch_mangle_(\d+)")
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CODE = (
    *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags"),
    *("co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_exceptiontable"),
)


def object_digest(value: object) -> tuple[str, list[str]]:
    """Return a digest of an object, and the places of its parts that cannot be compared."""
    walk = _Walk()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reading a deprecated attribute warns
        walk.add(value, type(value).__name__)
    return walk.hash.hexdigest(), list(walk.unknown)


class _Walk:
    """The hash of all that can be reached from an object."""

    def __init__(self, seen: Mapping[int, tuple[int, Any]] = types.MappingProxyType({})) -> None:
        self.hash = hashlib.sha256()
        # each object's number by its id; while the object is held, no other has its id
        self.seen = dict(seen)
        self.unknown: dict[str, None] = {}

    def note(self, *words: object) -> None:
        text = repr(words).encode()
        self.hash.update(b"%d:%b" % (len(text), text))

    def add(self, value: Any, place: str) -> None:
        """Add an object, unless it was added before."""
        value = _unwrapped(value)
        if type(value) in _PLAIN:
            self.note(type(value).__name__, value)
        elif type(value) is int:
            self.note("int", hex(value))  # repr() refuses long integers
        elif id(value) in self.seen:
            self.note("again", self.seen[id(value)][0])
        else:
            if not isinstance(value, _UNSHARED):
                self.seen[id(value)] = len(self.seen), value
            try:
                self._new(value, place)
            except (Exception, RecursionError):
                self.unknown[place] = None

    def each(self, values: Iterable[Any], place: str) -> None:
        values = list(values)
        self.note(len(values))
        for index, value in enumerate(values):
            self.add(value, f"{place}[{index}]")

    def named(self, values: Mapping[str, Any], place: str) -> None:
        self.note(len(values))
        for name in sorted(values):
            self.note(name)
            self.add(values[name], f"{place}.{name}")

    def _new(self, value: Any, place: str) -> None:
        """Add an object that was not added before, by its type."""
        match value:
            case types.ModuleType():
                self._global(value, [], place)
            case type():
                self._class(value, place)
            case types.FunctionType():
                self._function(value, place)
            case types.CodeType():
                self.each((getattr(value, name) for name in _CODE), place)
            case types.MethodType():
                self.each((value.__func__, value.__self__), place)
            case types.BuiltinFunctionType() | types.MethodWrapperType():
                self.note("builtin", value.__qualname__)
                self.add(value.__self__, place)
            case staticmethod() | classmethod():
                self.each((type(value), value.__func__), place)
            case property():
                self.each((type(value), value.fget, value.fset, value.fdel), place)
            case functools.cached_property():
                self.each((type(value), value.func), place)
            case weakref.ref():
                self.each((value(),), place)
            case _ if isinstance(value, _BY_NAME):
                self.note("descriptor", value.__name__)
                self.add(value.__objclass__, place)
            case _ if type(value) in (list, tuple):
                self.note(type(value).__name__)
                self.each(value, place)
            case _ if type(value) in (dict, types.MappingProxyType):
                self.note("dict")
                for key, item in value.items():
                    self.each((key, item), f"{place}[{key!r:.40}]")
            case _ if type(value) in (set, frozenset):
                self._set(value, place)
            case _ if self._torch(value, place):
                pass
            case _:
                self._object(value, place)

    def _set(self, values: Iterable[Any], place: str) -> None:
        """Add a set, in an order that does not depend on Python's hashes."""
        digests = []
        for value in values:
            inner = _Walk(self.seen)
            inner.add(value, place)
            self.unknown |= inner.unknown
            digests.append(inner.hash.hexdigest())
        self.note("set", sorted(digests))

    # --- code -------------------------------------------------------------------------------------

    def _class(self, cls: type, place: str) -> None:
        if cls in (object, type):
            self.note(cls.__name__)
            return
        members = {name: member for name, member in vars(cls).items() if name not in _OF_CLASSES}
        if _is_installed(cls):
            self.note("class", cls.__module__, cls.__qualname__)
            members = {name: member for name, member in members.items() if _is_replaced(member)}
        else:
            self.note("class", cls.__qualname__)
            slots = set(copyreg._slotnames(cls))  # type: ignore[attr-defined]  # held by objects
            members = {name: member for name, member in members.items() if name not in slots}
        self.named(members, place)
        self.each((type(cls), *cls.__bases__), place)

    def _function(self, function: types.FunctionType, place: str) -> None:
        if _is_installed(function):
            self.note("function", function.__module__, function.__qualname__)
            return
        self.note("function", function.__name__)
        self.each((function.__code__, function.__defaults__, function.__kwdefaults__), place)
        self.named(vars(function), place)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # the cell is still empty
                content = None
            self._global(content, _words(function.__code__), place)
        if not _has_version(function.__globals__.get("__name__")):
            self._globals(function, place)

    def _globals(self, function: types.FunctionType, place: str) -> None:
        """Add the globals and environment variables that a function names.

        Modules that the function imports are added too.
        """
        instructions = list(_instructions(function.__code__))
        names = {step.argval for step in instructions if step.opname in _LOADS}
        modules = {step.argval for step in instructions if step.opname == "IMPORT_NAME"}
        words = _words(function.__code__)
        if {"environ", "getenv"} & {*words}:
            self.note([(word, os.environ[word]) for word in words if word in os.environ])
        for name in sorted(names):
            if name in function.__globals__:
                self.note(name)
                self._global(function.__globals__[name], words, f"{place} -> {name}")
            elif name in _DYNAMIC:
                self.unknown[f"{place} -> {name}()"] = None
        package = function.__globals__.get("__package__") or ""
        for name in sorted(modules):
            for module in (name, f"{package}.{name}"):
                if code_identity.code(module):  # the function would import it
                    with suppress(Exception):
                        self._global(importlib.import_module(module), words, f"{place} -> {module}")

    def _global(
        self, value: Any, names: list[str], place: str, within: tuple[Any, ...] = ()
    ) -> None:
        """Add a global; of a module, only attributes that a function names."""
        if not isinstance(value, types.ModuleType):
            self.add(value, place)
            return
        self.note("module", value.__name__)
        installed, members = _has_version(value.__name__), vars(value)
        if not installed:
            self.note(code_identity.code(value.__name__))
        for name in names:
            member = members.get(name)
            if isinstance(member, types.ModuleType):
                if member not in within:
                    self._global(member, names, f"{place}.{name}", (*within, value))
            elif name in members and (not installed or _is_replaced(member)):
                self.note(name)
                self.add(member, f"{place}.{name}")

    # --- objects ----------------------------------------------------------------------------------

    def _object(self, value: Any, place: str) -> None:
        """Add the class and the state of an object."""
        cls = type(value)
        self.add(cls, place)
        methods = {"__reduce__", "__reduce_ex__"}
        reduces = [base for base in cls.__mro__[:-1] if methods & vars(base).keys()]
        has_own = bool(reduces) and not _is_installed(reduces[0])
        if not reduces or not _is_installed(cls):
            state = dict(getattr(value, "__dict__", {}))
            for name in copyreg._slotnames(cls):  # type: ignore[attr-defined]
                if hasattr(value, name):
                    state[name] = getattr(value, name)
            self.named(state, place)
        if not has_own:
            of_class = copyreg.dispatch_table.get(cls)
            reduced: Any = of_class(value) if of_class else value.__reduce_ex__(4)
            if isinstance(reduced, str):
                self.note(reduced)
                self.named(dict(getattr(value, "__dict__", {})), place)
                return
            function, arguments, *rest = reduced
            self.each((function, arguments, *rest[:1]), place)
            for items in rest[1:3]:
                self.each(items or (), place)

    def _torch(self, value: Any, place: str) -> bool:
        """Add an object of PyTorch or NumPy; return False for any other."""
        if (numpy := sys.modules.get("numpy")) and type(value) is numpy.ndarray:
            self.note("array", value.dtype.str, value.dtype.descr, value.shape)
            if value.dtype.hasobject:
                self.each(value.ravel().tolist(), place)
            else:
                self.hash.update(numpy.ascontiguousarray(value).tobytes())
            return True
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        match value:
            case torch.Tensor():
                self._tensor(value, place)
            case torch.Generator():
                self.note("generator", str(value.device))
                self.add(value.get_state(), place)
            case torch.jit.ScriptFunction():
                self._script(value)
            case torch.nn.Module():
                self._module(value, place)
            case _:
                return False
        return True

    def _tensor(self, tensor: Any, place: str) -> None:
        import torch

        kind = (str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad, str(tensor.layout))
        self.note("tensor", *kind)
        # images that are read in parts count as the tensor in whose place they are
        if in_parts := getattr(tensor, "in_parts", None):
            self.add(torch.Tensor, place)
            self.named({}, place)
            for part in in_parts():
                self.hash.update(part.contiguous().numpy().data)
            return
        self.add(type(tensor), place)
        self.named(dict(getattr(tensor, "__dict__", {})), place)
        plain = tensor.detach().cpu()
        if plain.is_quantized:
            self.note(str(plain.qscheme()))
            self.each((plain.int_repr(), plain.dequantize()), place)
            return
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        plain = plain.resolve_conj().resolve_neg()
        if plain.is_complex():
            plain = torch.view_as_real(plain)
        self.hash.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().data)

    def _module(self, module: Any, place: str) -> None:
        """Add a module's attributes and hooks.

        Hooks count by their order, since their numbers depend on the process.
        """
        import torch

        if isinstance(module, torch.jit.ScriptModule):
            self._script(copy.deepcopy(module).eval())
            return
        self.add(type(module), place)
        attributes, hooks = dict[str, Any](), dict[str, dict[int, Any]]()
        for name, value in sorted(vars(module).items()):
            if "_hooks" not in name and name not in _OF_MODULES:
                attributes[name] = value
            elif "_hooks" in name and isinstance(value, dict):
                hooks[name] = value
        numbers = sorted(set().union(*hooks.values()))
        for name, values in hooks.items():
            self.note(name)
            ordered = [(numbers.index(key), hook) for key, hook in values.items()]
            self.each(ordered, f"{place}.{name}")
        self.named(attributes, place)

    def _script(self, script: Any) -> None:
        """Add a script's code and values, with mangled classes numbered from 0."""
        with zipfile.ZipFile(io.BytesIO(script.save_to_buffer())) as archive:
            parts = {}
            for name in archive.namelist():
                if not re.search("debug_pkl|serialization_id", name):
                    parts[name.encode()] = archive.read(name)
        numbers = set[int]()
        for text in (*parts.keys(), *parts.values()):
            numbers.update(map(int, _MANGLED.findall(text)))
        order = sorted(numbers)

        def counted(text: bytes) -> bytes:
            return _MANGLED.sub(lambda match: b"%d" % order.index(int(match[1])), text)

        for part, content in sorted(parts.items()):
            self.note(counted(part), counted(content))


def _unwrapped(value: Any) -> Any:
    """Return the module or function that torch.compile wrapped; other objects unchanged."""
    if isinstance(value, types.FunctionType):
        return vars(value).get("_torchdynamo_orig_callable", value)
    if str(type(value).__module__).startswith("torch._dynamo"):
        return getattr(value, "_orig_mod", value)
    return value


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of a function and of the functions within it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


def _words(code: types.CodeType) -> list[str]:
    """Return the names and texts in a function's instructions, inner functions included."""
    values = {step.argval for step in _instructions(code)}
    return sorted(value for value in values if isinstance(value, str))


@functools.lru_cache(maxsize=10_000)
def _version_of(module: types.ModuleType) -> bool:
    return code_identity.has_version(module)


def _has_version(name: Any) -> bool:
    module = sys.modules.get(name) if isinstance(name, str) else None
    return module is not None and name != "__main__" and _version_of(module)


def _is_installed(value: Any) -> bool:
    """Return whether an installed module holds this very class or function."""
    if not _has_version(value.__module__):
        return False
    if isinstance(value, types.FunctionType) and not _has_version(
        value.__globals__.get("__name__")
    ):
        return False
    namesake: Any = sys.modules[value.__module__]
    for part in value.__qualname__.split("."):
        namesake = vars(namesake).get(part) if hasattr(namesake, "__dict__") else None
    return getattr(namesake, "__func__", namesake) is value


def _is_replaced(member: Any) -> bool:
    """Return whether a member of an installed class or module is code from elsewhere."""
    function = getattr(member, "__func__", member)
    if isinstance(function, types.FunctionType):
        return not _has_version(function.__globals__.get("__name__"))
    return isinstance(member, type) and not _has_version(member.__module__)
