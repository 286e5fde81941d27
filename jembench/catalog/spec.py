"""Spec strings: ``name:key=value,key=value``, which name a component with its options.

A name is an entry point (``jem``), an entry point of one distribution (``jembench-jem/jem``) or an
import path (``mypackage.zoo:build``). ``timm:resnet18`` is short for ``timm:model=resnet18``, as
for ``torchvision`` and ``hf``, and ``toy:rings`` for ``toy:kind=rings``. A value with a comma, a
quote or a blank at an end is written as a JSON string.
"""

import ast
import functools
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jembench.errors import SpecError, printable

Scalar = int | float | bool | str | None

_NAME = r"[A-Za-z_][\w.-]*(?:/[A-Za-z_][\w.-]*)?"
_HEAD = re.compile(
    rf"(?P<name>{_NAME}(?::[A-Za-z_][\w.]*(?=:|\Z))?)(?::(?P<arguments>.*))?", re.DOTALL
)
_ARGUMENT = re.compile(r'\s*(?P<key>[A-Za-z_]\w*)=(?P<value>"(?:[^"\\]|\\.)*"|[^,"]*)(?:,|\Z)')
# the last branch keeps an open quote, which parse refuses
_PIECE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+')
_FILE = re.compile(r"(?:.*/)?(?P<module>[A-Za-z_]\w*)\.py:(?P<rest>[A-Za-z_].*)")
_SOURCE = re.compile(r"(?:.*/)?[A-Za-z_]\w*\.py")
# these names are components, never modules of an import path; model= or kind= may be left out
_SHORT = re.compile(
    r"\A((?:[\w.-]+/)?(?:(?P<model>hf|timm|torchvision)|toy)):(?:(?(model)model|kind)=)?(?![A-Za-z_]\w*=|\Z)"
)


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec string, with values as text."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        written = []
        for key, value in sorted(self.arguments):
            has_quotes = value != value.strip() or re.search(r'[,"]', value)
            written.append(f"{key}={json.dumps(value) if has_quotes else value}")
        return _SHORT.sub(r"\1:", f"{self.name}:{','.join(written)}" if written else self.name)


@functools.lru_cache(maxsize=10_000)
def parse(text: str) -> Spec:
    """Parse one spec string.

    Raises:
        SpecError: if the text does not have the form ``name:key=value,...`` or has a key twice.
    """
    if file := _FILE.fullmatch(text.strip()):
        name = file["module"]
        raise SpecError(
            f"{text!r} is a file. Write {name}:{file['rest']}, in the folder that holds {name}.py."
        )
    if _SOURCE.fullmatch(text.strip()):
        raise SpecError(_advice_for_source(Path(text.strip())))
    if not (match := _HEAD.fullmatch(_SHORT.sub(_in_full, text.strip()))):
        if text.lstrip().startswith((".", "/", "~")):
            folder = f"For images in a folder write imagefolder:root={text}."
            raise SpecError(
                f"{text!r} is a path, not a spec. {folder} For code write --plugin FILE.py and FILE:NAME."
            )
        raise SpecError(
            f"{text!r} is not a spec. Write name:key=value,key=value, for example jem:net=wrn-28-10."
        )
    parsed: dict[str, str] = {}
    rest = match["arguments"]
    while rest is not None:
        if not (argument := _ARGUMENT.match(rest)):
            raise SpecError(
                f"In {text!r}, {rest!r} is not key=value. Write name:key=value,key=value; "
                'a value with a comma goes into double quotes: key="a,b".'
            )
        key, value = argument["key"], argument["value"]
        if key in parsed:
            raise SpecError(f"In {text!r}, {key!r} is given twice. Keep one of the two.")
        try:
            parsed[key] = json.loads(value) if value.startswith('"') else value
        except json.JSONDecodeError as error:
            raise SpecError(
                f"In {text!r}, {value} is not a JSON string ({error.msg}). Write a backslash inside quotes twice."
            ) from None
        if value.startswith('"') and printable(parsed[key].replace("\n", "\0")) != parsed[key]:
            raise SpecError(
                f"In {text!r}, the value of {key} holds a control character. Leave it out."
            )
        rest = rest[argument.end() :] if argument[0].endswith(",") else None
    return Spec(match["name"], tuple(sorted(parsed.items())))


def _advice_for_source(file: Path) -> str:
    """Return the error for a file of Python in the place of a spec, with what it defines."""
    names: list[str] = []
    with suppress(OSError, ValueError, SyntaxError):
        found = ast.parse(file.read_bytes()).body
        defined = [part.name for part in found if isinstance(part, ast.FunctionDef | ast.ClassDef)]
        names = [name for name in defined if not name.startswith("_")]
    defines = f" It defines {', '.join(names)}." if names else ""
    chosen = names[0] if names else "NAME"
    option = "" if len(file.parts) == 1 else f" --plugin {file} and"
    return f"{str(file)!r} is a file, not a spec.{defines} Write{option} {file.stem}:{chosen}."


def _in_full(short: re.Match[str]) -> str:
    return f"{short[1]}:{'model' if short['model'] else 'kind'}="


def split_list(text: str) -> list[str]:
    """Split ``a:key=1,other=2,b`` into its specs; a comma before ``key=`` continues the spec before
    it.

    Raises:
        SpecError: if nothing stands before, after or between commas.
    """
    pieces = _PIECE.findall(text)
    commas = len(_PIECE.sub("", text))
    if commas >= max(len(pieces), 1) or (commas and not all(map(str.strip, pieces))):
        raise SpecError(
            f"In {text!r}, a part between commas is empty. Leave out the comma that is too many."
        )
    return specs_in(text)


def specs_in(text: str) -> list[str]:
    """Split a text as :func:`split_list` does, whatever it is; empty parts are left out."""
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


def slug(text: str, length: int = 60) -> str:
    """Return ``text`` as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "-", text).strip("-.")[:length]
