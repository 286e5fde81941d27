"""What every dataset promises.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from jembench.interfaces import Dataset, DataSpec, Split, SplitName
from jembench.testing.checks import DoesNotApply, Subject, explained, is_count, only_if, promise, require
from jembench.testing.comparing import different, fingerprint, untouched_randomness

SHARED = 0.01
"""The largest share of test images that may be among the training images."""


@dataclass(frozen=True)
class DatasetSubject(Subject):
    """A dataset under test. Its methods skip the check for faults that another check reports."""

    kind = "datasets"
    protocol = Dataset
    parts = ("spec", "split")

    @property
    def data(self) -> DataSpec:
        """The spec of the dataset."""
        data: DataSpec = self.make().spec
        only_if(not fault_of(data), "See the check spec.")
        return data

    def raw(self, dataset: Dataset | None = None) -> Iterator[tuple[SplitName, Split]]:
        """The name of each part and its contents, of any type; of a new dataset by default."""
        dataset = dataset or self.make()
        for name in get_args(SplitName):
            with self.made():
                split = Split(*dataset.split(name))
            yield name, split

    def splits(self, dataset: Dataset | None = None) -> dict[SplitName, Split]:
        """The parts, made of tensors; of a new dataset by default."""
        splits = dict(self.raw(dataset))
        for split in splits.values():
            only_if(isinstance(split.images, Tensor), "See the check images.")
            only_if(split.labels is None or isinstance(split.labels, Tensor), "See the check labels.")
        return splits


@promise("datasets")
def can_be_made(subject: DatasetSubject) -> None:
    """The factory gives a dataset: with a spec, and with a pair of images and labels for train and for test.

    The factory is called with its options alone, and split with train or test; it gives Split(images, labels). Missing
    files raise jembench.plugin.Unavailable with the remedy.
    """
    with explained("It cannot be made, or its parts cannot be had"):
        dataset = subject.complete()
        for name in get_args(SplitName):
            Split(*dataset.split(name))


@promise("datasets")
def spec(subject: DatasetSubject) -> None:
    """The spec gives a name, a shape, the number of classes and bounds that can be."""
    fault = fault_of(subject.make().spec)
    require(not fault, fault)


def fault_of(data: Any) -> str:
    """What is wrong with a spec, and the remedy; empty if it is right."""
    if not isinstance(data, DataSpec):
        return f"spec is a {type(data).__name__}; it must be a jembench.interfaces.DataSpec."
    if not isinstance(data.name, str) or not data.name.strip():
        return f"The spec's name is {data.name!r}; results are filed under it, so there must be one."
    if not isinstance(data.shape, tuple) or len(data.shape) != 3 or not all(map(is_count, data.shape)):
        return f"The spec's shape is {data.shape!r}; it must be a tuple (C, H, W) of three whole numbers of at least 1."
    classes, names, bounds = data.num_classes, data.class_names, data.bounds
    if not is_count(classes, 0):
        return f"num_classes is {classes!r}; it must be a whole number, 0 for unlabelled images."
    if names and not len(set(names)) == len(names) == classes:
        return f"class_names has {len(set(names))} different names for {classes} classes. Name every class, or none."
    pair = isinstance(bounds, tuple) and len(bounds) == 2 and all(map(math.isfinite, bounds))
    if not pair or bounds[0] >= bounds[1]:
        return f"The spec's bounds are {bounds!r}; they must be a tuple (low, high) with low < high."
    return ""


@promise("datasets")
def images(subject: DatasetSubject) -> None:
    """Both parts hold images, uint8 (N, C, H, W), of the spec's shape.

    Give torch.from_numpy(...) of an array, torch.uint8 (N, C, H, W) with (C, H, W) as in the spec, and N at least 1.
    """
    shape = subject.data.shape
    for name, (images, _) in subject.raw():
        require(isinstance(images, Tensor), f"The {name} images are a {type(images).__name__}, not a tensor.")
        right = images.dtype == torch.uint8 and images.ndim == 4 and images.shape[1:] == shape and len(images) > 0
        require(right, f"The {name} images are {images.dtype} {tuple(images.shape)}, and the spec's shape is {shape}.")


@promise("datasets")
def contiguous(subject: DatasetSubject) -> None:
    """Images and labels lie in memory without gaps.

    Every pass over a view with gaps is slow: give them out .contiguous().
    """
    for name, (images, labels) in subject.splits().items():
        without_gaps = images.is_contiguous() and (labels is None or labels.is_contiguous())
        require(without_gaps, f"The {name} images or labels are a view with gaps.")


@promise("datasets")
def labels(subject: DatasetSubject) -> None:
    """Every image has a label, int64 in 0..K-1; unlabelled images have none at all.

    Give torch.tensor(...) of the labels, int64 (N,) from 0 to num_classes - 1; or None, and num_classes = 0.
    """
    classes = subject.data.num_classes
    for name, (images, labels) in subject.raw():
        if labels is None:
            require(classes == 0, f"The {name} part has no labels, and num_classes is {classes}.")
            continue
        require(isinstance(labels, Tensor), f"The {name} labels are a {type(labels).__name__}, not a tensor.")
        require(classes > 0, f"The {name} part has labels, and num_classes is {classes}.")
        found = f"The {name} labels are {labels.dtype} {tuple(labels.shape)} for {len(images)} images."
        require(labels.dtype == torch.int64 and tuple(labels.shape) == (len(images),), found)
        low, high = int(labels.min()), int(labels.max())
        require(low >= 0 and high < classes, f"The {name} labels go from {low} to {high} with {classes} classes.")


@promise("datasets")
def every_class_in_train(subject: DatasetSubject) -> None:
    """Training images are of every class.

    Count the classes that there are, and number the labels from 0 without a gap.
    """
    labels = subject.splits()["train"].labels
    if labels is None:
        raise DoesNotApply("The images have no labels.")
    missing = sorted(set(range(subject.data.num_classes)) - set(labels.tolist()))
    require(not missing, f"No training image is of class {', '.join(map(str, missing))}.")


@promise("datasets")
def test_apart_from_train(subject: DatasetSubject) -> None:
    """At most 1 % of the test images are among the training images.

    Split the images into two parts that share none: a model could learn them by heart.
    """
    train, test = (split.images.numpy() for split in subject.splits().values())
    known = {image.tobytes() for image in train}
    shared = sum(image.tobytes() in known for image in test)
    require(shared <= SHARED * len(test), f"{shared} of {len(test)} test images are training images as well.")


@promise("datasets")
def same_each_time(subject: DatasetSubject) -> None:
    """Every call, of every dataset of this spec, gives the same images in order.

    Draw whatever is random, the order of the images too, from a generator with a fixed seed; sort the files that you
    read.
    """
    first, second = subject.make(), subject.make()
    before = _contents(subject, first)
    for when, dataset in {"at another call": first, "in a new dataset": second}.items():
        others = " and ".join(different(before, _contents(subject, dataset)))
        require(not others, f"The {others} images or labels are different {when}.")


def _contents(subject: DatasetSubject, dataset: Dataset) -> dict[str, list[str]]:
    splits = subject.splits(dataset).items()
    return {name: [fingerprint(values) for values in split if values is not None] for name, split in splits}


@promise("datasets")
def handed_out_once(subject: DatasetSubject) -> None:
    """Changing what was handed out does not change what the next call gives.

    Give out a .clone() of what is kept.
    """
    datasets = subject.make(), subject.make()
    for name, split in subject.splits(datasets[0]).items():
        before = [_contents(subject, dataset) for dataset in datasets]
        _change_first(split, 1)
        after = [_contents(subject, dataset) for dataset in datasets]
        _change_first(split, -1)  # shared tensors are as before for other users
        require(after == before, f"Changing the {name} images or labels in place changes what the next call gives.")


def _change_first(split: Split, by: int) -> None:
    for values in split:
        if values is not None:
            values[:1].add_(by)


@promise("datasets")
def global_randomness(subject: DatasetSubject) -> None:
    """The global generators of random numbers are left alone."""
    with untouched_randomness("It"):
        subject.splits()
