"""What training draws from: an endless stream of indices, and the images on the device that they point to.

Legend: N examples, B batch, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from jembench.data.augment import Augmentation, add_noise
from jembench.data.pixels import Bounds, noise_to_model, to_float
from jembench.errors import CheckpointError, JembenchError
from jembench.interfaces import Split


class IndexStream:
    """Endless batches of indices 0..n-1: each epoch a fresh permutation, its incomplete last batch dropped.

    The generator is the stream's own and lies on the CPU, so that the order of the data is the same on every device.

    Raises:
        JembenchError: if not even one batch can be filled.
    """

    def __init__(self, n: int, batch_size: int, generator: Generator) -> None:
        if not 0 < batch_size <= n:
            raise JembenchError(
                f"A batch of {batch_size} cannot be drawn from {n} training images. "
                f"Set the recipe's batch_size or data.labelled_batch to a number from 1 to {n}."
            )
        self.batch_size = batch_size
        self._generator = generator
        self._permutation = torch.randperm(n, generator=generator)
        self._position = 0

    def __iter__(self) -> Iterator[Int[Tensor, " B"]]:
        return self

    def __next__(self) -> Int[Tensor, " B"]:
        end = self._position + self.batch_size
        if end > len(self._permutation):
            self._permutation = torch.randperm(len(self._permutation), generator=self._generator)
            end = self.batch_size
        self._position = end
        return self._permutation[end - self.batch_size : end]

    def state_dict(self) -> dict[str, Tensor]:
        """Where the stream stands, in the middle of an epoch too."""
        return {
            "permutation": self._permutation,
            "position": torch.tensor(self._position),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on exactly where :meth:`state_dict` was taken.

        Raises:
            CheckpointError: if the state belongs to a stream over another number of images.
        """
        permutation = state["permutation"]
        if len(permutation) != len(self._permutation):
            raise CheckpointError(
                f"The checkpoint was made with {len(permutation)} training images, and there are now "
                f"{len(self._permutation)}. Use the same dataset and validation size, or start the fit anew."
            )
        self._permutation = permutation.cpu()
        self._position = int(state["position"])
        self._generator.set_state(state["generator"].cpu())


class Drawn(NamedTuple):
    """A batch as a model sees it in training."""

    x: Float[Tensor, "B C H W"]  # float32, within the bounds but for the noise
    y: Int[Tensor, " B"] | None  # None: unlabelled


class ImageSource:
    """The images of a split on the device, where batches are made of them: no worker process, no copy per batch."""

    def __init__(self, split: Split, bounds: Bounds, device: torch.device) -> None:
        self._images = split.images.to(device)
        self._labels = None if split.labels is None else split.labels.to(device)
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self._images)

    def draw(
        self, indices: Int[Tensor, " B"], augmentation: Augmentation, noise_std: float, generator: Generator
    ) -> Drawn:
        """The images of ``indices``: augmented, as float32, with Gaussian noise.

        Args:
            indices: on any device.
            augmentation: what is done to them.
            noise_std: on the scale of [-1, 1], whatever the bounds are.
            generator: of the augmentation and the noise; fastest on the images' own device.
        """
        device = self._images.device
        if device.type == "cuda" and indices.device.type == "cpu":
            indices = indices.pin_memory()  # from other memory the copy would make the host wait for the device
        indices = indices.to(device, non_blocking=True)
        images = augmentation(self._images[indices], generator)
        x = add_noise(to_float(images, self._bounds), noise_to_model(noise_std, self._bounds), generator)
        return Drawn(x, None if self._labels is None else self._labels[indices])
