"""The factories of the adapters. Each imports its module when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jembench.catalog.contents import the_file
from jembench.catalog.options import Content, Names, pretrained
from jembench.catalog.validation import Range
from jembench.errors import SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench.models.adapters.generator import Generated
    from jembench.models.adapters.weights import StateDict


@pretrained()
def imported(data: DataSpec, *, file: Annotated[str, Content()]) -> Any:
    """A model that was trained elsewhere, from the file that `jembench import` wrote of its weights."""
    from jembench.models.adapters.imported import load

    return load(Path(file), data)


def _script(module: str) -> Mapping[str, Path]:
    return {} if ":" in module and not Path(module).exists() else the_file(module)


@pretrained()
def generator(
    data: DataSpec,
    *,
    module: Annotated[str, Content(_script), Names()],
    latent: Annotated[int, Range(least=0)] = 0,
    conditional: bool = False,
    pixels: Literal["model", "-1..1", "0..1", "0..255"] = "model",
) -> Generated:
    """Anything that makes images: a function n -> images or z -> images, or a TorchScript file.

    With ``latent`` it is called with ``latent`` standard normal numbers per image instead of n; a ``conditional`` one
    is called with labels too. ``pixels`` is the range of its images; ``model``: the bounds of the dataset.
    """
    from jembench.models.adapters.generator import Generated, load

    if conditional and not data.num_classes:
        raise SpecError(f"{data.name} is unlabelled, so there are no labels to generate by. Write conditional=false.")
    return Generated(data, load(module), module, latent=latent, conditional=conditional, pixels=pixels)


def weights(*, prefix: str = "", entry: str = "") -> StateDict:
    """Plain state dictionaries (.pt, .safetensors) of a model here, or of its network; `prefix` comes off names.

    ``entry`` says which one, where a file holds several: ``entry=ema``, ``entry=checkpoint.model``.
    """
    from jembench.models.adapters.weights import StateDict

    return StateDict(prefix, entry)
