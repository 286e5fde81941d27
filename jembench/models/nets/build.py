"""From the text of a ``net=`` option to a network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from jembench.catalog import discovery
from jembench.errors import PluginError, SpecError, error_text
from jembench.interfaces import DataSpec
from jembench.models.execution import mode
from jembench.models.nets import names
from jembench.models.nets.wide_resnet import MOMENTUM, ResidualNet

_FORMS = (
    "Write wrn-DEPTH-WIDTH (wrn-28-10), small-WIDTH (small-12), half-WIDTH (half-48), scaled-WIDTH (scaled-32), auto "
    "(small-16 below 32 pixels, else wrn-28-10), or the import path of a function that is called with the DataSpec "
    "(mypackage.nets:build)."
)
_SMALLEST_FOR_WIDE = 32  # pixels


def build_net(
    text: str, data: DataSpec, *, norm: str = "none", dropout: float = 0.0, momentum: float = MOMENTUM
) -> nn.Module:
    """The network that ``text`` names, (B, C, H, W) -> (B, K) for the images and classes of ``data``.

    Args:
        text: ``wrn-28-10``, ``small-12``, ``half-48``, ``scaled-32``, ``auto`` or an import path.
        data: what the network will see.
        norm: none, batch, instance, layer or act; a network given by its import path has its own.
        dropout: the share of each block's maps that is dropped in training; likewise.
        momentum: of the running statistics of batch norm; likewise.

    Raises:
        SpecError: if the text or an option is not one of these, or the data have no classes.
        PluginError: if the network at the import path cannot be loaded or does not give (B, K).
    """
    channels, height, width = data.shape
    if data.num_classes < 1:
        raise SpecError(f"{data.name} is unlabelled, and the net {text} gives a logit per class. Choose labelled data.")
    if text == "auto":
        text = "small-16" if min(height, width) < _SMALLEST_FOR_WIDE else "wrn-28-10"
    if shape := names.read(text):
        shape = shape.for_image(height, width)
        return ResidualNet(channels, data.num_classes, shape, norm=norm, dropout=dropout, momentum=momentum)
    if ":" in text:
        return _build_own(text, data, {"norm": norm != "none", "dropout": dropout != 0})
    raise SpecError(f"There is no net named {text!r}. {_FORMS}")


def _build_own(path: str, data: DataSpec, asked: Mapping[str, bool]) -> nn.Module:
    for option in (name for name, is_asked in asked.items() if is_asked):
        raise SpecError(f"{option} has no effect on the net {path}, which brings its own. Leave {option} out.")
    net = discovery.load(discovery.find("models", path))(data)
    if not isinstance(net, nn.Module):
        raise PluginError(f"{path} gave a {type(net).__name__} for {data.name}; it must return a torch.nn.Module.")
    check_net(path, net, data)
    return net


def _remedy(net: nn.Module) -> str:
    types = {str(parameter.dtype) for parameter in net.parameters()} - {"torch.float32"}
    if types:
        return f"Its weights are {' and '.join(sorted(types))}, and images are torch.float32: return it with .float()."
    return "It is called with the DataSpec: take the image size from data.shape."


def check_net(path: str, net: nn.Module, data: DataSpec) -> None:
    """Show the network two blank images before any time is spent on it.

    Raises:
        PluginError: if it fails on them, or does not give (2, K).
    """
    images = torch.zeros(2, *data.shape, device=next((p.device for p in net.parameters()), None))
    expected = (2, data.num_classes)
    try:
        with torch.no_grad(), mode(net, train=False):
            output = net(images)
            output = getattr(output, "logits", output)
    except Exception as error:
        raise PluginError(
            f"The net {path} fails on two images of {data.name}, shape {tuple(images.shape)}: "
            f"{error_text(error)}. {_remedy(net)}"
        ) from error
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if shape != expected:
        raise PluginError(
            f"The net {path} gives {shape} for two images of {data.name}; it must give logits of shape {expected}, "
            "one row an image and one column a class. Take the number of classes from data.num_classes."
        )
