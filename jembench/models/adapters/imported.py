"""A model from a file of weights that ``jembench import`` wrote, and the file itself.

The file is one safetensors file: ``weights/NAME`` are the model's state, ``chains/NAME`` its sampler's, and the header
says how both are made (:mod:`jembench.models.adapters.header`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from jembench.catalog import registry, trust
from jembench.data.datasets import unread
from jembench.errors import CheckpointError, SpecError
from jembench.files import digest
from jembench.interfaces import DataSpec, Import, Sampler, SavedChains
from jembench.models.adapters import header as headers
from jembench.models.adapters.header import Header
from jembench.store import tensors
from jembench.store.checkpoint import misfits


class Imported(NamedTuple):
    """What :func:`import_file` has written."""

    found: Import
    parameters: int  # numbers in the weights


def import_file(importer: str, file: Path, model: str | None, dataset: str, target: Path) -> Imported:
    """Write a model file from the weights in a file that was made elsewhere.

    Args:
        importer: the spec of what reads the file.
        file: what is read; no code in it is run.
        model: the spec of the model that the weights are of; None: the file says it.
        dataset: the spec of the dataset that it was trained on.
        target: the file to write.

    Raises:
        CheckpointError: if the file is damaged or something does not fit; all of it is listed.
        SpecError: if a name does not exist, or the file names code that the user did not.
        StoreError: if the target cannot be written.
    """
    data = unread(registry.resolve("datasets", dataset)).spec
    reader = registry.resolve("importers", importer)
    found = reader.make().read(file, data, model)
    trust.refuse_code([found.model, found.chains.sampler if found.chains else ""], str(file))
    made = fit_together(found, data, file)
    write(target, found, data, {"importer": str(reader.component), "file": file.name, "sha256": digest(file)})
    return Imported(found, sum(parameter.numel() for parameter in made.parameters()))


def fit_together(found: Import, data: DataSpec, where: Path) -> nn.Module:
    """The model with its weights, after everything has been found to fit; or nothing.

    Raises:
        CheckpointError: that lists every name, shape and kind of number that does not fit, and everything that is not
            finite in the model's precision.
        SpecError: if there is no such model or sampler.
    """
    model: nn.Module = registry.resolve("models", found.model).make(data)
    wrong = misfits(model, found.weights)
    wrong += [f"{name} is not finite" for name in _not_finite(found.weights, model.state_dict())]
    if wrong:
        raise CheckpointError(
            f"The weights in {where} do not fit {found.model}, and nothing was imported: {'; '.join(wrong)}. Name the "
            "model that they are of with --model, and the dataset that it was trained on with --dataset."
        )
    model.load_state_dict(found.weights)
    if found.chains:
        _check_chains(found.chains, data, where)
    return model


def _not_finite(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> list[str]:
    """The names of what holds NaN or infinity, or will when it is loaded: a float64 may be too large for a float32."""
    return sorted(
        name
        for name, tensor in tensors.items()
        if name in own and tensor.is_floating_point() and not tensor.to(own[name].dtype).isfinite().all()
    )


def _check_chains(chains: SavedChains, data: DataSpec, where: Path) -> None:
    sampler = sampler_of(chains.sampler, chains.state, data)
    if wrong := _not_finite(chains.state, sampler.state_dict()):
        raise CheckpointError(
            f"The chains in {where} hold numbers that are not finite, and nothing was imported: {', '.join(wrong)}. "
            "Take them out, or import weights of a training that did not diverge."
        )


def sampler_of(spec: str, state: Mapping[str, Tensor], data: DataSpec) -> Sampler:
    """A sampler with the chains that it kept.

    Raises:
        CheckpointError: if they do not fit.
        SpecError: if there is no such sampler.
    """
    sampler: Sampler = registry.resolve("samplers", spec).make(data)
    sampler.load_state_dict(state)
    return sampler


def write(path: Path, found: Import, data: DataSpec, source: Mapping[str, str]) -> None:
    """Write what was imported, atomically.

    Raises:
        StoreError: if the file cannot be written.
    """
    parts = {"weights": found.weights, "chains": found.chains.state if found.chains else {}}
    named = {f"{part}/{name}": value for part, state in parts.items() for name, value in state.items()}
    sampler = found.chains.sampler if found.chains else ""
    header = Header(found.model, sampler, data, dict(source), found.unused)
    tensors.write(path, named, headers.record(header), "--output")


def load(path: Path, data: DataSpec) -> Any:
    """The model of such a file, with its chains if it has some (:class:`~jembench.interfaces.models.HasSampler`).

    Raises:
        CheckpointError: if the file is damaged.
        SpecError: if it is of another dataset than ``data``.
    """
    header = headers.read(path)
    contents = tensors.read(path, "Import the weights again: `jembench import --help` says how.")
    if (header.data.shape, header.data.num_classes) != (data.shape, data.num_classes):
        raise SpecError(
            f"{path} holds a model for {header.data.name}, {list(header.data.shape)} with {header.data.num_classes} "
            f"classes, and {data.name} has {list(data.shape)} with {data.num_classes}. Choose a dataset of that shape "
            "with --dataset."
        )
    parts = _parts(contents.tensors)
    model = fit_together(Import(model=header.model, weights=parts["weights"]), data, path)
    if header.sampler:
        cast(Any, model).own_sampler = lambda: sampler_of(header.sampler, parts["chains"], data)
    return model


def _parts(named: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {"weights": {}, "chains": {}}
    for key, tensor in named.items():
        part, _, name = key.partition("/")
        found.setdefault(part, {})[name] = tensor
    return found
