"""CelebA's faces, unlabelled: images of another kind than any class.

Z. Liu, P. Luo, X. Wang and X. Tang, "Deep Learning Face Attributes in the Wild" (2015). Its terms allow research, not
redistribution, and its server asks for a browser: so there is no download here.

Legend: N images.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from jembench.data.decoded import decoded
from jembench.data.decoding import Form
from jembench.data.folders import celeba_root, faces
from jembench.data.lazy import LazyDataset
from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Split, SplitName


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
    folder = celeba_root(root)
    spec = DataSpec(name="celeba", shape=(3, size, size), num_classes=0)
    return LazyDataset(spec, partial(_load, folder, size))


def _load(folder: Path, size: int, name: SplitName) -> Split:
    form = Form(mode="RGB", height=size, width=size, square=True)
    return Split(decoded(f"celeba-{name}", folder / name, faces(folder, name), form), None)
