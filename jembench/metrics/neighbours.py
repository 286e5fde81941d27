"""Memorisation: the distance of generated images to training images, compared with that of test images.

Every image is compared with its nearest training image in L2, in the features of a network and in pixels. The nearest
1 % of the test images set the threshold of memorisation; C_T and AuthPct are tests without a threshold. A mirrored or
shifted copy is far away in pixels; its distance in features depends on the network.

Legend: N generated images, M test images, T training images, D features or pixels, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jembench.errors import NotApplicable
from jembench.interfaces import Evaluation, Measurement, Planned, Resampling
from jembench.metrics.base import Array, Arrays, Count, Estimate, Resamples, share
from jembench.metrics.generation import FeatureMetric
from jembench.metrics.sample_protocol import Generated, foresee, generated, pool_of, require_images

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from jembench.stats.intervals import Indices, Statistic

PERCENTILE = 1
"""The percentile of the test images' distances that is the threshold, so the share of new images below it, in %."""

SHOWN = 32
"""The number of pairs kept for a figure."""

FEW = 20
"""A cell of at most as many samples is left out of C_T."""

_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class Neighbours(FeatureMetric):
    """Memorisation: distances of the model's samples to training images, compared with those of test images.

    ``memorised`` is the share of samples, in %, that are as near to a training image as the nearest 1 % of test images:
    1 is expected of samples as new as test images, 100 of copies. ``nearest-ratio`` is the ratio of the median
    distances: near 0 for copies, above 1 for images that are unlike the dataset. ``features``: as for ``is``;
    both values are given for distances in pixels as well.
    """

    resamples: Resamples = 200
    implementation: ClassVar[str] = "jembench"
    name: ClassVar[str] = "neighbours"

    def check(self, planned: Planned) -> None:
        """Check that the feature network is available, and that there are enough test images."""
        foresee(planned, self.features, self)
        self.require_test_images(planned.count("test"))

    def require_test_images(self, n: int) -> None:
        """Check that there are at least 100 test images."""
        require_images(n, 100 // PERCENTILE, "test images", self.name, "whose nearest 1 % set its threshold")

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure generated images; the arrays hold the nearest pairs as well."""
        import torch

        sample = generated(evaluation, self.features, self)
        train, test = evaluation.data.images("train"), evaluation.data.part("test").images
        self.require_test_images(len(test))
        arrays = self._distances(evaluation, sample, train, test)
        closest = arrays[sample.label("distance")].argsort(kind="stable")[:SHOWN]
        shown = train[torch.from_numpy(arrays[sample.label("nearest")][closest])]
        sizes = {"percentile": PERCENTILE, "test_images": len(test), "train_images": len(train)}
        pairs = {"images": sample.images[torch.from_numpy(closest)].numpy(), "neighbours": shown.numpy()}
        return self.measurement(evaluation, {**arrays, **pairs}, parts={**sample.identity, **sizes})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values of samples and of test images, in each space."""
        estimates: dict[str, Estimate] = {}
        for space in [name.removeprefix("test-distance") for name in arrays if name.startswith("test-distance")]:
            distance, of_test = arrays[f"distance{space}"], arrays[f"test-distance{space}"]
            n, sizes = len(distance), (len(distance), len(of_test))
            shares = Resampling(memorised(distance, of_test), sizes, (0.0, 100.0), n)
            ratios = Resampling(median_ratio(distance, of_test), sizes, (0.0, float("inf")))
            estimates[f"memorised{space}"] = Estimate(shares, "%", "lower", n)
            estimates[f"nearest-ratio{space}"] = Estimate(ratios, n=n)
        return estimates

    def _distances(self, evaluation: Evaluation, sample: Generated, train: Tensor, test: Tensor) -> Arrays:
        """Return the nearest training image of each sample, and distances of samples and test images, by space."""
        import numpy as np

        pools = (pool_of(evaluation, self.features, images, "images") for images in (train, test))
        spaces = {
            sample.label(""): (sample.features.pool, *pools),
            "-pixels": (sample.images.flatten(1), train.flatten(1), test.flatten(1)),
        }
        arrays: dict[str, Any] = {}
        for space, (images, of_train, of_test) in spaces.items():
            distance, index = nearest(images, of_train, evaluation.device)
            arrays[f"distance{space}"], arrays[f"nearest{space}"] = distance.numpy(), index.numpy()
            arrays[f"test-distance{space}"] = nearest(of_test, of_train, evaluation.device).distance.numpy()
            if np.median(arrays[f"test-distance{space}"]) == 0:
                raise NotApplicable(
                    "More than half of the test images are copies of training images, so that they give no distance of "
                    "new images. Choose a dataset whose test images are not in the training split."
                )
        return arrays


@dataclass(frozen=True, kw_only=True)
class Memorisation(FeatureMetric):
    """Memorisation by two tests on the distances of the model's samples to training images, in features.

    ``ct`` is C_T of Meehan et al. (2020), arXiv:2004.05675: the score of the Mann-Whitney test that samples are further
    from the training images than test images are, averaged over ``cells`` of k-means by their number of test images;
    standard normal for samples as new as test images, far below 0 for copies, far above 0 for samples unlike the
    dataset. Cells of at most 20 samples are left out. ``authentic`` is AuthPct of Alaa et al. (2022), arXiv:2102.08921:
    the share of samples, in %, that are further from their nearest training image than another training image is.
    ``features``: as for ``is``.
    """

    cells: Count = 3
    resamples: Resamples = 200
    implementation: ClassVar[str] = "jembench"
    name: ClassVar[str] = "memorisation"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return more images than all cells may have if each is left out."""
        return FEW * self.cells + 1, f"more than {FEW} in one of {self.cells} cells"

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the distances and the cells of samples and test images."""
        from sklearn.cluster import KMeans

        from jembench.metrics.feature_scores import nearest_others

        sample, device = generated(evaluation, self.features, self), evaluation.device
        parts = map(evaluation.data.images, ("train", "test"))
        train, test = (pool_of(evaluation, self.features, images, "images") for images in parts)
        self.require(sample.n, None, "", 0)
        require_images(len(train), self.cells + 1, "training images", self.name, "one in each cell and another")
        distance, index = nearest(sample.features.pool, train, device)
        between = nearest_others(train, 1)[0][index, 0]
        cells = KMeans(self.cells, n_init=10, random_state=0).fit(train.numpy())
        arrays = {
            sample.label("authentic"): between < distance.numpy(),
            "distance": distance.numpy(),
            "cell": cells.predict(sample.features.pool.numpy()),
            "test-distance": nearest(test, train, device).distance.numpy(),
            "test-cell": cells.predict(test.numpy()),
        }
        sizes = {"cells": self.cells, "test_images": len(test), "train_images": len(train)}
        return self.measurement(evaluation, arrays, parts={**sample.identity, **sizes})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return C_T and AuthPct."""
        label = next(name for name in arrays if name.startswith("authentic"))
        of_samples, of_test = ((arrays[f"{kind}distance"], arrays[f"{kind}cell"]) for kind in ("", "test-"))
        copying = Resampling(data_copying(*of_samples, *of_test), (len(of_samples[0]), len(of_test[0])))
        return {label.replace("authentic", "ct", 1): Estimate(copying), label: share(arrays[label], "higher")}


class Nearest(NamedTuple):
    """The training image nearest to each image."""

    distance: Tensor  # float64 (N,), exactly 0 for a copy
    position: Tensor  # int64 (N,), the first of equally near ones


def nearest(images: Tensor, train: Tensor, device: torch.device) -> Nearest:
    """Find the nearest training image of each image in L2, in float64, where sums of squares of pixels are exact.

    Args:
        images: features or uint8 pixels (N, D).
        train: those of training images (T, D).
        device: of the computation, if it is a GPU.
    """
    import torch

    from jembench import progress

    device = device if device.type == "cuda" else torch.device("cpu")
    x = images.to(device).double()
    lowest = torch.full((len(x),), torch.inf, dtype=torch.float64, device=device)
    index = torch.zeros(len(x), dtype=torch.int64, device=device)
    for start in progress.track(range(0, len(train), _BLOCK), "", "blocks of training images"):
        block = torch.cdist(x, train[start : start + _BLOCK].to(device).double())
        within = block.argmin(dim=1)  # the first of equals, unlike that of min
        distance = block.gather(1, within[:, None])[:, 0]
        nearer = distance < lowest
        lowest = lowest.where(~nearer, distance)
        index = index.where(~nearer, start + within)
    index = index.cpu()
    distance = torch.cat(
        [
            (a.double() - train[b].double()).norm(dim=1)  # cdist leaves a rounding error where features are equal
            for a, b in zip(torch.split(images, _BLOCK), torch.split(index, _BLOCK), strict=True)
        ]
    )
    return Nearest(distance, index)


def memorised(distance: Array, of_test: Array) -> Statistic:
    """Return the share of images, in %, as near to a training image as the nearest 1 % of test images.

    It is a statistic of index matrices (R, N) and (R, M). The threshold is the smallest distance that at least 1 % of
    the test images do not exceed.
    """
    import numpy as np

    place = -(-PERCENTILE * len(of_test) // 100) - 1

    def shares(drawn: Indices, drawn_test: Indices) -> Array:
        threshold = np.partition(of_test[drawn_test], place, axis=1)[:, place]
        percent: Array = 100 * (distance[drawn] <= threshold[:, None]).mean(axis=1)
        return percent

    return shares


def data_copying(distance: Array, cell: Array, of_test: Array, test_cell: Array) -> Statistic:
    """Return C_T as a statistic of index matrices (R, N) and (R, M): the mean of the cells' scores, by test images.

    A resample without any of these cells scores 0, as new samples do on average.

    Args:
        distance: of each sample to the nearest training image (N,).
        cell: of each sample (N,).
        of_test: the distances of test images (M,).
        test_cell: their cells (M,).
    """
    import numpy as np

    large = [number for number in np.unique(test_cell) if (cell == number).sum() > FEW]
    if not large:
        raise NotApplicable(f"No cell with test images has more than {FEW} samples. Lower cells.")

    def mean_score(drawn: Indices, drawn_test: Indices) -> float:
        scores, weights = list[float](), list[int]()
        for number in large:
            samples = distance[drawn][cell[drawn] == number]
            test = of_test[drawn_test][test_cell[drawn_test] == number]
            if len(samples) and len(test):
                scores.append(rank_score(samples, test))
                weights.append(len(test))
        return float(np.average(scores, weights=weights)) if scores else 0.0

    return lambda drawn, drawn_test: np.array([mean_score(*rows) for rows in zip(drawn, drawn_test, strict=True)])


def rank_score(samples: Array, test: Array) -> float:
    """Return the score of the Mann-Whitney test: normal for samples like the test values, below 0 for smaller ones.

    As in the code of Meehan et al., it has a continuity correction and no correction for ties.
    """
    import numpy as np

    n, m, ordered = len(samples), len(test), np.sort(test)
    larger = (ordered.searchsorted(samples, "left") + ordered.searchsorted(samples, "right")).sum() / 2
    return float((larger - n * m / 2 + 0.5) / np.sqrt(n * m * (n + m + 1) / 12))


def median_ratio(distance: Array, of_test: Array) -> Statistic:
    """Return the median distance to a training image divided by that of the test images: about 1 for new images.

    It is a statistic of index matrices (R, N) and (R, M).
    """
    import numpy as np

    return lambda drawn, drawn_test: np.median(distance[drawn], axis=1) / np.median(of_test[drawn_test], axis=1)
