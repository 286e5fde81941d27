"""CelebA's faces, unlabelled: images of another kind than any class.

Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild" (2015). Its terms allow research, not
redistribution, and its server asks for a browser: so there is no download here.

Legend: N images.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import torch

from jembench.data.decoded import decoded
from jembench.data.decoding import Form, decode_all
from jembench.data.lazy import LazyDataset
from jembench.data.locations import cache_folder, data_folder
from jembench.errors import SpecError, Unavailable
from jembench.interfaces import DataSpec, Split, SplitName

_FOLDER, _PARTITION = "img_align_celeba", "list_eval_partition.txt"
_PARTS = {"train": "0", "test": "2"}  # 1 is validation


def celeba(root: str, *, size: int) -> LazyDataset:
    """The aligned faces, each cropped to its central square (178 of 178x218) and resized to ``size`` x ``size``.

    Args:
        root: the folder that holds ``celeba/img_align_celeba`` and ``celeba/list_eval_partition.txt``, or these two
            themselves; empty: where datasets lie.
        size: in pixels.

    Raises:
        Unavailable: if they are not there.
        JembenchError: if an image cannot be decoded; raised when its split is read.
    """
    if size < 1:
        raise SpecError(f"size of celeba is {size}; it must be at least 1 pixel.")
    folder = data_folder(root)
    folder = folder / "celeba" if (folder / "celeba").is_dir() else folder
    missing = [name for name in (_FOLDER, _PARTITION) if not (folder / name).exists()]
    if missing:
        raise Unavailable(
            f"CelebA is not at hand: {' and '.join(missing)} not found in {folder}. Fetch the aligned and cropped "
            "images and the evaluation partition from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, unpack "
            "them into a folder named celeba, and name the folder that holds it: celeba:root=... or JEMBENCH_DATA=..."
        )
    spec = DataSpec(name="celeba", shape=(3, size, size), num_classes=0)
    return LazyDataset(spec, partial(_load, folder, size))


def _load(folder: Path, size: int, name: SplitName) -> Split:
    wanted = _files_of(folder / _PARTITION, _PARTS[name])
    paths = [folder / _FOLDER / file for file in wanted]
    absent = [path.name for path in paths if not path.is_file()]
    if absent or not paths:
        raise Unavailable(
            f"CelebA is not complete: {len(absent)} of the {len(paths)} {name} images that {folder / _PARTITION} lists "
            f"are not in {folder / _FOLDER}, the first of them {absent[0] if absent else 'all'}. Unpack it again."
        )
    stats = (path.stat() for path in paths)
    fingerprint = hashlib.sha256("\n".join(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats).encode()).hexdigest()
    key = hashlib.sha256(f"{folder}\0{name}\0{size}".encode(errors="surrogateescape")).hexdigest()[:16]
    form = Form(mode="RGB", height=size, width=size, square=True)
    file = cache_folder() / "decoded" / f"celeba-{name}-{key}.safetensors"
    images = decoded(file, fingerprint, lambda: decode_all(list(map(str, paths)), form))
    return Split(torch.as_tensor(images), None)


def _files_of(partition: Path, part: str) -> list[str]:
    """The names in one part of the list, whose lines are ``000001.jpg 0``, in its order."""
    lines = (line.split() for line in partition.read_text(encoding="utf-8").splitlines())
    return [words[0] for words in lines if len(words) == 2 and words[1] == part]
