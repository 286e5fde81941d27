"""What every attack shares: the images, the work in shards that a kill cannot undo, and the numbers.

Legend: N attacked images, C channels, H height, W width, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks.target import Target
from jembench.attacks.threat import Norm, largest_distance, rounding
from jembench.attacks.verify import LOOKS, verify
from jembench.catalog.spec import Scalar, stable_hash
from jembench.data.pixels import content_hash, to_float
from jembench.errors import OutOfTime
from jembench.interfaces import Evaluation, Planned, Resampling, Value
from jembench.metrics.defence import Defence
from jembench.metrics.labelled import check_labels, no_labels
from jembench.metrics.protocol import value_of
from jembench.metrics.resampled import bootstrapped
from jembench.stats import Interval, mean_of, wilson
from jembench.stopping import Stopped

Arrays = Mapping[str, NDArray[Any]]

LEVELS = 255
"""Distances are shown in levels of 8-bit images, as the paper's figures have them, in both norms."""

CURVE: Mapping[Norm, tuple[str, ...]] = {
    "linf": ("4/255", "8/255", "16/255"),
    "l2": ("64/255", "128/255", "255/255"),
}
"""Where the curve of accuracy over eps is shown in tables; figures show all of it."""

SHARD, SHARD_REFINED = 50, 25
"""Images that are attacked together; what a kill can cost. Results do not depend on it but for chance in refinement."""

_VERSION = 2  # of the attacks: a higher one makes what was remembered unknown
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
    index: Tensor  # int64 (N,) in the test images: what chance of an image follows from
    x: Tensor  # float32 (N, C, H, W) in [0, 1]
    y: Tensor  # int64 (N,)


class Attacked(NamedTuple):
    """What an attack has given so far."""

    arrays: dict[str, NDArray[Any]]
    details: dict[str, Any]  # ``partial`` is there if the time was over before all images were attacked

    @property
    def images(self) -> int:
        """How many were attacked."""
        return len(self.arrays["index"])


def check_attack(planned: Planned, defence: Defence) -> None:
    """Whether there will be classes to be changed, and chains to refine by.

    Raises:
        NotApplicable: if not.
    """
    check_labels(planned)
    defence.check(planned)


def choose(evaluation: Evaluation, count: int) -> Chosen:
    """So many of the test images: one seeded draw, the same for all models, of which fewer are the first ones.

    Raises:
        NotApplicable: if the dataset has no labels.
    """
    images, labels = evaluation.test()
    if labels is None:
        raise no_labels(evaluation.data)
    index = torch.randperm(len(images), generator=seeds.generator(0, "robustness/images"))[:count]
    return Chosen(index, images[index], labels[index])


def in_shards(
    evaluation: Evaluation,
    name: str,
    options: Mapping[str, Scalar],
    defence: Defence,
    chosen: Chosen,
    attack: Callable[[Shard], Mapping[str, Tensor]],
) -> Attacked:
    """Attack shard by shard. Each is remembered: after a kill, or when the time was up, the work goes on there.

    Args:
        evaluation: the model.
        name: of the attack.
        options: all that decides what the attack gives.
        defence: between the attack and the model.
        chosen: the images.
        attack: gives arrays with a row for each image.

    Raises:
        OutOfTime: if the time was over before the first shard.
    """
    parts: list[dict[str, Tensor]] = []
    total = len(chosen.images)
    size = SHARD_REFINED if defence.refine else SHARD
    done = 0
    for number, start in enumerate(range(0, total, size)):
        if evaluation.out_of_time():
            break
        which = slice(start, start + size)
        content = content_hash(chosen.images[which])
        made_of = {**options, **defence.identity, "version": _VERSION, "shard": number, "content": content}

        def computed(which: slice = which, number: int = number) -> dict[str, Tensor]:
            shard = Shard(
                number,
                chosen.index[which],
                to_float(chosen.images[which].to(evaluation.device), _RANGE),
                chosen.labels[which].to(evaluation.device),
            )
            return {key: value.cpu() for key, value in attack(shard).items()}

        try:
            parts.append(evaluation.remembered(f"{name}-{number}-{stable_hash(made_of, 16)}", computed))
        except Stopped:
            if not parts:
                raise
            break  # those before are an outcome
        done = min(start + size, total)
        evaluation.progress(done, total)
    if not parts:
        raise OutOfTime("The time is up before an image was attacked. The same command goes on from here.")
    arrays = {key: torch.cat([part[key] for part in parts]).numpy() for key in parts[0]}
    arrays |= {
        "index": chosen.index[:done].numpy(),
        "label": chosen.labels[:done].numpy(),
        "image": chosen.images[:done].numpy(),
    }
    return Attacked(arrays, {"partial": f"{done} of {total} images"} if done < total else {})


def verified(target: Target, shard: Shard, adversarial: Tensor, claimed: Tensor) -> dict[str, Tensor]:
    """The arrays that are kept of an attack's images, from looking at them again."""
    seen = verify(target, shard.x, shard.y, adversarial, claimed)
    of_random = {"wrong-as-it-is": target.wrong_share(shard.x, shard.y, LOOKS)} if target.stochastic else {}
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


def distance_resamplings(name: str, arrays: Arrays, norms: Sequence[Norm]) -> Iterator[tuple[str, Resampling]]:
    """By label, the median distance in levels and the accuracy in % at each eps of the curve, as statistics of images.

    An image of which nothing was found counts with the largest distance that there is.
    """
    dimensions = int(np.prod(arrays["image"].shape[1:]))
    for norm in norms:
        levels = LEVELS * arrays[f"distance-{norm}"]
        highest = LEVELS * largest_distance(norm, dimensions)
        yield f"{name}-{norm}", Resampling(_median_of(levels), (len(levels),), (0.0, highest))
        for eps in CURVE[norm]:
            standing = withstands(arrays, norm, float(Fraction(eps)))
            yield f"{name}-{norm}@{eps}", Resampling(mean_of(100.0 * standing), (len(standing),), (0.0, 100.0))
            if (often := arrays.get("wrong-as-it-is")) is not None:
                yield expected(f"{name}-{norm}@{eps}", np.where(standing, often, arrays["wrong"]))


def distance_values(
    name: str, arrays: Arrays, norms: Sequence[Norm], rng: np.random.Generator, resamples: int
) -> dict[str, Value]:
    """What :func:`distance_resamplings` names, with intervals: bootstrap for medians, Wilson's for accuracies."""
    values: dict[str, Value] = {}
    for label, resampling in distance_resamplings(name, arrays, norms):
        norm, at, eps = label.removeprefix(f"{name}-").partition("@")
        if label.endswith(EXPECTED):
            values[label] = bootstrapped(resampling, rng, resamples, "%", "higher")
        elif at:
            values[label] = share(withstands(arrays, _norm(norm), float(Fraction(eps))), "higher")
        else:
            values[label] = bootstrapped(resampling, rng, resamples, "1/255", "higher")
    return values


EXPECTED = "-expected"


def expected(label: str, often: NDArray[np.float64]) -> tuple[str, Resampling]:
    """The mean share of right answers in %, of a model whose answers are random, with its label.

    Args:
        label: of the accuracy by the rule for random answers, which this one stands beside.
        often: (N,) how often the answer to each attacked image is wrong, 0 to 1.
    """
    return label + EXPECTED, Resampling(mean_of(100 * (1 - often)), (len(often),), (0.0, 100.0))


def withstands(arrays: Arrays, norm: Norm, eps: float) -> NDArray[np.bool_]:
    """Whether nothing was found within eps of each image.

    Attacks of a size stay within it; a change by whole levels, as pointwise makes it, may measure 8.00001/255 for 8.
    """
    reach = eps + rounding(norm, arrays["image"][0].size)
    standing: NDArray[np.bool_] = ~arrays["found"] | (arrays[f"distance-{norm}"] > reach)
    return standing


def share(which: NDArray[np.bool_], better: Literal["higher", "lower", ""]) -> Value:
    """The share of images in %, with Wilson's interval."""
    hits, n = int(which.sum()), len(which)
    low, high = wilson(hits, n)
    return value_of(100 * hits / n, Interval(100 * low, 100 * high), n, "%", better)


def found_details(arrays: Arrays) -> dict[str, Any]:
    """What a reader must know of an attack beside its distances."""
    at_0 = arrays["found"] & (arrays["distance-linf"] == 0)
    return {
        "misclassified": int(at_0.sum()),
        "not-found": int((~arrays["found"]).sum()),
        "unverified": int(arrays["unverified"].sum()),
    }


def _norm(text: str) -> Norm:
    return "linf" if text == "linf" else "l2"


def _median_of(values: NDArray[np.float64]) -> Callable[[NDArray[np.int64]], NDArray[Any]]:
    return lambda indices: np.median(values[indices], axis=1)
