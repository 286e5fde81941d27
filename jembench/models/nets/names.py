"""The shapes of residual networks, by their names in specs. Imports no torch."""

from __future__ import annotations

import re
from typing import NamedTuple

from jembench.errors import SpecError

_DIGITS = 4
"""Digits of a depth or width: a net of ten thousand layers has no end of Python objects."""


class Shape(NamedTuple):
    """The channels of a residual network's first convolution and of its three groups, and the blocks of a group."""

    stem: int
    widths: tuple[int, int, int]
    blocks: int
    stride: int = 1  # of the first convolution: 2 halves the image; 0: as the image's size asks, see ``for_image``

    def for_image(self, height: int, width: int) -> Shape:
        """With a stride that makes maps of about 16 pixels of the shorter side, if it has none: 2 for 32x32."""
        return self if self.stride else self._replace(stride=max(1, round(min(height, width) / 16)))


def wide(depth: int, width: int) -> Shape:
    """WRN-d-k: (d - 4) / 6 blocks a group, of 16k, 32k and 64k channels.

    Raises:
        SpecError: if the depth is not 6n + 4 with n >= 1.
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        nearest = f"{depth - rest} and {depth - rest + 6}" if depth > 10 else "10"
        hint = f" The code of JEM's authors builds depth 4 as depth 10: write wrn-10-{width}." if depth == 4 else ""
        raise SpecError(
            f"A wide residual network has a depth of 6n + 4 with n >= 1, and {depth} is not. Nearest: {nearest}.{hint}"
        )
    return Shape(16, (16 * width, 32 * width, 64 * width), blocks)


def small(width: int) -> Shape:
    """One block in each of the groups of w, 2w and 4w channels."""
    return Shape(width, (width, 2 * width, 4 * width), 1)


def half(width: int) -> Shape:
    """``small`` on images of half the height and width: a quarter of the work."""
    return small(width)._replace(stride=2)


def scaled(width: int) -> Shape:
    """``small`` on maps of about 16 pixels, whatever the size of the images: their cost is about the same."""
    return small(width)._replace(stride=0)


def read(text: str) -> Shape | None:
    """The shape that ``wrn-28-10``, ``small-12`` or ``half-48`` names; None for any other text.

    Raises:
        SpecError: if there is no wide residual network of that depth, or a number is absurd.
    """
    match = re.fullmatch(r"(?P<kind>wrn-(?P<depth>[1-9]\d*)|small|half|scaled)-(?P<width>[1-9]\d*)", text)
    if match is None:
        return None
    depth, width = (match["depth"] or "10"), match["width"]
    if max(len(depth), len(width)) > _DIGITS:
        raise SpecError(f"The net {text[:40]} is too large: its depth and width must be below {10**_DIGITS:,}.")
    if match["depth"]:
        return wide(int(depth), int(width))
    return {"small": small, "half": half, "scaled": scaled}[match["kind"]](int(width))
