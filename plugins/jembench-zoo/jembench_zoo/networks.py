"""Networks of timm, torchvision and transformers, adapted to a dataset and trained by cross-entropy.

Nothing is downloaded: weights and configurations come from files, or from the caches of the libraries.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import LogitModel, hybrid_loss
from jembench.parts import Weights as LossWeights
from jembench.plugin import SpecError, Unavailable

_SMALLEST = 32  # pixels: what networks for photographs reduce to one position
_NO_CODE = {"trust_remote_code": False}
"""An option of transformers: code in a folder is refused. By default it asks at the terminal whether to run it."""

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class LibraryClassifier(LogitModel):
    """A network for colour images of one size, trained by cross-entropy on the images of a dataset.

    Args:
        net: (B, 3, size, size) -> (B, K), or to an object with these as ``logits``.
        data: the description of the images; grey ones are shown as three equal channels.
        size: height and width to which images are scaled, in pixels.
        mean: of the three channels, for images in [0, 1].
        std: of the three channels.
    """

    chains: Chains = "none"

    def __init__(self, net: nn.Module, data: DataSpec, size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(net)
        self.bounds, self.size = data.bounds, size
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        low, high = self.bounds
        if x.shape[-2:] != (self.size, self.size):
            x = F.interpolate(x, (self.size, self.size), mode="bilinear", antialias=max(x.shape[-2:]) > self.size)
        return super().forward(((x - low) / (high - low) - self.mean) / self.std)

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return CE(f(x_l), y_l)."""
        return hybrid_loss(self, batch, negatives, LossWeights(cross_entropy=1))


def of_timm(data: DataSpec, model: str, weights: str, size: int | None) -> LibraryClassifier:
    """Return a network of timm.

    Raises:
        Unavailable: if timm or the weights are missing.
        SpecError: if there is no such network, or it does not fit the images or the weights.
    """
    timm = _library("timm", "timm")
    if not timm.is_model(model):
        raise _no_network("timm", model, timm.list_models())
    config = timm.get_pretrained_cfg(model)
    size = _size(data, size, weights, config.input_size[-1])
    for options in ({"img_size": size}, {}):  # only networks with positions have the option
        with suppress(TypeError), _fitting(f"timm:{model}", size):
            net = timm.create_model(model, num_classes=data.num_classes, **options)
            break
    if weights == "cache":
        weights = _cached(config.hf_hub_id or model)
    return _adapted(f"timm:{model}", net, data, size, config.mean, config.std, weights)


def of_torchvision(data: DataSpec, model: str, weights: str, size: int | None) -> LibraryClassifier:
    """Return a network of torchvision; errors as for :func:`of_timm`."""
    models = _library("torchvision", "torchvision").models
    known = models.list_models(models)
    if model not in known:
        raise _no_network("torchvision", model, known)
    default = models.get_model_weights(model).DEFAULT
    size = _size(data, size, weights, default.transforms().crop_size[0])
    has_positions = "image_size" in inspect.signature(models.get_model_builder(model)).parameters
    options = {"image_size": size} if has_positions or model.startswith("vit_") else {}
    with _fitting(f"torchvision:{model}", size):
        net = models.get_model(model, weights=None, num_classes=data.num_classes, **options)
    if weights == "cache":
        file = Path(torch.hub.get_dir()) / "checkpoints" / default.url.rpartition("/")[2]
        if not file.is_file():
            raise Unavailable(f"The weights of {model} are not in torch's cache: fetch {default.url} to {file}.")
        weights = str(file)
    return _adapted(f"torchvision:{model}", net, data, size, *_IMAGENET, weights)


def of_transformers(data: DataSpec, model: str, weights: str, size: int | None) -> LibraryClassifier:
    """Return an image classifier of transformers; errors as for :func:`of_timm`."""
    transformers = _library("transformers", "hf")
    transformers.logging.set_verbosity_error()  # its report of replaced last layers and its bars are no part of a run
    transformers.logging.disable_progress_bar()
    folder = Path(model).expanduser()
    try:
        if folder.is_dir() or "/" in model:
            config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, **_NO_CODE)
        else:
            config = transformers.AutoConfig.for_model(model)
        native = getattr(config, "image_size", 224)
        config.num_labels, size = data.num_classes, _size(data, size, weights, native)
        if hasattr(config, "image_size"):
            config.image_size = size
        net = transformers.AutoModelForImageClassification.from_config(config, **_NO_CODE)
        if weights != "none":  # transformers renames tensors as it loads them
            source = model if weights == "cache" else str(Path(weights).expanduser())
            net, report = type(net).from_pretrained(
                source, config=config, local_files_only=True, ignore_mismatched_sizes=True, output_loading_info=True
            )
            lacking = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
            _check_lacking(f"hf:{model}", source, lacking, net.state_dict(), data.num_classes)
    except OSError as error:
        raise Unavailable(
            f"{model} and its weights are neither a folder nor in the cache: run `hf download {model}`."
        ) from error
    except ValueError as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise SpecError(
            f"hf:{model} is no image classifier of transformers: {reason}. Write hf:vit, for example."
        ) from error
    return _adapted(f"hf:{model}", net, data, size, (0.5,) * 3, (0.5,) * 3, "none")


def _library(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name} is not installed: pip install 'jembench-zoo[{extra}]'.") from error


def _no_network(library: str, model: str, known: Sequence[str]) -> SpecError:
    near = difflib.get_close_matches(model, known, 4) or known[:4]
    return SpecError(f"{library} has no network {model!r}. Some of its {len(known)} names are {', '.join(near)}.")


@contextmanager
def _fitting(name: str, size: int) -> Iterator[None]:
    """Raise the errors of a network that cannot have images of a size as SpecError."""
    try:
        yield
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise SpecError(f"{name} fails for images of {size} pixels: {reason}. Give another size=, as 224.") from error


def _size(data: DataSpec, size: int | None, weights: str, native: int) -> int:
    """Return the size of images for the network: as asked for, as the weights were trained, or as the images are.

    Raises:
        SpecError: if the images are unlabelled, or neither grey nor coloured.
    """
    channels, height, width = data.shape
    if data.num_classes < 1 or channels not in (1, 3):
        raise SpecError(
            f"{data.name} has {channels} channels and {data.num_classes} classes; networks of libraries need labelled "
            "images of 1 or 3 channels. Choose another dataset."
        )
    return size or (max(_SMALLEST, height, width) if weights == "none" else native)


def _cached(repository: str) -> str:
    hub = _library("huggingface_hub", "timm")
    if isinstance(file := hub.try_to_load_from_cache(repository, "model.safetensors"), str):
        return file
    raise Unavailable(f"The weights of {repository} are not in the cache: run `hf download {repository}`.")


def _adapted(
    name: str, net: nn.Module, data: DataSpec, size: int, mean: Sequence[float], std: Sequence[float], weights: str
) -> LibraryClassifier:
    """Return the model of a network that was tried on two images.

    Args:
        weights: "none", or a file; the last layer stays as it is if the numbers of classes differ.
    """
    if weights != "none":
        _load(name, net, data.num_classes, Path(weights).expanduser())
    model = LibraryClassifier(net, data, size, mean, std).eval()
    with _fitting(name, size), torch.no_grad():
        model(torch.zeros(2, *data.shape))
    return model.train()


def _load(name: str, net: nn.Module, classes: int, file: Path) -> None:
    try:
        if file.suffix == ".safetensors":
            found = import_module("safetensors.torch").load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, which has no one class
        raise Unavailable(f"The weights {file} cannot be read: {error}") from error
    own = net.state_dict()
    fitting = {key: found[key] for key in own if key in found and found[key].shape == own[key].shape}
    _check_lacking(name, str(file), own.keys() - fitting.keys(), own, classes)
    net.load_state_dict(fitting, strict=False)


def _check_lacking(name: str, source: str, lacking: Set[str], own: Mapping[str, Tensor], classes: int) -> None:
    """Check that weights lack nothing but the last layer, whose weights are drawn for other classes.

    Raises:
        SpecError: if other tensors are missing or have other shapes.
    """
    missing = sorted(key for key in lacking if own[key].ndim and len(own[key]) != classes)
    if missing:
        raise SpecError(
            f"The weights {source} do not fit {name}: {len(missing)} of {len(own)} tensors differ or are missing, "
            f"first {missing[0]}. Give the weights of this network, and the size they were trained with (size=224)."
        )
