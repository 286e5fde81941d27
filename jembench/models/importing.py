"""Weights that other programs wrote, read without running code from the file and checked against a model."""

import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jembench import limits
from jembench.catalog import registry
from jembench.errors import CheckpointError, SpecError, error_text
from jembench.files import open_regular
from jembench.interfaces import DataSpec, Import
from jembench.models.objective import as_model
from jembench.store import tensors
from jembench.store.checkpoint import misfits

_REMEDY = "Give a .safetensors file, or one that torch.save wrote of a state_dict: torch.save(model.state_dict(), ...)."

_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that nn.DataParallel and torch.compile put before every name."""


def read(path: Path) -> Any:
    """Return the content of a safetensors or a PyTorch file, its tensors on the CPU.

    The first bytes tell the two apart, not the name.

    Raises:
        CheckpointError: if the file cannot be read, or holds objects that can only be loaded by running code.
        SpecError: if its contents exceed the limits.
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
        with warnings.catch_warnings(), path.open("rb") as stream:  # given a path, torch.load would go by the name
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
    """Return the state dictionary in the content of a file, the content itself or a nested one.

    Args:
        content: of the file.
        path: of the file, for errors.
        entry: the keys that lead to the dictionary, ``outer.inner``; "": there is only one.

    Raises:
        CheckpointError: if there is none, or if there are several and ``entry`` names none of them.
    """
    candidates = dict(_state_dicts(content))
    if not candidates:
        raise CheckpointError(f"{path} holds no state_dict, a dictionary of dense tensors alone. {_REMEDY}")
    if entry not in candidates and (entry or len(candidates) > 1):
        wrong = f"has no state_dict {entry!r}" if entry else "holds several state_dicts"
        names = ", ".join(name or "itself" for name in list(candidates)[:5])
        raise CheckpointError(f"{path} {wrong}; those in it: {names}. Name one: `jembench import weights:entry=NAME`.")
    chosen = candidates.get(entry) or next(iter(candidates.values()))
    return {str(name): tensor for name, tensor in chosen.items()}


def _state_dicts(content: Any, place: str = "", depth: int = 3) -> Iterator[tuple[str, Mapping[Any, Tensor]]]:
    """Yield the dictionaries of tensors in nested ones, to a limited depth: a dictionary may contain itself."""
    if isinstance(content, Mapping) and content:
        if all(isinstance(item, Tensor) and is_plain(item) for item in content.values()):
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
        prefix: of the names to read; it is removed from them. "": all names are read unchanged.
        entry: the keys that lead to the state dictionary, ``outer.inner``; "": there is only one.
    """

    prefix: str
    entry: str

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """Read the weights, and return them under the model's names.

        Raises:
            CheckpointError: if the file cannot be read, or no name begins with the prefix.
            SpecError: if no model is named.
        """
        if model is None:
            raise SpecError(
                "A plain state_dict does not say which model it is of. Name it: --model baseline:net=wrn-28-10."
            )
        found = unwrapped(state_dict(read(path), path, self.entry))
        mine = {name.removeprefix(self.prefix): value for name, value in found.items() if name.startswith(self.prefix)}
        if not mine:
            raise CheckpointError(
                f"No name in {path} begins with {self.prefix!r}; one of them is {next(iter(found))}. Choose another "
                "prefix, or leave it out."
            )
        unused = tuple(name for name in found if not name.startswith(self.prefix))
        made = as_model(registry.resolve("models", model).make(data), data, model)
        own = unwrapped(mine)
        as_network = {f"net.{name}": tensor for name, tensor in own.items()}
        weights = min(own, as_network, key=lambda named: len(misfits(made, named)))
        return Import(model=model, weights=weights, unused=unused)


def fit_together(imported: Import, data: DataSpec, where: Path) -> nn.Module:
    """Return the model with the imported weights, once all of them are known to fit.

    Raises:
        CheckpointError: listing every name, shape and type that does not fit, and every tensor that is not finite in
            the model's precision.
        SpecError: if there is no such model.
    """
    model: nn.Module = as_model(registry.resolve("models", imported.model).make(data), data, imported.model)
    not_finite = [f"{name} is not finite" for name in non_finite(imported.weights, model)]
    wrong = misfits(model, imported.weights) + not_finite
    if wrong:
        raise CheckpointError(
            f"The weights in {where} do not fit {imported.model}, and nothing was imported: {'; '.join(wrong)}. Name "
            "the model that they are of with --model, and the dataset that it was trained on with --dataset; "
            "`weights:prefix=model.` removes a prefix from all names."
        )
    model.load_state_dict(imported.weights)
    return model


def non_finite(state: Mapping[str, Tensor], owner: Any) -> list[str]:
    """Return the names of tensors with NaN or infinity, before or after conversion to the model's types."""
    own = owner.state_dict()
    return sorted(
        name
        for name, tensor in state.items()
        if name in own and tensor.is_floating_point() and not tensor.to(own[name].dtype).isfinite().all()
    )
