"""Classifiers whose nearest image of another class is known in closed form."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from jembench.attacks.threat import Norm
from jembench.interfaces import DataSpec

TOY = DataSpec(name="toy", shape=(1, 4, 4), num_classes=2)


class Linear(nn.Module):
    """Two classes, divided by the hyperplane w x = b of the model's own units."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(2, 16, generator=generator))
        self.seen = 0

    def logits(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x.flatten(1) @ self.weight.T

    def exact(self, x: Tensor, norm: Norm) -> Tensor:
        """How far images of [0, 1] are from the hyperplane, in that range: |margin| / dual norm of its gradient."""
        margin = (self.logits(2 * x - 1) @ torch.tensor([-1.0, 1.0])).abs().double()
        slope = 2 * (self.weight[1] - self.weight[0]).double()
        return (margin / (slope.abs().sum() if norm == "linf" else slope.norm())).detach()


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
    return TOY
