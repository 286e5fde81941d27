"""Memorisation: distances of generated images to their nearest training images.

Every image is compared with its nearest training image in L2, in the features of a network and in
pixels. The nearest 1 % of the test images set the threshold of memorisation. A mirrored or shifted
copy is far away in pixels; its distance in features depends on the network.

Legend: N generated images, M test images, T training images, D features or pixels, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jembench.interfaces import Evaluation, Measurement, Planned, Resampling
from jembench.metrics.base import Array, Arrays, Resamples
from jembench.metrics.generation import FeatureMetric
from jembench.metrics.sample_protocol import Generated, foresee, generated, pool_of, require_images
from jembench.plugin import Estimate, NotApplicable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from jembench.stats.intervals import Indices, Statistic

PERCENTILE = 1
"""The percentile of the test images' distances that is the threshold: the share of new images
expected below, in %.
"""

SHOWN = 32
"""The number of pairs kept for a figure."""

_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class Neighbours(FeatureMetric):
    """Memorisation: distances of samples to training images, beside those of test images.

    ``memorised`` is the share of samples, in %, that are as near to a training image as the nearest
    1 % of test images: 1 is expected of samples as new as test images, 100 of copies.
    ``nearest-ratio`` is the median distance of samples divided by that of test images: near 0 for
    copies, above 1 for images that are unlike the dataset. ``features``: as for ``is``; both values
    are given for distances in pixels too.
    """

    resamples: Resamples = 200
    implementation: ClassVar[str] = "jembench"
    name: ClassVar[str] = "neighbours"

    def check(self, planned: Planned) -> None:
        """Check that features are available, and that there are enough test images."""
        foresee(planned, self.features, self)
        self.require_test_images(planned.count("test"))

    def require_test_images(self, n: int) -> None:
        """Check that there are at least 100 test images."""
        least = 100 // PERCENTILE
        require_images(n, least, "test images", self.name, "whose nearest 1 % set its threshold")

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure generated images; the arrays hold the nearest pairs too."""
        import torch

        sample = generated(evaluation, self.features, self)
        train = evaluation.data.images("train")
        test = evaluation.data.part("test").images
        self.require_test_images(len(test))
        arrays = self._distances(evaluation, sample, train, test)
        distance = arrays[sample.label("distance")]
        closest = distance.argsort(kind="stable")[:SHOWN]
        neighbours = arrays[sample.label("nearest")][closest]
        arrays["images"] = sample.images[torch.from_numpy(closest)].numpy()
        arrays["neighbours"] = train[torch.from_numpy(neighbours)].numpy()
        sizes = {"percentile": PERCENTILE, "test_images": len(test), "train_images": len(train)}
        return self.measurement(evaluation, arrays, parts={**sample.identity, **sizes})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values of samples and of test images, in each space."""
        estimates: dict[str, Estimate] = {}
        prefix = "test-distance"
        spaces = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
        for space in spaces:
            distance = arrays[f"distance{space}"]
            of_test = arrays[f"test-distance{space}"]
            n = len(distance)
            sizes = (len(distance), len(of_test))
            statistic = memorised(distance, of_test)
            shares = Resampling(statistic, sizes, (0.0, 100.0), n)
            statistic = median_ratio(distance, of_test)
            ratios = Resampling(statistic, sizes, (0.0, float("inf")))
            estimates[f"memorised{space}"] = Estimate(shares, "%", "lower", n)
            estimates[f"nearest-ratio{space}"] = Estimate(ratios, n=n)
        return estimates

    def _distances(
        self, evaluation: Evaluation, sample: Generated, train: Tensor, test: Tensor
    ) -> dict[str, Any]:
        """Return nearest training images and all distances, by space."""
        import numpy as np

        device = evaluation.device

        of_train = pool_of(evaluation, self.features, train, "images")
        of_test = pool_of(evaluation, self.features, test, "images")
        spaces = {
            sample.label(""): (sample.features.pool, of_train, of_test),
            "-pixels": (sample.images, train, test),
        }
        arrays: dict[str, Any] = {}
        for space, (images, of_train, of_test) in spaces.items():
            distance, index = nearest(images, of_train, device)
            test_distance, _ = nearest(of_test, of_train, device)
            arrays[f"distance{space}"] = distance.numpy()
            arrays[f"nearest{space}"] = index.numpy()
            arrays[f"test-distance{space}"] = test_distance.numpy()
            if np.median(test_distance.numpy()) == 0:
                raise NotApplicable(
                    "More than half of the test images are copies of training images, so that "
                    "they give no distance of new images. Choose a dataset whose test images are "
                    "not in the training split."
                )
        return arrays


class Nearest(NamedTuple):
    """The training image nearest to each image."""

    distance: Tensor  # float64 (N,), exactly 0 for a copy
    position: Tensor  # int64 (N,), the first of equally near images


def nearest(images: Tensor, train: Tensor, device: torch.device) -> Nearest:
    """Find the nearest training image of each image in L2.

    Distances are in float64, where sums of squares of pixels are exact.

    Args:
        images: features (N, D), or images uint8 (N, C, H, W).
        train: features of training images (T, D), or training images.
        device: used if it is a GPU, else the CPU.
    """
    import torch

    from jembench import progress

    device = device if device.type == "cuda" else torch.device("cpu")
    # sums of squares of pixels are exact in parts of any size, distances of features are not
    size = len(images) if images.is_floating_point() else _BLOCK
    lowest = torch.full((len(images),), torch.inf, dtype=torch.float64, device=device)
    index = torch.zeros(len(images), dtype=torch.int64, device=device)
    starts = range(0, len(train), _BLOCK)
    for start in progress.track(starts, "", "blocks of training images"):
        block = train[start : start + _BLOCK].to(device).flatten(1).double()
        for first in range(0, len(images), size):
            part = slice(first, first + size)
            between = torch.cdist(images[part].to(device).flatten(1).double(), block)
            within = between.argmin(dim=1)  # argmin returns the first of equals, min does not
            distance = between.gather(1, within[:, None])[:, 0]
            nearer = distance < lowest[part]
            lowest[part][nearer] = distance[nearer]
            index[part][nearer] = start + within[nearer]
    index = index.cpu()
    distances = []
    for first in range(0, len(images), _BLOCK):
        part = slice(first, first + _BLOCK)
        # cdist leaves a rounding error where features are equal
        difference = images[part].double() - train[index[part]].double()
        distances.append(difference.flatten(1).norm(dim=1))
    return Nearest(torch.cat(distances), index)


def memorised(distance: Array, of_test: Array) -> Statistic:
    """Return the share of samples at most a threshold away, in %.

    It is a statistic of index matrices (R, N) and (R, M). The threshold is the smallest distance
    that at least 1 % of the test images do not exceed.
    """
    import numpy as np

    place = -(-PERCENTILE * len(of_test) // 100) - 1

    def shares(drawn: Indices, drawn_test: Indices) -> Array:
        ordered = np.partition(of_test[drawn_test], place, axis=1)
        near = distance[drawn] <= ordered[:, place, None]
        percent: Array = 100 * near.mean(axis=1)
        return percent

    return shares


def median_ratio(distance: Array, of_test: Array) -> Statistic:
    """Return the ratio of the median distances of samples and test images.

    About 1 for new images; a statistic of index matrices (R, N) and (R, M).
    """
    import numpy as np

    def ratios(drawn: Indices, drawn_test: Indices) -> Array:
        median: Array = np.median(distance[drawn], axis=1)
        return median / np.median(of_test[drawn_test], axis=1)

    return ratios
