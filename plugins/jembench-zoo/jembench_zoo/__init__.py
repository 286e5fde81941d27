"""Classifiers of three libraries, as jembench models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Content, Range, path_of

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_zoo.classifier import LibraryClassifier


_OF_FOLDER = (
    *("config.json", "preprocessor_config.json", "processor_config.json"),
    *("*.safetensors", "*.bin"),
)
"""The files of a folder of transformers that decide what a network computes."""


def _weights_file(text: str) -> Mapping[str, Path]:
    if text in ("none", "cache"):
        return {}
    path = path_of(text)
    files = _files_of(path)
    if files:
        return files
    return {"": path / "model.safetensors" if path.is_dir() else path}


def _files_of(folder: str | Path) -> Mapping[str, Path]:
    """Return the files of a folder; one alone has no name.

    The names are part of the identity.
    """
    place = path_of(str(folder))
    files: list[Path] = []
    for pattern in _OF_FOLDER:
        files += sorted(place.glob(pattern))
    if len(files) == 1:
        return {"": files[0]}
    return {file.name: file for file in files}


Weights = Annotated[str, Content(_weights_file)]
Size = Annotated[int | None, Range(least=1)]


def timm(
    data: DataSpec, *, model: str, weights: Weights = "none", size: Size = None
) -> LibraryClassifier:
    """A network of timm, by its name in ``timm.list_models()``."""
    from jembench_zoo import networks

    return networks.of_timm(data, model, weights, size)


def torchvision(
    data: DataSpec, *, model: str, weights: Weights = "none", size: Size = None
) -> LibraryClassifier:
    """A network of torchvision, by its name in ``torchvision.models``.

    ``torchvision.models.list_models(torchvision.models)`` lists the names.
    """
    from jembench_zoo import networks

    return networks.of_torchvision(data, model, weights, size)


def hf(
    data: DataSpec,
    *,
    model: Annotated[str, Content(_files_of)],
    weights: Weights = "none",
    size: Size = None,
) -> LibraryClassifier:
    """An image classifier of transformers.

    It is a repository in its cache, a folder, or a type of model (``vit``).
    """
    from jembench_zoo import networks

    return networks.of_transformers(data, model, weights, size)
