"""Memorisation: are generated images nearer to training images than images that the model cannot have seen?

Every image is compared with the training image that is nearest to it, in L2, among the features of a network and among
pixels. The test images say how near is near: their nearest 1 % set the threshold. A mirrored or shifted copy is far
away in pixels, and only as near in features as the network makes it.

Legend: N generated images, M test images, T training images, D features or pixels, R resamples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from jembench import progress
from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.estimates import Arrays, Estimate, measurement
from jembench.metrics.generation import Generated, generated, pool_of
from jembench.metrics.generative import PERCENTILE, Neighbours
from jembench.stats import Indices, Statistic

SHOWN = 32
"""Pairs that are kept for a figure."""

_BLOCK = 1024


class Nearest(NamedTuple):
    """The training image nearest to each image."""

    distance: Tensor  # float64 (N,), exactly 0 for a copy
    which: Tensor  # int64 (N,), the first of equals


def nearest(
    images: Float[Tensor, "N D"] | UInt8[Tensor, "N D"],
    train: Float[Tensor, "T D"] | UInt8[Tensor, "T D"],
    device: torch.device,
) -> Nearest:
    """Find the nearest training image of each image in L2, in float64, in which sums of squares of pixels are exact."""
    x = images.to(device).double()
    lowest = torch.full((len(x),), torch.inf, dtype=torch.float64, device=device)
    which = torch.zeros(len(x), dtype=torch.int64, device=device)
    for start in progress.track(range(0, len(train), _BLOCK), "", "blocks of training images"):
        block = torch.cdist(x, train[start : start + _BLOCK].to(device).double())
        within = block.argmin(dim=1)  # unlike min's, the first of equals
        distance = block.gather(1, within[:, None])[:, 0]
        nearer = distance < lowest
        lowest = lowest.where(~nearer, distance)
        which = which.where(~nearer, start + within)
    which = which.cpu()
    distance = torch.cat(
        [
            (a.double() - train[b].double()).norm(dim=1)  # cdist leaves a rounding error where features are equal
            for a, b in zip(torch.split(images, _BLOCK), torch.split(which, _BLOCK), strict=True)
        ]
    )
    return Nearest(distance, which)


def memorised(distance: NDArray[np.float64], of_test: NDArray[np.float64]) -> Statistic:
    """The share of images, in %, as near to a training image as the nearest 1 % of test images, of (R, N) and (R, M).

    The threshold is the smallest distance that at least 1 % of the test images do not exceed.
    """
    place = -(-PERCENTILE * len(of_test) // 100) - 1

    def shares(drawn: Indices, drawn_test: Indices) -> NDArray[np.float64]:
        threshold = np.partition(of_test[drawn_test], place, axis=1)[:, place]
        found: NDArray[np.float64] = 100 * (distance[drawn] <= threshold[:, None]).mean(axis=1)
        return found

    return shares


def median_ratio(distance: NDArray[np.float64], of_test: NDArray[np.float64]) -> Statistic:
    """The median distance to a training image over that of the test images, of (R, N) and (R, M): 1 for fresh ones."""

    def ratios(drawn: Indices, drawn_test: Indices) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.median(distance[drawn], axis=1) / np.median(of_test[drawn_test], axis=1)
        return found

    return ratios


def neighbours(metric: Neighbours, evaluation: Evaluation) -> Measurement:
    """Measure generated images."""
    sample = generated(evaluation, metric.features, metric)
    train, test = evaluation.data.images("train"), evaluation.data.part("test").images
    metric.require_test_images(len(test))
    arrays = _distances(metric, evaluation, sample, train, test)
    closest = np.argsort(arrays[sample.label("distance")], kind="stable")[:SHOWN]
    shown = train[torch.from_numpy(arrays[sample.label("nearest")][closest])]
    parts = {
        **sample.identity,
        "implementation": "jembench",
        "percentile": PERCENTILE,
        "test_images": len(test),
        "train_images": len(train),
    }
    pairs = {"images": sample.images[torch.from_numpy(closest)].numpy(), "neighbours": shown.numpy()}
    return measurement(metric, evaluation, parts, metric.estimates(arrays), {**arrays, **pairs})


def neighbours_estimates(metric: Neighbours, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of samples and of test images, in each space."""
    found: dict[str, Estimate] = {}
    for space in [name.removeprefix("test-distance") for name in arrays if name.startswith("test-distance")]:
        distance, of_test = arrays[f"distance{space}"], arrays[f"test-distance{space}"]
        sizes = (len(distance), len(of_test))
        share, ratio = memorised(distance, of_test), median_ratio(distance, of_test)
        shares = Resampling(share, sizes, (0.0, 100.0), len(distance))
        found[f"memorised{space}"] = Estimate(shares, "%", "lower", len(distance))
        found[f"nearest-ratio{space}"] = Estimate(Resampling(ratio, sizes, (0.0, np.inf)), n=len(distance))
    return found


def _distances(metric: Neighbours, evaluation: Evaluation, sample: Generated, train: Tensor, test: Tensor) -> Arrays:
    """Of features and of pixels: distances of samples and test images, and which training image is nearest."""
    device = evaluation.device if evaluation.device.type == "cuda" else torch.device("cpu")
    pools = (pool_of(evaluation, metric.features, images, "images") for images in (train, test))
    spaces = {
        sample.label(""): (sample.features.pool, *pools),
        "-pixels": (sample.images.flatten(1), train.flatten(1), test.flatten(1)),
    }
    arrays: dict[str, NDArray[Any]] = {}
    for space, (images, of_train, of_test) in spaces.items():
        found = nearest(images, of_train, device)
        arrays[f"distance{space}"], arrays[f"nearest{space}"] = found.distance.numpy(), found.which.numpy()
        arrays[f"test-distance{space}"] = nearest(of_test, of_train, device).distance.numpy()
        if np.median(arrays[f"test-distance{space}"]) == 0:
            raise NotApplicable(
                "More than half of the test images are copies of training images, so they say nothing of how near "
                "an image is that was not seen. Choose a dataset whose test images are others."
            )
    return arrays
