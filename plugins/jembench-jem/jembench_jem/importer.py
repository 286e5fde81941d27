"""Checkpoints of JEM's authors: a wide residual network and a replay buffer.

``torch.save({"model_state_dict": ..., "replay_buffer": (N, C, H, W)}, ...)``. The names of the
network's parameters begin with ``f.``, those of the classification head with ``class_output``; two
more heads are never used (wgrathwohl/JEM, train_wrn_ebm.py and wideresnet.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jembench.interfaces import DataSpec, Import
from jembench.models import importing
from jembench.plugin import CheckpointError

_NEVER_USED = ("f.linear.", "energy_output.")
_NORMS = {"bn1": "norm1", "bn2": "norm2"}

_FEW = 0.01
"""The largest share of pixels that count as exceptions."""


class AuthorsCheckpoint:
    """The importer of ``CIFAR10_MODEL.pt`` and checkpoints of the same form."""

    def read(self, path: Path, data: DataSpec, model: str | None) -> Import:
        """Read the weights and the replay buffer.

        Without a model, depth, width and norm follow from the weights.

        Raises:
            CheckpointError: if the file is no such checkpoint, or its replay buffer does not hold
                chains in the model's range.
        """
        content = importing.read(path)
        entry = (
            "model_state_dict"
            if isinstance(content, Mapping) and "model_state_dict" in content
            else ""
        )
        weights = importing.unwrapped(importing.state_dict(content, path, entry))
        unused = tuple(sorted(name for name in weights if name.startswith(_NEVER_USED)))
        names = [name for name in weights if name not in unused]
        used = {_rename(name): weights[name] for name in names}
        chains = _chains(content, data, path)
        sampler = f"pcd:buffer={len(chains['images'])}" if chains else ""
        return Import(
            model=model or f"jem:{_options(used, path)}",
            weights=used,
            sampler=sampler,
            chains=chains,
            unused=unused,
        )


def _rename(name: str) -> str:
    """Convert a published name to the name in the model here."""
    if name.startswith("class_output."):
        return f"net.{name}"
    inner = re.sub(r"\.(bn[12])\.", lambda match: f".{_NORMS[match[1]]}.", name.removeprefix("f."))
    return f"net.{inner}".replace("net.bn1.", "net.norm.")


def _options(weights: Mapping[str, Tensor], path: Path) -> str:
    """Return ``net=wrn-D-K`` and the norm, read from the weights."""
    first = weights.get("net.layer1.0.conv1.weight")
    inner = [name for name in weights if name.startswith("net.layer1.")]
    blocks = {name.split(".")[2] for name in inner}
    if first is None or first.ndim != 4 or not len(first) or len(first) % 16:
        raise CheckpointError(
            f"{path} holds no wide residual network in the names that JEM's authors use "
            "(f.layer1.0.conv1.weight and so on). If it is a plain state_dict, `jembench import "
            "weights` reads it."
        )
    net = f"net=wrn-{6 * len(blocks) + 4}-{len(first) // 16}"
    if "net.layer1.0.norm1.running_mean" in weights:
        return f"{net},norm=batch"
    if "net.layer1.0.norm1.weight" in weights:
        raise CheckpointError(
            f"The network in {path} has instance or layer norms, which look the same in a "
            f"checkpoint. Say which: --model jem:{net},norm=instance, or norm=layer."
        )
    return net


def _chains(content: Any, data: DataSpec, path: Path) -> dict[str, Tensor]:
    images = content.get("replay_buffer") if isinstance(content, Mapping) else None
    if images is None:
        return {}
    if wrong := _fault(images, data):
        raise CheckpointError(
            f"The replay buffer in {path} {wrong}. Save it as it was trained, or take it out of "
            "the file: the weights can be imported without it."
        )
    return {
        "images": images.float().contiguous(),
        "ages": torch.zeros(len(images), dtype=torch.int64),  # the file does not tell them
        "filled": torch.tensor(True),
        "conditional": torch.tensor(False),
    }


def _fault(images: Any, data: DataSpec) -> str:
    """Return what is wrong with the images of chains; "" if nothing is."""
    shape = f"it must be (N, {', '.join(map(str, data.shape))}) with N of 1 or more"
    if not isinstance(images, Tensor):
        return f"is {type(images).__name__}; {shape}"
    if not importing.is_plain(images):
        return "is not stored as plain numbers"
    if images.shape[1:] != data.shape or not len(images):
        return f"is {tuple(images.shape)}; {shape}"
    if not images.is_floating_point():
        return (
            f"holds {str(images.dtype).removeprefix('torch.')}; chains are floating-point numbers"
        )
    if not images.float().isfinite().all():
        return "holds numbers that are not finite"
    return _fault_of_range(images.float(), data.bounds)


def _fault_of_range(images: Tensor, bounds: tuple[float, float]) -> str:
    """Return what is wrong with the range of pixels; "" if nothing is.

    The published chains are not clamped (Grathwohl et al., 2020, Algorithm 1; train_wrn_ebm.py,
    sample_q): each step adds noise of .01, and a chain has 20 x 20 steps on average, over which
    noise alone moves it by .2. So a pixel may lie outside of the bounds, but few lie far
    outside. Chains start as uniform noise within the bounds and become images, so that some pixels
    are dark, while pixels of [0, 1] taken for [-1, 1] would all be light.
    """
    low, high = bounds
    width = high - low
    too_dark = images < low - width / 2
    too_light = images > high + width / 2
    far = (too_dark | too_light).float().mean()
    dark = (images < low + width / 4).float().mean()
    if far < _FEW and dark > _FEW:
        return ""
    pixels = f"has pixels between {images.min():.3g} and {images.max():.3g}"
    return f"{pixels}, unlike chains of a model whose images lie in [{low:g}, {high:g}]"
