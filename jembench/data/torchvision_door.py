"""``torchvision``: the classification sets of torchvision, read from their authors' files."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import sys
from functools import cached_property
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import numpy as np
import torchvision.datasets as tv

from jembench.data.arrays import label_array, remark_on_images, to_split
from jembench.data.decoding import central_square
from jembench.data.items import class_names_of, images_of
from jembench.data.labels import check_labels
from jembench.data.torchvision_sets import DOWNLOAD_TIMEOUT
from jembench.errors import JembenchError, SpecError, Unavailable, error_text
from jembench.files import data_folder, socket_timeout
from jembench.interfaces import DataSpec, Split, SplitName

if TYPE_CHECKING:
    from PIL import Image

_PARTS: tuple[SplitName, ...] = ("train", "test")


class TorchvisionDataset:
    """A set of torchvision, whose files are looked for at once, or downloaded when it is described.

    It is a :class:`~jembench.interfaces.Dataset`.

    Args:
        name: of the class in torchvision.datasets.
        root: the folder of its files; "": that of all data.
        download: True to fetch missing files when the dataset is described or read.
        size: of the central square that each image is cropped and resized to; 0: as they are.

    Raises:
        SpecError: if torchvision has no such set of classified images with parts.
        Unavailable: if files are missing and ``download`` is false.
    """

    def __init__(self, name: str, root: str, *, download: bool, size: int) -> None:
        self.name, self.folder, self.download, self.size = name, data_folder(root), download, size
        self.options = _options(name)
        self.train_size: int | None = None
        if not download:
            self.spec  # noqa: B018, which looks for the files
            self.train_size = len(self.data["train"])

    @cached_property
    def spec(self) -> DataSpec:
        """The description, for which the first image and the labels are read."""
        train = self.data["train"]
        class_names = class_names_of(train)
        classes = len(class_names) or len(set(self._labels_of("train")))
        image, label = train[0]
        if not isinstance(label, int | np.integer):
            raise SpecError(
                f"The labels of torchvision's {self.name} are {type(label).__name__}, and no "
                "classes. Choose a set for classification, such as FashionMNIST."
            )
        width, height = image.size
        shape = (len(image.getbands()), height, width)
        return DataSpec(
            name=self.name.lower(), shape=shape, num_classes=classes, class_names=class_names
        )

    @cached_property
    def data(self) -> dict[SplitName, Any]:
        """The two parts, as torchvision reads them."""
        parts = {name: self._open(name) for name in _PARTS}
        mode = self._first_mode(parts["train"])
        for part in parts.values():
            part.transform = self._transform(mode)
            part.transforms = tv.vision.StandardTransform(part.transform, None)
        return parts

    def split(self, name: SplitName) -> Split:
        """Return the images of one part, uint8 (N, C, H, W), and their labels, int64 (N,)."""
        images, labels = self._splits[name]
        assert labels is not None
        return Split(images.clone(), labels.clone())

    @cached_property
    def _splits(self) -> dict[SplitName, Split]:
        splits: dict[SplitName, Split] = {}
        for name in _PARTS:
            what = f"{name} of torchvision's {self.name}"
            images = images_of(what, self.data[name], self.spec.shape)
            splits[name] = to_split(images, label_array(what, self._labels_of(name), len(images)))
        labels = {name: split.labels for name, split in splits.items()}
        check_labels(f"torchvision's {self.name}", labels, self.spec.num_classes)
        remark_on_images(self.spec, splits)
        return splits

    def _labels_of(self, name: SplitName) -> list[int]:
        """Return the labels of a part, which are read item by item unless they are listed."""
        part = self.data[name]
        for attribute in ("targets", "labels", "_labels"):
            values = getattr(part, attribute, None)
            if values is not None and np.shape(values) == (len(part),):
                return [int(value) for value in values]
        return [int(part[number][1]) for number in range(len(part))]

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
        values: list[Any] = [name == "train"]
        key = "train"
        if "train" not in self.options:
            key, values = "split", [name] if name == "train" else ["test", "val"]
        refusal: Exception | None = None
        for value in values:
            try:
                with socket_timeout(DOWNLOAD_TIMEOUT), contextlib.redirect_stdout(sys.stderr):
                    return make(**options, **{key: value})
            except ValueError as error:  # of a split that it does not have
                refusal = error
            except (OSError, EOFError, RuntimeError, ImportError, HTTPException) as error:
                raise self._unavailable(error) from error
        raise SpecError(
            f"torchvision's {self.name} has no {name} part: {error_text(refusal)}."  # type: ignore[arg-type]
        ) from refusal

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

    def _first_mode(self, part: Any) -> str:
        image = part[0][0]
        if not hasattr(image, "getbands"):
            raise SpecError(
                f"The items of torchvision's {self.name} are {type(image).__name__}, and no images."
            )
        return "L" if image.mode in ("1", "L") else "RGB"

    def _transform(self, mode: str) -> Any:
        """Return the function that gives every image its colours and size."""

        def transform(image: Image.Image) -> Image.Image:
            if mode == "L" and image.mode not in ("1", "L"):
                raise JembenchError(
                    f"torchvision's {self.name} has images in colour after a first grey one."
                )
            changed = image.convert(mode)
            return central_square(changed, self.size) if self.size else changed

        return transform


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
