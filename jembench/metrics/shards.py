"""The shards of an attack: images that are attacked together, and survive a kill together.

Legend: N attacked images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench.attacks.eps import UNIT
from jembench.catalog.spec import stable_hash
from jembench.errors import OutOfTime, PartDone

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from jembench.interfaces import Evaluation
    from jembench.metrics.base import Array

_VERSION = 3  # of the attacks; stored shards of another version are not used


@dataclass(frozen=True, slots=True)
class Chosen:
    """The images that every model is attacked with."""

    index: Tensor  # int64 (N,) in the test images
    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor  # int64 (N,)

    def part(self, start: int, stop: int) -> Chosen:
        """Return the images from ``start`` up to ``stop``."""
        rows = slice(start, stop)
        return Chosen(self.index[rows], self.images[rows], self.labels[rows])


@dataclass(frozen=True, slots=True)
class Shard:
    """Images that are attacked together, on the device."""

    number: int
    index: Tensor  # int64 (N,) in the test images; each image's random numbers are seeded by it
    x: Tensor  # float32 (N, C, H, W) in [0, 1]
    y: Tensor  # int64 (N,)


class Attacked(NamedTuple):
    """The result of an attack so far."""

    arrays: dict[str, Array]
    wanted: int  # images

    @property
    def images(self) -> int:
        """The number of images that were attacked within the time limit."""
        return len(self.arrays["index"])

    @property
    def details(self) -> dict[str, Any]:
        """``partial``, unless all images were attacked."""
        if self.images == self.wanted:
            return {}
        return {"partial": f"{self.images} of {self.wanted} images"}

    def whole(self) -> dict[str, Array]:
        """Return the arrays of all images.

        Raises:
            OutOfTime: if the time limit passed before.
        """
        if self.details:
            raise OutOfTime(
                f"The time is up after {self.details['partial']}. The same command goes on from "
                "here."
            )
        return self.arrays


def choose(evaluation: Evaluation, count: int) -> Chosen:
    """Choose ``count`` random test images, the same for all models.

    A smaller count chooses the first of the same images.
    """
    import torch

    from jembench import seeds

    images, labels = evaluation.data.part("test")
    assert labels is not None, "the metric requires labels"
    generator = seeds.generator(0, "robustness/images")
    index = torch.randperm(len(images), generator=generator)[:count]
    return Chosen(index, images[index], labels[index])


Work = Callable[[Shard], Mapping[str, "Tensor"]]
"""A computation on a shard: arrays with a row for each of its images."""


def in_shards(metric: Any, evaluation: Evaluation, chosen: Chosen, work: Work) -> Attacked:
    """Do the work of a metric shard by shard.

    After a kill or at the time limit the next call continues.

    With ``services.share`` (number, count), every count-th shard is computed here, and other
    machines compute the rest.

    Args:
        metric: an attack, or another metric with ``shard_size`` and ``protocol_options``. A stored
            shard is used again for the same model, images and ``protocol_options``.
        evaluation: of the model.
        chosen: the images.
        work: the computation on a shard.

    Raises:
        OutOfTime: if the time limit passed before the end of the first shard, or of a share.
        PartDone: if only a share was asked for, and all shards of the share are stored.
    """
    from jembench import progress
    from jembench.stopping import Stopped

    services = evaluation.services
    own, shares = services.share
    is_whole = shares == 1
    total = len(chosen.images)
    size = metric.shard_size(evaluation.device.type)
    starts = range(0, total, size)[own::shares]

    # a shard that an earlier call computed is read from disk
    parts: list[dict[str, Tensor]] = []
    done = 0
    for start in progress.track(starts, "", "images", lambda start: min(size, total - start)):
        if services.out_of_time():
            break
        images = chosen.part(start, start + size)
        shard = _on_device(images, start // size, evaluation.device)
        name = _stored_name(metric, shard.number, images)
        try:
            parts.append(services.remembered(name, partial(_on_cpu, work, shard)))
        except Stopped:
            if not (is_whole and parts):
                raise
            break  # the shards so far are a partial outcome
        done = start + len(images.images)

    # a share has no outcome of its own: the metric is computed once all shares are stored
    if not is_whole and not services.out_of_time():
        raise PartDone
    if not is_whole or not parts:
        raise OutOfTime(
            "The time is up before an image was attacked. The same command goes on from here."
        )
    return Attacked(_joined(parts, chosen.part(0, done)), total)


def _on_device(images: Chosen, number: int, device: torch.device) -> Shard:
    from jembench.data.pixels import to_float

    x = to_float(images.images.to(device), UNIT)
    return Shard(number, images.index, x, images.labels.to(device))


def _on_cpu(work: Work, shard: Shard) -> dict[str, Tensor]:
    return {name: array.cpu() for name, array in work(shard).items()}


def _stored_name(metric: Any, number: int, images: Chosen) -> str:
    """Return a shard's name, which covers all that its result depends on but the model."""
    from jembench.data.pixels import content_hash

    key = {
        **metric.protocol_options,
        "version": _VERSION,
        "shard": number,
        "content": content_hash(images.images),
    }
    return f"{metric.name}-{number}-{stable_hash(key, 16)}"


def _joined(parts: Sequence[Mapping[str, Tensor]], attacked: Chosen) -> dict[str, Array]:
    """Return the arrays of all shards, with the images that were attacked."""
    import torch

    arrays = {}
    for name in parts[0]:
        arrays[name] = torch.cat([part[name] for part in parts]).numpy()
    index, images, labels = attacked.index, attacked.images, attacked.labels
    arrays |= {"index": index.numpy(), "label": labels.numpy(), "image": images.numpy()}
    return arrays
