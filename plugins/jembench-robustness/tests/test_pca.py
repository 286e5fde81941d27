"""Starts of chains along principal directions, against scikit-learn."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA
from torch import Generator

from jembench.data.images import Images
from jembench.data.pixels import to_float
from jembench.errors import Unavailable
from jembench.interfaces import DataSpec, Split
from jembench_robustness.pca import PCAStart

SHAPE = (1, 2, 2)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
DRAWS = 20_000


def seeded(seed=0):
    return Generator().manual_seed(seed)


def images_of(n, level):
    """Draw n images of correlated pixels around a level."""
    mixing = [[1.0, 0.5, 0.0, -0.5], [0, 1, 0.3, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 0.8]]
    noise = torch.randn((n, 4), generator=seeded(n))
    levels = level + 12 * noise @ torch.tensor(mixing)
    return levels.round().clamp(0, 255).byte().view(n, 1, 2, 2)


def test_pca_starts_are_spread_along_the_principal_directions():
    """Compare means and deviations in the kept plane with scikit-learn.

    Deviations are the scale times the singular values.
    """
    sizes = (60, 50, 2)
    levels = (100, 140, 90)
    images = torch.cat(list(map(images_of, sizes, levels)))
    labels = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    train = Split(images, labels)
    start = PCAStart(DATA, 0.9, 0.02)
    start.inform(train)
    ones = torch.ones(DRAWS, dtype=torch.int64)
    x = start.draw(DRAWS, ones, seeded()).flatten(1).double()
    images = to_float(train.images[train.labels == 1], DATA.bounds)
    images = images.flatten(1).double()
    pca = PCA().fit(images)
    kept = np.cumsum(pca.explained_variance_ratio_) < 0.9
    assert 0 < kept.sum() < 3
    along = pca.transform(x)
    expected = np.where(kept, 0.02 * pca.singular_values_, 0)
    assert_allclose(along.std(axis=0), expected, rtol=0.02, atol=1e-5)
    assert_allclose(along.mean(axis=0), 0, atol=1e-3)
    first = start.draw(9, None, seeded(1))
    assert torch.equal(first, start.draw(9, None, seeded(1)))


def test_a_class_is_read_alone_and_refused_before_training_if_it_is_too_large(monkeypatch):
    images, labels = images_of(90, 100), torch.arange(90) % 3
    whole = PCAStart(DATA, 0.9, 0.02)
    whole.inform(Split(images, labels))
    rows = []

    def read(chosen):
        rows.extend(chosen.tolist())
        return images[chosen]

    train = Split(Images(read, torch.arange(90), SHAPE), labels)
    start = PCAStart(DATA, 0.9, 0.02)
    start.inform(train)
    ones = torch.ones(7, dtype=torch.int64)
    assert torch.equal(start.draw(7, ones, seeded()), whole.draw(7, ones, seeded()))
    assert labels[rows].tolist() == 30 * [1]
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    with pytest.raises(Unavailable, match=r"pca of class 0 needs all 30 images in memory"):
        PCAStart(DATA, 0.9, 0.02).inform(train)
