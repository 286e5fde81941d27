from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

from jembench.errors import NotApplicable
from jembench.metrics.classification import HIGHEST, LOWEST, fit_temperature


def made(n=200, sharper=1.0, seed=0):
    """Logits whose own probabilities the labels follow, and then made sharper."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return sharper * logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


@pytest.mark.parametrize("sharper", [0.1, 1, 20])
def test_the_temperature_is_the_one_that_scipy_minimises_the_loss_by(sharper):
    logits, labels = made(sharper=sharper)
    best = minimize_scalar(
        lambda log: F.cross_entropy(logits / np.exp(log), labels).item(),
        bounds=np.log([LOWEST, HIGHEST]),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert fit_temperature(logits, labels) == pytest.approx(np.exp(best.x), rel=1e-6)


@pytest.mark.parametrize(("sign", "right"), [(1, 3), (-1, 0)])
def test_where_all_or_none_are_right_no_temperature_is_the_likeliest(sign, right):
    logits = sign * torch.eye(3, dtype=torch.float64)
    with pytest.raises(
        NotApplicable, match=f"3 validation images, of which {right} are classified correctly"
    ):
        fit_temperature(logits, torch.arange(3))


@pytest.mark.parametrize("offset", [0.0, 1000 / 3])
def test_where_all_are_right_no_rounding_makes_up_a_temperature(offset):
    logits = torch.randn(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = logits.argmax(dim=1)
    with pytest.raises(
        NotApplicable, match="100 validation images, of which 100 are classified correctly"
    ):
        fit_temperature(logits + offset, labels)
