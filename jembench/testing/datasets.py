"""The checks of datasets.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from jembench.catalog.registry import Resolved
from jembench.errors import Unavailable
from jembench.interfaces import Dataset, DataSpec, Split, SplitName
from jembench.testing.asking import fingerprint, promises, require, untouched_randomness
from jembench.testing.checks import Check, CheckFailed, DoesNotApply, checks_of

SHARED = 0.01
"""So many of the test images may be among the training images too."""


def checks(spec: str) -> list[Check]:
    """All checks of the dataset of that spec."""
    return checks_of("datasets", spec, PROMISES, _Subject)


class _Subject(NamedTuple):
    resolved: Resolved

    def make(self) -> Dataset:
        """The dataset, newly made.

        Raises:
            DoesNotApply: if its images are not at hand, or it cannot be made, which one check alone tells.
        """
        try:
            dataset: Dataset = self.resolved.make()
        except Unavailable as error:
            raise DoesNotApply(str(error)) from error
        except Exception as error:
            raise DoesNotApply(_NOT_MADE) from error
        if not isinstance(dataset, Dataset):
            raise DoesNotApply(_NOT_MADE)
        return dataset

    @property
    def data(self) -> DataSpec:
        """What it says of itself.

        Raises:
            DoesNotApply: if that is wrong, which one check alone tells.
        """
        data = self.make().spec
        if _trouble_with(data):
            raise DoesNotApply("See the check spec.")
        return data

    def splits(self, dataset: Dataset | None = None) -> Iterator[tuple[SplitName, Split]]:
        """The name of each part, and what it holds; of a dataset newly made if none is given.

        Raises:
            DoesNotApply: if its images are not at hand, or are no tensors.
        """
        dataset = dataset or self.make()
        for name in get_args(SplitName):
            yield name, _split(dataset, name)


def _split(dataset: Dataset, name: SplitName) -> Split:
    """A part of tensors.

    Raises:
        DoesNotApply: if it is not at hand, or is something else, which one check alone tells.
    """
    split = _as_given(dataset, name)
    for check, values in split._asdict().items():
        if not isinstance(values, Tensor) and (check == "images" or values is not None):
            raise DoesNotApply(f"See the check {check}.")
    return split


def _as_given(dataset: Dataset, name: SplitName) -> Split:
    """A part, whatever is in it.

    Raises:
        DoesNotApply: if it is not at hand, or cannot be had, which one check alone tells.
    """
    try:
        return Split(*dataset.split(name))
    except Unavailable as error:
        raise DoesNotApply(str(error)) from error
    except Exception as error:
        raise DoesNotApply(_NOT_MADE) from error


_NOT_MADE = "See the check can-be-made."


# --- what it says of itself -------------------------------------------------------------------------------------------


def can_be_made(subject: _Subject) -> None:
    """The factory gives a dataset: with a spec, and with a pair of images and labels for train and for test."""
    try:
        dataset = subject.resolved.make()
        missing = [part for part in ("spec", "split") if not hasattr(dataset, part)]
        require(not missing, f"It has no {' and no '.join(missing)}: see jembench.interfaces.Dataset.")
        for name in get_args(SplitName):
            Split(*dataset.split(name))
    except Unavailable as error:
        raise DoesNotApply(str(error)) from error
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(
            f"It cannot be made, or its parts cannot be had: {type(error).__name__}: {error}. The factory is called "
            "with its options alone, and split with train or test; it gives Split(images, labels). What is not at hand "
            "raises jembench.plugin.Unavailable with the remedy."
        ) from error


def spec(subject: _Subject) -> None:
    """The spec gives a name, a shape, the number of classes and bounds that can be."""
    trouble = _trouble_with(subject.make().spec)
    require(not trouble, trouble)


def _trouble_with(data: Any) -> str:
    """What is wrong with a spec, and how to mend it; empty if nothing is."""
    if not isinstance(data, DataSpec):
        return f"spec is a {type(data).__name__}; it must be a jembench.interfaces.DataSpec."
    if not isinstance(data.name, str) or not data.name.strip():
        return f"The spec's name is {data.name!r}; results are filed under it, so there must be one."
    if not isinstance(data.shape, tuple) or len(data.shape) != 3 or not all(_counts(size, 1) for size in data.shape):
        return f"The spec's shape is {data.shape!r}; it must be a tuple (C, H, W) of three whole numbers of at least 1."
    classes, names = data.num_classes, data.class_names
    if not _counts(classes, 0):
        return f"num_classes is {classes!r}; it must be a whole number, 0 for unlabelled images."
    if names and not len(set(names)) == len(names) == classes:
        return f"class_names has {len(set(names))} different names for {classes} classes. Name every class, or none."
    bounds = data.bounds
    if not (
        isinstance(bounds, tuple) and len(bounds) == 2 and all(map(math.isfinite, bounds)) and bounds[0] < bounds[1]
    ):
        return (
            f"The spec's bounds are {bounds!r}; they must be a tuple (low, high), what pixel 0 and pixel 255 become, "
            "with low < high."
        )
    return ""


def _counts(number: Any, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


# --- images and labels ------------------------------------------------------------------------------------------------


def images(subject: _Subject) -> None:
    """Both parts hold images, uint8 (N, C, H, W), of the spec's shape."""
    shape, dataset = subject.data.shape, subject.make()
    for name in get_args(SplitName):
        images = _as_given(dataset, name).images
        require(
            isinstance(images, Tensor),
            f"The {name} images are a {type(images).__name__}, not a tensor. Give torch.from_numpy(...) of an array.",
        )
        require(
            images.dtype == torch.uint8 and images.ndim == 4 and tuple(images.shape[1:]) == shape and len(images) > 0,
            f"The {name} images are {images.dtype} {tuple(images.shape)}; they must be torch.uint8 (N, C, H, W) with "
            f"(C, H, W) = {shape} as in the spec, and one at least.",
        )


def contiguous(subject: _Subject) -> None:
    """Images and labels lie in memory without gaps."""
    for name, (images, labels) in subject.splits():
        require(
            images.is_contiguous() and (labels is None or labels.is_contiguous()),
            f"The {name} images or labels are a view with gaps, which every pass over them pays for. "
            "Give them out .contiguous().",
        )


def labels(subject: _Subject) -> None:
    """Every image has a label, int64 in 0..K-1; unlabelled images have none at all."""
    classes, dataset = subject.data.num_classes, subject.make()
    for name in get_args(SplitName):
        images, labels = _as_given(dataset, name)
        require(
            labels is None or isinstance(labels, Tensor),
            f"The {name} labels are a {type(labels).__name__}, not a tensor. Give torch.tensor(...) of them, int64.",
        )
        if labels is None or classes == 0:
            found = "no labels" if labels is None else "labels"
            require(
                labels is None and classes == 0,
                f"The {name} part has {found}, and num_classes is {classes}. It is 0 for images without labels alone, "
                "whose labels are None.",
            )
            continue
        require(
            labels.dtype == torch.int64 and tuple(labels.shape) == (len(images),),
            f"The {name} labels are {labels.dtype} {tuple(labels.shape)}; for {len(images)} images they must be "
            f"torch.int64 ({len(images)},).",
        )
        low, high = int(labels.min()), int(labels.max())
        require(
            low >= 0 and high < classes,
            f"The {name} labels go from {low} to {high}; of {classes} classes they must be from 0 to {classes - 1}.",
        )


def every_class_in_train(subject: _Subject) -> None:
    """Training images are of every class."""
    dataset = subject.make()
    labels = _split(dataset, "train").labels
    if labels is None:
        raise DoesNotApply("The images have no labels.")
    missing = sorted(set(range(subject.data.num_classes)) - set(labels.tolist()))
    require(
        not missing,
        f"No training image is of class {', '.join(map(str, missing))}. Count the classes that there are, and number "
        "the labels from 0 without a gap.",
    )


# --- the same each time -----------------------------------------------------------------------------------------------


def same_each_time(subject: _Subject) -> None:
    """Every call, of every dataset of this spec, gives the same images in order."""
    first, second = subject.make(), subject.make()
    before = {name: _content(split) for name, split in subject.splits(first)}
    for which, dataset in {"at another call": first, "in a dataset newly made": second}.items():
        for name, split in subject.splits(dataset):
            require(
                _content(split) == before[name],
                f"The {name} part is another one {which}. Draw whatever is random in it, the order of the images "
                "too, from a generator with a fixed seed; sort the files that you read.",
            )


def _content(split: Split) -> tuple[str, str]:
    return fingerprint(split.images), "" if split.labels is None else fingerprint(split.labels)


def handed_out_once(subject: _Subject) -> None:
    """Changing what was handed out does not change what the next call gives."""
    dataset, newly_made = subject.make(), subject.make()
    for name, split in subject.splits(dataset):
        both = [dataset, newly_made]
        before = [_content(_split(each, name)) for each in both]
        _change_first(split, 1)
        after = [_content(_split(each, name)) for each in both]
        _change_first(split, -1)  # what is shared is shared with all who come after
        require(
            after == before,
            f"Whoever changes the {name} images or labels in place changes what the next call gives. Give out a "
            ".clone() of what is kept.",
        )


def _change_first(split: Split, by: int) -> None:
    """Change the first image, and its label, in place."""
    for values in split:
        if values is not None:
            values[:1].add_(by)


def global_randomness(subject: _Subject) -> None:
    """The global generators of random numbers are left alone."""
    with untouched_randomness("The dataset"):
        for _ in subject.splits():
            pass


def test_apart_from_train(subject: _Subject) -> None:
    """At most 1 % of the test images are among the training images."""
    dataset = subject.make()
    train = {image.tobytes() for image in _split(dataset, "train").images.numpy()}
    test = _split(dataset, "test").images.numpy()
    known = sum(image.tobytes() in train for image in test)
    require(
        known <= SHARED * len(test),
        f"{known} of {len(test)} test images are training images as well, pixel by pixel: what is measured on them "
        "would be learned by heart. Split the images into two parts that share none.",
    )


PROMISES = promises(
    can_be_made,
    spec,
    images,
    contiguous,
    labels,
    every_class_in_train,
    test_apart_from_train,
    same_each_time,
    handed_out_once,
    global_randomness,
)
"""What every dataset promises."""
