"""The densities of the example plugin: a row by a few lines each, checked against closed forms and scikit-learn."""

import importlib.metadata
import math

import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from jembench.interfaces import DataSpec

pytestmark = pytest.mark.skipif(
    not any(importlib.metadata.distributions(name="jembench-example")),
    reason="install tests/example_plugin to run this: tox -e plugins does",
)

DATA = DataSpec(name="pixels", shape=(1, 1, 2), num_classes=2)


def fitted(name, **options):
    """The model, and its training images: two classes of 50 around other places."""
    import jembench_example

    generator = torch.Generator().manual_seed(0)
    y = torch.arange(100) % 2
    x = (0.2 * torch.randn(100, 1, 1, 2, generator=generator) + (y - 0.5)[:, None, None, None]).clamp(-1, 1)
    model = getattr(jembench_example, name)(DATA, **options)
    model.fit(x, y, generator=torch.Generator().manual_seed(1))
    return model, x, y


X = torch.linspace(-0.9, 0.9, 14).view(7, 1, 1, 2)


def test_a_gaussian_of_each_class():
    model, x, y = fitted("class_gaussians", ridge=0.02)
    for k in (0, 1):
        images = x[y == k].flatten(1).double()
        covariance = (images - images.mean(0)).T @ (images - images.mean(0)) / 50 + 0.02 * torch.eye(2)
        expected = multivariate_normal(images.mean(0), covariance).logpdf(X.flatten(1).double())
        torch.testing.assert_close(model.logits(X)[:, k].double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-4)
    drawn = model.sample(4000, torch.ones(4000, dtype=torch.long), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.flatten(1).mean(0), model.mean[1], rtol=0, atol=4 * 0.25 / 4000**0.5)


def test_a_mixture_is_that_of_scikit_learn():
    model, x, y = fitted("mixture", components=2, ridge=0.01)
    seed = int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(1)))
    for k in (0, 1):
        theirs = GaussianMixture(2, covariance_type="diag", reg_covar=0.01, random_state=seed)
        expected = theirs.fit(x[y == k].flatten(1)).score_samples(X.flatten(1))
        torch.testing.assert_close(
            model.logits(X)[:, k].double(), torch.from_numpy(expected).double(), rtol=1e-4, atol=1e-4
        )


def test_kernels_are_exact_in_many_dimensions():
    """scikit-learn's trees are not, unless all images are in one leaf: of 64 pixels by up to 214 nats on the digits."""
    import jembench_example

    data = DataSpec(name="images", shape=(1, 8, 8), num_classes=2)
    x = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
    model = jembench_example.kernels(data, bandwidth=0.3)
    model.fit(x, torch.arange(200) % 2, generator=torch.Generator())
    images = x.flatten(1).double()
    squares = (images[:, None] - images[1::2]).square().sum(2)
    by_hand = (-squares / (2 * 0.3**2)).logsumexp(1) - math.log(100) - 64 * math.log(0.3 * math.sqrt(2 * math.pi))
    torch.testing.assert_close(model.logits(x)[:, 1].double(), by_hand, rtol=1e-5, atol=1e-4)


def test_kernels_are_those_of_scikit_learn():
    model, x, y = fitted("kernels", bandwidth=0.2)
    expected = KernelDensity(bandwidth=0.2).fit(x[y == 1].flatten(1)).score_samples(X.flatten(1))
    torch.testing.assert_close(model.logits(X)[:, 1].double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)
    distances = torch.cdist(X.flatten(1), x[y == 1].flatten(1)).square() / (2 * 0.2**2)
    by_hand = (-distances).logsumexp(1) - torch.tensor(50 * 2 * torch.pi * 0.2**2).log()
    torch.testing.assert_close(model.logits(X)[:, 1], by_hand, rtol=1e-4, atol=1e-4)
