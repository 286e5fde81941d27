"""Objects of a running program as components: an ``nn.Module``, a dataset, arrays.

Each is registered under a name that ends with a digest of its content, as the plugin ``live`` of this process. So it
has an identity like every other component, and different objects do not share results.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from jembench.catalog import discovery
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.options import pretrained
from jembench.errors import SpecError, error_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from jembench.interfaces import Dataset, DataSpec, Split, SplitName

_ADVICE = 'Write {"train": (x, y), "test": (x, y)}; of a torch dataset, x, y = next(iter(DataLoader(data, len(data)))).'

DISTRIBUTION = "live"
"""The name of the distribution of such a component."""


def model_spec(model: object) -> str:
    """Return the spec of a model that is given by its spec or as a module.

    A module is copied, and never changed. It is measured without training, unless it can be trained by jembench
    (:class:`jembench.interfaces.Trainable`), from its present weights, or fitted
    (:class:`jembench.interfaces.Fittable`).

    Raises:
        SpecError: if it is neither, or the module cannot be copied.
    """
    if isinstance(model, str):
        return model
    from torch import nn

    from jembench.interfaces import Fittable, Trainable

    if not isinstance(model, nn.Module):
        raise SpecError(
            f"A model is given as {type(model).__name__}; it must be a spec, a torch.nn.Module or a jembench.Fit."
        )
    try:
        kept = copy.deepcopy(model)
    except Exception as error:
        raise SpecError(f"The model {type(model).__name__} cannot be copied: {error_text(error)}") from error

    def factory(data: DataSpec) -> nn.Module:
        return copy.deepcopy(kept)

    marked = factory if isinstance(model, (Trainable, Fittable)) else pretrained(factory)
    return _add("models", type(model).__name__, _digest_of_module(model), marked)


def dataset_spec(data: object) -> str:
    """Return the spec of a dataset that is given by its spec, as a dataset, or as arrays.

    Arrays are a mapping ``{"train": (images, labels), "test": (images, labels)}``: images uint8 (N, C, H, W) or
    (N, H, W), labels whole numbers (N,) from 0 or None. A ``TensorDataset`` of both may take the place of a pair.

    Raises:
        SpecError: if it is none of these, or the arrays have other shapes.
    """
    if isinstance(data, str):
        return data
    from jembench.interfaces import Dataset

    made: Dataset
    if isinstance(data, Mapping):
        made = _of_arrays(data)
    elif isinstance(data, Dataset):
        made = data
    else:
        raise SpecError(f"A dataset is given as {type(data).__name__}, which has no train and test parts. {_ADVICE}")

    def factory() -> Dataset:
        return made

    return _add("datasets", made.spec.name, _digest_of_dataset(made), factory)


def _add(kind: Kind, name: str, digest: str, factory: Callable[..., Any]) -> str:
    name = f"{re.sub(r'[^A-Za-z0-9_]+', '-', name).strip('-') or 'object'}-{digest[:10]}"
    attribute = f"{kind}_{digest}"
    if attribute not in globals():
        factory.__module__ = __name__
        globals()[attribute] = factory  # the registry finds it like that of any module
    component = Component(kind, name, DISTRIBUTION, "", __name__, attribute)
    if component not in discovery.added:
        discovery.added.append(component)
        discovery.catalogue.cache_clear()
    return name


# --- identities -------------------------------------------------------------------------------------------------------


def _digest_of_module(model: nn.Module) -> str:
    """Return a digest of the weights and of the module's ``repr``."""
    digest = hashlib.sha256(f"{type(model).__module__}.{type(model).__qualname__}\n{model!r}".encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _digest_of_dataset(data: Dataset) -> str:
    digest = hashlib.sha256(repr(data.spec).encode())
    for name in cast("tuple[SplitName, ...]", ("train", "test")):
        split = data.split(name)
        digest.update(_bytes(split.images))
        digest.update(b"" if split.labels is None else _bytes(split.labels))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


# --- arrays -----------------------------------------------------------------------------------------------------------


def _of_arrays(arrays: Mapping[Any, Any]) -> Dataset:
    from jembench.data.datasets import LazyDataset
    from jembench.interfaces import DataSpec

    if set(arrays) != {"train", "test"}:
        raise SpecError(f"A dataset of arrays has the keys {', '.join(map(str, arrays))}; they must be train and test.")
    splits = {name: _split(name, pair) for name, pair in arrays.items()}
    shapes = {split.images.shape[1:] for split in splits.values()}
    if len(shapes) != 1:
        raise SpecError(
            f"The images of train and test have different shapes: {', '.join(map(str, map(tuple, shapes)))}."
        )
    (channels, height, width), labels = shapes.pop(), [split.labels for split in splits.values()]
    classes = max((int(part.max()) + 1 for part in labels if part is not None and len(part)), default=0)
    spec = DataSpec(name="arrays", shape=(channels, height, width), num_classes=classes)
    return LazyDataset(spec, splits.__getitem__)


def _split(name: str, pair: Any) -> Split:
    import torch

    from jembench.interfaces import Split

    pair = getattr(pair, "tensors", pair)
    images, labels = pair if isinstance(pair, tuple | list) and len(pair) == 2 else (pair, None)
    if not hasattr(images, "__array__"):
        raise SpecError(f"The images of {name} are given as {type(images).__name__}. {_ADVICE}")
    images = torch.as_tensor(images)
    if images.ndim == 3:
        images = images[:, None]
    if images.dtype != torch.uint8 or images.ndim != 4 or not len(images):
        raise SpecError(
            f"The images of {name} are {images.dtype} of shape {tuple(images.shape)}; they must be uint8 (N, C, H, W) "
            "or (N, H, W), at least one of them. Convert floats in [0, 1]: (255 * images).round().to(torch.uint8)."
        )
    if labels is None:
        return Split(images, None)
    labels = torch.as_tensor(labels)
    if labels.is_floating_point() or labels.shape != images.shape[:1] or int(labels.min()) < 0:
        raise SpecError(
            f"The labels of {name} are {labels.dtype} of shape {tuple(labels.shape)}; they must be whole numbers from "
            f"0, one for each of {len(images)} images."
        )
    return Split(images, labels.long())
