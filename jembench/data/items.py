"""Map-style datasets of PyTorch, item by item: pairs of an image and a label.

Legend: N items, C channels, H height, W width.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench import limits
from jembench.errors import JembenchError, Remark, SpecError, error_text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_PAIR = "Each item must be a pair (image, label), or an image."


class Items(NamedTuple):
    """The items of a dataset."""

    images: Array  # uint8 (N, C, H, W)
    labels: list[Any] | None
    class_names: tuple[str, ...]


def read_items(name: str, data: Any) -> Items:
    """Read all items of a map-style dataset once, with its transforms.

    Raises:
        SpecError: if it has no items, or they are no images of one size and their labels.
    """
    import numpy as np

    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or not len(data):
        raise SpecError(
            f"The dataset of {name}, {type(data).__name__}, has no items that are read by their "
            f"number. {_PAIR}"
        )
    images: list[Array] = []
    labels: list[Any] = []
    for number in range(len(data)):
        what = f"Item {number} of {name}"
        image, label = _pair(what, data, number)
        images.append(_pixels(what, image))
        labels.append(label)
        if images[-1].shape != images[0].shape:
            raise SpecError(
                f"{what} has an image of the shape {images[-1].shape}, and item 0 has "
                f"{images[0].shape}. Add transforms.Resize((H, W)) to its transform."
            )
        if number == 0:
            limits.check_bytes(f"The dataset of {name}", len(data) * images[0].nbytes)

    again, _ = _pair(f"Item 0 of {name}", data, 0)
    if not np.array_equal(_pixels(f"Item 0 of {name}", again), images[0]):
        warnings.warn(
            f"The transform of {name} is random: item 0 differs when it is read again. Its images "
            "were drawn once, for training and for tests.",
            Remark,
            stacklevel=2,
        )
    is_labelled = any(label is not None for label in labels)
    return Items(np.stack(images), labels if is_labelled else None, class_names_of(data))


def class_names_of(data: Any) -> tuple[str, ...]:
    """Return the names that ``classes`` of a dataset states, or of the one that it is part of."""
    while not hasattr(data, "classes") and hasattr(data, "dataset"):
        data = data.dataset
    stated = getattr(data, "classes", ())
    if not isinstance(stated, Sequence) or isinstance(stated, str):
        return ()
    names = tuple(map(str, stated))
    return names if len({*names}) == len(names) else ()


def _pair(what: str, data: Any, number: int) -> tuple[Any, Any]:
    """Return the image and the label of an item.

    Raises:
        SpecError: if it cannot be read, or is no pair.
    """
    try:
        item = data[number]
    except JembenchError:
        raise
    except Exception as error:
        raise SpecError(f"{what} cannot be read: {error_text(error)}.") from error
    if not isinstance(item, tuple | list):
        item = item, None
    if len(item) != 2 or isinstance(item[0], dict):
        kind = type(item[0] if isinstance(item[0], dict) else item).__name__
        raise SpecError(f"{what} is a {kind} of {len(item)}. {_PAIR}")
    return item[0], item[1]


def _pixels(what: str, image: Any) -> Array:
    """Return the pixels of an item, uint8 (C, H, W).

    Raises:
        SpecError: if they are neither uint8 nor floats from 0 to 1.
    """
    import numpy as np
    from PIL import Image

    if isinstance(image, Image.Image):
        if image.mode not in ("L", "RGB"):
            raise SpecError(
                f"{what} is an image of Pillow's mode {image.mode}. Add image.convert('RGB'), or "
                "'L' for grey, to its transform."
            )
        array = np.asarray(image)
        return array[None] if image.mode == "L" else array.transpose(2, 0, 1)
    if hasattr(image, "detach"):
        image = image.detach().cpu()
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[None]
    if array.ndim == 3 and array.shape[2] in (1, 3) and array.shape[0] not in (1, 3):
        raise SpecError(
            f"{what} has an image of the shape {array.shape}, with channels last. Add "
            "image.transpose(2, 0, 1) to its transform, or transforms.ToTensor()."
        )
    if array.ndim == 3 and array.dtype == np.uint8:
        return array
    is_float = array.ndim == 3 and array.size and array.dtype.kind == "f"
    if is_float and 0 <= float(array.min()) <= float(array.max()) <= 1:
        return (255 * array.astype(np.float64)).round().astype(np.uint8)
    levels = ""
    if is_float:
        levels = f" from {array.min():g} to {array.max():g}"
    raise SpecError(
        f"{what} has an image of {array.dtype} and shape {array.shape}{levels}; images must be "
        "uint8, or floats from 0 to 1, (C, H, W) or (H, W). Leave transforms.Normalize out: pixels "
        "reach models from -1 to 1, and a network converts these itself."
    )
