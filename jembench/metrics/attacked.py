"""What every attack shares: the images, the work in shards that a kill cannot undo, and the numbers.

Legend: N attacked images, C channels, H height, W width, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import progress, seeds
from jembench.attacks.eps import Norm, largest_distance, parse_eps, rounding
from jembench.attacks.target import Target
from jembench.attacks.threat import VERIFICATIONS, verify
from jembench.catalog.spec import Scalar, stable_hash
from jembench.data.pixels import content_hash, to_float
from jembench.errors import OutOfTime, PartDone
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.base import no_labels
from jembench.metrics.budgets import Attack, Budgeted
from jembench.metrics.estimates import Arrays, Estimate, mean, measurement, median, share
from jembench.stopping import Stopped

LEVELS = 255
"""Distances are shown in levels of 8-bit images, as the paper's figures have them, in both norms."""

CURVE: Mapping[Norm, tuple[str, ...]] = {
    "linf": ("4/255", "8/255", "16/255"),
    "l2": ("64/255", "128/255", "255/255"),
}
"""Where the curve of accuracy over eps is shown in tables; figures show all of it."""

_VERSION = 3  # of the attacks: a higher one makes what was remembered unknown
_RANGE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The images that every model is attacked with."""

    index: Tensor  # int64 (N,) in the test images
    images: Tensor  # uint8 (N, C, H, W)
    labels: Tensor  # int64 (N,)


@dataclass(frozen=True, slots=True)
class Shard:
    """Images that are attacked together, on the device."""

    number: int
    index: Tensor  # int64 (N,) in the test images; seeds the randomness of each image
    x: Tensor  # float32 (N, C, H, W) in [0, 1]
    y: Tensor  # int64 (N,)


class Found(NamedTuple):
    """What an attack has found of a shard."""

    adversarial: Tensor  # (N, C, H, W)
    claimed: Tensor  # bool (N,): where it is of another class, as the attack saw it
    others: Mapping[str, Tensor] = {}  # further arrays


class Attacked(NamedTuple):
    """What an attack has given so far."""

    arrays: dict[str, NDArray[Any]]
    wanted: int  # images

    @property
    def images(self) -> int:
        """How many were attacked before the time was over."""
        return len(self.arrays["index"])

    @property
    def details(self) -> dict[str, Any]:
        """``partial``, unless all images were attacked."""
        return {"partial": f"{self.images} of {self.wanted} images"} if self.images < self.wanted else {}


def choose(evaluation: Evaluation, count: int) -> Chosen:
    """``count`` of the test images: one seeded draw, the same for all models, of which fewer are the first ones.

    Raises:
        NotApplicable: if the dataset has no labels.
    """
    images, labels = evaluation.data.part("test")
    if labels is None:
        raise no_labels(evaluation.data.spec)
    index = torch.randperm(len(images), generator=seeds.generator(0, "robustness/images"))[:count]
    return Chosen(index, images[index], labels[index])


def attacked(metric: Attack, evaluation: Evaluation, find: Callable[[Shard, Target], Found]) -> Attacked:
    """Attack the model shard by shard, and verify what was found with random numbers that the attack did not see."""

    def search(shard: Shard) -> Mapping[str, Tensor]:
        target, fresh = metric.defence.targets(evaluation, f"{metric.label} {shard.number}")
        found = find(shard, target)
        return {**verified(fresh, shard, found.adversarial, found.claimed), **found.others}

    return in_shards(metric, evaluation, choose(evaluation, metric.spent.images), search)


def in_shards(
    metric: Budgeted,
    evaluation: Evaluation,
    chosen: Chosen,
    attack: Callable[[Shard], Mapping[str, Tensor]],
    **options: Scalar,
) -> Attacked:
    """Attack shard by shard. Each is remembered: after a kill, or when the time was up, the work goes on there.

    Of ``services.share`` (number, count), every count-th shard is its own: machines share the images of one model.

    Args:
        metric: its options and its defence decide what the attack gives.
        evaluation: the model.
        chosen: the images.
        attack: gives arrays with a row for each image.
        options: what else decides it.

    Raises:
        OutOfTime: if the time was over before the first shard.
        PartDone: if not all shards were asked for, and those that were are remembered.
    """
    own, of = evaluation.services.share
    defence = metric.defence
    parts: list[dict[str, Tensor]] = []
    total = len(chosen.images)
    size = metric.shard(evaluation.device.type)
    done = 0
    shards = range(0, total, size)
    for start in progress.track(shards[own::of], "", "images", lambda start: min(size, total - start)):
        number, which = start // size, slice(start, start + size)
        if evaluation.services.out_of_time():
            break
        content = content_hash(chosen.images[which])
        made_of = {
            **metric.options,
            **options,
            **defence.identity,
            "version": _VERSION,
            "shard": number,
            "content": content,
        }

        def computed(which: slice = which, number: int = number) -> dict[str, Tensor]:
            shard = Shard(
                number,
                chosen.index[which],
                to_float(chosen.images[which].to(evaluation.device), _RANGE),
                chosen.labels[which].to(evaluation.device),
            )
            with progress.phase("", metric.passes(total) * len(shard.x) // total, progress.PASSES):
                return {key: value.cpu() for key, value in attack(shard).items()}

        try:
            parts.append(evaluation.services.remembered(f"{metric.name}-{number}-{stable_hash(made_of, 16)}", computed))
        except Stopped:
            if of > 1 or not parts:
                raise
            break  # those before are an outcome
        done = min(start + size, total)
    if of > 1 and not evaluation.services.out_of_time():
        raise PartDone
    if of > 1 or not parts:
        raise OutOfTime("The time is up before an image was attacked. The same command goes on from here.")
    arrays = {key: torch.cat([part[key] for part in parts]).numpy() for key in parts[0]}
    arrays |= {
        "index": chosen.index[:done].numpy(),
        "label": chosen.labels[:done].numpy(),
        "image": chosen.images[:done].numpy(),
    }
    return Attacked(arrays, total)


def verified(target: Target, shard: Shard, adversarial: Tensor, claimed: Tensor) -> dict[str, Tensor]:
    """The arrays that are kept of an attack's images, from looking at them again."""
    seen = verify(target, shard.x, shard.y, adversarial, claimed)
    of_random = {"wrong-as-it-is": target.wrong_share(shard.x, shard.y, VERIFICATIONS)} if target.stochastic else {}
    return {
        "adversarial": adversarial,
        "found": seen.found,
        "distance-linf": seen.linf,
        "distance-l2": seen.l2,
        "predicted": seen.predicted,
        "wrong": seen.wrong,
        "unverified": claimed & ~seen.found,
        **of_random,
    }


# --- numbers ----------------------------------------------------------------------------------------------------------


def measured(
    metric: Attack, evaluation: Evaluation, found: Attacked, details: Mapping[str, Any], *, searched: bool = True
) -> Measurement:
    """The measurement of an attack.

    Args:
        metric: the attack.
        evaluation: the model.
        found: what the attack has given.
        details: what a reader must know beside.
        searched: whether the attack searched against random answers, by a rule of its own.
    """
    parts = {**metric.options, **metric.defence.identity, **metric.defence.rule(searched=searched)}
    estimates = metric.estimates(found.arrays)
    return measurement(
        metric, evaluation, {"images": found.images, **parts}, estimates, found.arrays, {**details, **found.details}
    )


def distance_estimates(name: str, arrays: Arrays, norms: Sequence[Norm]) -> Iterator[tuple[str, Estimate]]:
    """By label, the median distance in levels and the accuracy in % at each eps of the curve.

    An image of which nothing was found counts with the largest distance that there is.
    """
    dimensions = int(np.prod(arrays["image"].shape[1:]))
    for norm in norms:
        levels = LEVELS * arrays[f"distance-{norm}"]
        highest = LEVELS * largest_distance(norm, dimensions)
        yield f"{name}-{norm}", median(levels, "1/255", "higher", (0.0, highest))
        for eps in CURVE[norm]:
            standing = withstands(arrays, norm, parse_eps(eps))
            wrong = np.where(standing, arrays.get("wrong-as-it-is", 0.0), arrays["wrong"])
            yield from accuracies(f"{name}-{norm}@{eps}", arrays, standing, wrong)


def accuracies(
    label: str, arrays: Arrays, standing: NDArray[np.bool_], wrong: NDArray[np.float64]
) -> Iterator[tuple[str, Estimate]]:
    """The share of images that withstand an attack; of a model whose answers are random, its expected accuracy too.

    Args:
        label: of the share, which follows the rule for random answers.
        arrays: what is known of each image.
        standing: (N,) whether it withstands the attack.
        wrong: (N,) the share of wrong answers to it, 0 to 1.
    """
    yield label, share(standing, "higher")
    if "wrong-as-it-is" in arrays:
        yield f"{label}-expected", mean(100 * (1 - wrong), "%", "higher", (0.0, 100.0))


def withstands(arrays: Arrays, norm: Norm, eps: float) -> NDArray[np.bool_]:
    """Whether nothing was found within eps of each image.

    Attacks of a size stay within it; a change by whole levels, as pointwise makes it, may measure 8.00001/255 for 8.
    """
    reach = eps + rounding(norm, arrays["image"][0].size)
    standing: NDArray[np.bool_] = ~arrays["found"] | (arrays[f"distance-{norm}"] > reach)
    return standing


def found_details(arrays: Arrays) -> dict[str, Any]:
    """What a reader must know of an attack beside its distances."""
    at_0 = arrays["found"] & (arrays["distance-linf"] == 0)
    return {
        "misclassified": int(at_0.sum()),
        "not-found": int((~arrays["found"]).sum()),
        "unverified": int(arrays["unverified"].sum()),
    }
