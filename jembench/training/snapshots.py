"""The replay buffers of the last five epochs of training as images.

They are scored together or averaged.

Grathwohl et al. (2020), Appendix, pool the buffers of the last five epochs; the reproducibility
report averages them. ``buffer-1.safetensors`` to ``buffer-5.safetensors`` of a fit's folder hold
them, the oldest first.

Legend: N chains of a buffer, C channels, H height, W width.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from jembench.data.pixels import to_uint8
from jembench.errors import NotApplicable
from jembench.interfaces import Samples
from jembench.store import checkpoint
from jembench.training.loop import Trainer

COUNT = 5
NUMBERS = range(1, COUNT + 1)


def due(trainer: Trainer) -> int | None:
    """Return the number of the buffer to keep now, 1 to 5, or None.

    Buffers are an epoch apart, or a window of ``log_every`` iterations if that is longer, so that
    no two of them are the same; the last buffer is of the end of training.
    """
    every = trainer.recipe.log_every
    before = (trainer.iteration - 1) // every * every  # also in a window that was interrupted
    for number, iteration in moments(trainer).items():
        if before < iteration <= trainer.iteration:
            return number
    return None


def moments(trainer: Trainer) -> dict[int, int]:
    """Return the iteration after which each buffer is kept.

    A short training keeps fewer buffers; a sampler that keeps no chains leaves none, see
    :func:`keep`.
    """
    apart = max(trainer.batches.per_epoch, trainer.recipe.log_every)
    iterations = {}
    for number in NUMBERS:
        iteration = trainer.iterations - (COUNT - number) * apart
        if iteration > 0:
            iterations[number] = iteration
    return iterations


def keep(folder: Path, number: int, trainer: Trainer) -> None:
    """Write the images of all chains.

    They replace the images of a training that was rolled back.

    Args:
        folder: the folder of the fit.
        number: 1 to 5.
        trainer: its chains are finite; nothing is written if its sampler keeps none.

    Raises:
        StoreError: if the file cannot be written.
    """
    sampler = trainer.chains.sampler
    chains = sampler.kept() if sampler else None
    if chains is not None:
        images = to_uint8(chains.x, trainer.data.bounds)
        parts = {"images": images, "labels": chains.y, "ages": chains.ages}
        checkpoint.write(_path(folder, number), parts, age=trainer.iteration, placed=True)


def read(folder: Path) -> list[Samples]:
    """Read the buffers in the folder of a fit, the oldest first.

    Raises:
        CheckpointError: if a buffer is damaged, or of another fit.
    """
    remedy = f"Remove the folder {folder} to train the model again."
    buffers = []
    for number in NUMBERS:
        path = _path(folder, number)
        if path.exists():
            parts = checkpoint.read(path, remedy, placed=True)
            samples = Samples(parts["images"], parts["labels"], "buffer", parts["ages"])
            buffers.append(samples)
    return buffers


def together(buffers: Sequence[Samples]) -> Samples:
    """Join the images of five buffers, 5 N in all."""
    images, labels, _, ages = zip(*buffers, strict=True)
    return Samples(torch.cat(images), _joined(labels), "buffer", _joined(ages))


def pixelwise_mean(buffers: Sequence[Samples]) -> Samples:
    """Average buffers, pixel by pixel and rounded: N images.

    The classes are from the last buffer: a slot keeps its class in training.
    """
    total = torch.stack([buffer.images for buffer in buffers]).sum(0)
    count = len(buffers)
    mean = (2 * total + count).div(2 * count, rounding_mode="floor")
    return Samples(mean.byte(), buffers[-1].labels, "buffer")


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if len(present) == len(parts) else None


def require_five(buffers: int) -> None:
    """Check that there are enough buffers to pool.

    Raises:
        NotApplicable: if there are fewer than five.
    """
    if buffers < COUNT:
        raise NotApplicable(
            "Five buffers are pooled, of the last five epochs, and the training leaves "
            f"{buffers}. Train for at least five epochs, with a sampler that keeps its chains "
            "(pcd)."
        )


def _path(folder: Path, number: int) -> Path:
    return folder / f"buffer-{number}.safetensors"
