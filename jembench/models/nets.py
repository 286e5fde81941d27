"""Networks, built from the text of a ``net=`` option."""

import re

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jembench.catalog import registry
from jembench.errors import PluginError, SpecError, error_text
from jembench.interfaces import DataSpec
from jembench.models.energies import logits_in
from jembench.models.execution import in_full, mode
from jembench.models.wide_resnet import MOMENTUM, ResidualNet, Shape

_FORMS = (
    "Write, with numbers below 10,000, wrn-DEPTH-WIDTH (wrn-28-10), small-WIDTH (small-12), "
    "half-WIDTH (half-48), scaled-WIDTH (scaled-32), mlp-WIDTH (mlp-128), auto (small-16 below 32 "
    "pixels, else wrn-28-10), the import path of a function that is called with the DataSpec "
    "(mypackage.nets:build), or a model with its options (torchvision:resnet18)."
)
_SMALLEST_FOR_WIDE = 32  # pixels

_SHAPED = re.compile(
    r"(?P<kind>wrn-(?P<depth>[1-9]\d{0,3})|small|half|scaled|mlp)-(?P<width>[1-9]\d{0,3})"
)
"""The names of shapes. Depth and width have at most four digits, so that no name asks for more
Python objects than fit into memory.
"""


def wide(depth: int, width: int) -> Shape:
    """Return WRN-d-k: (d - 4) / 6 blocks a group, of 16k, 32k and 64k channels.

    Raises:
        SpecError: if the depth is not 6n + 4 with n >= 1.
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise SpecError(
            f"A wide residual network has a depth of 6n + 4 with n >= 1, and {depth} is not. "
            "Write 10, 16, 22 or 28."
        )
    return Shape(16, (16 * width, 32 * width, 64 * width), blocks)


def small(width: int, stride: int = 1) -> Shape:
    """Return the shape with one block in each of the groups of w, 2w and 4w channels."""
    return Shape(width, (width, 2 * width, 4 * width), 1, stride)


class Perceptron(nn.Module):
    """Two hidden layers with SiLU and a linear head on all numbers of an image.

    Its energies are smooth, and it takes any shape.

    The numbers are tripled first, so that bounds of [-1, 1] reach the curved parts of SiLU at
    PyTorch's initialisation.

    Args:
        dimensions: C * H * W.
        num_classes: K.
        width: of the hidden layers.
    """

    def __init__(self, dimensions: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Linear(dimensions, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
        )
        self.class_output = nn.Linear(width, num_classes)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return f(x)."""
        return in_full(self.class_output, self.hidden(3 * x))


def build_net(
    text: str,
    data: DataSpec,
    *,
    norm: str = "none",
    dropout: float = 0.0,
    momentum: float = MOMENTUM,
) -> nn.Module:
    """Return the network that ``text`` names, (B, C, H, W) -> (B, K).

    It is for the images and classes of ``data``.

    ``half`` halves the image in its first convolution, a quarter of the work; ``scaled`` makes maps
    of about 16 pixels whatever the size of the images, so that images of any size cost about the
    same.

    Args:
        text: ``wrn-28-10``, ``small-12``, ``half-48``, ``scaled-32``, ``mlp-128``, ``auto``, an
            import path, or a model that is a network, with its options.
        data: the description of the images.
        norm: none, batch, instance or layer; not for ``mlp`` and import paths, which bring their
            own.
        dropout: the share of each block's maps that is dropped in training; not for ``mlp`` and
            import paths either.
        momentum: of the running statistics of batch norm.

    Raises:
        SpecError: if there is no such network or norm, or the data have no classes.
        PluginError: if the network at the import path cannot be loaded or does not give (B, K).
    """
    channels, height, width = data.shape
    if data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and the net {text} gives a logit per class. Choose "
            "labelled data."
        )
    if text == "auto":
        text = "small-16" if min(height, width) < _SMALLEST_FOR_WIDE else "wrn-28-10"
    if match := _SHAPED.fullmatch(text):
        if match["kind"] == "mlp":
            _refuse_norm(text, norm, dropout)
            return Perceptron(data.dimensions, data.num_classes, int(match["width"]))
        if match["depth"]:
            shape = wide(int(match["depth"]), int(match["width"]))
        else:
            strides = {"small": 1, "half": 2, "scaled": max(1, round(min(height, width) / 16))}
            shape = small(int(match["width"]), strides[match["kind"]])
        return ResidualNet(
            channels, data.num_classes, shape, norm=norm, dropout=dropout, momentum=momentum
        )
    if ":" in text:
        _refuse_norm(text, norm, dropout)
        net = registry.resolve("models", text).make(data)
        if not isinstance(net, nn.Module):
            raise PluginError(
                f"{text} gave a {type(net).__name__} for {data.name}; it must return a "
                "torch.nn.Module."
            )
        check_net(text, net, data)
        return net
    raise SpecError(f"There is no net named {text[:40]!r}. {_FORMS}")


def _refuse_norm(text: str, norm: str, dropout: float) -> None:
    if norm != "none" or dropout:
        raise SpecError(
            f"norm and dropout have no effect on the net {text}, which brings its own. Leave them "
            "out."
        )


_TAKES_DATA = "It is called with the DataSpec: take the image size from data.shape."


def check_net(path: str, net: nn.Module, data: DataSpec) -> None:
    """Check that the network gives (2, K) logits for two blank images.

    Raises:
        PluginError: if it fails on them, or does not give (2, K).
    """
    shape = shape_of_logits(path, net, data, _TAKES_DATA)
    expected = (2, data.num_classes)
    if shape != expected:
        raise PluginError(
            f"The net {path} gives {shape} for two images of {data.name}; it must give logits of "
            f"shape {expected}, one row an image and one column a class. Take the number of "
            "classes from data.num_classes."
        )


def shape_of_logits(path: str, net: nn.Module, data: DataSpec, advice: str) -> object:
    """Return the shape of a network's logits for two blank images, or their type.

    Args:
        path: of the network, for errors.
        net: the network.
        data: the description of the images.
        advice: the remedy for a network that fails.

    Raises:
        PluginError: if it fails on the images.
    """
    device = next((parameter.device for parameter in net.parameters()), None)
    images = torch.zeros(2, *data.shape, device=device)
    try:
        with torch.no_grad(), mode(net, train=False):
            output = logits_in(net(images))
    except Exception as error:
        if any(parameter.dtype == torch.float64 for parameter in net.parameters()):
            advice = "It has weights in float64: call its method float(), or convert the images."
        raise PluginError(
            f"The net {path} fails on two float32 images of {data.name}, shape "
            f"{tuple(images.shape)}: {error_text(error)}. {advice}"
        ) from error
    return tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
