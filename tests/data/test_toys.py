"""Toys: their densities integrate to 1, and their images are drawn from them."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from jembench.catalog import registry
from jembench.data.dequantisation import level_width
from jembench.data.factories import toy
from jembench.data.pixels import to_float
from jembench.errors import SpecError
from jembench.interfaces import Dataset
from jembench.interfaces.data import Truth
from jembench_density.truth import all_cells

PLANES = ("checkerboard", "gaussians", "rings")
WIDTH = level_width((-1, 1))


def density(dataset, x):
    return dataset.truth.log_joint(x).logsumexp(dim=1).exp()


@pytest.mark.parametrize("kind", PLANES)
def test_a_density_of_the_plane_integrates_to_one(kind):
    nodes, weights = (
        torch.from_numpy(part) * (1 + WIDTH / 2) for part in np.polynomial.legendre.leggauss(301)
    )
    places = torch.cartesian_prod(nodes, nodes).view(-1, 2, 1, 1)
    integral = density(toy(kind=kind), places) @ torch.outer(weights, weights).flatten()
    assert float(integral) == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize("kind", PLANES)
def test_points_follow_the_density_and_labels_their_modes(kind):
    dataset = toy(kind=kind)
    images, labels = dataset.split("train")
    blocks = (
        density(dataset, to_float(all_cells((2, 1, 1)), (-1, 1)))
        .view(16, 16, 16, 16)
        .sum(dim=(1, 3))
        * WIDTH**2
    )
    counts = torch.zeros(16, 16).index_put_(
        (*(images.flatten(1) // 16).long().T,), torch.tensor(1.0), accumulate=True
    )
    expected, observed = (len(images) * blocks).flatten().numpy(), counts.flatten().numpy()
    often = expected > 5
    rest = expected[~often].sum(), observed[~often].sum()
    test = stats.chisquare(
        [*observed[often], rest[1]], [*expected[often], rest[0]], sum_check=False
    )
    assert test.pvalue > 0.01
    assert stats.chisquare(labels.bincount()).pvalue > 0.01
    likeliest = dataset.truth.log_joint(to_float(images, (-1, 1))).argmax(dim=1)
    assert 0.97 < float((likeliest == labels).double().mean()) < 1


def test_images_are_a_mixture_of_patterns_with_noise_of_their_own_in_each_pixel():
    dataset = toy(kind="images")
    images, labels = dataset.split("test")
    x = to_float(images, (-1, 1)).flatten(1).double().numpy()
    places, levels = (np.arange(8) + 0.5) * math.pi / 8, np.linspace(-1, 1, 256)
    of_modes = []
    for row, column in [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]:
        noise = stats.norm(
            0.5 * np.outer(np.cos(row * places), np.cos(column * places)).reshape(64, 1), 0.2
        )
        of_modes.append(np.log(noise.pdf(x.T) / noise.pdf(levels).sum(axis=1)[:, None]).sum(axis=0))
    expected = np.stack(of_modes, axis=1) - math.log(8) - 64 * math.log(WIDTH)
    found = dataset.truth.log_joint(to_float(images, (-1, 1))).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-6)  # the levels are float32
    assert (found.argmax(axis=1) == labels.numpy()).all()


@pytest.mark.parametrize("kind", [*PLANES, "images"])
def test_a_toy_is_a_dataset_with_a_truth(kind):
    dataset = registry.resolve("datasets", f"toy:{kind}").make()
    assert isinstance(dataset, Dataset)
    assert isinstance(dataset.truth, Truth)
    assert sum(dataset.truth.shares) == pytest.approx(1)
    assert (len(dataset.split("train").images), len(dataset.split("test").images)) == (5000, 2000)
    assert not torch.equal(dataset.split("train").images[:100], dataset.split("test").images[:100])


def test_an_unknown_toy_is_refused():
    with pytest.raises(SpecError, match="spirals"):
        registry.resolve("datasets", "toy:spirals")
