"""A training that goes on at another machine: its newest checkpoint, made small, in files of a size that can be moved.

It is rounded: the chains to 256 levels, momentum and the distance of the averaged weights to 8 bits of mantissa. So
it goes on nearly, and not bit for bit, as it would have where it was.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from jembench.store import checkpoint

PART = 15 * 2**20
"""Bytes of a file."""

LEVELS = 255


def pack(fit: Path, kept: Path) -> int:
    """Write the newest checkpoint of a fit's folder beside ``kept``, in parts; gives its iteration."""
    newest = max(fit.glob("checkpoint-*.safetensors"), key=checkpoint.age_of)
    small = fit / ".travel.safetensors"
    checkpoint.write(small, _smaller(checkpoint.read(newest)), age=checkpoint.age_of(newest))
    content = zlib.compress(small.read_bytes(), 6)
    small.unlink()
    for path in _parts(kept):
        path.unlink()
    for number, start in enumerate(range(0, len(content), PART)):
        _place(kept, number).write_bytes(content[start : start + PART])
    return checkpoint.age_of(newest)


def unpack(kept: Path, fit: Path) -> bool:
    """Write the checkpoint into the folder of a fit that has none as new; gives whether there was one.

    The chosen model does not travel: the training chooses again, from the weights that do.
    """
    parts = _parts(kept)
    if not parts:
        return False
    fit.mkdir(parents=True, exist_ok=True)
    small = fit / ".travel.safetensors"
    small.write_bytes(zlib.decompress(b"".join(path.read_bytes() for path in parts)))
    age, state = checkpoint.age_of(small), checkpoint.read(small)
    small.unlink()
    if age <= max((checkpoint.age_of(path) for path in fit.glob("checkpoint-*.safetensors")), default=-1):
        return False
    for path in fit.glob("*.safetensors"):
        path.unlink()
    checkpoint.write(fit / "checkpoint-0.safetensors", _wider(state), age=age)
    for name in ("model", "sampler"):
        checkpoint.write(fit / f"{name}.safetensors", {}, age=-1)
    return True


def _place(kept: Path, number: int) -> Path:
    return kept.with_suffix(f".fit-{number}")


def _parts(kept: Path) -> list[Path]:
    return sorted(kept.parent.glob(f"{kept.stem}.fit-*"))


def _smaller(state: dict[str, Any]) -> dict[str, Any]:
    trainer = dict(state["trainer"])
    weights, average, sampler = trainer["model"], trainer["average"], trainer["sampler"]
    if average:
        distances = {name: _short(value - weights[name]) for name, value in average["state"].items()}
        trainer["average"] = {**average, "state": distances}
    trainer["optimizer"] = tree_map_only(Tensor, _short, trainer["optimizer"])
    if sampler and sampler["images"].is_floating_point():
        low, high = map(float, sampler["images"].aminmax())
        levels = ((sampler["images"] - low) * (LEVELS / max(high - low, 1e-9))).round().to(torch.uint8)
        steps = levels.clone()
        steps[..., 1:] -= levels[..., :-1]  # neighbours are alike, and small differences compress
        trainer["sampler"] = {**sampler, "images": steps, "range": [low, high]}
    return {**state, "trainer": trainer}


def _wider(state: dict[str, Any]) -> dict[str, Any]:
    trainer = dict(state["trainer"])
    weights, average, sampler = trainer["model"], trainer["average"], dict(trainer["sampler"])
    if average:
        trainer["average"] = {
            **average,
            "state": {n: v.to(weights[n]) + weights[n] for n, v in average["state"].items()},
        }
    trainer["optimizer"] = tree_map_only(Tensor, _long, trainer["optimizer"])
    if "range" in sampler:
        low, high = sampler.pop("range")
        levels = sampler["images"].to(torch.int32).cumsum(-1).remainder(LEVELS + 1)
        sampler["images"] = low + levels.float() * ((high - low) / LEVELS)
    trainer["sampler"] = sampler
    return {**state, "trainer": trainer}


def _short(value: Tensor) -> Tensor:
    return value.bfloat16() if value.is_floating_point() and value.numel() > 1 else value


def _long(value: Tensor) -> Tensor:
    return value.float() if value.dtype == torch.bfloat16 else value
