"""Pictures of the chains after some epochs: do images form, and do they stay apart?

``epoch-1.png``, ``epoch-2.png``, ``epoch-5.png`` and so on in a fit's folder show the same 64 slots of the buffer. A
student report on JEM shows its chains after single epochs; the fit's ``samples.png`` shows those of the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from jembench.data.grid import write_png
from jembench.data.pixels import to_uint8
from jembench.training import snapshots
from jembench.training.loop import Trainer

SIDE = 8
"""Images in a row and in a column."""


def due(trainer: Trainer, before: int) -> int | None:
    """The epoch to draw, of 1, 2, 5, 10, 20 ..., that ended in the window which began after ``before`` iterations."""
    epochs = (int(factor) * 10**power for power in range(5) for factor in "125")
    ended = [epoch for epoch in epochs if before < epoch * trainer.batches.per_epoch <= trainer.iteration]
    return max(ended, default=None)


def draw(folder: Path, epoch: int, trainer: Trainer, state: Mapping[str, Tensor]) -> Path | None:
    """Draw the first 64 chains, in their order; nothing of a sampler that keeps none.

    Args:
        folder: the fit's.
        epoch: that has ended.
        trainer: where training stands.
        state: that of its sampler, in a group of all processes' samplers as one; finite.

    Returns:
        the picture.

    Raises:
        StoreError: if the file cannot be written.
    """
    chains = snapshots.kept(trainer, state)
    if chains is None:
        return None
    places = torch.arange(SIDE * SIDE)
    chosen = places.where(places < len(chains.x), torch.tensor(-1)).view(SIDE, SIDE)
    images = to_uint8(chains.x[: SIDE * SIDE], trainer.data.bounds).cpu()
    path = folder / f"epoch-{epoch}.png"
    write_png(path, images, chosen)
    return path
