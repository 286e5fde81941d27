"""Other programs' weights, read without running code and checked against a model."""

import argparse
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jembench import limits
from jembench.catalog import registry
from jembench.errors import CheckpointError, SpecError, error_text
from jembench.files import open_regular
from jembench.interfaces import DataSpec, Import
from jembench.models.adapted import Adapted
from jembench.models.labels import folded, in_order, named_elsewhere
from jembench.models.objective import as_model
from jembench.store import tensors
from jembench.store.checkpoint import misfits

_REMEDY = (
    "Give a .safetensors file, or one that torch.save wrote of a state_dict: "
    "torch.save(model.state_dict(), ...)."
)

_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that nn.DataParallel and torch.compile put before every name."""

_INERT: list[Any] = [argparse.Namespace]
"""Classes of settings that files may hold beside weights: they have attributes, and run nothing."""

_RENAMED = (
    ("weight_g", "parametrizations.weight.original0"),
    ("weight_v", "parametrizations.weight.original1"),
    ("weight_orig", "parametrizations.weight.original"),
    ("weight_u", "parametrizations.weight.0._u"),
    ("weight_v", "parametrizations.weight.0._v"),
)
"""The names of ``weight_norm`` and ``spectral_norm`` in ``torch.nn.utils``, old and new."""

_CLASSES = ("classes", "class_names", "categories", "labels", "names", "id2label", "idx_to_class")
"""Keys under which files name the classes in the order of the outputs."""


def read(path: Path) -> Any:
    """Return the content of a safetensors or PyTorch file, with tensors on the CPU.

    The first bytes, not the name, tell the two formats apart.

    Raises:
        CheckpointError: if the file cannot be read, or holds objects that can only be loaded by
            running code.
        SpecError: if its contents exceed the limits.
    """
    try:
        with open_regular(path) as stream:
            start = stream.read(16)
        # safetensors: a header, after its length in eight bytes, which is never 4 GB
        if start[4:9] == b"\0\0\0\0{":
            limits.check(str(path), tensors.read_seal(path, _REMEDY).number, limits.TENSORS)
            return tensors.read(path, _REMEDY).tensors
        if start.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(path) as archive:
                limits.check_archive(path, archive)
        # given a path, torch.load would judge the file by its name
        with warnings.catch_warnings(), path.open("rb") as stream:
            # warnings of unusual files, which are read, or refused below
            warnings.simplefilter("ignore", UserWarning)
            with torch.serialization.safe_globals(_INERT):
                return torch.load(stream, map_location="cpu", weights_only=True)
    except (CheckpointError, SpecError):
        raise
    except Exception as error:  # damaged bytes make the readers raise anything
        raise CheckpointError(
            f"{path} is damaged, or holds more than tensors; loading that could run code, which "
            f"jembench never does. {_REMEDY} PyTorch says: {reason_of(error)}"
        ) from error


def reason_of(error: Exception) -> str:
    """Return why PyTorch refuses a file, without PyTorch's advice to run its code."""
    text = error_text(error)
    refused = re.search(
        r"(?:Unsupported|Trying to|Can only)[^.:]*(?:: )?(?:[\w.]| (?!was|Please))*", text
    )
    if refused and "Weights only load failed" in text:
        return refused[0]
    return text.partition("\n")[0][:300]


def state_dict(content: Any, path: Path, entry: str = "") -> dict[str, Tensor]:
    """Return a file's state dictionary: the content itself, or a nested dictionary.

    Args:
        content: of the file.
        path: of the file, for errors.
        entry: the keys that lead to the dictionary, ``outer.inner``; "": there is only one.

    Raises:
        CheckpointError: if there is none, or if there are several and ``entry`` names none of them.
    """
    candidates = dict(_state_dicts(content))
    if not candidates:
        raise CheckpointError(
            f"{path} holds no state_dict, a dictionary of dense tensors alone. {_REMEDY}"
        )
    if entry not in candidates and (entry or len(candidates) > 1):
        wrong = f"has no state_dict {entry!r}" if entry else "holds several state_dicts"
        names = ", ".join(name or "itself" for name in list(candidates)[:5])
        raise CheckpointError(
            f"{path} {wrong}; those in it: {names}. Name one: `jembench import weights:entry=NAME`."
        )
    chosen = candidates.get(entry) or next(iter(candidates.values()))
    return {str(name): value for name, value in chosen.items() if isinstance(value, Tensor)}


def _state_dicts(
    content: Any, place: str = "", depth: int = 3
) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield the dictionaries of tensors in nested ones, to a limited depth.

    The depth is limited, since a dictionary may contain itself. A dictionary of tensors may also
    hold numbers, texts and settings. A dictionary that holds dictionaries of tensors, other than
    ``_extra_state``, is not yielded.
    """
    if not isinstance(content, Mapping):
        return
    inner: list[tuple[str, Mapping[Any, Any]]] = []
    for name, part in content.items() if depth else ():
        # keys that are numbers are of an optimiser's state
        if isinstance(name, str) and not name.endswith("_extra_state"):
            inner += _state_dicts(part, f"{place}.{name}".lstrip("."), depth - 1)
    yield from inner
    tensors_of = [value for value in content.values() if isinstance(value, Tensor)]
    has_weights = len(tensors_of) == len(content) or any(tensor.ndim for tensor in tensors_of)
    if not inner and tensors_of and has_weights and all(map(is_plain, tensors_of)):
        yield place, content


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is stored as plain numbers.

    It is neither quantized nor sparse, and has values.
    """
    is_dense = not tensor.is_quantized and tensor.layout is torch.strided
    return is_dense and tensor.device.type == "cpu"


def unwrapped(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights without the prefixes of nn.DataParallel and torch.compile.

    The prefixes stand before every name.
    """
    bare = dict(weights)
    while bare and (prefix := _wrapper_of(bare)):
        bare = _below(bare, prefix)
    return bare


def _wrapper_of(names: Iterable[str]) -> str:
    """Return the prefix of a wrapper before all names; "": there is none."""
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for name in names):
            return wrapper
    return ""


def _below(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the weights whose names have a prefix, without the prefix."""
    below = {}
    for name, tensor in weights.items():
        if name.startswith(prefix):
            below[name.removeprefix(prefix)] = tensor
    return below


class StateDict(NamedTuple):
    """The importer of state dictionaries of a model or of its network ``net``.

    Files are those of ``torch.save(model.state_dict(), ...)``, or safetensors.

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
                "A plain state_dict does not say whose weights it holds. Name the model: --model "
                "baseline:net=wrn-28-10."
            )
        content = read(path)
        names = tuple(names_of_outputs(content))
        with _as_named(names, data):
            made = as_model(registry.resolve("models", model).make(data), data, model)
        if not isinstance(made, Adapted) or made.outputs is None:
            check_classes(content, data, path)
        weights, unused = weights_of(made, content, path, prefix=self.prefix, entry=self.entry)
        return Import(model=model, weights=weights, unused=unused, outputs=names)


class Weights(NamedTuple):
    """Weights under a model's names."""

    tensors: dict[str, Tensor]
    unused: tuple[str, ...]  # names of the file that the model does not use


def weights_of(
    model: nn.Module, content: Any, path: Path, *, prefix: str = "", entry: str = ""
) -> Weights:
    """Return a file's weights under a model's names, as far as they fit.

    Args:
        model: the model whose weights they are, or whose network's.
        content: of the file.
        path: of the file, for errors.
        prefix: see :class:`StateDict`; "": names that fit are searched below each prefix.
        entry: see :class:`StateDict`.

    Raises:
        CheckpointError: if the file holds no state dictionary or several, or if no name begins with
            the prefix, or if the weights below several prefixes fit, such as averaged ones.
    """
    whole = state_dict(content, path, entry)
    weights = unwrapped(whole)
    if not _below(weights, prefix):
        weights = whole  # the prefix may begin with a wrapper's
    if not _below(weights, prefix):
        raise CheckpointError(
            f"No name in {path} begins with {prefix!r}; one of them is "
            f"{next(iter(weights))}. Choose another prefix, or leave it out."
        )
    tried: dict[str, dict[str, Tensor]] = {}
    fits: list[str] = []
    for stripped in [prefix] if prefix else ["", *_prefixes(weights)]:
        if stripped.startswith(tuple(fits)):
            continue  # the same weights, below the network's own name
        tried[stripped] = _as_model_or_network(model, unwrapped(_below(weights, stripped)))
        if not misfits(model, tried[stripped]):
            fits.append(stripped)
    if len(fits) > 1:
        raise CheckpointError(
            f"{path} holds several sets of weights that fit, under the prefixes {', '.join(fits)}. "
            f"Name one: `jembench import weights:prefix={min(fits)}`."
        )
    best = next(iter(fits), prefix)
    unused = tuple(name for name in weights if not name.startswith(best))
    return Weights(tried[best], unused)


def _as_model_or_network(made: nn.Module, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under a model's names, whether the model's or its network's.

    The network of an adapted model may be a model with a network.
    """
    fitted = []
    for prefix in ("", "net.", "net.net."):
        named = {prefix + name: tensor for name, tensor in own.items()}
        fitted.append(fitting(made, named))
    return min(fitted, key=lambda named: len(misfits(made, named)))


def _prefixes(names: Iterable[str]) -> list[str]:
    """Return the prefixes of names, of one and of two parts, the shorter first."""
    prefixes: dict[str, None] = {}
    for depth in (1, 2):
        for name in names:
            parts = name.split(".")
            if len(parts) > depth:
                prefixes[".".join(parts[:depth]) + "."] = None
    return [*prefixes]


def fitting(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under the names that a model has for the same numbers.

    Counters of batches, which older versions of batch norm lack, are added; they change no output.
    The norms of ``weight_norm`` and ``spectral_norm`` have other names in newer modules, and a
    model without ``weight_norm`` gets the product of size and direction.
    """
    own, changed = model.state_dict(), dict(weights)
    for name in own.keys() - weights.keys():
        if name.endswith("num_batches_tracked"):
            changed[name] = own[name]
    for name in weights:
        for pair in _RENAMED:
            for ending, other in (pair, pair[::-1]):
                same = name.removesuffix(ending) + other
                if name.endswith(ending) and name not in own and same in own:
                    changed[same] = changed.pop(name)
    for name in [*changed]:
        start = name.removesuffix("_g")
        if start in own and start != name and f"{start}_v" in changed:
            size, direction = changed.pop(name), changed.pop(f"{start}_v")
            dims = range(direction.ndim)
            summed = [dim for dim in dims if size.ndim == 0 or size.shape[dim] == 1]
            changed[start] = direction * (size / direction.norm(dim=summed, keepdim=True))
    return changed


def check_classes(content: Any, data: DataSpec, path: Path) -> None:
    """Check that a file does not name the classes of the data in another order.

    Raises:
        CheckpointError: if the file names them in another order.
    """
    order = names_of_outputs(content)
    theirs, ours = [*map(folded, order)], [*map(folded, data.class_names)]
    if theirs != ours and sorted(theirs) == sorted(ours):
        raise CheckpointError(
            f"{path} names its outputs {', '.join(order[:5])}, and {data.name} has the same "
            f"classes in the order {', '.join(data.class_names[:5])}. Its accuracy would be that "
            "of other classes. Permute its last layer to the order of the folders, or name the "
            "folders so that they are sorted as its outputs are."
        )


def _as_named(outputs: Sequence[str], data: DataSpec) -> AbstractContextManager[None]:
    """Return the context in which a model is made whose file names its outputs."""
    if [*map(folded, outputs)] == [*map(folded, data.class_names)]:
        return named_elsewhere()
    return nullcontext()


def names_of_outputs(content: Any) -> list[str]:
    """Return a file's names of classes, in the order of the outputs, or []."""
    if not isinstance(content, Mapping):
        return []
    if isinstance(numbers := content.get("class_to_idx"), Mapping):
        content = {"classes": dict(zip(numbers.values(), numbers, strict=True))}
    for key in _CLASSES:
        names = content.get(key)
        if isinstance(names, Mapping):
            names = in_order(names)
        if isinstance(names, list | tuple) and {*map(type, names)} == {str}:
            return [*names]
    return []


def fit_together(imported: Import, data: DataSpec, where: Path) -> nn.Module:
    """Return the model with the imported weights, once all of them are known to fit.

    Raises:
        CheckpointError: listing every name, shape and type that does not fit, and every tensor that
            is not finite in the model's precision.
        SpecError: if there is no such model.
    """
    with _as_named(imported.outputs, data):
        made = registry.resolve("models", imported.model).make(data)
    model: nn.Module = as_model(made, data, imported.model)
    load(model, imported.weights, imported.model, where)
    return model


def load(model: nn.Module, weights: Mapping[str, Tensor], name: str, where: Path) -> None:
    """Load a file's weights into a model, once all of them are known to fit.

    Args:
        model: receives the weights.
        weights: under the model's names.
        name: of the model, for errors.
        where: the file, for errors.

    Raises:
        CheckpointError: as for :func:`fit_together`.
    """
    weights = fitting(model, weights)
    not_finite = [f"{tensor} is not finite" for tensor in non_finite(weights, model)]
    wrong = misfits(model, weights) + not_finite
    if wrong:
        raise CheckpointError(
            f"The weights in {where} do not fit {name}, and nothing was imported: "
            f"{'; '.join(wrong)}. Name their model with --model, and the dataset "
            "that it was trained on with --dataset; `weights:prefix=model.` removes a prefix "
            "from all names."
        )
    model.load_state_dict(weights)


def non_finite(state: Mapping[str, Tensor], owner: Any) -> list[str]:
    """Return the names of tensors with NaN or infinity.

    The tensors are checked in the model's types, in which large numbers may be infinite.
    """
    own = owner.state_dict()
    names = []
    for name, tensor in state.items():
        if name not in own or not tensor.is_floating_point():
            continue
        if not tensor.to(own[name].dtype).isfinite().all():
            names.append(name)
    return sorted(names)
