"""The importer of plain state dictionaries: of any model here, or of the network within it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from torch import Tensor, nn

from jembench import registry
from jembench.adapters import foreign
from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import DataSpec, Import
from jembench.spec import Spec
from jembench.training.checkpoint import misfits

_NET = "net."
"""What the names of a model's network begin with."""


class StateDict:
    """Reads ``torch.save(model.state_dict(), ...)`` and safetensors, of the model itself or of its network ``net``.

    Args:
        prefix: what is taken off every name.
        entry: which state dictionary, where the file holds several: ``outer.inner``; "": the only one.
    """

    def __init__(self, prefix: str, entry: str) -> None:
        self.prefix = prefix
        self.entry = entry

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """The weights, in the model's names.

        Raises:
            CheckpointError: if the file cannot be read, or its names differ from the model's by a prefix.
            SpecError: if no model is named.
        """
        if model is None:
            raise SpecError(
                "A plain state_dict does not say which model it is of. Name it: --model baseline:net=wrn-28-10."
            )
        found = foreign.state_dict(foreign.read(path), path, self.entry)
        weights = self._bare(found, path)
        made: nn.Module = registry.resolve("models", model).make(data)
        known = _names(made)
        if weights.keys() not in known and (prefix := _one_prefix(found, known)):
            arguments = {"prefix": prefix, **({"entry": self.entry} if self.entry else {})}
            raise CheckpointError(
                f"Every name in {path} begins with {prefix!r}, and those of {model} are the same without it. Take it "
                f"off: `jembench import {Spec('weights', tuple(arguments.items()))}`."
            )
        return Import(model=model, weights=_as_of_model(weights, made))

    def _bare(self, weights: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
        """The weights without the prefix, as they were saved or as they were before they were wrapped."""
        for written in (weights, foreign.unwrapped(weights)):
            if all(name.startswith(self.prefix) for name in written):
                return foreign.unwrapped(foreign.without_prefix(written, self.prefix))
        other = next(name for name in weights if not name.startswith(self.prefix))
        raise CheckpointError(
            f"Not every name in {path} begins with {self.prefix!r}: {other} does not. Choose another prefix, or leave "
            "it out."
        )


def _as_of_model(weights: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """The weights as the model's own, or as those of its network: whichever fits better."""
    as_network = {f"{_NET}{name}": tensor for name, tensor in weights.items()}
    return min(weights, as_network, key=lambda named: len(misfits(model, named)))


def _names(model: nn.Module) -> tuple[set[str], set[str]]:
    """Those of the model, and of its network."""
    own = set(model.state_dict())
    return own, {name.removeprefix(_NET) for name in own}


def _one_prefix(found: Collection[str], known: Iterable[set[str]]) -> str:
    """What alone stands between the names in a file and known ones; "" if nothing does."""
    example = min(found)
    heads = (example[: dot.end()] for dot in re.finditer(r"\.", example))
    return next((head for head in heads if set(found) in [{head + name for name in names} for names in known]), "")
