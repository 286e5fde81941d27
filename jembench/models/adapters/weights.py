"""The importer of plain state dictionaries: of any model here, or of the network within it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from torch import Tensor, nn

from jembench.catalog import registry
from jembench.catalog.spec import Spec
from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import DataSpec, Import
from jembench.models.adapters import foreign
from jembench.store.checkpoint import misfits

_NET = "net."
"""What the names of a model's network begin with."""


class StateDict:
    """Reads ``torch.save(model.state_dict(), ...)`` and safetensors, of the model itself or of its network ``net``.

    Args:
        prefix: what the names to be read begin with, and what is taken off them; "": all are read as they are.
        entry: which state dictionary, where the file holds several: ``outer.inner``; "": the only one.
    """

    def __init__(self, prefix: str, entry: str) -> None:
        self.prefix = prefix
        self.entry = entry

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """The weights, in the model's names.

        Raises:
            CheckpointError: if the file cannot be read, if no name begins with the prefix, or if the model's names are
                there behind another one.
            SpecError: if no model is named.
        """
        if model is None:
            raise SpecError(
                "A plain state_dict does not say which model it is of. Name it: --model baseline:net=wrn-28-10."
            )
        found = foreign.state_dict(foreign.read(path), path, self.entry)
        mine, unused = self._part(found, path)
        made: nn.Module = registry.resolve("models", model).make(data)
        known = _names(made)
        if mine.keys() not in known and (prefixes := _prefixes(found, known)):
            raise CheckpointError(
                f"{path} holds every name of {model} behind {' and behind '.join(map(repr, prefixes))}. Take that off: "
                f"{' or '.join(map(self._command, prefixes))}. Names that begin otherwise are then left out."
            )
        return Import(model=model, weights=_as_of_model(mine, made), unused=unused)

    def _part(self, weights: Mapping[str, Tensor], path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """What begins with the prefix, without it, as it was saved or before it was wrapped; and the other names.

        Raises:
            CheckpointError: if nothing does.
        """
        for written in (weights, foreign.unwrapped(weights)):
            mine = _behind(self.prefix, written)
            if mine:
                others = tuple(name for name in written if not name.startswith(self.prefix))
                return foreign.unwrapped(mine), others
        raise CheckpointError(
            f"No name in {path} begins with {self.prefix!r}; one of them is {next(iter(weights))}. Choose another "
            "prefix, or leave it out."
        )

    def _command(self, prefix: str) -> str:
        arguments = {"prefix": prefix, **({"entry": self.entry} if self.entry else {})}
        return f"`jembench import {Spec('weights', tuple(arguments.items()))}`"


def _as_of_model(weights: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """The weights as the model's own, or as those of its network: whichever fits better."""
    as_network = {f"{_NET}{name}": tensor for name, tensor in weights.items()}
    return min(weights, as_network, key=lambda named: len(misfits(model, named)))


def _names(model: nn.Module) -> tuple[set[str], set[str]]:
    """Those of the model, and of its network."""
    own = set(model.state_dict())
    return own, {name.removeprefix(_NET) for name in own}


def _prefixes(found: Mapping[str, Tensor], known: Collection[set[str]]) -> list[str]:
    """Behind which prefixes, the shortest ones, the names in a file are known ones."""
    heads = dict.fromkeys(name[: dot.end()] for name in found for dot in re.finditer(r"\.", name))
    fitting = [head for head in heads if _behind(head, found).keys() in known]
    return [head for head in fitting if not any(head != other and head.startswith(other) for other in fitting)]


def _behind(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
