"""Files of tensors that other programs wrote: read without running what is in them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from jembench.errors import CheckpointError


def read(path: Path) -> Any:
    """What a ``.safetensors`` or a PyTorch file holds, its tensors on the CPU.

    Raises:
        CheckpointError: if it cannot be read, or holds objects whose making would run code.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of unusual files: they are read, or refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds more than tensors, or is damaged, and loading it could run code, which jembench never does. "
            "Where you trust it, load it there with torch.load(..., weights_only=False) and save the state_dict alone: "
            f"torch.save(model.state_dict(), ...). PyTorch says: {_first_line(error)}"
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path} is no file of weights that can be read ({_first_line(error)}). Give a .safetensors file, or one "
            "that torch.save wrote of a state_dict."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    """The one state dictionary in what a file holds: itself, or what lies under a usual name.

    Raises:
        CheckpointError: if there is none, or something else than tensors lies in it.
    """
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
            break
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a state_dict: save model.state_dict().")
    others = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        raise CheckpointError(
            f"{path} holds no state_dict: {', '.join(others[:5])} are no tensors. Save model.state_dict() alone, or "
            'under the name "state_dict".'
        )
    return {str(name): tensor for name, tensor in content.items()}


def without_prefix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights without a prefix that all their names begin with; as they are, if not all do."""
    if all(name.startswith(prefix) for name in weights):
        return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return dict(weights)
