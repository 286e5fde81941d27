"""The factory of the importer of plain weights. Imports no torch until it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jembench.models.importing import StateDict


def weights(*, prefix: str = "", entry: str = "") -> StateDict:
    """Plain state dictionaries (.pt, .safetensors) of a model here, or of its network; `prefix` comes off names.

    ``entry`` says which one, where a file holds several: ``entry=ema``, ``entry=checkpoint.model``.
    """
    from jembench.models.importing import StateDict

    return StateDict(prefix, entry)
