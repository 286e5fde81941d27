"""Arrays of a program or of files as datasets: copied and checked."""

from __future__ import annotations

import functools
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench import limits
from jembench.data.datasets import SPLIT, LazyDataset, hold_out, no_images, share_out
from jembench.data.items import read_items
from jembench.data.labels import check_labels
from jembench.errors import JembenchError, Remark, SpecError, error_text
from jembench.interfaces import Dataset, DataSpec, Split, SplitName

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    Array = np.ndarray[Any, Any]

ADVICE = (
    'Write {"train": (x, y), "test": (x, y)}, with torch datasets in place of pairs if you have '
    "these; each item of one is a pair of an image and a label."
)
_NAMES: tuple[SplitName, ...] = ("train", "test")


class Part(NamedTuple):
    """The shape and the labels of a part's images, and the function that reads the images."""

    shape: tuple[int, ...]  # (N, C, H, W)
    labels: Array | None  # int64 (N,), or texts
    read: Callable[[], Tensor]


def of_parts(
    what: str,
    parts: Mapping[SplitName, Part],
    *,
    name: str,
    class_names: Sequence[str] = (),
    split: float = SPLIT,
    seed: int = 0,
) -> LazyDataset:
    """Return the dataset of parts, whose images are read when a split is first needed.

    Args:
        what: the data, for messages.
        parts: train and test, test alone, or train alone, which is split.
        name: of the dataset.
        class_names: in the order of the labels' numbers; empty: unknown, or the labels are names.
        split: the share of each class for training, where train is split.
        seed: chooses which images these are.

    Raises:
        SpecError: if labels or shapes are not as they must be, or an option has no effect.
    """
    is_whole = "test" not in parts
    if not is_whole and (split, seed) != (SPLIT, 0):
        raise SpecError(
            f"{what} has a part for tests, so split and seed have no effect. Leave them out."
        )
    shapes = list(dict.fromkeys(part.shape[1:] for part in parts.values()))
    if len(shapes) > 1:
        raise SpecError(
            f"The images of train and test of {what} have different shapes: "
            f"{', '.join(map(str, shapes))}."
        )
    labels = {place: part.labels for place, part in parts.items()}
    texts = _number_texts(labels)
    if texts or all(part.labels is None for part in parts.values()):
        class_names = texts
    classes = check_labels(what, labels, len(class_names) or None)
    sizes = {place: part.shape[0] for place, part in parts.items()}
    if is_whole:
        sizes = share_out(what, sizes["train"], split)
    channels, height, width = shapes[0]
    spec = DataSpec(
        name=name,
        shape=(channels, height, width),
        num_classes=classes,
        class_names=tuple(class_names),
    )

    @functools.cache
    def splits() -> Mapping[SplitName, Split]:
        whole = {place: _split(part.read(), labels[place]) for place, part in parts.items()}
        if is_whole:
            whole = hold_out(whole["train"], sizes["test"], seed)
        whole.setdefault("train", no_images(spec))
        _remark_on_names(texts)
        remark_on_images(spec, whole)
        return whole

    return LazyDataset(
        spec,
        lambda place: splits()[place],
        train_size=sizes.get("train", 0),
        test_size=sizes["test"],
    )


def of_dataset(data: Dataset) -> LazyDataset:
    """Return a copy of a dataset object, whose tensors may change later.

    Raises:
        SpecError: if its images or labels are not as its description states.
    """
    spec, splits = data.spec, dict[SplitName, Split]()
    for name in _NAMES:
        images, labels = data.split(name)
        tensor = image_tensor(name, images)
        shape = tuple(tensor.shape)
        if shape[1:] != tuple(spec.shape):
            raise SpecError(
                f"The images of {name} of the dataset {spec.name} have the shape {shape}; "
                f"by its spec it must be (N, {', '.join(map(str, spec.shape))})."
            )
        splits[name] = _split(tensor, label_array(name, labels, len(tensor)))
    labels_of = {name: split.labels for name, split in splits.items()}
    check_labels(f"the dataset {spec.name}", labels_of, spec.num_classes)
    remark_on_images(spec, splits)
    sizes = {f"{name}_size": len(split.images) for name, split in splits.items()}
    truth = getattr(data, "truth", None)
    return LazyDataset(spec, splits.__getitem__, **sizes, truth=truth)


def of_arrays(arrays: Mapping[Any, Any]) -> LazyDataset:
    """Return the dataset of a mapping of arrays.

    Raises:
        SpecError: if the arrays have other forms; the message says the remedy.
    """
    if set(arrays) not in ({*_NAMES}, {"test"}):
        keys = ", ".join(map(str, arrays)) or "none"
        raise SpecError(
            f"A dataset of arrays has the keys {keys}; they must be train and test, or test alone "
            f"for a network that is not trained. {ADVICE}"
        )
    import numpy as np

    parts: dict[SplitName, Part] = {}
    title, stated = "arrays", set[tuple[str, ...]]()
    for name in _NAMES:
        if name not in arrays:
            continue
        data = arrays[name]
        if _is_of_items(data):
            title = type(data).__name__
            images, labels, class_names = read_items(name, data)
            stated.add(class_names)
            check_images(name, np.broadcast_to(np.uint8(0), tuple(images.shape)))
        else:
            pixels, labels = _pair(name, data)
            images = image_tensor(name, pixels)
        numbers = label_array(name, labels, len(images))
        parts[name] = Part(tuple(images.shape), numbers, images.detach)
    if len(stated) > 1:
        raise SpecError(
            "The datasets of train and test have different classes. Numbers must mean the same "
            "class in both."
        )
    return of_parts("the arrays", parts, name=title, class_names=next(iter(stated), ()))


def remark_on_images(spec: DataSpec, splits: Mapping[SplitName, Split]) -> None:
    """Remark on suspicious images.

    Test images may be among the training images, or all images almost black. Images that are read
    in parts are not examined.
    """
    from jembench.data.images import Images

    train, test = splits["train"].images, splits["test"].images
    if isinstance(train, Images) or isinstance(test, Images):
        return
    seen = {hash(image.tobytes()) for image in train.numpy()}
    copies = sum(hash(image.tobytes()) in seen for image in test.numpy())
    if copies:
        text = (
            f"{copies:,} of {len(test):,} test images of {spec.name} are also among its training "
            "images, so that accuracy and densities look better than they are."
        )
        warnings.warn(text, Remark, stacklevel=2)
    levels = train if len(train) else test
    lightest = int(levels.max())
    if 0 < lightest <= _DARK:
        text = (
            f"The images of {spec.name} have levels up to {lightest} of 255, and are almost "
            f"black. If {lightest} is their white, write images * {255 // lightest}."
        )
        warnings.warn(text, Remark, stacklevel=2)


_DARK = 16
"""The largest level of images that are almost black, such as scikit-learn's digits of 17 levels."""


def _split(images: Tensor, labels: Array | None) -> Split:
    import torch

    return Split(images, None if labels is None else torch.from_numpy(labels))


def _is_of_items(data: Any) -> bool:
    """Return whether a part is a dataset of PyTorch that is read item by item."""
    from torch.utils.data import Dataset as TorchDataset
    from torch.utils.data import TensorDataset

    return isinstance(data, TorchDataset) and not isinstance(data, TensorDataset)


def _pair(name: str, pair: Any) -> Sequence[Any]:
    """Return a part's images, and its labels or None."""
    tensors = getattr(pair, "tensors", None)  # of a TensorDataset
    if isinstance(tensors, tuple):
        if len(tensors) == 1:
            return (*tensors, None)
        if len(tensors) != 2:
            raise SpecError(
                f"The dataset of {name} has {len(tensors)} tensors; give (images, labels)."
            )
        return tensors
    if isinstance(pair, Mapping):
        raise SpecError(f"The part {name} has the keys {', '.join(map(str, pair))}. {ADVICE}")
    return pair if isinstance(pair, tuple | list) and len(pair) == 2 else (pair, None)


def _array(what: str, values: Any) -> Array:
    """Return a copy of values as an array in memory.

    The copy has this machine's byte order, and its axes in C order.

    Raises:
        SpecError: if they are no array, or masked.
    """
    import numpy as np
    from torch import Tensor, strided
    from torch.utils.data import Dataset as TorchDataset

    is_list = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    is_foreign = isinstance(values, str | bytes | Mapping | TorchDataset)
    if is_foreign or not (_is_array(values) or is_list):
        raise SpecError(f"{what} are given as {type(values).__name__}. {ADVICE}")
    try:
        if isinstance(values, Tensor):
            dense = values.detach().cpu()
            if dense.layout is not strided:
                dense = dense.to_dense()
            array = np.asarray(dense.resolve_neg().resolve_conj())
        elif _is_array(values):
            array = np.asarray(values)
        else:
            array = np.asarray(list(map(_item, values)))
        # an array of images that are arrays themselves
        if array.dtype == object and array.size and all(map(_is_array, array.flat)):
            array = np.stack(list(map(_item, array.flat)))
    except JembenchError:
        raise
    except Exception as error:
        raise SpecError(
            f"{what} are given as {type(values).__name__}, which is no array "
            f"({error_text(error)}). All images must have one size; resize them first. Of pairs "
            f"of an image and a label, make two arrays. {ADVICE}"
        ) from error
    if np.ma.is_masked(values):
        raise SpecError(
            f"{what} are a masked array with masked values. Fill or remove these first."
        )
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def _item(item: Any) -> Any:
    """Return an item of a list as an array or a value."""
    import numpy as np

    if not _is_array(item):
        return item
    if hasattr(item, "detach"):
        item = item.detach().cpu()
    return np.asarray(item)


def _is_array(values: Any) -> bool:
    return hasattr(values, "__array__")


def image_tensor(name: str, values: Any) -> Tensor:
    """Return a copy of images, uint8 (N, C, H, W).

    Raises:
        SpecError: if they have another form; the message says the remedy.
    """
    import torch

    array = check_images(name, _array(f"The images of {name}", values))
    limits.check_bytes(f"The images of {name}", array.nbytes)
    return torch.from_numpy(array)


def check_images(name: str, array: Array) -> Array:
    """Check the form of images, and return them with an axis of channels.

    Raises:
        SpecError: if they are not uint8 (N, C, H, W) or (N, H, W); the message says the remedy.
    """
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3, 4) and array.shape[1] not in (1, 3):
        raise SpecError(
            f"The images of {name} have the shape {array.shape}, with channels last; they must be "
            "(N, C, H, W). Write np.ascontiguousarray(images.transpose(0, 3, 1, 2)), or "
            "images.permute(0, 3, 1, 2) of a tensor."
        )
    if array.dtype != "uint8" or array.ndim != 4 or not array.size:
        raise SpecError(
            f"The images of {name} are {array.dtype} of shape {array.shape}; they must be uint8 "
            f"(N, C, H, W) or (N, H, W), at least one of them.{_remedy(array)}"
        )
    if array.shape[1] == 4:
        raise SpecError(
            f"The images of {name} have 4 channels. If the fourth is transparency, leave it out: "
            "images[:, :3]."
        )
    return array


def _remedy(array: Array) -> str:
    """Return how images of another type become uint8, if it is known."""
    import numpy as np

    if array.ndim == 1:
        return " Give a pair (images, labels) in this order."
    if array.ndim == 2:
        return " Give each its shape: images.reshape(-1, C, H, W)."
    if array.dtype.kind == "b":
        return " Of black and white, write (255 * images.astype(np.uint8))."
    if array.dtype.kind not in "iuf" or not array.size:
        return ""
    low, high = float(array.min()), float(array.max())
    if not np.isfinite(low + high):
        return " They hold NaN or infinity; remove these first."
    if array.dtype.kind in "iu" and high > 255 and low >= 0:
        return " Of 16 bits, write (images // 257).astype(np.uint8)."
    if low >= 0 and high <= 1 and array.dtype.kind == "f":
        return " Of floats in [0, 1], write (255 * images).round().astype(np.uint8)."
    if low >= 0 and _DARK < high <= 255:
        return " Write images.round().astype(np.uint8)."
    if low >= -1 and high <= 1:
        return " Of floats in [-1, 1], write (127.5 * (images + 1)).round().astype(np.uint8)."
    return (
        f" They go from {low:g} to {high:g}: undo their normalisation first, so that 255 is white."
    )


def label_array(name: str, values: Any, count: int) -> Array | None:
    """Return a copy of labels (N,), int64 or texts; None stays None.

    Raises:
        SpecError: if they have another form; the message says the remedy.
    """
    import numpy as np

    if values is None:
        return None
    array = _array(f"The labels of {name}", values)
    if array.shape == (count, 1):  # a column, as in MedMNIST
        array = array[:, 0]
    if array.dtype.kind in "SUT":
        array = array.astype(str)
    is_text = array.dtype.kind == "U" or all(isinstance(label, str) for label in array.flat)
    is_whole = array.dtype.kind in "biu"
    fits = is_whole and int(array.min(initial=0)) >= 0 and int(array.max(initial=0)) < 2**31
    if array.shape == (count,) and is_text:
        return np.array([unicodedata.normalize("NFC", text) for text in array.tolist()])
    if array.shape == (count,) and fits:
        return array.astype(np.int64)
    raise SpecError(
        f"The labels of {name} are {array.dtype} of shape {array.shape}; they must be whole "
        f"numbers from 0, or names of classes, one for each of {count} images."
        f"{_labels_remedy(array, count)}"
    )


def _labels_remedy(array: Array, count: int) -> str:
    """Return how labels become whole numbers, if it is known."""
    import numpy as np

    kind = array.dtype.kind
    is_table = array.ndim == 2 and len(array) == count and kind in "biuf"
    if is_table and (array.sum(1) == 1).all():
        return " Of one-hot labels, write labels.argmax(1)."
    if kind == "f" and not np.isfinite(array).all():
        return " They hold NaN or infinity: remove these images."
    if kind == "f" and (array == array.round()).all():
        return " Write labels.astype(int)."
    if kind in "biu" and array.shape == (count,):
        return f" They go from {array.min()} to {array.max()}."
    return ""


def _number_texts(labels: dict[SplitName, Array | None]) -> tuple[str, ...]:
    """Replace labels that are names by numbers; return the names in order.

    Raises:
        SpecError: if only one part has texts, or a class of test is unknown to train.
    """
    import numpy as np

    arrays = {name: array for name, array in labels.items() if array is not None}
    texts = {name: array for name, array in arrays.items() if array.dtype.kind == "U"}
    if not texts:
        return ()
    first: SplitName = "train" if "train" in labels else "test"
    if first not in texts or len(texts) < len(arrays):
        raise SpecError(
            "Only one part's labels are names. Give the labels of both parts in one form."
        )
    names = np.unique(texts[first])
    for name, array in texts.items():
        new = sorted(set(array.tolist()) - set(names.tolist()))
        if new:
            raise SpecError(
                f"No image of train has the labels {', '.join(map(repr, new[:6]))} of {name}. "
                "Remove these images, or add such images to train."
            )
        labels[name] = np.searchsorted(names, array).astype(np.int64)
    return tuple(names.tolist())


def _remark_on_names(names: Sequence[str]) -> None:
    """Remark on the numbers of classes that labels name."""
    if not names:
        return
    shown = list(names[:6])
    if len(names) > 6:
        shown.append("...")
    warnings.warn(
        f"The labels are names. The classes 0 to {len(names) - 1} are, in this order: "
        f"{', '.join(shown)}.",
        Remark,
        stacklevel=2,
    )
