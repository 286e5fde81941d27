"""Starts of chains along the principal directions of a class.

Mirza et al. (2024), arXiv:2407.06315.

Legend: n chains, D = C H W numbers of an image, I directions, C channels, H height, W width.
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from jembench.data.images import check_small, chosen, loaded
from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec, Split
from jembench.sampling.starts import ClassGaussianStart


class PCAStart(ClassGaussianStart):
    """Draws near the mean of a class along its principal directions.

    Draws are clamped to the bounds (Mirza et al., 2024).

    With the mean m of a class's images, the singular values s_i of the images minus m, and their
    right singular vectors v_i, a start is

        m + scale sum_i z_i s_i v_i,   z_i independent and standard normal,

    over the leading directions whose cumulative share of the variance is below ``variance``, as in
    the authors' code.
    """

    name = "pca"

    def __init__(self, data: DataSpec, variance: float, scale: float) -> None:
        super().__init__(data)
        self.variance = variance
        self.scale = scale
        # by class drawn so far: the mean (1, D) and s_i v_i (I, D)
        self._directions: dict[int, tuple[Tensor, Tensor]] = {}

    def inform(self, train: Split) -> None:
        """Keep the training images, and the indices of each class.

        Raises:
            SpecError: if they have no labels, or a class has no image.
            Unavailable: if a class is too large for memory.
        """
        super().inform(train)
        for number, indices in enumerate(self.members):
            check_small(chosen(train.images, indices), f"The start pca of class {number}")

    def noise(self, n: int, generator: Generator) -> Float[Tensor, "n C H W"]:
        """Return zeros."""
        shape = (n, *self.data.shape)
        return torch.zeros(shape, device=generator.device)

    def of_class(self, number: int, n: int, generator: Generator) -> Float[Tensor, "n C H W"]:
        """Draw n images along the principal directions of a class."""
        if number not in self._directions:
            images = to_float(loaded(self.classes[number]), self.data.bounds)
            x = images.flatten(1)
            mean = x.mean(dim=0, keepdim=True)
            _, s, v = torch.linalg.svd(x - mean, full_matrices=False)
            variances = s.square()
            share = variances.cumsum(0) / variances.sum()
            directions = s[:, None] * v
            self._directions[number] = mean, directions[share < self.variance]
        mean, moves = self._directions[number]
        shape = (n, len(moves))
        z = torch.randn(shape, generator=generator, device=generator.device)
        x = mean + self.scale * z @ moves
        return x.view(n, *self.data.shape)
