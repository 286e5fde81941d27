"""Starts of chains: their base class, uniform noise, and draws near the training images of a class.

Legend: B chains, N training images of a class, C channels, H height, W width.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor

from jembench.data.images import chosen, on_device, parts
from jembench.data.pixels import Bounds, noise_to_model, to_float
from jembench.errors import JembenchError, SpecError
from jembench.interfaces import DataSpec, Split

Classes = Int[Tensor, " n"]
"""The classes of n chains."""

Images = Float[Tensor, "n C H W"]
"""The starts of n chains, in the model's units."""

AT_ONCE, AT_ONCE_ON_GPU = 256, 4096
"""Training images that are converted to floats at a time: on a CPU as many as a cache holds, on a
GPU enough for few kernels.
"""


class DrawnStart(ABC):
    """The base class of starts that are cheap to draw."""

    def __init__(self, data: DataSpec) -> None:
        self.data = data

    def inform(self, train: Split) -> None:  # noqa: B027
        """Ignore the training images."""

    @abstractmethod
    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images, of the classes y if given."""

    def renew(
        self, x: Tensor, restart: Bool[Tensor, " B"], y: Tensor | None, generator: Generator
    ) -> Tensor:
        """Replace the chains of ``restart`` by new starts.

        Starts are drawn for all chains, which costs less than waiting for the device to tell which
        chains restart.
        """
        return torch.where(restart[:, None, None, None], self.draw(len(x), y, generator), x)


class UniformStart(DrawnStart):
    """Independent pixels, uniform within the bounds."""

    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images of noise, for any classes."""
        low, high = self.data.bounds
        shape = (n, *self.data.shape)
        x = torch.rand(shape, generator=generator, device=generator.device)
        return x.mul_(high - low).add_(low)


class ClassGaussianStart:
    """Draws from the Gaussian of each class's training images, within the bounds.

    JEM++ (Yang & Ji, 2021). Draws are clamped.

    With the mean m and the covariance S (divisor N, as in the code of JEM++) of a class's images
    x_1 ... x_N, a start is a draw from N(m, S + 1e-4 I), the 1e-4 on the scale of [-1, 1]. It is
    drawn as

        m + sum_i z_i (x_i - m) / sqrt(N) + 1e-2 z',   z_i and z' independent and standard normal:

    so that neither S, a matrix of 3072 x 3072 for CIFAR, nor its root is computed for the few
    chains that restart. Every start is drawn when it is needed, not taken from a pool, in which
    starts would repeat. Chains without labels start in classes drawn uniformly, whatever the
    classes' sizes. A replay buffer begins with equally many chains of each class. On a GPU the host
    waits for the device to tell which chains restart, and their classes.
    """

    name = "class-gaussian"

    def __init__(self, data: DataSpec) -> None:
        self.data = data
        self.train: Tensor | None = None  # the training images
        self.members: Sequence[Tensor] = []  # their indices, by class
        self.classes: list[Tensor] = []  # uint8 (N, C, H, W) each, on the device of the last draw
        self._device: torch.device | None = None  # of the last draw

    def inform(self, train: Split) -> None:
        """Keep the training images, and the indices of each class.

        Raises:
            SpecError: if they have no labels, or a class has no image.
        """
        if train.labels is None or self.data.num_classes == 0:
            raise SpecError(
                f"Chains cannot start at images of the classes (start={self.name}): "
                f"{self.data.name} has no labels. Let the sampler start at noise with "
                "start=uniform."
            )
        members = _members(train.labels, self.data.num_classes)
        empty = [str(number) for number, indices in enumerate(members) if len(indices) == 0]
        if empty:
            raise SpecError(
                f"Chains cannot start at images of the classes (start={self.name}): no training "
                f"image of {self.data.name} is of class {', '.join(empty)}. Hold fewer images out "
                "for validation, or let the sampler start at noise with start=uniform."
            )
        self.train, self.members, self.classes = train.images, members, []

    def draw(self, n: int, y: Classes | None, generator: Generator) -> Images:
        """Draw n images of the classes y; without y, of classes drawn uniformly.

        Raises:
            JembenchError: if :meth:`inform` was not called.
        """
        if self.train is None:
            raise JembenchError(
                f"The sampler starts its chains near images of the classes (start={self.name}) "
                "and has not received the training images. Call its inform(train) first, or use "
                "start=uniform."
            )
        device = generator.device
        if y is None:
            y = torch.randint(self.data.num_classes, (n,), generator=generator, device=device)
        if not self.classes or device != self._device:
            images = on_device(self.train, device)
            self.classes = [chosen(images, indices) for indices in self.members]
            self._device = device
        x = self.noise(n, generator)
        for number, chains in enumerate(_members(y, self.data.num_classes)):
            if len(chains):
                x[chains] += self.of_class(number, len(chains), generator)
        return x.clamp_(*self.data.bounds)

    def noise(self, n: int, generator: Generator) -> Images:
        """Draw the noise that is added to the draws of the classes."""
        x = torch.randn((n, *self.data.shape), generator=generator, device=generator.device)
        return x.mul_(noise_to_model(1e-2, self.data.bounds))

    def of_class(self, number: int, n: int, generator: Generator) -> Images:
        """Draw n images near those of a class."""
        return draw_gaussian(n, self.classes[number], self.data.bounds, generator)

    def renew(
        self, x: Tensor, restart: Bool[Tensor, " B"], y: Tensor | None, generator: Generator
    ) -> Tensor:
        """Replace the chains of ``restart`` by new starts.

        Starts are drawn for these chains only: the usual three cost a fifth of a batch of 64.
        """
        chains = restart.nonzero().squeeze(1)
        if len(chains) == 0:
            return x
        classes = None if y is None else y[chains]
        return x.index_copy(0, chains, self.draw(len(chains), classes, generator))


def draw_gaussian(
    n: int, images: UInt8[Tensor, "N C H W"], bounds: Bounds, generator: Generator
) -> Tensor:
    """Draw n images from a Gaussian with the mean and covariance of images.

    The covariance is zero for one image. Draws are not clamped.
    """
    count, device = len(images), generator.device
    at_once = AT_ONCE if device.type == "cpu" else AT_ONCE_ON_GPU
    mean = torch.zeros(images.shape[1:].numel(), device=device)
    moves = torch.zeros((n, len(mean)), device=device)
    weights = torch.zeros((n, 1), device=device)
    for part in parts(images, at_once):
        x = to_float(part.to(device), bounds).flatten(1)
        z = torch.randn((n, len(x)), generator=generator, device=device)
        mean += x.sum(0) / count
        moves.addmm_(z, x)
        weights += z.sum(1, keepdim=True)
    centred = moves.addmm_(weights, mean[None], alpha=-1)  # sum_i z_i (x_i - mean)
    return centred.div_(count**0.5).add_(mean).view(n, *images.shape[1:])


def _members(labels: Int[Tensor, " B"], num_classes: int) -> tuple[Tensor, ...]:
    """Return the indices of each class in ``labels``."""
    counts: list[int] = torch.bincount(labels, minlength=num_classes).tolist()
    return torch.split(labels.argsort(stable=True), counts)
