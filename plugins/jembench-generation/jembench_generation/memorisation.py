"""Memorisation by tests on distances to the training images.

Distances of generated images are compared with distances of test images.

Legend: N generated images, M test images, T training images, D features, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.base import Array, Arrays, Count, Resamples
from jembench.metrics.generation import FeatureMetric
from jembench.metrics.sample_protocol import generated, pool_of, require_images
from jembench.plugin import Estimate, NotApplicable, share
from jembench_generation.neighbours import nearest

if TYPE_CHECKING:
    from torch import Tensor, device

    from jembench.stats.intervals import Indices, Statistic

FEW = 20
"""The number of samples up to which a cell is left out of C_T."""


@dataclass(frozen=True, kw_only=True)
class Memorisation(FeatureMetric):
    """Two tests of memorisation, on distances of samples to training images.

    Distances are between features.

    ``ct`` is C_T of Meehan et al. (2020), arXiv:2004.05675: the score of the Mann-Whitney test that
    samples are further from the training images of their cell than test images are, averaged over
    ``cells`` cells of k-means, weighted by their number of test images; standard normal for samples
    as new as test images, far below 0 for copies, far above 0 for samples unlike the dataset. Cells
    of at most 20 samples are left out. Cells and distances are in the first ``components``
    principal components of the training images' features, as in the code of Stein et al. (2023),
    arXiv:2306.04675.

    ``authentic`` is AuthPct of Alaa et al. (2022), arXiv:2102.08921: the share of samples, in %,
    that are further from their nearest training image than another training image is, in all
    features. ``features``: as for ``is``.
    """

    cells: Count = 3
    components: Count = 64
    resamples: Resamples = 200
    implementation: ClassVar[str] = "jembench"
    name: ClassVar[str] = "memorisation"

    def least(self, network: str, dimensions: int) -> tuple[int, str]:
        """Return the least number of samples, with which some cell exceeds ``FEW``."""
        return FEW * self.cells + 1, f"more than {FEW} in one of {self.cells} cells"

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the distances and the cells of samples and test images."""
        from jembench_generation.balls import nearest_others

        sample = generated(evaluation, self.features, self)
        device = evaluation.device
        pools = []
        for name in ("train", "test"):
            images = evaluation.data.images(name)
            pools.append(pool_of(evaluation, self.features, images, "images"))
        train, test = pools
        self.require(sample.n, None, "", 0)
        least = self.cells + 1
        of_what = "one in each cell and another"
        require_images(len(train), least, "training images", self.name, of_what)
        distance, index = nearest(sample.features.pool, train, device)
        neighbour_distance, _ = nearest_others(train, 1)
        between = neighbour_distance[index, 0]
        sets = (train, sample.features.pool, test)
        of_samples, of_test = distances_in_cells(*sets, self.cells, self.components, device)
        authentic = between < distance.numpy()
        arrays = {sample.label("authentic"): authentic}
        for kind, images in (("", of_samples), ("test-", of_test)):
            arrays[f"{kind}distance"] = images.distance
            arrays[f"{kind}cell"] = images.cell
        sizes = {"test_images": len(test), "train_images": len(train)}
        sizes |= {"cells": self.cells, "components": self.components}
        return self.measurement(evaluation, arrays, parts={**sample.identity, **sizes})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return C_T and AuthPct."""
        label = next(name for name in arrays if name.startswith("authentic"))
        of_samples = InCells(arrays["distance"], arrays["cell"])
        of_test = InCells(arrays["test-distance"], arrays["test-cell"])
        sizes = (len(of_samples.cell), len(of_test.cell))
        copying = Resampling(data_copying(*of_samples, *of_test), sizes)
        return {
            label.replace("authentic", "ct", 1): Estimate(copying),
            label: share(arrays[label], "higher"),
        }


class InCells(NamedTuple):
    """Each image's cell, and distance to the cell's nearest training image."""

    distance: Array  # float64 (N,)
    cell: Array  # int (N,)


def distances_in_cells(
    train: Tensor, samples: Tensor, test: Tensor, cells: int, components: int, device: device
) -> tuple[InCells, InCells]:
    """Return the cells and distances of samples and of test images.

    Args:
        train: features of training images (T, D), which make the components and the cells.
        samples: features of samples (N, D).
        test: features of test images (M, D).
        cells: number of cells of k-means.
        components: largest number of features; beyond it, features are projected onto principal
            components.
        device: where distances are computed.
    """
    import numpy as np
    import torch
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    # at most as many components as training images, which span no more directions
    sets = [features.double().numpy() for features in (train, samples, test)]
    if train.shape[1] > components:
        kept = min(components, len(train))
        projection = PCA(kept, svd_solver="covariance_eigh").fit(sets[0])
        sets = [projection.transform(features) for features in sets]
    partition = KMeans(cells, n_init=10, random_state=0)
    partition.fit(sets[0])
    of_train = partition.predict(sets[0])

    def within(features: Array) -> InCells:
        cell = partition.predict(features)
        distance = np.empty(len(features))
        for number in np.unique(cell):
            pools = features[cell == number], sets[0][of_train == number]
            nearest_in_cell = nearest(*map(torch.from_numpy, pools), device)
            distance[cell == number] = nearest_in_cell.distance.numpy()
        return InCells(distance, cell)

    return within(sets[1]), within(sets[2])


def data_copying(distance: Array, cell: Array, of_test: Array, test_cell: Array) -> Statistic:
    """Return C_T, the mean score of the cells, as a statistic.

    The index matrices are (R, N) and (R, M); cells are weighted by their test images. A resample
    without images in the large cells scores 0, as new samples do on average.

    Args:
        distance: of each sample to the nearest training image (N,).
        cell: of each sample (N,).
        of_test: the distances of test images (M,).
        test_cell: the cells of test images (M,).
    """
    import numpy as np

    cells = np.unique(test_cell)
    large = [number for number in cells if (cell == number).sum() > FEW]
    if not large:
        raise NotApplicable(f"No cell with test images has more than {FEW} samples. Lower cells.")

    def mean_score(drawn: Indices, drawn_test: Indices) -> float:
        scores = list[float]()
        weights = list[int]()
        for number in large:
            samples = distance[drawn][cell[drawn] == number]
            test = of_test[drawn_test][test_cell[drawn_test] == number]
            if len(samples) and len(test):
                scores.append(rank_score(samples, test))
                weights.append(len(test))
        if scores:
            return float(np.average(scores, weights=weights))
        return 0.0

    def scores(drawn: Indices, drawn_test: Indices) -> Array:
        pairs = zip(drawn, drawn_test, strict=True)
        return np.array([mean_score(*rows) for rows in pairs])

    return scores


def rank_score(samples: Array, test: Array) -> float:
    """Return the score of the Mann-Whitney test.

    The score is standard normal for samples distributed like the test values, and below 0 for
    smaller samples.

    As in the code of Meehan et al., it has a continuity correction and no correction for ties.
    """
    import numpy as np

    n = len(samples)
    m = len(test)
    ordered = np.sort(test)
    below = ordered.searchsorted(samples, "left")
    larger = (below + ordered.searchsorted(samples, "right")).sum() / 2
    deviation = np.sqrt(n * m * (n + m + 1) / 12)
    return float((larger - n * m / 2 + 0.5) / deviation)
