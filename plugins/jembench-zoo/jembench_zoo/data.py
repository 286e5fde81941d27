"""``hf``: images in parquet and Arrow files, as the library datasets of Hugging Face reads them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jembench.data.datasets import SPLIT
from jembench.errors import JembenchError, error_text
from jembench.plugin import Content, Range, Unavailable, path_of
from jembench_zoo.libraries import library

if TYPE_CHECKING:
    from jembench.interfaces import Dataset

_SHARD = re.compile(r"^(?:.*?/)??(\w+)(?:/data)?-(\d{5}-of-\d{5})\.(?:arrow|parquet)$")
"""The names train/data-00000-of-00001.arrow and data/train-00000-of-00001.parquet of one shard."""


def place_of(source: str, revision: str) -> Path:
    """Return the path of a file or folder, or the folder of a data set in Hugging Face's cache.

    Raises:
        Unavailable: if there is none; the message says the command that fetches it.
    """
    path = path_of(source)
    if path.exists():
        return path
    if source.startswith((".", "/", "~")):
        raise Unavailable(f"There is no file or folder {path}. Give hf the place of your images.")
    hub = library("huggingface_hub", "hf-data")
    version = revision or "main"
    try:
        options = {"repo_type": "dataset", "revision": version, "local_files_only": True}
        return Path(hub.snapshot_download(source, **options))
    except (OSError, ValueError) as error:  # it is not in the cache, or no name of a repository
        command = f"hf download --repo-type dataset {source}"
        if revision:
            command += f" --revision {revision}"
        raise Unavailable(
            f"{source} is neither a file or folder nor a data set in Hugging Face's cache: run "
            f"`{command}`."
        ) from error


def files_of_hf(source: str, revision: str) -> Mapping[str, Path]:
    """List the parquet and Arrow files by their shards, or by their names below ``source``.

    Raises:
        Unavailable: if there is none.
    """
    place = place_of(source, revision)
    if place.is_file():
        return {"": place}
    files = {}
    for path in sorted(place.rglob("*")):
        if path.suffix in (".parquet", ".arrow"):
            files[path.relative_to(place).as_posix()] = path
    if not files:
        raise Unavailable(
            f"{place} holds no parquet or Arrow files, which `save_to_disk` and `to_parquet` of "
            "the library datasets write. Folders of image files are read by imagefolder:root=."
        )
    shards = {_SHARD.sub(r"\1-\2", name): path for name, path in files.items()}
    return shards if len(shards) == len(files) else files


def digest_of_rows(path: Path) -> str:
    """Return the SHA-256 of a table's types and values, the same for parquet and Arrow.

    Raises:
        JembenchError: if the file is damaged.
    """
    hashed = hashlib.sha256()
    try:
        for row in _rows(path):
            for name, value in row.items():
                # an image's bytes, without the name of its file
                is_image = isinstance(value, dict) and value.get("bytes")
                content = value["bytes"] if is_image else repr(value).encode()
                hashed.update(json.dumps([name, len(content)]).encode())
                hashed.update(content)
    except (ValueError, TypeError, NotImplementedError) as error:  # pyarrow's
        raise JembenchError(f"{path} cannot be read as a table: {error_text(error)}") from error
    return hashed.hexdigest()


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the types of a table's columns, then its rows."""
    pyarrow = library("pyarrow", "hf-data")
    if path.suffix == ".parquet":
        file = library("pyarrow.parquet", "hf-data").ParquetFile(path, memory_map=True)
        schema, batches = file.schema_arrow, file.iter_batches(batch_size=_BATCH)
    else:
        table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path)))
        schema, batches = table.schema, table
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    yield {"types": [*zip(schema.names, map(str, schema.types), strict=True)], "about": about}
    for batch in batches:
        yield from batch.to_pylist()


_BATCH = 256
"""The number of rows that are read at once."""


def hf(
    *,
    source: Annotated[str, Content(files_of_hf, ("revision",), digest_of_rows)],
    config: str = "",
    revision: str = "",
    image: str = "",
    label: str = "",
    size: Annotated[int, Range(least=0)] = 0,
    grey: bool | None = None,
    split: Annotated[float, Range(above=0, below=1)] = SPLIT,
    seed: int = 0,
    name: str = "",
) -> Dataset:
    """Images of a folder or file for the library datasets, or of a data set in its hub's cache.

    ``source`` is a folder of ``save_to_disk``, a parquet file, a folder of such files, or the name
    of a data set that `hf download --repo-type dataset NAME` has fetched, of a ``config`` and a
    ``revision``. Nothing is downloaded, and no code of a data set is run. ``image`` and ``label``
    are the columns, by default those of the types Image and ClassLabel; ``label=none`` leaves
    labels out.

    The test part is test, or else validation. Without either, the share ``split`` of each class is
    for training, and ``seed`` chooses which images these are. ``size`` crops each image to its
    central square and resizes it; ``grey=true`` makes one channel, and ``grey=false`` RGB. ``name``
    is what results are filed under. The content of the files is the identity.

    Raises:
        Unavailable: if the library or the files are missing.
        SpecError: if columns or parts are not found, or an option has no effect.
        JembenchError: if files or images cannot be read.
    """
    from jembench_zoo import hub_data

    place = place_of(source, revision)
    files = files_of_hf(source, revision)
    title = name or source.rstrip("/").rpartition("/")[2].removesuffix(".parquet")
    reader = hub_data.Reader(title, place, config, files, hub_data.Columns(image, label))
    return reader.dataset(size=size, grey=grey, split=split, seed=seed)
