"""Map-style datasets of PyTorch, item by item: pairs of an image and a label.

Legend: N items, B items of a part, C channels, H height, W width.
"""

from __future__ import annotations

import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench import limits
from jembench.errors import JembenchError, Remark, SpecError, Unavailable, error_text
from jembench.files import cache_folder

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    Array = np.ndarray[Any, Any]

_PAIR = "Each item must be a pair (image, label), or an image."


class Items(NamedTuple):
    """The items of a dataset."""

    images: Tensor  # uint8 (N, C, H, W)
    labels: list[Any] | None
    class_names: tuple[str, ...]


def read_items(name: str, data: Any) -> Items:
    """Read all items of a map-style dataset once, with its transforms.

    Large images are kept in a file of this process.

    Raises:
        SpecError: if it has no items, or they are no images of one size and their labels.
        Unavailable: if the file cannot be written.
    """
    import numpy as np
    import torch

    from jembench.data.images import are_small

    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or not len(data):
        raise SpecError(
            f"The dataset of {name}, {type(data).__name__}, has no items that are read by their "
            f"number. {_PAIR}"
        )
    first, _ = _item(name, data, 0)
    is_small = are_small(len(data), first.shape)
    limit = limits.MEMORY if is_small else limits.CACHE
    limits.check_bytes(f"The dataset of {name}", len(data) * first.nbytes, limit)

    labels: list[Any] = []

    def read() -> Iterator[Array]:
        for number in range(len(data)):
            pixels, label = _item(name, data, number, first.shape)
            labels.append(label)
            yield pixels

    if is_small:
        images = torch.empty((len(data), *first.shape), dtype=torch.uint8)
        for place, pixels in enumerate(read()):
            images.numpy()[place] = pixels
    else:
        images = _in_file(name, read(), len(data), first.shape)

    if not np.array_equal(images[0].numpy(), first):
        warnings.warn(
            f"The transform of {name} is random: item 0 differs when it is read again. Its images "
            "were drawn once, for training and for tests.",
            Remark,
            stacklevel=2,
        )
    is_labelled = any(label is not None for label in labels)
    return Items(images, labels if is_labelled else None, class_names_of(data))


def images_of(name: str, data: Any, shape: tuple[int, ...]) -> Tensor:
    """Return the images of a dataset whose transform is not random, uint8 (N, C, H, W).

    Large ones are read from the dataset when they are indexed.

    Raises:
        SpecError: if an item is no image of the shape (C, H, W); of large ones when it is read.
    """
    import torch

    from jembench.data.images import by_rows

    def read(rows: Tensor) -> Tensor:
        limits.check_bytes(f"The dataset of {name}", len(rows) * shape[0] * shape[1] * shape[2])
        images = torch.empty((len(rows), *shape), dtype=torch.uint8)
        for pixels, row in zip(images.numpy(), rows.tolist(), strict=True):
            pixels[:], _ = _item(name, data, row, shape)
        return images

    return by_rows(read, torch.arange(len(data)), shape)


def _in_file(name: str, items: Iterable[Array], count: int, shape: tuple[int, ...]) -> Tensor:
    """Return images that are read from a file without a name, which ends with this process.

    Args:
        name: of the dataset, for errors.
        items: the images.
        count: the number of images.
        shape: of an image, (C, H, W).

    Raises:
        Unavailable: if the file cannot be written.
    """
    import torch

    from jembench.data.images import Images, read_rows

    folder = cache_folder() / "items"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115, open as long as the images are

        def read(rows: Tensor) -> Tensor:
            return read_rows(file.fileno(), rows, shape)

        weakref.finalize(read, file.close)
        for pixels in items:
            file.write(pixels.tobytes())
        file.flush()
    except OSError as error:
        raise Unavailable(
            f"The images of {name}, which do not lie in memory, cannot be written to {folder}: "
            f"{error.strerror}. Free space there, choose another folder by XDG_CACHE_HOME, or "
            f"raise {limits.IMAGES.variable}."
        ) from error
    return Images(read, torch.arange(count), shape)


def _item(
    name: str, data: Any, number: int, shape: tuple[int, ...] | None = None
) -> tuple[Array, Any]:
    """Return the pixels, uint8 (C, H, W), and the label of an item.

    Raises:
        SpecError: if it cannot be read, or has no image of the shape.
    """
    what = f"Item {number} of {name}"
    image, label = _pair(what, data, number)
    pixels = _pixels(what, image)
    if shape is not None and pixels.shape != shape:
        raise SpecError(
            f"{what} has an image of the shape {pixels.shape}, and item 0 has {shape}. Add "
            "transforms.Resize((H, W)) to its transform."
        )
    return pixels, label


def class_names_of(data: Any) -> tuple[str, ...]:
    """Return the names in a dataset's ``classes``; those of the whole for a subset."""
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
