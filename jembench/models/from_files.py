"""Networks of files: weights beside a model's spec, and TorchScript.

Legend: B batch, C channels, H height, W width, K classes.
"""

import warnings
from typing import Any

import torch
from torch import nn

from jembench.catalog import registry
from jembench.errors import CheckpointError, PluginError, Remark, SpecError, error_text
from jembench.files import path_of
from jembench.interfaces import DataSpec
from jembench.models import importing
from jembench.models.adapted import Adapted, Outputs, adapted
from jembench.models.energies import LogitModel, gradient
from jembench.models.preparation import Preparation


def with_weights(
    model: str,
    data: DataSpec,
    preparation: Preparation,
    outputs: Outputs,
    *,
    weights: str,
    entry: str,
    prefix: str,
) -> Adapted:
    """Return the model of a spec as :func:`adapted` does, with the weights of a file.

    Names of classes in the file are those of the outputs, if ``outputs`` is empty.

    Args:
        model: the spec of the network.
        data: the description of the dataset.
        preparation: the input of the network.
        outputs: as for :func:`adapted`.
        weights: the path of the file; "": the network keeps its own weights.
        entry: the keys of the state dictionary in the file; "": there is only one.
        prefix: of the names in the file; "": it is searched.

    Raises:
        CheckpointError: if the weights do not fit.
        SpecError: if the model has weights and an input of its own.
    """
    path = path_of(weights)
    content = importing.read(path) if weights else None
    if not outputs:
        outputs = importing.names_of_outputs(content)

    def build(seen: DataSpec) -> Any:
        resolved = registry.resolve("models", model)
        net = resolved.make(seen)
        if isinstance(net, Adapted):  # a network of a library, with a preparation of its own
            if resolved.is_pretrained:
                raise SpecError(
                    f"{model} has weights, and the input that belongs to them. Name it without "
                    "adapted, or give the weights to adapted, not to the network: weights=FILE."
                )
            net = net.net
        if weights and isinstance(net, nn.Module):
            named = importing.weights_of(net, content, path, prefix=prefix, entry=entry)
            importing.load(net, named.tensors, model, path)
        return net

    return adapted(model, build, data, preparation, outputs)


class Scripted(LogitModel):
    """A network of TorchScript; ``differentiable`` says whether its logits have gradients."""

    differentiable = True


def scripted(file: str, data: DataSpec) -> Scripted:
    """Return the network in a file of TorchScript, after a pass of two blank images.

    Raises:
        CheckpointError: if the file is no TorchScript, or its network fails on the images.
    """
    path = path_of(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of newer versions: another format
            load: Any = torch.jit.load
            net: nn.Module = load(str(path), map_location="cpu")
    except (RuntimeError, ValueError, OSError) as error:
        reason = error_text(error).partition("\n")[0]
        raise CheckpointError(
            f"{path} cannot be read as TorchScript, which torch.jit.save writes: {reason}. For "
            "weights without code, name the network: adapted:model=my:Net,weights=FILE."
        ) from error
    model = Scripted(net.eval())
    try:
        x = torch.zeros(2, *data.shape, requires_grad=True)
        gradient(model(x), x)
    except (PluginError, RuntimeError):  # a network that fails without gradients fails again
        model.differentiable = False
        text = f"{path} has no gradients towards images: what needs them is not applicable."
        warnings.warn(text, Remark, stacklevel=2)
    return model
