"""Weights that other programs wrote: read without running what is in the file, and checked against a model."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jembench.catalog import limits, registry
from jembench.errors import CheckpointError, SpecError, error_text
from jembench.files import open_regular
from jembench.interfaces import DataSpec, Import, Trainable
from jembench.models.capabilities import capabilities
from jembench.models.objective import as_classifier
from jembench.store import tensors
from jembench.store.checkpoint import misfits

_REMEDY = "Give a .safetensors file, or one that torch.save wrote of a state_dict: torch.save(model.state_dict(), ...)."

_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that nn.DataParallel and torch.compile put before every name."""


def read(path: Path) -> Any:
    """Return the content of a safetensors or a PyTorch file, its tensors on the CPU.

    The first bytes say which of the two it is, not the name.

    Raises:
        CheckpointError: if the file cannot be read, or holds objects whose making would run code.
        SpecError: if it holds too much.
    """
    try:
        with open_regular(path) as stream:
            start = stream.read(16)
        if start[4:9] == b"\0\0\0\0{":  # a header behind its length in eight bytes; it is never of 4 GB
            limits.check(str(path), tensors.read_seal(path, _REMEDY).number, limits.TENSORS)
            return tensors.read(path, _REMEDY).tensors
        if start.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(path) as archive:
                limits.check_archive(path, archive)
        with warnings.catch_warnings(), path.open("rb") as stream:  # by its path, torch.load would go by its name
            warnings.simplefilter("ignore", UserWarning)  # of unusual files: they are read, or refused below
            return torch.load(stream, map_location="cpu", weights_only=True)
    except (CheckpointError, SpecError):
        raise
    except Exception as error:  # damaged bytes make the readers raise anything
        raise CheckpointError(
            f"{path} is damaged, or holds more than tensors; loading that could run code, which jembench never does. "
            f"{_REMEDY} PyTorch says: {error_text(error)[:300]}"
        ) from error


def state_dict(content: Any, path: Path, entry: str = "") -> dict[str, Tensor]:
    """Return the state dictionary in the content of a file, or the one that lies in it.

    Args:
        content: of the file.
        path: of the file.
        entry: where in it the dictionary lies, ``outer.inner``; "": there is but one.

    Raises:
        CheckpointError: if there is none, several, or one of tensors that are not stored as plain numbers.
    """
    found = dict(_state_dicts(content))
    if not found:
        raise CheckpointError(f"{path} holds no state_dict, a dictionary of tensors alone. {_REMEDY}")
    if entry not in found and (entry or len(found) > 1):
        wrong = f"has no state_dict {entry!r}" if entry else "holds several state_dicts"
        names = ", ".join(name or "itself" for name in list(found)[:5])
        raise CheckpointError(f"{path} {wrong}; those in it: {names}. Name one: `jembench import weights:entry=NAME`.")
    weights = {str(name): tensor for name, tensor in (found.get(entry) or next(iter(found.values()))).items()}
    if others := [name for name, tensor in weights.items() if not is_plain(tensor)]:
        raise CheckpointError(
            f"{path} holds tensors that are not stored as plain numbers: {', '.join(others[:5])}. Save them dense and "
            "with their values."
        )
    return weights


def _state_dicts(content: Any, place: str = "", depth: int = 3) -> Iterator[tuple[str, Mapping[Any, Tensor]]]:
    """Yield the dictionaries of tensors in nested ones; a dictionary may hold itself, so the depth is limited."""
    if isinstance(content, Mapping) and content:
        if all(isinstance(item, Tensor) for item in content.values()):
            yield place, content
        elif depth:
            for name, part in content.items():
                if isinstance(name, str):  # numbers name the state of an optimiser
                    yield from _state_dicts(part, f"{place}.{name}".lstrip("."), depth - 1)


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is stored as plain numbers: neither quantized nor sparse, and with values."""
    return not tensor.is_quantized and tensor.layout is torch.strided and tensor.device.type == "cpu"


def unwrapped(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without the prefixes that nn.DataParallel and torch.compile put before every name."""
    bare = dict(weights)
    while prefix := next((each for each in _WRAPPERS if bare and all(name.startswith(each) for name in bare)), ""):
        bare = {name.removeprefix(prefix): tensor for name, tensor in bare.items()}
    return bare


class StateDict(NamedTuple):
    """The importer of ``torch.save(model.state_dict(), ...)`` and safetensors, of a model or of its network ``net``.

    Args:
        prefix: of the names to be read, which is removed; "": all are read as they are.
        entry: which state dictionary, where the file holds several: ``outer.inner``; "": the only one.
    """

    prefix: str
    entry: str

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """Return the weights, in the model's names.

        Raises:
            CheckpointError: if the file cannot be read, or no name begins with the prefix.
            SpecError: if no model is named.
        """
        if model is None:
            raise SpecError(
                "A plain state_dict does not say which model it is of. Name it: --model baseline:net=wrn-28-10."
            )
        found = state_dict(read(path), path, self.entry)
        if not any(name.startswith(self.prefix) for name in found):
            found = unwrapped(found)  # the prefix is one behind those of wrappers
        mine = {name.removeprefix(self.prefix): value for name, value in found.items() if name.startswith(self.prefix)}
        if not mine:
            raise CheckpointError(
                f"No name in {path} begins with {self.prefix!r}; one of them is {next(iter(found))}. Choose another "
                "prefix, or leave it out."
            )
        unused = tuple(name for name in found if not name.startswith(self.prefix))
        made = _make(model, data)
        own = unwrapped(mine)
        as_network = {f"net.{name}": tensor for name, tensor in own.items()}
        weights = min(own, as_network, key=lambda named: len(misfits(made, named)))
        return Import(model=model, weights=weights, unused=unused)


def _make(spec: str, data: DataSpec) -> nn.Module:
    """Return the model as a fit has it: a network without a model's methods becomes a classifier."""
    model: nn.Module = registry.resolve("models", spec).make(data)
    is_network = not capabilities(model) and not isinstance(model, Trainable)
    return as_classifier(model, data, spec) if is_network else model


def fit_together(found: Import, data: DataSpec, where: Path) -> nn.Module:
    """Return the model with its weights, after everything has been found to fit.

    Raises:
        CheckpointError: that lists every name, shape and kind of number that does not fit, and everything that is not
            finite in the model's precision.
        SpecError: if there is no such model.
    """
    model = _make(found.model, data)
    wrong = misfits(model, found.weights) + [f"{name} is not finite" for name in wild(found.weights, model)]
    if wrong:
        raise CheckpointError(
            f"The weights in {where} do not fit {found.model}, and nothing was imported: {'; '.join(wrong)}. Name the "
            "model that they are of with --model, and the dataset that it was trained on with --dataset; "
            "`weights:prefix=model.` removes a prefix from all names."
        )
    model.load_state_dict(found.weights)
    return model


def wild(state: Mapping[str, Tensor], owner: Any) -> list[str]:
    """Return the names of tensors with NaN or infinity, or that have one when loaded: float64 may exceed float32."""
    own = owner.state_dict()
    return sorted(
        name
        for name, tensor in state.items()
        if name in own and tensor.is_floating_point() and not tensor.to(own[name].dtype).isfinite().all()
    )
