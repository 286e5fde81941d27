"""Validation images, cut from the training images.

Legend: N examples, M labelled ones, C channels, H height, W width.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Generator, Tensor

from jembench.data.images import taken
from jembench.errors import JembenchError
from jembench.interfaces import Split


class Holdout(NamedTuple):
    """The training images and the validation images of a split."""

    train: Split
    validation: Split | None


def holdout(split: Split, size: int, seed: int = 1234, *, stratified: bool = False) -> Holdout:
    """Shuffle with numpy's ``RandomState(seed)`` and hold the first ``size`` images out; 0: none.

    Of a dataset without training images none are held out.

    With the default seed these are the very images that the reference implementation of JEM
    (wgrathwohl/JEM) holds out. Labels have no influence unless ``stratified``, which holds the same
    share of every class out, to within one image, so that small classes keep training images.

    Raises:
        JembenchError: if no image would be left for training, or ``stratified`` is set for
            unlabelled images.
    """
    n = len(split.images)
    if size == 0 or n == 0:
        return Holdout(split, None)
    if not 0 < size < n:
        raise JembenchError(
            f"Cannot hold {size} of {n} training images out for validation. Choose a number from "
            f"0 to {n - 1}."
        )
    order = np.random.RandomState(seed).permutation(n)
    places = np.arange(size)
    if stratified:
        places = _every_class(split.labels, order, size)
    held = np.zeros(n, dtype=bool)
    held[places] = True
    return Holdout(_take(split, order[~held]), _take(split, order[held]))


def draw_labelled(labels: Int[Tensor, " N"], size: int, generator: Generator) -> Int[Tensor, " M"]:
    """Draw the indices of the ``size`` images whose labels are used, in order.

    Each class keeps its share.

    Raises:
        JembenchError: if there are fewer images.
    """
    n = len(labels)
    if not 0 < size <= n:
        raise JembenchError(
            f"The labels of {size} of {n} training images cannot be used. Choose a number from 0 "
            f"to {n}."
        )
    order = torch.randperm(n, generator=generator).numpy()
    return torch.from_numpy(np.sort(order[_every_class(labels, order, size)]))


def _every_class(labels: Tensor | None, order: np.ndarray, size: int) -> np.ndarray:
    """Return ``size`` positions in ``order``, in proportion to the sizes of the classes.

    The positions are grouped by class and taken at equal distances: a group of m gets m * size / N
    of them, rounded down or up.
    """
    if labels is None:
        raise JembenchError(
            "A stratified validation split needs labels, and this dataset has none. Turn it off."
        )
    grouped = np.argsort(labels.numpy()[order], kind="stable")
    return grouped[np.arange(size) * len(order) // size]


def _take(split: Split, indices: np.ndarray) -> Split:
    chosen, labels = torch.from_numpy(indices), split.labels
    if labels is not None:
        labels = labels[chosen]
    return Split(taken(split.images, chosen), labels)
