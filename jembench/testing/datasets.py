"""The checks of datasets.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from jembench.errors import Unavailable
from jembench.interfaces import Dataset, DataSpec, Split, SplitName
from jembench.registry import Resolved
from jembench.spec import keyword_parameters
from jembench.testing.asking import fingerprint, promises, require, untouched_randomness
from jembench.testing.checks import Check, DoesNotApply, checks_of

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
            DoesNotApply: if its images are not at hand.
        """
        try:
            dataset: Dataset = self.resolved.make()
        except Unavailable as error:
            raise DoesNotApply(str(error)) from error
        return dataset

    def splits(self, dataset: Dataset | None = None) -> Iterator[tuple[SplitName, Split]]:
        """The name of each part, and what it holds; of a dataset newly made if none is given.

        Raises:
            DoesNotApply: if its images are not at hand.
        """
        dataset = dataset or self.make()
        for name in get_args(SplitName):
            yield name, _split(dataset, name)


def _split(dataset: Dataset, name: SplitName) -> Split:
    try:
        return Split(*dataset.split(name))
    except Unavailable as error:
        raise DoesNotApply(str(error)) from error


# --- what it says of itself -------------------------------------------------------------------------------------------


def spec(subject: _Subject) -> None:
    """The spec gives a name, a shape, the number of classes and bounds that can be."""
    data = subject.make().spec
    require(isinstance(data, DataSpec), f"spec is a {type(data).__name__}; it must be a jembench.interfaces.DataSpec.")
    named = isinstance(data.name, str) and bool(data.name.strip())
    require(named, f"The spec's name is {data.name!r}; results are filed under it, so there must be one.")
    sizes = isinstance(data.shape, tuple) and len(data.shape) == 3 and all(_counts(size, 1) for size in data.shape)
    require(sizes, f"The spec's shape is {data.shape!r}; it must be (C, H, W), three whole numbers of at least 1.")
    classes, names = data.num_classes, data.class_names
    require(_counts(classes, 0), f"num_classes is {classes!r}; it must be a whole number, 0 for unlabelled images.")
    require(
        not names or len(set(names)) == len(names) == classes,
        f"class_names has {len(set(names))} different names for {classes} classes. Name every class, or none.",
    )
    low, high = data.bounds
    require(
        math.isfinite(low) and math.isfinite(high) and low < high,
        f"The spec's bounds are {data.bounds!r}: what pixel 0 becomes must be less than what pixel 255 becomes.",
    )


def _counts(number: Any, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


def incidental_options(subject: _Subject) -> None:
    """What is marked as an incidental option is an option."""
    factory = subject.resolved.factory
    incidental: frozenset[str] = getattr(factory, "incidental_options", frozenset())
    if not incidental:
        raise DoesNotApply("No option is marked as incidental.")
    wrong = sorted(incidental - keyword_parameters(factory).keys())
    require(
        not wrong,
        f"{', '.join(wrong)} is marked as incidental and is no option of the factory: what was meant to be left out of "
        "the identity of results is part of it.",
    )


# --- images and labels ------------------------------------------------------------------------------------------------


def images(subject: _Subject) -> None:
    """Both parts hold images, uint8 (N, C, H, W), of the spec's shape."""
    shape = subject.make().spec.shape
    for name, (images, _) in subject.splits():
        require(isinstance(images, Tensor), f"The {name} images are a {type(images).__name__}, not a tensor.")
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
    classes = subject.make().spec.num_classes
    for name, (images, labels) in subject.splits():
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
    missing = sorted(set(range(dataset.spec.num_classes)) - set(labels.tolist()))
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
    spec,
    images,
    contiguous,
    labels,
    every_class_in_train,
    test_apart_from_train,
    same_each_time,
    handed_out_once,
    global_randomness,
    incidental_options,
)
"""What every dataset promises."""
