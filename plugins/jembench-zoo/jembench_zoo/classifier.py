"""Networks of libraries as classifiers of a dataset, with weights and without.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from jembench.errors import Remark
from jembench.interfaces import DataSpec
from jembench.models import importing
from jembench.models.adapted import AdaptedClassifier
from jembench.models.labels import outputs_of_classes
from jembench.models.preparation import Preparation
from jembench.plugin import SpecError
from jembench_zoo.preparation import Reference, remark_on

MEASURED = (
    "Given weights are measured as they are. Name the classes as the outputs are, or train the "
    "weights on: train=true."
)
"""The remedy for a network whose outputs are not those of the classes."""


class LibraryClassifier(AdaptedClassifier):
    """A network of a library, of which parts may be frozen."""

    head: Set[str] = frozenset()  # names of the last layer's tensors, of a network with weights
    frozen = "none"

    def freeze(self, part: str) -> LibraryClassifier:
        """Keep the trunk, or only the statistics of batch norm, unchanged by training.

        Args:
            part: none, statistics or trunk, which is every layer but the last.
        """
        self.frozen = part
        if part == "trunk":
            for name, parameter in self.net.named_parameters():
                parameter.requires_grad_(name in self.head)
        return self.train()

    def train(self, mode: bool = True) -> LibraryClassifier:
        """Set the mode of all modules but frozen ones."""
        super().train(mode)
        for module in self.net.modules():
            is_frozen = self.frozen == "statistics" and isinstance(module, _BatchNorm)
            if is_frozen or self.frozen == "trunk":
                module.eval()
        return self


class Pretrained(NamedTuple):
    """A file of weights, and what the library says of the weights."""

    file: Path
    names: Sequence[str] = ()  # of the outputs
    reference: Reference | None = None  # the library's own preparation of a picture


def adapted(
    name: str,
    build: Callable[[int], nn.Module],
    data: DataSpec,
    preparation: Preparation,
    pretrained: Pretrained | None,
    *,
    train: bool,
) -> LibraryClassifier:
    """Return the model of a network, with pretrained weights if given.

    Args:
        name: of the model, for errors.
        build: makes the network for a number of classes.
        data: the description of the images.
        preparation: of the images.
        pretrained: the weights; their last layer stays if its outputs have the classes of the data.
        train: True if they are to be trained on, when another last layer is drawn at random.
    """
    net = build(data.num_classes)
    if pretrained is None:
        return tried(name, net, data, preparation, None)
    with torch.random.fork_rng(devices=[]):
        head = last_layer(net, build(data.num_classes + 1))
    content = importing.read(pretrained.file)
    weights = importing.unwrapped(importing.state_dict(content, pretrained.file))
    numbers = {len(weights[key]) for key in head & weights.keys() if weights[key].ndim}
    number = numbers.pop() if len(numbers) == 1 else data.num_classes
    names = pretrained.names if len(pretrained.names) == number else ()
    outputs = outputs_of_classes(name, names, number, data, "" if train else MEASURED)
    if outputs and number != data.num_classes:
        net = build(number)
    own = net.state_dict()
    fitting = {}
    for key in own.keys() & weights.keys():
        if weights[key].shape == own[key].shape:
            fitting[key] = weights[key]
    net.load_state_dict(fitting, strict=False)
    lacking = own.keys() - fitting.keys()
    check_weights(name, str(pretrained.file), net, lacking, head, outputs, train=train)
    remark_on(name, preparation, pretrained.reference, data.shape)
    return tried(name, net, data, preparation, outputs, head)


def tried(
    name: str,
    net: nn.Module,
    data: DataSpec,
    preparation: Preparation,
    outputs: Sequence[int] | None,
    head: Set[str] = frozenset(),
) -> LibraryClassifier:
    """Return the model of a network that was tried on two images.

    Raises:
        SpecError: if the network fails on the images, or does not give a logit per class.
    """
    model = LibraryClassifier(net, data, preparation, outputs).eval()
    model.head = head
    with fitting(name, preparation.shape(data)[1]), torch.no_grad():
        logits = model(torch.zeros(2, *data.shape))
        if isinstance(logits, Tensor):
            shape: object = tuple(logits.shape)
        else:
            shape = type(logits).__name__
    if shape != (2, data.num_classes):
        raise SpecError(
            f"{name} gives {shape} for two images of {data.name}, but a classifier gives one logit "
            f"per class, (2, {data.num_classes}). Choose another network."
        )
    return model.train()


def last_layer(net: nn.Module, wider: nn.Module) -> Set[str]:
    """Return the names of the last layer's tensors, which differ in a network for more classes."""
    own = net.state_dict()
    return {key for key, tensor in wider.state_dict().items() if tensor.shape != own[key].shape}


def check_weights(
    name: str,
    source: str,
    net: nn.Module,
    lacking: Set[str],
    head: Set[str],
    outputs: Sequence[int] | None,
    *,
    train: bool,
) -> None:
    """Check that weights lack no tensors of a network, or those of its last layer alone.

    Args:
        name: of the model.
        source: of the weights.
        net: the network.
        lacking: names of tensors that are missing, or have another shape.
        head: names of the last layer's tensors.
        outputs: each class's output; None: the user was already told of a new last layer.
        train: whether the network is trained on.

    Raises:
        SpecError: if other tensors are missing or have other shapes, or a network that is not
            trained lacks its last layer.
    """
    own = net.state_dict()
    missing = sorted(key for key in lacking - head if own[key].ndim)
    if missing:
        raise SpecError(
            f"The weights {source} do not fit {name}: {len(missing)} of {len(own)} tensors differ "
            f"or are missing, first {missing[0]}. Give the weights of this network, and the size "
            "they were trained with (size=224)."
        )
    if lacking & head and not train:
        raise SpecError(
            f"The weights {source} lack the last layer of {name}, and given weights are measured "
            "as they are. Give whole weights, or train these on: train=true."
        )
    if lacking & head and outputs is not None:
        text = f"The weights {source} lack the last layer of {name}, which is drawn at random."
        warnings.warn(text, Remark, stacklevel=2)


@contextmanager
def fitting(name: str, size: int) -> Iterator[None]:
    """Raise errors from images of a wrong size as SpecError."""
    try:
        yield
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = first_sentence(error)
        raise SpecError(
            f"{name} fails for images of {size} pixels: {reason}. Give another size=, such as 224."
        ) from error


def first_sentence(error: Exception) -> str:
    """Return the first sentence of an error."""
    line = str(error).partition("\n")[0]
    return line.partition(". ")[0].rstrip(".")
