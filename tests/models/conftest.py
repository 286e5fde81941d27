"""A dataset's spec, a small network and noise, for code of others."""

import pytest
import torch
from torch import nn

from jembench.interfaces import DataSpec

DATA = DataSpec(name="tiny", shape=(1, 8, 8), num_classes=3)


@pytest.fixture
def data():
    return DATA


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
