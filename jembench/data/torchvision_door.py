"""``torchvision``: the classification sets of torchvision, read from their authors' files."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import sys
from collections.abc import Sequence
from functools import cached_property, partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import numpy as np
import torchvision.datasets as tv

from jembench.data.arrays import Part, label_array, of_parts
from jembench.data.datasets import LazyDataset
from jembench.data.decoding import resized
from jembench.data.items import class_names_of, images_of
from jembench.data.torchvision_sets import DOWNLOAD_TIMEOUT
from jembench.errors import JembenchError, SpecError, Unavailable, error_text
from jembench.files import data_folder, socket_timeout
from jembench.interfaces import DataSpec, Split, SplitName

if TYPE_CHECKING:
    from PIL import Image

_SPLITS: dict[SplitName, Sequence[str]] = {"train": ["train"], "test": ["test", "val"]}
"""The names of torchvision's parts, the best first."""

_SMALL = {"DTD": 1_880, "FGVCAircraft": 3_334, "Flowers102": 1_020, "STL10": 5_000}
"""The published numbers of training images of the sets that have up to 5,000."""


class TorchvisionDataset:
    """A set of torchvision, whose files are looked for at once, or downloaded when it is described.

    It is a :class:`~jembench.interfaces.Dataset`.

    Args:
        name: of the class in torchvision.datasets.
        root: the folder of its files; "": that of all data.
        download: True to fetch missing files when the dataset is described or read.
        size: of the central square that each image is cropped and resized to; 0: images keep
            their size.

    Raises:
        SpecError: if torchvision has no such set of classified images with parts.
        Unavailable: if files are missing and ``download`` is false.
    """

    def __init__(self, name: str, root: str, *, download: bool, size: int) -> None:
        self.name, self.folder, self.download, self.size = name, data_folder(root), download, size
        self.options = _options(name)
        self.train_size = _SMALL.get(name)
        self.side = size or 96  # only images of STL10 have one size of their own
        if not download:  # which looks for the files
            self.side = min(self.spec.shape[1:])
            self.train_size = self._made.train_size

    @property
    def spec(self) -> DataSpec:
        """The description, for which the first image and the labels are read."""
        return self._made.spec

    def split(self, name: SplitName) -> Split:
        """Return the images of one part, uint8 (N, C, H, W), and their labels, int64 (N,)."""
        return self._made.split(name)

    @cached_property
    def _made(self) -> LazyDataset:
        opened = {name: self._open(name) for name in _SPLITS}
        image, label = opened["train"][0]
        if not hasattr(image, "getbands"):
            raise SpecError(
                f"The items of torchvision's {self.name} are {type(image).__name__}, and no images."
            )
        if not isinstance(label, int | np.integer):
            raise SpecError(
                f"The labels of torchvision's {self.name} are {type(label).__name__}, and no "
                "classes. Choose a set for classification, such as FashionMNIST."
            )
        transform = self._transform("L" if image.mode in ("1", "L") else "RGB")
        first = transform(image)
        shape = (len(first.getbands()), first.height, first.width)
        parts: dict[SplitName, Part] = {}
        for name, part in opened.items():
            part.transform = transform
            part.transforms = tv.vision.StandardTransform(transform, None)
            what = f"{name} of torchvision's {self.name}"
            labels = label_array(what, _labels_of(part), len(part))
            parts[name] = Part((len(part), *shape), labels, partial(images_of, what, part, shape))
        return of_parts(
            f"torchvision's {self.name}",
            parts,
            name=self.name.lower(),
            class_names=class_names_of(opened["train"]),
        )

    def _open(self, name: SplitName) -> Any:
        """Open a part.

        Raises:
            SpecError: if it has no part of this name.
            Unavailable: if files are missing or damaged, or a download fails.
        """
        make = getattr(tv, self.name)
        options: dict[str, Any] = {"root": str(self.folder)}
        if "download" in self.options:
            options["download"] = self.download
        choices: list[dict[str, Any]] = [{"train": name == "train"}]
        if "train" not in self.options:
            choices = [{"split": part} for part in _SPLITS[name]]
        refusal: Exception | None = None
        for choice in choices:
            try:
                with socket_timeout(DOWNLOAD_TIMEOUT), contextlib.redirect_stdout(sys.stderr):
                    return make(**options, **choice)
            except ValueError as error:  # of a split that it does not have
                refusal = error
            except (OSError, EOFError, RuntimeError, ImportError, HTTPException) as error:
                raise self._unavailable(error) from error
        reason = error_text(refusal) if refusal else ""
        raise SpecError(f"torchvision's {self.name} has no {name} part: {reason}.") from refusal

    def _unavailable(self, error: Exception) -> Unavailable:
        remedy = f"torchvision's own files must lie in {self.folder}, in the folders that it makes"
        if "download" in self.options:
            remedy = (
                f"To fetch it, write torchvision:name={self.name},download=true, or put its files "
                f"into {self.folder} as torchvision does"
            )
        cause = error_text(error).partition(". ")[0].removeprefix("RuntimeError: ")
        return Unavailable(
            f"torchvision's {self.name} is not available in {self.folder}: {cause}. "
            f"{remedy}. If you have it elsewhere: torchvision:name={self.name},root=FOLDER or "
            "JEMBENCH_DATA=FOLDER."
        )

    def _transform(self, mode: str) -> Any:
        """Return the function that gives every image its colours and size."""

        def transform(image: Image.Image) -> Image.Image:
            if mode == "L" and image.mode not in ("1", "L"):
                raise JembenchError(
                    f"torchvision's {self.name} has images in colour after a first grey one."
                )
            changed = image.convert(mode)
            return resized(changed, self.size, self.size) if self.size else changed

        return transform


def _labels_of(part: Any) -> list[int]:
    """Return the labels of a part, which are read item by item unless they are listed."""
    for attribute in ("targets", "labels", "_labels"):
        values = getattr(part, attribute, None)
        if values is not None and np.shape(values) == (len(part),):
            return [int(value) for value in values]
    return [int(part[number][1]) for number in range(len(part))]


def _options(name: str) -> frozenset[str]:
    """Return the options of a set of torchvision.

    Raises:
        SpecError: if there is no such set with parts for training and tests.
    """
    if name not in tv.__all__:
        near = difflib.get_close_matches(name, tv.__all__, 3, 0.5) or ["FashionMNIST"]
        raise SpecError(
            f"torchvision.datasets has no set named {name!r}. Nearest: {', '.join(near)}."
        )
    parameters = inspect.signature(getattr(tv, name)).parameters
    needed = set[str]()
    for key, parameter in parameters.items():
        is_optional = parameter.default is not parameter.empty
        if not is_optional and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            needed.add(key)
    if not parameters.keys() & {"train", "split"} or needed - {"root", "split"}:
        raise SpecError(
            f"torchvision's {name} has no parts for training and tests that it names itself. Read "
            "it in Python, and give two datasets: "
            'jb.run(..., datasets={"train": ds, "test": ds}).'
        )
    return frozenset(parameters)
