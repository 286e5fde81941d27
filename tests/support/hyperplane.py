"""A classifier whose nearest image of another class is known in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jembench.attacks.eps import Norm
from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec, Split

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=2)


class Linear(nn.Module):
    """Two classes, divided by the hyperplane f(x)[0] = f(x)[1] of the model's own units."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 16, generator=torch.Generator().manual_seed(0)))
        self.seen = 0

    def logits(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x.flatten(1) @ self.weight.T

    def classes(self, images: Tensor) -> Tensor:
        """Of images of 8 bits."""
        return self.logits(to_float(images, DATA.bounds)).argmax(dim=1)

    def exact(self, x: Tensor, norm: Norm) -> Tensor:
        """How far images of [0, 1] are from the hyperplane, in that range: |margin| / dual norm of
        its gradient.
        """
        slope = (self.weight[1] - self.weight[0]).detach().double()
        margin = ((2 * x.double() - 1).flatten(1) @ slope).abs()
        return margin / (2 * (slope.abs().sum() if norm == "linf" else slope.norm()))


def grey(count: int, low: int, high: int) -> Split:
    """Images of levels from low to high, far enough from black and white for no bound to be in the
    way.

    Their labels are the classes that the model gives them, but for every tenth.
    """
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(low, high, (count, 1, 4, 4), dtype=torch.uint8, generator=generator)
    labels = Linear().classes(images)
    labels[::10] = 1 - labels[::10]
    return Split(images, labels)
