"""CelebA, whose images are files in one folder beside a list of their parts.

Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild" (2015). CelebA's
terms allow research but no redistribution, and its server requires a browser, so that there is no
download here. Files are listed without importing torch, so that planning can hash the content.
"""

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

_PARTS: dict[str, SplitName] = {"0": "train", "2": "test"}  # 1 is validation


def _faces(root: str) -> dict[SplitName, dict[str, Path]]:
    """Return the files of both splits, in the order of the list.

    Raises:
        Unavailable: if the faces, their list or a listed file are missing.
    """
    folder = data_folder(root)
    if (folder / "celeba").is_dir():
        folder /= "celeba"
    faces, partition = folder / "img_align_celeba", folder / "list_eval_partition.txt"
    if missing := [path.name for path in (faces, partition) if not path.exists()]:
        raise Unavailable(
            f"CelebA is not available: {' and '.join(missing)} not found in {folder}. Fetch the "
            "aligned and cropped images and the evaluation partition from "
            "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, unpack them into a folder named "
            "celeba, and name the folder that holds it: celeba:root=FOLDER or "
            "JEMBENCH_DATA=FOLDER."
        )
    parts: dict[SplitName, dict[str, Path]] = {"train": {}, "test": {}}
    for words in map(str.split, partition.read_text(encoding="utf-8").splitlines()):
        if len(words) == 2 and words[1] in _PARTS:
            parts[_PARTS[words[1]]][words[0]] = faces / words[0]
    there = {path.name for path in faces.iterdir()}
    absent = [name for files in parts.values() for name in files if name not in there]
    if absent or not all(parts.values()):
        first = absent[0] if absent else "all"
        raise Unavailable(
            f"CelebA is not complete: {len(absent)} of the images that {partition} lists are not "
            f"in {faces}, the first of them {first}. Unpack the images again."
        )
    return parts


def files_of_celeba(root: str) -> Mapping[str, Path]:
    """Return all faces of train and test, by their split and name.

    Raises:
        Unavailable: if files are missing.
    """
    faces = {}
    for part, files in _faces(root).items():
        for name, path in files.items():
            faces[f"{part}/{name}"] = path
    return faces


def celeba(
    *,
    root: Annotated[str, Incidental(), Content(files_of_celeba)] = "",
    size: Annotated[int, Range(least=1)] = 32,
) -> Dataset:
    """CelebA's aligned faces without labels, in ``size`` pixels.

    They are cropped to the central square and resized.

    ``root`` is the folder that holds ``celeba/img_align_celeba`` and
    ``celeba/list_eval_partition.txt`` ($JEMBENCH_DATA or ~/.cache/jembench/data by default). The
    central square has 178x178 of the 178x218 pixels.

    Raises:
        Unavailable: if files are missing.
        JembenchError: if an image cannot be decoded; raised when its split is read.
    """
    spec = DataSpec(name="celeba", shape=(3, size, size), num_classes=0)
    return LazyDataset(spec, partial(_read_celeba, _faces(root), size))


def _read_celeba(
    faces: Mapping[SplitName, Mapping[str, Path]], size: int, name: SplitName
) -> Split:
    from jembench.data.decoding import Form, decoded

    form = Form(mode="RGB", height=size, width=size, square=True)
    place = next(iter(faces[name].values())).parents[1] / name
    return Split(decoded(f"celeba-{name}", place, faces[name], form), None)
