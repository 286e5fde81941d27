"""Promises of datasets.

Legend: N images, C channels, H height, W width, K classes.
"""

import math
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from jembench.data.images import Images, parts
from jembench.data.pixels import content_hash
from jembench.interfaces import Dataset, DataSpec, Split, SplitName
from jembench.testing.checks import Subject, is_count, only_if, promise, require
from jembench.testing.comparing import different, fingerprint, untouched_randomness

SHARED = 0.01
"""The largest share of test images that may be among the training images."""


@dataclass(frozen=True)
class DatasetSubject(Subject):
    """A dataset under test."""

    kind = "datasets"
    parts = ("spec", "split")

    def build(self) -> Any:
        """Call the factory, and split the dataset."""
        dataset = super().build()
        for name in get_args(SplitName):
            Split(*dataset.split(name))
        return dataset

    def spec(self) -> DataSpec:
        """Return the spec of the dataset.

        Skips the check if the check ``spec`` reports a fault.
        """
        data: DataSpec = self.build().spec
        only_if(not find_fault(data), "See the check spec.")
        return data

    def splits(self, dataset: Dataset | None = None) -> dict[SplitName, Split]:
        """Return the splits of a dataset, by default of a new one.

        Skips the check unless they are tensors.
        """
        dataset = dataset or self.build()
        splits = {name: Split(*dataset.split(name)) for name in get_args(SplitName)}
        for images, labels in splits.values():
            are_tensors = isinstance(images, Tensor) and isinstance(labels, Tensor | None)
            only_if(are_tensors, "See the checks images and labels.")
        return splits


@promise("datasets")
def spec(subject: DatasetSubject) -> None:
    """The spec gives a name, a shape, the number of classes and bounds in their ranges."""
    fault = find_fault(subject.build().spec)
    require(not fault, fault)


def find_fault(data: Any) -> str:
    """Return a spec's fault with the remedy, if any."""
    if not isinstance(data, DataSpec):
        return f"spec is a {type(data).__name__}; it must be a jembench.interfaces.DataSpec."
    if not isinstance(data.name, str) or not data.name.strip():
        return (
            f"The spec's name is {data.name!r}; it must not be empty, since results are stored "
            "under it."
        )
    if (
        not isinstance(data.shape, tuple)
        or len(data.shape) != 3
        or not all(map(is_count, data.shape))
    ):
        return (
            f"The spec's shape is {data.shape!r}; it must be a tuple (C, H, W) of three whole "
            "numbers of at least 1."
        )
    classes, names, bounds = data.num_classes, data.class_names, data.bounds
    if not is_count(classes, 0):
        return f"num_classes is {classes!r}; it must be a whole number, 0 for unlabelled images."
    if names and not len(set(names)) == len(names) == classes:
        return (
            f"class_names has {len(set(names))} different names for {classes} classes. Name every "
            "class, or none."
        )
    pair = isinstance(bounds, tuple) and len(bounds) == 2 and all(map(math.isfinite, bounds))
    if not pair or bounds[0] >= bounds[1]:
        return (
            f"The spec's bounds are {bounds!r}; they must be a tuple (low, high) with low < high."
        )
    return ""


@promise("datasets")
def images(subject: DatasetSubject) -> None:
    """Both parts hold images, uint8 (N, C, H, W), of the spec's shape, contiguous in memory.

    Give torch.from_numpy(...) of an array, torch.uint8 (N, C, H, W) with (C, H, W) as in the spec,
    and N at least 1; call .contiguous(), since passes over a view with gaps are slow.
    """
    shape, dataset = subject.spec().shape, subject.build()
    for name in get_args(SplitName):
        images, _ = dataset.split(name)
        require(
            isinstance(images, Tensor),
            f"The {name} images are a {type(images).__name__}, not a tensor.",
        )
        right = (
            images.dtype == torch.uint8
            and images.ndim == 4
            and images.shape[1:] == shape
            and len(images) > 0
        )
        require(
            right,
            f"The {name} images are {images.dtype} {tuple(images.shape)}, and the spec's shape is "
            f"{shape}.",
        )
        require(images.is_contiguous(), f"The {name} images are a view with gaps.")


@promise("datasets")
def labels(subject: DatasetSubject) -> None:
    """Every image has a label, int64 in 0..K-1, and train has every class; an unlabelled dataset
    has no labels.

    Give torch.tensor(...) of the labels, int64 (N,) from 0 to num_classes - 1; or None, and
    num_classes = 0.
    """
    classes, dataset = subject.spec().num_classes, subject.build()
    for name in get_args(SplitName):
        images, labels = dataset.split(name)
        if labels is None:
            require(classes == 0, f"The {name} part has no labels, and num_classes is {classes}.")
            continue
        require(
            isinstance(labels, Tensor),
            f"The {name} labels are a {type(labels).__name__}, not a tensor.",
        )
        form, size = f"{labels.dtype} {tuple(labels.shape)}", len(images)
        right = labels.dtype == torch.int64 and labels.shape == (size,)
        require(right, f"The {name} labels are {form} for {size} images.")
        present, every = set(labels.tolist()), set(range(classes))
        span = f"{min(present)} to {max(present)}"
        require(
            present <= every, f"The {name} labels go from {span}, and num_classes is {classes}."
        )
        if name == "train":
            missing = ", ".join(map(str, sorted(every - present)))
            require(not missing, f"No training image is of class {missing}.")


@promise("datasets")
def test_apart_from_train(subject: DatasetSubject) -> None:
    """At most 1 % of the test images are among the training images.

    Split the images into two parts without common images, which a model could memorise.
    """
    splits = subject.splits()
    seen, of_test = set(_hashes(splits["train"].images)), _hashes(splits["test"].images)
    shared = sum(hashed in seen for hashed in of_test)
    require(
        shared <= SHARED * len(of_test),
        f"{shared} of {len(of_test)} test images are training images too.",
    )


def _hashes(images: Tensor) -> list[int]:
    """Return a hash of each image."""
    hashes = list[int]()
    for part in parts(images):
        hashes += [hash(image.tobytes()) for image in part.numpy()]
    return hashes


@promise("datasets")
def same_each_time(subject: DatasetSubject) -> None:
    """Every call, of every dataset of this spec, returns the same images in order, even if images
    returned earlier were changed.

    Draw random numbers, for the order of the images too, from a generator with a fixed seed; sort
    the files that you read; return a .clone() of tensors that are kept.
    """
    first, second = subject.build(), subject.build()
    splits = subject.splits(first)
    before = _hash_contents(splits)
    _add_to_first(splits, 1)
    at_another_call = _hash_contents(subject.splits(first))
    in_a_new_dataset = _hash_contents(subject.splits(second))
    _add_to_first(splits, -1)  # shared tensors are restored for other users
    contents = {"at another call": at_another_call, "in a new dataset": in_a_new_dataset}
    for when, hashes in contents.items():
        changed = " and ".join(different(before, hashes))
        require(
            not changed,
            f"After a change in place, the {changed} images or labels are different {when}.",
        )


def _hash_contents(splits: dict[SplitName, Split]) -> dict[str, list[str]]:
    hashes = dict[str, list[str]]()
    for name, split in splits.items():
        hashes[name] = []
        for values in split:
            if isinstance(values, Images):
                hashes[name].append(content_hash(values))
            elif values is not None:
                hashes[name].append(fingerprint(values))
    return hashes


def _add_to_first(splits: dict[SplitName, Split], number: int) -> None:
    for split in splits.values():
        for values in split:
            if values is not None:
                values[:1].add_(number)


@promise("datasets")
def global_randomness(subject: DatasetSubject) -> None:
    """The global generators of random numbers are neither used nor seeded."""
    with untouched_randomness("It"):
        subject.splits()
