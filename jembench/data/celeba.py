"""CelebA, whose images are files in one folder beside a list of their parts.

Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild" (2015). Its terms allow research but no
redistribution, and its server requires a browser, so that there is no download here. Its files are listed without
importing torch, so that its content is hashed while a run is planned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from jembench.catalog.options import Content, Incidental
from jembench.catalog.validation import Range
from jembench.data.datasets import LazyDataset
from jembench.errors import Unavailable
from jembench.files import data_folder
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_FACES, _PARTITION = "img_align_celeba", "list_eval_partition.txt"
_PARTS = {"train": "0", "test": "2"}  # 1 is validation


def celeba_root(root: str) -> Path:
    """Return the folder with the faces and the list of their splits.

    Raises:
        Unavailable: if one of them is missing.
    """
    folder = data_folder(root)
    folder = folder / "celeba" if (folder / "celeba").is_dir() else folder
    missing = [name for name in (_FACES, _PARTITION) if not (folder / name).exists()]
    if missing:
        raise Unavailable(
            f"CelebA is not available: {' and '.join(missing)} not found in {folder}. Fetch the aligned and cropped "
            "images and the evaluation partition from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, unpack "
            "them into a folder named celeba, and name the folder that holds it: celeba:root=... or JEMBENCH_DATA=..."
        )
    return folder


def faces(folder: Path, name: SplitName) -> dict[str, Path]:
    """Return the files of a split, in the order of the list.

    Raises:
        Unavailable: if a listed file is missing.
    """
    lines = (line.split() for line in (folder / _PARTITION).read_text(encoding="utf-8").splitlines())
    listed = [words[0] for words in lines if len(words) == 2 and words[1] == _PARTS[name]]
    with os.scandir(folder / _FACES) as entries:
        there = {entry.name for entry in entries}
    absent = [file for file in listed if file not in there]
    if absent or not listed:
        raise Unavailable(
            f"CelebA is not complete: {len(absent)} of the {len(listed)} {name} images that {folder / _PARTITION} "
            f"lists are not in {folder / _FACES}, the first of them {absent[0] if absent else 'all'}. Unpack it again."
        )
    return {file: folder / _FACES / file for file in listed}


def files_of_celeba(root: str) -> Mapping[str, Path]:
    """Return all faces of train and test, by their split and name.

    Raises:
        Unavailable: if files are missing.
    """
    folder = celeba_root(root)
    parts: dict[SplitName, dict[str, Path]] = {"train": faces(folder, "train"), "test": faces(folder, "test")}
    return {f"{part}/{name}": path for part, files in parts.items() for name, path in files.items()}


def celeba(
    *, root: Annotated[str, Incidental(), Content(files_of_celeba)] = "", size: Annotated[int, Range(least=1)] = 32
) -> Dataset:
    """CelebA's aligned faces without labels: cropped to the central square, resized to ``size`` pixels.

    ``root`` is the folder that holds ``celeba/img_align_celeba`` and ``celeba/list_eval_partition.txt`` ($JEMBENCH_DATA
    or ~/.cache/jembench/data by default). The central square has 178 of 178x218 pixels.

    Raises:
        Unavailable: if files are missing.
        JembenchError: if an image cannot be decoded; raised when its split is read.
    """
    spec = DataSpec(name="celeba", shape=(3, size, size), num_classes=0)
    return LazyDataset(spec, partial(_read_celeba, celeba_root(root), size))


def _read_celeba(folder: Path, size: int, name: SplitName) -> Split:
    from jembench.data.decoding import Form, decoded

    form = Form(mode="RGB", height=size, width=size, square=True)
    return Split(decoded(f"celeba-{name}", folder / name, faces(folder, name), form), None)
