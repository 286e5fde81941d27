"""The importer of plain state dictionaries: of any model here, or of the network within it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from jembench import registry
from jembench.adapters import foreign
from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Import
from jembench.training.checkpoint import misfits

_WRAPPERS = ("module.", "_orig_mod.")
"""What nn.DataParallel and torch.compile put before every name."""


class StateDict:
    """Reads ``torch.save(model.state_dict(), ...)`` and safetensors, of the model itself or of its network ``net``.

    Args:
        prefix: what is taken off every name first.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """The weights, in the model's names.

        Raises:
            CheckpointError: if the file cannot be read.
            SpecError: if no model is named.
        """
        if model is None:
            raise SpecError(
                "A plain state_dict does not say which model it is of. Name it: --model baseline:net=wrn-28-10."
            )
        weights = foreign.state_dict(foreign.read(path), path)
        for prefix in (*_WRAPPERS, self.prefix):
            weights = foreign.without_prefix(weights, prefix)
        made: nn.Module = registry.resolve("models", model).make(data)
        return Import(model=model, weights=_as_of_model(weights, made))


def _as_of_model(weights: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """The weights of a model's network as the model's, where only these fit."""
    as_network = {f"net.{name}": tensor for name, tensor in weights.items()}
    return as_network if misfits(model, weights) and not misfits(model, as_network) else weights
