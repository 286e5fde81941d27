"""Records: JSON files with a digest of their own text.

The digest, in the last line of a record, is the SHA-256 of all text before it, so that any edit is
detected. Imports no torch.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from jembench import files
from jembench.catalog import validation
from jembench.catalog.validation import Format, Range, printable_data
from jembench.errors import DamagedError, StoreError

SCHEMA = 2
"""The version of all records. A reader refuses a newer one."""

LARGEST = 64 * 2**20
"""The size in bytes above which a file is not taken for a record."""

REMEDY = "Remove the file and run the same command again; only its content is computed again."

FORMAT = Format(DamagedError, REMEDY, "json")

T = TypeVar("T")

_DIGEST = ',\n  "digest": "'


class Record(NamedTuple):
    """The content of a record file."""

    data: Any  # JSON
    where: str  # the file

    def read(self, cls: type[T], *path: str) -> T:
        """Return the record, or its part at ``path``, as a typed object.

        ``path`` has the keys that lead to the part.

        Raises:
            DamagedError: if the data does not fit the class.
        """
        data = self.data
        for key in path:
            data = data.get(key, {})
        return validation.read(
            cls, data, self.where, form=FORMAT, path="".join(f".{key}" for key in path)
        )


class _Head(NamedTuple):
    schema: Annotated[int, Range(least=1)]
    digest: str = ""


def write(path: Path, fields: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a record, atomically.

    Without ``durable``, the record may be lost when the machine fails.

    Raises:
        StoreError: if the file cannot be written.
    """
    files.write_atomically(path, text(fields).encode(), durable=durable)


def text(fields: Mapping[str, Any]) -> str:
    """Return a record as text, with schema and digest.

    The caller has encoded numbers that are not finite.
    """
    whole = json.dumps({"schema": SCHEMA, **fields}, indent=2, allow_nan=False, ensure_ascii=False)
    whole = whole.removesuffix("\n}")
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return f'{whole}{_DIGEST}{digest}"\n}}\n'


def read(path: Path) -> Record:
    """Read a record, and check its digest.

    Raises:
        FileNotFoundError: if there is no such file, which may be normal: the caller decides.
        DamagedError: if the file cannot be read, or was changed.
        StoreError: if the file was written by a newer version.
    """
    try:
        text = files.read_bytes(path, LARGEST)
        data = _DECODER.decode(text.decode())
        if b"\\u" in text:
            # an escape may be half a surrogate pair, which cannot be encoded
            json.dumps(data, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(str(path)) from error
    except OSError as error:
        raise DamagedError(
            f"Cannot read {path}: {error.strerror}. Make it a file that you may read, or choose "
            "another folder with --store."
        ) from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(
            f"{path} is not valid JSON ({error}): it was cut short or edited. {REMEDY}"
        ) from error
    head = Record(data, str(path)).read(_Head)
    if head.schema > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer jembench (schema {head.schema}, this one reads up to "
            f"{SCHEMA}). Update jembench, or choose another folder with --store."
        )
    written, _, end = text.rpartition(_DIGEST.encode())
    digest = hashlib.sha256(written).hexdigest()
    if head.digest != digest or end != f'{digest}"\n}}\n'.encode():
        raise DamagedError(
            f"{path} is damaged or was edited: its text does not match its digest. {REMEDY}"
        )
    if not text.isascii() or b"\\" in text:
        data = printable_data(data)
    return Record(data, str(path))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
