"""Spec strings: ``name:key=value,key=value``, which name a component with its options.

A name is an entry point (``jem``), an entry point of one distribution (``jembench-jem/jem``) or an
import path (``mypackage.zoo:build``; ``my.py:Net`` is ``my:Net``). ``timm:resnet18`` is short for
``timm:model=resnet18``, as for ``torchvision`` and ``hf``, ``toy:rings`` for ``toy:kind=rings``,
and ``npz:FILE`` for ``npz:file=FILE``, as for ``torchscript``; as datasets, ``torchvision:NAME``
and ``hf:NAME`` give the first option. A value with a comma, a quote or a blank at an end is written
as a JSON string.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jembench.errors import SpecError, printable

Scalar = int | float | bool | str | None

_NAME = r"[A-Za-z_][\w.-]*(?:/[A-Za-z_][\w.-]*)?"
_HEAD = re.compile(
    rf"(?P<name>{_NAME}(?::[A-Za-z_][\w.]*(?=:|\Z))?)(?::(?P<arguments>.*))?", re.DOTALL
)
_ARGUMENT = re.compile(r'\s*(?P<key>[A-Za-z_]\w*)=(?P<value>"(?:[^"\\]|\\.)*"|[^,"]*)(?:,|\Z)')
# the last branch keeps an open quote, which _options refuses
_PIECE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+')
_FILE = re.compile(r"(?:.*/)?(?P<module>[A-Za-z_]\w*)\.py:(?P<rest>[A-Za-z_].*)")
_FILE_HERE = re.compile(r"\A([A-Za-z_]\w*)\.py:(?=[A-Za-z_])")
_SOURCE = re.compile(r"(?:.*/)?[A-Za-z_]\w*\.py")
# these names are components, never modules of import paths; the option's name may be left out
FIRST_OPTIONS = {
    "hf": "model",
    "npz": "file",
    "timm": "model",
    "torchscript": "file",
    "torchvision": "model",
    "toy": "kind",
}
OF_DATASETS = {"hf": "source", "torchvision": "name"}
"""The first options of datasets that share a name with models; a spec holds it as the models'."""

_SHORT = re.compile(
    rf"\A((?:[\w.-]+/)?(?P<short>{'|'.join(FIRST_OPTIONS)})):"
    r"(?:(?:model|file|kind)=)?(?![A-Za-z_]\w*=|\Z)"
)


class Spec(str):
    """A component's name with its options: the canonical text of a spec.

    The options in the text are sorted: ``Spec("jem:b=2, a=1") == "jem:a=1,b=2"``.

    Args:
        text: of a user or a file; a Spec is returned unchanged.

    Raises:
        SpecError: if the text does not have the form ``name:key=value,...`` or has a key twice.
    """

    __slots__ = ("name", "options")

    name: str
    options: Mapping[str, str]

    def __new__(cls, text: str) -> Spec:
        return text if isinstance(text, Spec) else _parse(text)

    @classmethod
    def of(cls, name: str, options: Mapping[str, Scalar]) -> Spec:
        """Return the spec of a name and options, which are not checked."""
        bare = name.rpartition("/")[2]
        first, of_datasets = FIRST_OPTIONS.get(bare, ""), OF_DATASETS.get(bare)
        texts: dict[str, str] = {}
        for key, value in options.items():
            is_first = key == of_datasets and first not in options
            texts[first if is_first else key] = format_value(value)
        texts = dict(sorted(texts.items(), key=lambda item: (item[0] != first, item[0])))
        spec = super().__new__(cls, _written(name, texts))
        spec.name, spec.options = name, MappingProxyType(texts)
        return spec

    def __reduce__(self) -> tuple[Any, ...]:
        return Spec.of, (self.name, dict(self.options))

    @property
    def bare(self) -> str:
        """The name without its distribution: ``cifar10`` of ``jembench/cifar10:root=/data``."""
        return self.name.rpartition("/")[2]

    def with_(self, /, **options: Scalar) -> Spec:
        """Return the spec with some of its options set."""
        return Spec.of(self.name, {**self.options, **options})

    def without(self, *options: str) -> Spec:
        """Return the spec without some of its options."""
        return Spec.of(self.name, {k: v for k, v in self.options.items() if k not in options})


def _written(name: str, options: Mapping[str, str]) -> str:
    """Return the canonical text of a name and sorted options."""
    if not options:
        return _SHORT.sub(r"\1:", name)
    written = []
    for key, value in options.items():
        has_quotes = value != value.strip() or re.search(r'[,"]', value)
        shown = json.dumps(value) if has_quotes else value
        written.append(f"{key}={shown}")
    return _SHORT.sub(r"\1:", f"{name}:{','.join(written)}")


NO_SPEC = Spec.of("", {})
"""The empty spec, which names nothing."""


@functools.lru_cache(maxsize=10_000)
def _parse(text: str) -> Spec:
    """Parse a text; the spec is cached."""
    whole = _FILE_HERE.sub(r"\1:", text.strip())
    _refuse_files(whole)
    match = _HEAD.fullmatch(_SHORT.sub(_in_full, whole))
    if not match:
        raise SpecError(
            f"{text!r} is not a spec. Write name:key=value,key=value, for example "
            "jem:net=wrn-28-10."
        )
    return Spec.of(match["name"], _options(match["arguments"], text))


def _refuse_files(text: str) -> None:
    """Raise the error for a file or a folder in the place of a spec."""
    if file := _FILE.fullmatch(text):
        name = file["module"]
        raise SpecError(
            f"{text!r} is a file. Write {name}:{file['rest']}, in the folder that holds {name}.py."
        )
    if _SOURCE.fullmatch(text):
        raise SpecError(_advice_for_source(Path(text)))
    if text.startswith((".", "/", "~")):
        raise SpecError(
            f"{text!r} is a path, not a spec. For images in a folder write "
            f"imagefolder:root={text}. For code write --plugin FILE.py and FILE:NAME."
        )


def _options(arguments: str | None, text: str) -> dict[str, str]:
    """Parse a spec's arguments; None: the spec has only a name."""
    options: dict[str, str] = {}
    rest = arguments
    while rest is not None:
        argument = _ARGUMENT.match(rest)
        if not argument:
            raise SpecError(
                f"In {text!r}, {rest!r} is not key=value. Write name:key=value,key=value; "
                'a value with a comma goes into double quotes: key="a,b".'
            )
        key, value = argument["key"], argument["value"]
        if key in options:
            raise SpecError(f"In {text!r}, {key!r} is given twice. Keep one of the two.")
        options[key] = _unquoted(key, value, text) if value.startswith('"') else value
        rest = rest[argument.end() :] if argument[0].endswith(",") else None
    return options


def _unquoted(key: str, value: str, text: str) -> str:
    """Return the text of a value in quotes."""
    try:
        unquoted: str = json.loads(value)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"In {text!r}, {value} is not a JSON string ({error.msg}). "
            "Write a backslash inside quotes twice."
        ) from None
    if printable(unquoted.replace("\n", "\0")) != unquoted:
        raise SpecError(f"In {text!r}, the value of {key} holds a control character. Leave it out.")
    return unquoted


def _advice_for_source(file: Path) -> str:
    """Return the error for a Python file in the place of a spec."""
    names: list[str] = []
    with suppress(OSError, ValueError, SyntaxError):
        for part in ast.parse(file.read_bytes()).body:
            if isinstance(part, ast.FunctionDef | ast.ClassDef) and part.name[0] != "_":
                names.append(part.name)
    defines = f" It defines {', '.join(names)}." if names else ""
    chosen = names[0] if names else "NAME"
    option = "" if len(file.parts) == 1 else f" --plugin {file} and"
    return f"{str(file)!r} is a file, not a spec.{defines} Write{option} {file.stem}:{chosen}."


def _in_full(short: re.Match[str]) -> str:
    return f"{short[1]}:{FIRST_OPTIONS[short['short']]}="


def split_list(text: str) -> list[str]:
    """Split ``a:key=1,other=2,b`` into its specs.

    A comma before ``key=`` continues the spec before it.

    Raises:
        SpecError: if nothing stands before, after or between commas.
    """
    pieces = _PIECE.findall(text)
    commas = len(_PIECE.sub("", text))
    if commas >= max(len(pieces), 1) or (commas and not all(map(str.strip, pieces))):
        raise SpecError(f"In {text!r}, a part between commas is empty. Leave out the extra comma.")
    return specs_in(text)


def specs_in(text: str) -> list[str]:
    """Split any text as :func:`split_list` does, without empty parts."""
    specs: list[str] = []
    for piece in _PIECE.findall(text):
        if specs and re.match(r"\s*[A-Za-z_]\w*=", piece):
            specs[-1] += "," + piece
        elif piece.strip():
            specs.append(piece.strip())
    return specs


def format_value(value: Scalar) -> str:
    """Return the text of a value, the inverse of :func:`~jembench.catalog.validation.read_text`."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def stable_hash(value: Any, length: int = 10) -> str:
    """Return a hash of a JSON value that is the same in every process and on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def without_digest(name: str) -> str:
    """Return a live object's name without the digest of its content."""
    return re.sub(r"-[0-9a-f]{10}$", "", name)


def slug(text: str, length: int = 60) -> str:
    """Return ``text`` as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "-", text).strip("-.")[:length]
