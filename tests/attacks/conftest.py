"""The classifier that attacks are measured on: its nearest images of another class are known in
closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hyperplane import DATA, Linear
from torch import Tensor

from jembench.interfaces import DataSpec


class Case(NamedTuple):
    model: Linear
    x: Tensor
    y: Tensor  # the classes that the model gives


@pytest.fixture
def linear() -> Case:
    """Twenty grey images, far enough from black and white for no bound to be in the way."""
    model = Linear()
    x = 0.4 + 0.2 * torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return Case(model, x, model.logits(2 * x - 1).argmax(dim=1))


@pytest.fixture
def toy() -> DataSpec:
    return DATA
