"""What figures of attacks share: which distances count, and how the model under attack is described."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from jembench.catalog import spec
from jembench.report.attacks import DEFENCE, counted
from jembench.report.figures.results import Arrays, Result

LEVELS = 255
"""Distances are shown in levels of 8-bit images."""

NORMS = {"linf": "L∞", "l2": "L2"}
"""In the order in which they are shown."""


def name_of(result: Result) -> str:
    """The attack, without its options."""
    return spec.parse(result.cell.metric).name


def norms_of(result: Result) -> tuple[str, ...]:
    """The norm in which the attack looked for the nearest image; both, if it is of no one norm."""
    norm = result.protocol.get("norm")
    return tuple(NORMS) if norm is None else (norm,)


def refinement(result: Result, named: Collection[str] = DEFENCE) -> str:
    """``, 10 steps, 5 chains, bpda``: the steps of the chain or the noise, and the other parts that are named."""
    parts = result.protocol
    steps = [counted(parts["refine"], "step")] if parts.get("refine", "0") != "0" else []
    noise = [
        f"{name} {parts[part]}" for part, name in (("smooth", "smoothed"), ("data_noise", "noise")) if part in parts
    ]
    return "".join(f", {part}" for part in (*steps, *noise, *chains(result, named)))


def chains(result: Result, named: Collection[str] = DEFENCE) -> list[str]:
    """The number of chains or noisy copies and the kind of gradient, of the parts that are named."""
    known = {part: result.protocol[part] for part in ("eot", "grad") if part in named and part in result.protocol}
    what = "chain" if result.protocol.get("refine", "0") != "0" else "copy"
    return [counted(value, what) if part == "eot" else value for part, value in known.items()]


def rightly_classified(arrays: Arrays) -> NDArray[np.bool_]:
    """Which images were given their class before they were attacked."""
    right: NDArray[np.bool_] = ~arrays["found"].astype(bool) | (arrays["distance-linf"] > 0)
    return right
