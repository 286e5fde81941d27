"""Where chains begin: uniform noise, or Gaussians of the training images' classes.

Legend: B chains, N training images of a class, K classes, R rows of a root, C channels, H height, W width, D = C H W.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor
from torch.nn import functional as F

from jembench.data.pixels import Bounds, noise_to_model, to_float
from jembench.errors import JembenchError, SpecError
from jembench.interfaces import DataSpec, Split

AT_ONCE = 256
"""This many training images are floats at a time on a CPU, and this many chains begin at a time on a GPU."""


class UniformStart:
    """Independent pixels, uniform within the bounds."""

    def __init__(self, data: DataSpec) -> None:
        self.data = data

    def inform(self, train: Split) -> None:
        """Noise knows no images."""

    def draw(self, n: int, y: Int[Tensor, " n"] | None, generator: Generator) -> Float[Tensor, "n C H W"]:
        """n images of noise, whatever the classes."""
        low, high = self.data.bounds
        shape = (n, *self.data.shape)
        return torch.rand(shape, generator=generator, device=generator.device).mul_(high - low).add_(low)

    def renew(
        self,
        x: Float[Tensor, "B C H W"],
        restart: Bool[Tensor, " B"],
        y: Int[Tensor, " B"] | None,
        generator: Generator,
    ) -> Float[Tensor, "B C H W"]:
        """Draws for all chains: noise costs less than waiting for the device to say which ones restart."""
        return torch.where(restart[:, None, None, None], self.draw(len(x), y, generator), x)


class ClassGaussianStart:
    """Per class the Gaussian fitted to its training images, clamped to the bounds (JEM++: Yang & Ji, 2021).

    With the mean m and the covariance S (divisor N, as in their code) of a class's images x_1 ... x_N, a start is a
    draw from N(m, S + 1e-4 I), the 1e-4 on the scale of [-1, 1]. It is drawn as

        m + sum_i z_i r_i + 1e-2 z',   z_i and z' independent and standard normal,

    with vectors r_i of which the sum of r_i r_i^T is S. On a CPU they are (x_i - m) / sqrt(N): neither S, a matrix of
    3072 x 3072 for CIFAR, nor its root is formed for the few chains that restart. On a GPU they are the rows of R in
    Q R = (x - m) / sqrt(N), found once for each class, so that the starts of all chains are one product; they take
    377 MB for CIFAR-10, and never more than the training images in float32. No pool of starts is drawn beforehand, from
    which starts would repeat.
    Chains without labels start in classes drawn uniformly, whatever the classes' sizes. A replay buffer begins with as
    many chains of each class.
    """

    def __init__(self, data: DataSpec) -> None:
        self.data = data
        self._classes: list[Tensor] = []  # uint8 (N, C, H, W) each
        self._gaussians: tuple[Tensor, Tensor] | None = None  # on a GPU: means (K, C H W) and roots (K, R, C H W)

    def inform(self, train: Split) -> None:
        """Keep the training images, sorted by class.

        Raises:
            SpecError: if they have no labels, or a class has no image.
        """
        if train.labels is None or self.data.num_classes == 0:
            raise SpecError(
                f"Chains cannot start at Gaussians of the classes (start=class-gaussian): {self.data.name} has no "
                "labels. Let the sampler start at noise with start=uniform."
            )
        members = _members(train.labels, self.data.num_classes)
        empty = [str(number) for number, indices in enumerate(members) if len(indices) == 0]
        if empty:
            raise SpecError(
                f"Chains cannot start at Gaussians of the classes (start=class-gaussian): no training image of "
                f"{self.data.name} is of class {', '.join(empty)}. Hold fewer images out for validation, or let the "
                "sampler start at noise with start=uniform."
            )
        self._classes = [train.images[indices] for indices in members]
        self._gaussians = None

    def draw(self, n: int, y: Int[Tensor, " n"] | None, generator: Generator) -> Float[Tensor, "n C H W"]:
        """n images from the Gaussians of the classes y; without y, of classes drawn uniformly.

        Raises:
            JembenchError: before :meth:`inform`.
        """
        if not self._classes:
            raise JembenchError(
                "The sampler starts its chains at Gaussians of the training images' classes (start=class-gaussian) and "
                "has not seen the training images. Call its inform(train) first, or use start=uniform."
            )
        device = generator.device
        if y is None:
            y = torch.randint(self.data.num_classes, (n,), generator=generator, device=device)
        x = torch.randn((n, *self.data.shape), generator=generator, device=device)
        x *= noise_to_model(1e-2, self.data.bounds)
        if not _waits(device):
            for images, chains in zip(self._classes, _members(y, self.data.num_classes), strict=True):
                if len(chains):
                    x[chains] += draw_gaussian(len(chains), images, self.data.bounds, generator)
        else:
            for some, of in zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True):
                some += self._by_roots(of, generator).view_as(some)
        return x.clamp_(*self.data.bounds)

    def _by_roots(self, y: Int[Tensor, " B"], generator: Generator) -> Float[Tensor, "B D"]:
        """Draws from the Gaussians of the classes y, without z'.

        The product is one of all classes, of which each chain has zeros for all but its own: 12 GFLOP for 64 chains of
        CIFAR-10. To choose each chain's root instead would copy 38 MB a chain, and to group the chains by class the
        host would have to know the classes.
        """
        if self._gaussians is None or self._gaussians[0].device != y.device:
            self._gaussians = _gaussians(self._classes, self.data.bounds, y.device)
        means, roots = self._gaussians
        classes, rows = roots.shape[:2]
        z = torch.randn((len(y), 1, rows), generator=generator, device=y.device)
        own = y[:, None, None] == torch.arange(classes, device=y.device)[:, None]
        return torch.addmm(means[y], (own * z).flatten(1), roots.flatten(0, 1))

    def renew(
        self,
        x: Float[Tensor, "B C H W"],
        restart: Bool[Tensor, " B"],
        y: Int[Tensor, " B"] | None,
        generator: Generator,
    ) -> Float[Tensor, "B C H W"]:
        """On the CPU draws for the restarted chains alone; on a device for all, so that the host need not wait for it.

        With 5,000 CIFAR images a class, a batch of 64 takes 140 ms on one core of an AMD EPYC and three chains, as many
        as restart as a rule, take 27 ms; the ten steps of WRN-28-2 that follow take 2 s at the least.
        """
        if _waits(x.device):
            return torch.where(restart[:, None, None, None], self.draw(len(x), y, generator), x)
        chains = restart.nonzero().squeeze(1)
        if len(chains) == 0:
            return x
        return x.index_copy(0, chains, self.draw(len(chains), None if y is None else y[chains], generator))


def draw_gaussian(
    n: int, images: UInt8[Tensor, "N C H W"], bounds: Bounds, generator: Generator
) -> Float[Tensor, "n C H W"]:
    """n draws from the Gaussian with the images' mean and covariance (zero for one image), not clamped."""
    count, device = len(images), images.device
    mean = torch.zeros(images[0].numel(), device=device)
    moves = torch.zeros((n, images[0].numel()), device=device)
    weights = torch.zeros((n, 1), device=device)
    for part in torch.split(images, AT_ONCE):
        x = to_float(part, bounds).flatten(1)
        z = torch.randn((n, len(x)), generator=generator, device=device)
        mean += x.sum(0) / count
        moves.addmm_(z, x)
        weights += z.sum(1, keepdim=True)
    centred = moves.addmm_(weights, mean[None], alpha=-1)  # sum_i z_i (x_i - mean)
    return centred.div_(count**0.5).add_(mean).view(n, *images.shape[1:])


def _gaussians(classes: Sequence[Tensor], bounds: Bounds, device: torch.device) -> tuple[Tensor, Tensor]:
    """The mean of each class (K, D), and the R of each (K, R, D), with rows of zeros below it where it has fewer."""
    means, roots = [], []
    for images in classes:
        x = to_float(images.to(device), bounds).flatten(1)
        means.append(x.mean(0))
        roots.append(torch.linalg.qr((x - means[-1]) / len(x) ** 0.5, mode="r").R)
    rows = max(map(len, roots))
    padded = [F.pad(root, (0, 0, 0, rows - len(root))) for root in roots]
    return torch.stack(means), torch.stack(padded)


def _waits(device: torch.device) -> bool:
    """Whether the host would have to wait for the device to know a tensor's values."""
    return device.type != "cpu"


def _members(labels: Int[Tensor, " B"], num_classes: int) -> tuple[Tensor, ...]:
    """For each class, where it stands in ``labels``."""
    counts: list[int] = torch.bincount(labels, minlength=num_classes).tolist()
    return torch.split(labels.argsort(stable=True), counts)
