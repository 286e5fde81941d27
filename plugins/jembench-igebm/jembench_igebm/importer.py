"""From an ``.npz`` dump of a published TensorFlow 1 checkpoint to the weights of a model.

The names and shapes are those of the variables that openai/ebm_code_release makes (models.py and utils.py at commit
5c24f8e). Kernels lie there as (k, k, C, O). A dump is read without unpickling anything.

Legend: K classes, C in-channels, O out-channels, k kernel size.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench.interfaces import DataSpec, Import
from jembench.plugin import CheckpointError, SpecError, load_weights, resolve
from jembench_igebm.model import IGEBM, ConditionalIGEBM
from jembench_igebm.network import ARCHITECTURES, EnergyNet, ResBlock
from jembench_igebm.spectral import SpectralConv2d

_UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile)

Arrays = Mapping[str, NDArray[Any]]

SCOPE = "context_0/"
"""What the names of the network's variables begin with."""

_OPTIMISER = re.compile(r".*/Adam(_\d+)?|.*beta[12]_power|.*global_step")
_NEVER_READ = re.compile(rf"{SCOPE}(fc_dense|atten)/.*")
"""Variables that the published graph makes for every network, and reads for none without attention."""

_ATTENTION = f"{SCOPE}atten/gamma"
"""The weight of the attention: 0 unless a network was trained with it."""


class Variable(NamedTuple):
    """A variable of the published network; several with one target are added up."""

    name: str
    shape: tuple[int, ...]
    target: str | None  # in the model's state; None: the network never reads it


class Report(NamedTuple):
    """What was read."""

    variables: int
    parameters: int  # numbers in the variables
    unused: tuple[str, ...]  # variables of the dump that the network never reads, the optimiser's among them


def load_npz(path: Path, model: IGEBM | ConditionalIGEBM) -> Report:
    """Load the variables of a dump into a model; nothing of it is changed if one does not fit.

    Raises:
        CheckpointError: if the file is no dump, or that lists every variable that is missing, unknown, of another
            shape, not of numbers or not finite.
    """
    arrays, unreadable = _read(path)
    variables = list(published(model.net))
    wrong = [*unreadable.values(), *_misfits(arrays, variables, unreadable)]
    if wrong:
        raise CheckpointError(
            f"{path} does not fit this {_describe(model.net)}, and nothing was loaded: {'; '.join(wrong)}. Choose the "
            "net, width and conditional of the model that the checkpoint is of, or dump the variables again as the "
            "README of jembench-igebm shows."
        )
    used = [variable for variable in variables if variable.target]
    load_weights(model, _state(arrays, used, model.state_dict()))
    names = {variable.name for variable in used}
    unused = tuple(sorted(name for name in arrays if name not in names))
    return Report(len(used), sum(arrays[name].size for name in names), unused)


def published(net: EnergyNet) -> Iterator[Variable]:
    """Every variable of the published network of the same architecture, but for attention and the unused dense one."""
    yield from _convolution("c1_pre", "net.stem", net.stem, (), {})
    rows = (net.classes,) if net.classes else ()
    for name, block in net.blocks.items():
        assert isinstance(block, ResBlock)
        at = f"net.blocks.{name}"
        yield from _convolution(f"{name}_res_c1", f"{at}.conv_1", block.conv_1, rows, {"gb": f"{at}.bias_1"})
        second = {"gb": f"{at}.bias_2", "g": f"{at}.gain_2"} | ({"cb": f"{at}.gain_2"} if rows else {})
        yield from _convolution(f"{name}_res_c2", f"{at}.conv_2", block.conv_2, rows, second)
        if isinstance(block.shortcut, SpectralConv2d):
            yield from _convolution(f"{name}_res_adaptive", f"{at}.shortcut", block.shortcut, rows, {})
    yield Variable(f"{SCOPE}fc5/wweight", (net.head.in_features, 1), "net.head.weight")
    yield Variable(f"{SCOPE}fc5/b", (1,), "net.head.bias")


def _convolution(
    scope: str, at: str, convolution: SpectralConv2d, rows: tuple[int, ...], read: Mapping[str, str]
) -> Iterator[Variable]:
    """A kernel with its vector u, and two gains and two biases, of which the network reads those in ``read``."""
    channels_out, channels_in, size, _ = convolution.weight.shape
    shapes = {"b": (channels_out,), "g": (*rows, channels_out), "gb": (*rows, channels_in), "cb": (channels_in,)}
    yield Variable(f"{SCOPE}{scope}/cweight", (size, size, channels_in, channels_out), f"{at}.weight")
    yield Variable(f"{SCOPE}{scope}/c_u", (1, channels_out), f"{at}.u")
    for name, shape in shapes.items():
        yield Variable(f"{SCOPE}{scope}/{name}", shape, read.get(name))


class Dump(NamedTuple):
    """What a file holds, by name."""

    arrays: dict[str, NDArray[Any]]
    unreadable: dict[str, str]  # what is wrong with the others


def _read(path: Path) -> Dump:
    arrays: dict[str, NDArray[Any]] = {}
    unreadable: dict[str, str] = {}
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array, not many by name")
            for name in file.files:
                try:
                    arrays[name] = file[name]
                except _UNREADABLE as error:
                    unreadable[name] = f"{name} cannot be read ({error})"
    except _UNREADABLE as error:
        raise CheckpointError(
            f"{path} is not an .npz dump of a checkpoint ({error}). The README of jembench-igebm shows how to make one."
        ) from error
    if not any(name.startswith(SCOPE) for name in file.files):
        raise CheckpointError(
            f"{path} holds no variable of IGEBM: none has a name like {SCOPE}fc5/b. The README of jembench-igebm shows "
            "how to dump a checkpoint."
        )
    return Dump(arrays, unreadable)


def _misfits(arrays: Arrays, variables: list[Variable], unreadable: Collection[str]) -> list[str]:
    known = {variable.name for variable in variables}
    wrong: list[str] = []
    for name, shape, target in variables:
        if name not in arrays:
            if target and name not in unreadable:
                wrong.append(f"{name} is missing")
        elif arrays[name].shape != shape:
            wrong.append(f"{name} is {arrays[name].shape} instead of {shape}")
        elif arrays[name].dtype.kind != "f":
            wrong.append(f"{name} holds {arrays[name].dtype}, not floats")
        elif not np.isfinite(_single(arrays[name])).all():
            wrong.append(f"{name} holds numbers that are not finite in float32")
    others = (name for name in arrays if name not in known)
    wrong += [f"{name} is unknown" for name in others if not (_OPTIMISER.fullmatch(name) or _NEVER_READ.match(name))]
    if _ATTENTION in arrays and np.any(arrays[_ATTENTION] != 0):
        wrong.append(f"{_ATTENTION} is not 0, so the checkpoint is of a network with attention, which this one has not")
    return wrong


def _state(arrays: Arrays, variables: list[Variable], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The model's state. The published gain of a class is a row ``g`` plus the ``cb`` of all classes."""
    state = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    for name, _, target in variables:
        assert target is not None
        values = torch.from_numpy(_single(arrays[name]))
        state[target] += _laid_out(name.rpartition("/")[2], values, state[target])
    return state


def _single(array: NDArray[Any]) -> NDArray[np.float32]:
    """In the precision of the model; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float32)


def _laid_out(kind: str, values: Tensor, own: Tensor) -> Tensor:
    """A variable in the order of axes that PyTorch has, on the device of the model's own."""
    if kind == "cweight":
        values = values.permute(3, 2, 0, 1)
    elif kind in ("wweight", "c_u"):
        values = values.reshape(own.shape)
    return values.to(own.device)


def _describe(net: EnergyNet) -> str:
    blocks = len(net.blocks)
    kind = f"conditional igebm of {net.classes} classes" if net.classes else "unconditional igebm"
    return f"{kind}, {blocks} blocks and width {net.architecture.width}"


class PublishedCheckpoint:
    """Reads ``.npz`` dumps for ``jembench import igebm``."""

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """The weights, in the names of the model; which network they are of is read off them if none is named.

        Raises:
            CheckpointError: as :func:`load_npz`.
        """
        spec = model or _network_of(_read(path).arrays)
        made = resolve("models", spec).make(data)
        if not isinstance(made, IGEBM | ConditionalIGEBM):
            raise SpecError(f"A checkpoint of IGEBM is none of {spec}. Name an igebm with --model, or leave it out.")
        report = load_npz(path, made)
        return Import(model=spec, weights=made.state_dict(), unused=report.unused)


def _network_of(arrays: Arrays) -> str:
    """The spec of the published network whose variables these look most like."""
    stem, first = (_width(arrays, name) for name in ("c1_pre", "res_optim_res_c1"))
    rows = arrays.get(f"{SCOPE}res_optim_res_c1/gb")
    if f"{SCOPE}res_8a_res_c1/cweight" in arrays:
        net = "larger"
    elif f"{SCOPE}res_8_res_c1/cweight" in arrays:
        net = "large" if None in (stem, first) or stem == first else "wider"
    else:
        net = "base"
    unusual = "" if first in (None, ARCHITECTURES[net].width) else f",width={first}"
    return f"igebm:conditional={str(rows is None or rows.ndim == 2).lower()},net={net}{unusual}"


def _width(arrays: Arrays, scope: str) -> int | None:
    """The out-channels of a convolution; None if it has no kernel of such a shape."""
    kernel = arrays.get(f"{SCOPE}{scope}/cweight")
    return None if kernel is None or kernel.ndim != 4 else kernel.shape[-1] or None
