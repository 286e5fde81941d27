"""Classifiers of three libraries, as jembench models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jembench.plugin import Content, Neutral, Range, SpecError, path_of, pretrained

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
    """Return a folder's files by name; a single file has no name.

    The names are part of the model's identity.
    """
    place = path_of(str(folder))
    files: list[Path] = []
    for pattern in _OF_FOLDER:
        files += sorted(place.glob(pattern))
    if len(files) == 1:
        return {"": files[0]}
    return {file.name: file for file in files}


def _is_measured(options: Mapping[str, Any]) -> bool:
    return bool(options["weights"] != "none" and not options["train"])


def _model(
    library: str,
    data: DataSpec,
    model: str,
    weights: str,
    size: int | None,
    *,
    train: bool,
    freeze: Literal["none", "statistics", "trunk"],
) -> LibraryClassifier:
    from jembench_zoo import networks

    if train and weights == "none":
        raise SpecError("train=true trains given weights on, and weights is none. Leave train out.")
    if freeze != "none" and not train:
        raise SpecError(
            f"freeze={freeze} keeps parts of weights that are trained on. Set train=true, or leave "
            "freeze out."
        )
    make = getattr(networks, f"of_{library}")
    made: LibraryClassifier = make(data, model, weights, size, train=train)
    return made.freeze(freeze)


measured = pretrained(when=_is_measured)
"""The mark of a factory whose models are measured as they are if they have weights."""

Weights = Annotated[str, Content(_weights_file)]
Size = Annotated[int | None, Range(least=1)]
Train = Annotated[bool, Neutral()]
Freeze = Annotated[Literal["none", "statistics", "trunk"], Neutral()]


@measured
def timm(
    data: DataSpec,
    *,
    model: str,
    weights: Weights = "none",
    size: Size = None,
    train: Train = False,
    freeze: Freeze = "none",
) -> LibraryClassifier:
    """A network of timm, by its name in ``timm.list_models()``."""
    return _model("timm", data, model, weights, size, train=train, freeze=freeze)


@measured
def torchvision(
    data: DataSpec,
    *,
    model: str,
    weights: Weights = "none",
    size: Size = None,
    train: Train = False,
    freeze: Freeze = "none",
) -> LibraryClassifier:
    """A network of torchvision, by its name in ``torchvision.models``.

    ``torchvision.models.list_models(torchvision.models)`` lists the names.
    """
    return _model("torchvision", data, model, weights, size, train=train, freeze=freeze)


@measured
def hf(
    data: DataSpec,
    *,
    model: Annotated[str, Content(_files_of)],
    weights: Weights = "none",
    size: Size = None,
    train: Train = False,
    freeze: Freeze = "none",
) -> LibraryClassifier:
    """An image classifier of transformers.

    ``model`` is a repository in Hugging Face's cache, a folder, or a type of model (``vit``).
    """
    return _model("transformers", data, model, weights, size, train=train, freeze=freeze)
