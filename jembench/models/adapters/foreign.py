"""Files of tensors that other programs wrote: read without running what is in them."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from jembench.catalog import limits
from jembench.errors import CheckpointError, SpecError
from jembench.files import open_regular
from jembench.store import tensors

_REMEDY = "Give a .safetensors file, or one that torch.save wrote of a state_dict."

_WRAPPERS = ("module.", "_orig_mod.")
"""What nn.DataParallel and torch.compile put before every name."""

_AVERAGES = "n_averaged"
"""How many weights torch.optim.swa_utils.AveragedModel has averaged: it saves this beside ``module.*``."""


def read(path: Path) -> Any:
    """What a safetensors or a PyTorch file holds, its tensors on the CPU. Its content says which it is, not its name.

    Raises:
        CheckpointError: if it cannot be read, or holds objects whose making would run code.
    """
    try:
        if _format(path) == "safetensors":
            limits.check(str(path), tensors.read_seal(path, _REMEDY).number, limits.TENSORS)
            return tensors.read(path, _REMEDY).tensors
        with warnings.catch_warnings(), path.open("rb") as stream:  # by its path, torch.load would go by its name
            warnings.simplefilter("ignore", UserWarning)  # of unusual files: they are read, or refused below
            return torch.load(stream, map_location="cpu", weights_only=True)
    except (CheckpointError, SpecError):
        raise
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds more than tensors, or is damaged, and loading it could run code, which jembench never does. "
            "Where you trust it, load it there with torch.load(..., weights_only=False) and save the state_dict alone: "
            f"torch.save(model.state_dict(), ...). PyTorch says: {_refused(error)}"
        ) from error
    except Exception as error:  # the readers check little: damaged bytes make them raise anything
        raise CheckpointError(
            f"{path} cannot be read ({_in_short(error)}): it may be damaged or cut short. {_REMEDY}"
        ) from error


def _format(path: Path) -> Literal["safetensors", "torch"]:
    """By the first bytes.

    Raises:
        CheckpointError: if it is neither.
    """
    with open_regular(path) as stream:
        start = stream.read(16)
    if start[4:9] == b"\0\0\0\0{":  # the header, behind its length in eight bytes; it is never of 4 GB
        return "safetensors"
    if start.startswith(b"PK\x03\x04") and zipfile.is_zipfile(path):
        _refuse_other_archives(path)
    elif not start.startswith((b"PK\x03\x04", b"\x80")):  # a torn archive, or a pickle: until PyTorch 1.6 the format
        found = f"it begins with {start!r}" if start else "it is empty"
        raise CheckpointError(f"{path} is no file of weights: {found}. {_REMEDY}")
    return "torch"


def _refuse_other_archives(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        limits.check_archive(path, archive)
        names = {name.rpartition("/")[2] for name in archive.namelist()}
    if "constants.pkl" in names:
        raise CheckpointError(
            f"{path} is a TorchScript file, which holds code. Load it where you trust it, with torch.jit.load, and "
            "save the state_dict alone: torch.save(model.state_dict(), ...)."
        )
    if "data.pkl" not in names:
        kind = "an .npz file of numpy arrays" if any(name.endswith(".npy") for name in names) else "a zip archive"
        raise CheckpointError(f"{path} is {kind} that torch.save did not write. {_REMEDY}")


def _refused(error: Exception) -> str:
    """The line in which PyTorch's safe reader says what it refused; advice stands around it."""
    text = str(error)
    said = text.partition("WeightsUnpickler error:")[2] or text.partition("\n")[2] or text
    return said.strip().splitlines()[0].partition(" Please use ")[0]


def _in_short(error: Exception) -> str:
    said = re.split(r"(?<=\w)\.\s|\n", str(error).strip())[0][:200]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def state_dict(content: Any, path: Path, entry: str = "") -> dict[str, Tensor]:
    """The state dictionary in what a file holds: itself, or the one that lies in it.

    Args:
        content: of the file.
        path: of the file.
        entry: where in it the dictionary lies, ``outer.inner``; "": there is but one.

    Raises:
        CheckpointError: if there is none, several, or one of tensors without values that can be read.
    """
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a state_dict: save model.state_dict().")
    parts = {"": content} if _is_weights(content) else dict(_parts(content))
    found = {name: part for name, part in parts.items() if _is_weights(part)}
    if not found:
        others = [name for name, part in parts.items() if not isinstance(part, Tensor)]
        why = f": {', '.join(others[:5])} are no tensors" if others else ""
        raise CheckpointError(f"{path} holds no state_dict{why}. Save model.state_dict() alone.")
    if entry not in found and (entry or len(found) > 1):
        raise CheckpointError(_choice(list(found), path, entry))
    weights = found[entry] if entry in found else next(iter(found.values()))
    return _dense({str(name): tensor for name, tensor in weights.items()}, path)


def _is_weights(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(item, Tensor) for item in value.values())


def _parts(content: Mapping[Any, Any], within: str = "", depth: int = 3) -> Iterator[tuple[str, Any]]:
    """What lies in a nest of dictionaries, and where: those of tensors whole, everything else one by one.

    What has a number for a name is an optimiser's, not a network's. A nest may hold itself, so its depth is limited.
    """
    for name, part in content.items():
        if not isinstance(name, str):
            continue
        if isinstance(part, Mapping) and part and not _is_weights(part) and depth > 1:
            yield from _parts(part, f"{within}{name}.", depth - 1)
        else:
            yield f"{within}{name}", part


def _choice(found: list[str], path: Path, entry: str) -> str:
    names = ", ".join(name or "itself" for name in found[:5]) + (", ..." if len(found) > 5 else "")
    wrong = f"has no state_dict {entry!r}" if entry else "holds several state_dicts"
    return (
        f"{path} {wrong}; those in it: {names}. Say which: `jembench import weights:entry=NAME`, or save it alone: "
        "torch.save(model.state_dict(), ...)."
    )


def _dense(weights: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights, all of them plain tensors."""
    others = [f"{name} ({kind})" for name, tensor in weights.items() if (kind := peculiar(tensor))]
    if others:
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise CheckpointError(
            f"{path} holds tensors that are not stored as plain numbers: {', '.join(others[:5])}{more}. Save them "
            "dense and with their values: tensor.to_dense() of a sparse one, tensor.dequantize() of a quantized one; "
            "one on the device meta has none."
        )
    return weights


def peculiar(tensor: Tensor) -> str:
    """How a tensor is stored, if not as plain numbers in memory; "" if it is."""
    if tensor.is_quantized:
        return "quantized"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    return "" if tensor.device.type == "cpu" else f"device {tensor.device}"


def without_prefix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights without a prefix that all their names begin with; as they are, if not all do."""
    if all(name.startswith(prefix) for name in weights):
        return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return dict(weights)


def unwrapped(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights without what wrappers put before every name, in whatever order they did.

    They are nn.DataParallel, torch.compile and torch.optim.swa_utils.AveragedModel, whose count is passed over.
    """
    while True:
        bare = _without_count(weights)
        for prefix in _WRAPPERS:
            bare = without_prefix(bare, prefix)
        if bare.keys() == weights.keys():
            return bare
        weights = bare


def _without_count(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights without the count of what was averaged; as they are, if they are no average."""
    rest = {name: tensor for name, tensor in weights.items() if name != _AVERAGES}
    return rest if rest and all(name.startswith("module.") for name in rest) else dict(weights)
