"""Starts of chains outside of the data.

They are other images, permuted images, shapes, and mixtures of starts.

The samples of chains of zero steps are their starts, so that a loss gets outliers in the same way
as samples.

Legend: B chains, C channels, H height, W width, P = H W pixels.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from jaxtyping import Bool
from torch import Generator, Tensor
from torch.nn import functional as F

from jembench.data.datasets import no_training_images
from jembench.data.images import on_device
from jembench.data.pixels import to_float
from jembench.errors import JembenchError
from jembench.interfaces import DataSpec, OODSet, Split, Start
from jembench.sampling.starts import Classes, DrawnStart, Images

CELLS = 4
"""The number of cells along a side of the noise that gives shapes their outlines."""


class ImagesStart(DrawnStart):
    """Draws with replacement from the training images, or from an OOD set.

    Args:
        data: the images' shape and bounds.
        outliers: read once, before the first draw; None: the training images themselves.
    """

    def __init__(self, data: DataSpec, outliers: OODSet | None = None) -> None:
        super().__init__(data)
        self.outliers = outliers
        self._train: Split | None = None
        self._images: Tensor | None = None  # uint8 (N, C, H, W), on the device of the last draw

    def inform(self, train: Split) -> None:
        """Keep the training images."""
        self._train, self._images = train, None

    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images, for any classes.

        Raises:
            JembenchError: if :meth:`inform` was not called, or the set is not available.
        """
        if self._train is None:
            raise JembenchError(
                "The sampler starts its chains at images, and has not received the training "
                "images. Call its inform(train) first, or use start=uniform."
            )
        if self._images is None:
            if len(self._train.images) == 0:
                raise no_training_images(self.data.name, "chains start at training images")
            drawn: Split | Tensor = self._train
            if self.outliers:
                drawn = self.outliers.draw(self._train, self.data)
            if isinstance(drawn, Split):
                drawn = drawn.images
            self._images = drawn
        device = generator.device
        self._images = on_device(self._images, device)
        chosen = torch.randint(len(self._images), (n,), generator=generator, device=device)
        return to_float(self._images[chosen].to(device), self.data.bounds)


class PermutedStart(ImagesStart):
    """Training images, the pixels of each in a new random order.

    The channels of a pixel stay together.
    """

    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images, for any classes."""
        pixels = super().draw(n, y, generator).flatten(2)
        shape = (n, 1, pixels.shape[2])
        order = torch.rand(shape, generator=generator, device=generator.device).argsort(2)
        return pixels.gather(2, order.expand_as(pixels)).view(n, *self.data.shape)


class ShapesStart(DrawnStart):
    """Images of low complexity: one colour, or two with an outline between them.

    The outline is sharp or soft.

    With colours a and b, u standard normal noise of 4x4 cells enlarged bicubically, an offset o of
    standard deviation 1 and a softness w from .01 to 10, log-uniform, all independent for each
    image:

        x = a + (b - a) sigmoid((u + o) / w)

    Half of the images are grey.
    """

    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images, for any classes."""
        device, shape = generator.device, (n, 1, 1, 1)
        (channels, *size), (low, high) = self.data.shape, self.data.bounds
        cells = torch.randn((n, 1, CELLS, CELLS), generator=generator, device=device)
        offset = torch.randn(shape, generator=generator, device=device)
        softness = 10 ** (3 * torch.rand(shape, generator=generator, device=device) - 2)
        grey = torch.rand(shape, generator=generator, device=device) < 0.5
        colours = torch.rand((2, n, channels, 1, 1), generator=generator, device=device)
        colours.mul_(high - low).add_(low)
        a, b = torch.where(grey, colours[:, :, :1], colours)
        outline = F.interpolate(cells, size=size, mode="bicubic", align_corners=False)
        return torch.lerp(a, b, ((outline + offset) / softness).sigmoid())


class MixtureStart:
    """A mixture of starts.

    The start of each chain is drawn with probabilities in proportion to the weights.

    Args:
        starts: the parts.
        weights: of the parts, above 0.
    """

    def __init__(self, data: DataSpec, starts: Sequence[Start], weights: Sequence[float]) -> None:
        self.data, self.starts = data, starts
        *_, total = sums = list(accumulate(weights, initial=0.0))
        self.shares = list(pairwise(part / total for part in sums))

    def inform(self, train: Split) -> None:
        """Give the training images to all parts."""
        for start in self.starts:
            start.inform(train)

    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images, of the classes y if given."""
        blank = torch.zeros((n, *self.data.shape), device=generator.device)
        return self.renew(blank, torch.ones_like(blank[:, 0, 0, 0]).bool(), y, generator)

    def renew(
        self, x: Tensor, restart: Bool[Tensor, " B"], y: Tensor | None, generator: Generator
    ) -> Tensor:
        """Replace the chains of ``restart``, each by a start of a random part."""
        place = torch.rand(len(x), generator=generator, device=generator.device)
        for start, (begin, end) in zip(self.starts, self.shares, strict=True):
            x = start.renew(x, restart & (begin <= place) & (place < end), y, generator)
        return x
