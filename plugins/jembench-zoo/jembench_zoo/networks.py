"""Networks of timm, torchvision and transformers for a dataset.

The networks are trained by cross-entropy.

Nothing is downloaded: weights and configurations come from files, or from the caches of the
libraries.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jembench.errors import Remark
from jembench.interfaces import DataSpec
from jembench.models.labels import outputs_of_classes
from jembench.models.preparation import Preparation
from jembench.plugin import SpecError, Unavailable, path_of
from jembench_zoo.classifier import (
    MEASURED,
    LibraryClassifier,
    Pretrained,
    adapted,
    check_weights,
    first_sentence,
    fitting,
    last_layer,
    tried,
)
from jembench_zoo.libraries import library
from jembench_zoo.preparation import Reference, of_processor, of_transform, remark_on

_SMALLEST = 32  # pixels: what networks for photographs reduce to one position
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALVES = (0.5, 0.5, 0.5)

_OF_TENSORFLOW = ("googlenet", "inception_v3")
"""Networks of torchvision whose weights expect images that they normalise again."""


_LOCAL = {"local_files_only": True, "trust_remote_code": False}
"""The options by which transformers fetches and runs nothing."""


def of_timm(
    data: DataSpec, model: str, weights: str, size: int | None, *, train: bool
) -> LibraryClassifier:
    """Return a network of timm.

    Raises:
        Unavailable: if timm or the weights are missing.
        SpecError: if there is no such network, or it does not fit the images or the weights.
    """
    timm = library("timm", "timm")
    _check_images(data)
    if not timm.is_model(model):
        raise _no_network("timm", model, timm.list_models())
    config = timm.get_pretrained_cfg(model)
    pretrained: Pretrained | None = None
    if weights == "none":
        size = _size(data, size)
        preparation = _plain(size, config.mean, config.std)
    else:
        file = _cached(config.hf_hub_id or model) if weights == "cache" else weights
        settings = timm.data.resolve_data_config(pretrained_cfg=config.to_dict())
        transform = timm.data.create_transform(**settings, is_training=False)
        preparation, reference = of_transform(transform, *_geometry(settings), data.shape)
        names = config.label_names or _names_of_imagenet(config.num_classes)
        pretrained = Pretrained(path_of(file), names, None if size else reference)
        preparation, size = _sized(preparation, data, size)

    def build(classes: int) -> nn.Module:
        for options in ({"img_size": size}, {}):  # only networks with position embeddings take it
            with suppress(TypeError), fitting(f"timm:{model}", size):
                net: nn.Module = timm.create_model(model, num_classes=classes, **options)
                break
        return net

    return adapted(f"timm:{model}", build, data, preparation, pretrained, train=train)


def of_torchvision(
    data: DataSpec, model: str, weights: str, size: int | None, *, train: bool
) -> LibraryClassifier:
    """Return a network of torchvision; errors as for :func:`of_timm`."""
    models = library("torchvision", "torchvision").models
    _check_images(data)
    names = models.list_models(models)
    if model not in names:
        raise _no_network("torchvision", model, names)
    published = models.get_model_weights(model)
    options: dict[str, Any] = {}
    pretrained: Pretrained | None = None
    if weights == "none":
        size = _size(data, size)
        preparation = _plain(size, *_IMAGENET)
    else:
        url = published.DEFAULT.url
        file = _in_cache_of_torch(model, url) if weights == "cache" else path_of(weights)
        # the preparation of these weights, if they are published ones
        of_file = [entry for entry in published if Path(entry.url).name == file.name]
        entry = [*of_file, published.DEFAULT][0]
        transform = entry.transforms()
        method = transform.interpolation.value
        sizes = transform.resize_size[0], transform.crop_size[0]
        preparation, reference = of_transform(transform, *sizes, method, data.shape)
        pretrained = Pretrained(file, entry.meta["categories"], None if size else reference)
        preparation, size = _sized(preparation, data, size)
        options = {"transform_input": True} if model in _OF_TENSORFLOW else {}
    parameters = inspect.signature(models.get_model_builder(model)).parameters
    if "image_size" in parameters or model.startswith("vit_"):
        options["image_size"] = size

    def build(classes: int) -> nn.Module:
        with fitting(f"torchvision:{model}", size):
            of_classes = {**options, "num_classes": classes}
            net: nn.Module = models.get_model(model, weights=None, **of_classes)
        return net

    return adapted(f"torchvision:{model}", build, data, preparation, pretrained, train=train)


def _in_cache_of_torch(model: str, url: str) -> Path:
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(url).name
    if not file.is_file():
        raise Unavailable(
            f"The weights of {model} are not in torch's cache: fetch {url} to {file}."
        )
    return file


def of_transformers(
    data: DataSpec, model: str, weights: str, size: int | None, *, train: bool
) -> LibraryClassifier:
    """Return an image classifier of transformers; errors as for :func:`of_timm`."""
    transformers = library("transformers", "hf")
    _check_images(data)
    transformers.logging.set_verbosity_error()  # replaced last layers and bars are no part of a run
    transformers.logging.disable_progress_bar()
    folder, name = path_of(model), f"hf:{model}"
    factory = transformers.AutoModelForImageClassification
    with _errors_of_transformers(model):
        config = _config(transformers, model, folder)
        if weights == "none":
            if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
                raise SpecError(
                    f"{name} holds weights, which would not be used. weights=cache measures them, "
                    "and weights=cache,train=true trains them on. For a new network of this kind "
                    "name a folder with config.json alone."
                )
            size = _size(data, size)
            config.num_labels = data.num_classes
            if hasattr(config, "image_size"):
                config.image_size = size
            net = factory.from_config(config, trust_remote_code=False)
            return tried(name, net, data, _plain(size, _HALVES, _HALVES), None)

        # preparation and outputs are those of the weights
        source = str(folder) if weights == "cache" else str(path_of(weights))
        labelled = config
        if Path(source, "config.json").is_file():
            labelled = transformers.AutoConfig.from_pretrained(source, **_LOCAL)
        sources = [source, str(folder)]
        preparation, reference = _of_auto_processor(transformers, sources, config, data)
        if size:
            reference = None
        preparation, size = _sized(preparation, data, size)
        if hasattr(config, "image_size"):
            config.image_size = size
        names = [labelled.id2label[place] for place in range(labelled.num_labels)]
        outputs = outputs_of_classes(
            name, names, labelled.num_labels, data, "" if train else MEASURED
        )
        config.num_labels = labelled.num_labels if outputs else data.num_classes
        kind = type(factory.from_config(config))  # the class renames tensors as it loads
        options = {"ignore_mismatched_sizes": True, "output_loading_info": True}
        net, report = kind.from_pretrained(source, config=config, local_files_only=True, **options)
    # the last layer is the one whose shape depends on the number of classes
    mismatched = {key for key, *_ in report["mismatched_keys"]}
    lacking = mismatched | set(report["missing_keys"])
    more = copy.deepcopy(config)
    more.num_labels += 1
    head = last_layer(net, factory.from_config(more))
    check_weights(name, source, net, lacking, head, outputs, train=train)
    remark_on(name, preparation, reference, data.shape)
    return tried(name, net, data, preparation, outputs, head)


def _config(transformers: Any, model: str, folder: Path) -> Any:
    if folder.is_dir() or "/" in model:
        config = transformers.AutoConfig.from_pretrained(str(folder), **_LOCAL)
    else:
        config = transformers.AutoConfig.for_model(model)
    config.architectures = config.architectures or []  # some families fail on None
    return config


@contextmanager
def _errors_of_transformers(model: str) -> Iterator[None]:
    """Raise the errors of transformers with their remedies."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{model} and its weights are neither a folder nor in the cache: run `hf download "
            f"{model}`."
        ) from error
    except ValueError as error:
        reason = first_sentence(error)
        raise SpecError(
            f"hf:{model} is no image classifier of transformers: {reason}. Write hf:vit, for "
            "example."
        ) from error


def _of_auto_processor(
    transformers: Any, sources: Sequence[str], config: Any, data: DataSpec
) -> tuple[Preparation, Reference | None]:
    """Return the preparation of the first source that has one.

    Without any, the mean and the standard deviation are .5, with a remark.
    """
    for source in sources:
        with suppress(OSError, ValueError):  # this source has none
            processor = transformers.AutoImageProcessor.from_pretrained(source, **_LOCAL)
            return of_processor(processor, data.shape)
    warnings.warn(
        f"{sources[0]} has no preprocessor_config.json: its mean and standard deviation are taken "
        "to be .5. Copy the file from where the weights are from.",
        Remark,
        stacklevel=2,
    )
    size = getattr(config, "image_size", 224)
    return _plain(size, _HALVES, _HALVES), None


def _geometry(settings: Mapping[str, Any]) -> tuple[int | tuple[int, int], int, str]:
    """Return the sizes and the filter of timm's settings."""
    _, height, width = settings["input_size"]
    share = settings["crop_pct"]
    scaled = int(height / share), int(width / share)
    is_square = scaled[0] == scaled[1] and settings["crop_mode"] != "squash"
    return scaled[0] if is_square else scaled, height, settings["interpolation"]


def _names_of_imagenet(classes: int) -> Sequence[str]:
    """Return the WordNet ids of ImageNet's classes in timm's order."""
    info = import_module("timm.data")
    subset = info.infer_imagenet_subset({"num_classes": classes})
    return info.ImageNetInfo(subset).label_names() if subset else ()


def _plain(size: int, mean: Sequence[float], std: Sequence[float]) -> Preparation:
    sides = (size, size)
    return Preparation(resize=sides, mean=tuple(mean), std=tuple(std))


def _sized(preparation: Preparation, data: DataSpec, size: int | None) -> tuple[Preparation, int]:
    """Return the preparation with the user's size, and the resulting size."""
    if size:
        preparation = dataclasses.replace(preparation, resize=(size, size), crop=None)
    return preparation, preparation.shape(data)[1]


def _check_images(data: DataSpec) -> None:
    """Check that networks of libraries can take the images of a dataset.

    Raises:
        SpecError: if the images are unlabelled, or neither grey nor coloured.
    """
    channels = data.shape[0]
    if data.num_classes < 1 or channels not in (1, 3):
        raise SpecError(
            f"{data.name} has {channels} channels and {data.num_classes} classes; networks of "
            "libraries need labelled images of 1 or 3 channels. Choose another dataset."
        )


def _no_network(library: str, model: str, known: Sequence[str]) -> SpecError:
    near = difflib.get_close_matches(model, known, 4) or known[:4]
    return SpecError(
        f"{library} has no network {model!r}. Some of its {len(known)} names are {', '.join(near)}."
    )


def _size(data: DataSpec, size: int | None) -> int:
    """Return the size of images for a network without weights."""
    _, height, width = data.shape
    return size or max(_SMALLEST, height, width)


def _cached(repository: str) -> str:
    hub = library("huggingface_hub", "timm")
    if isinstance(file := hub.try_to_load_from_cache(repository, "model.safetensors"), str):
        return file
    raise Unavailable(
        f"The weights of {repository} are not in the cache: run `hf download {repository}`."
    )
