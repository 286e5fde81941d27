"""The importer of core, and networks by name. Torch is imported when they are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jembench.catalog import trust
from jembench.catalog.options import Content, Names, OnlyWith, pretrained
from jembench.catalog.registry import resolve
from jembench.catalog.validation import Range

if TYPE_CHECKING:
    from torch.nn import Module

    from jembench.interfaces import DataSpec
    from jembench.models.adapted import Adapted
    from jembench.models.from_files import Scripted
    from jembench.models.importing import StateDict


def network(
    data: DataSpec,
    *,
    net: Annotated[str, Names("models", paths=False)] = "auto",
    norm: Literal["none", "batch", "instance", "layer"] = "none",
    dropout: float = 0.0,
    momentum: Annotated[float, OnlyWith("norm", "batch")] = 0.1,
) -> Module:
    """Return the network of a model, see :func:`jembench.models.nets.build_net`.

    ``momentum`` is the share of a batch in the running statistics of batch norm.
    """
    from jembench.models.nets import build_net

    return build_net(net, data, norm=norm, dropout=dropout, momentum=momentum)


def _is_measured(options: Mapping[str, Any]) -> bool:
    return bool(options["weights"]) or resolve("models", options["model"]).is_pretrained


@pretrained(when=_is_measured)
def adapted(
    data: DataSpec,
    *,
    model: Annotated[str, Names("models")],
    bounds: str = "0..1",
    mean: str = "0",
    std: str = "1",
    size: Annotated[int | None, Range(least=1)] = None,
    outputs: Annotated[str, Content()] = "",
    weights: Annotated[str, Content()] = "",
    entry: str = "",
    prefix: str = "",
) -> Adapted:
    """A network with a range, a normalisation, a size and outputs of its own.

    ``bounds`` are the network's values of a black and of a white pixel, from which ``mean`` is
    subtracted before ``std`` divides: ``mean=.485+.456+.406,std=.229+.224+.225`` per channel, which
    shows grey images as colours. ``size`` resizes images (bicubic). ``outputs`` is a JSON file: the
    names of the outputs in their order, ``{"0": "cat"}``, or the number of each class's output.
    ``weights`` is a file of weights, which are measured as they are; ``entry`` and ``prefix`` are
    those of the importer ``weights``.
    """
    from jembench.models.from_files import with_weights
    from jembench.models.preparation import preparation

    form = preparation(bounds.split("..", 1), mean.split("+"), std.split("+"), size)
    return with_weights(model, data, form, outputs, weights=weights, entry=entry, prefix=prefix)


@pretrained
def torchscript(data: DataSpec, *, file: Annotated[str, Content()]) -> Scripted:
    """A network of logits in a file of TorchScript, whose code runs.

    Since code runs, only the command line or Python may name the file, and no file of an
    experiment. Gradients are used if the network has any.
    """
    from jembench.models.from_files import scripted

    trust.check(trust.SCRIPT + file)
    return scripted(file, data)


def weights(*, prefix: str = "", entry: str = "") -> StateDict:
    """Plain state dictionaries (.pt, .safetensors) of a model, or of its network.

    `prefix` is removed from names.

    ``entry`` names the state dictionary where a file holds several: ``entry=ema``,
    ``entry=checkpoint.model``.
    """
    from jembench.models.importing import StateDict

    return StateDict(prefix, entry)
