"""The kernel density against those of scikit-learn and of truncated normal distributions."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.neighbors import KernelDensity as Reference
from torch import Generator

from jembench.interfaces import DataSpec
from jembench.plugin import SpecError
from jembench_density.kernels import KernelDensity

PLANE = DataSpec(name="plane", shape=(2, 1, 1), num_classes=3)
LINE = DataSpec(name="line", shape=(1, 1, 1), num_classes=3)


def seeded(seed=0):
    return Generator().manual_seed(seed)


def fitted(data, x):
    model = KernelDensity(data)
    images = x.view(-1, *data.shape)
    model.fit(images, None, generator=seeded(1))
    return model


@pytest.fixture(scope="module")
def inner():
    """Fit images far from the bounds, which cut off no kernel."""
    images = 0.1 * torch.randn(200, 2, generator=seeded())
    return fitted(PLANE, images)


def test_far_from_the_bounds_it_is_that_of_scikit_learn_with_its_bandwidth(inner):
    images = inner.centres.double().numpy()
    h = float(inner.bandwidth)
    x = 0.2 * torch.randn(50, 2, 1, 1, generator=seeded(2))
    reference = Reference(bandwidth=h).fit(images)
    expected = reference.score_samples(x.flatten(1))
    assert_allclose(inner.log_prob(x), expected, atol=1e-4)
    near = [h * factor for factor in (0.9, 0.97, 1, 1.03, 1.1)]
    search = GridSearchCV(Reference(), {"bandwidth": near}, cv=LeaveOneOut())
    assert search.fit(images).best_params_["bandwidth"] == h


def test_at_the_bounds_kernels_are_truncated_normal_distributions_and_samples_exact():
    images = torch.tensor([-1.0, -0.9, -0.2, 0.1, 0.7, 1.0])
    model = fitted(LINE, images)
    h = float(model.bandwidth)
    centres = model.centres.flatten().double().numpy()
    kernels = [stats.truncnorm((-1 - c) / h, (1 - c) / h, c, h) for c in centres]
    x = torch.linspace(-1, 1, 41)
    at = x.double().numpy()
    densities = [kernel.pdf(at) for kernel in kernels]
    expected = np.log(np.mean(densities, axis=0))
    measured = model.log_prob(x.view(-1, 1, 1, 1))
    assert_allclose(measured, expected, atol=1e-5)
    drawn = model.sample(2000, generator=seeded(3)).flatten().numpy()
    assert np.abs(drawn).max() <= 1

    def distribution(at):
        return np.mean([kernel.cdf(at) for kernel in kernels], axis=0)

    assert stats.kstest(drawn, distribution).pvalue > 0.01


def test_its_result_is_in_its_buffers_and_it_has_no_classes(inner):
    copied = KernelDensity(PLANE)
    copied.centres = torch.zeros_like(inner.centres)
    copied.load_state_dict(inner.state_dict())
    x = torch.zeros(3, 2, 1, 1)
    assert torch.equal(copied.log_prob(x), inner.log_prob(x))
    drawn = inner.sample(5, generator=seeded())
    assert drawn.shape == (5, 2, 1, 1)
    with pytest.raises(SpecError, match="kde has no classes"):
        inner.sample(5, torch.zeros(5, dtype=torch.int64), generator=seeded())


def test_one_image_is_too_few():
    with pytest.raises(SpecError, match="needs two training images at least"):
        fitted(PLANE, torch.zeros(1, 2))
