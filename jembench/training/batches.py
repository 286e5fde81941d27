"""The batches of a training, in a random order that resumes.

They hold images of p(x), labelled images, or both.

Legend: N examples, B batch, C channels, H height, W width.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.data.augment import Augmentation
from jembench.data.holdout import draw_labelled
from jembench.data.images import Images, on_device, taken
from jembench.data.pixels import add_noise, noise_to_model, to_float
from jembench.errors import CheckpointError, JembenchError, SpecError
from jembench.experiment.recipe import Recipe
from jembench.interfaces import Batch, DataSpec, Split, Start
from jembench.training import processes


class IndexStream:
    """Endless batches of indices 0..n-1.

    Each epoch is a fresh permutation, whose incomplete last batch is dropped.

    The generator is the stream's own and lies on the CPU, so that the order of the data is the same
    on every device.

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

    def peek(self) -> Int[Tensor, " B"]:
        """Return the next batch within this epoch, to read it in advance; empty at its end."""
        end = self._position + self.batch_size
        if end > len(self._permutation):
            end = self._position
        return self._permutation[self._position : end]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the position of the stream, also within an epoch."""
        return {
            "permutation": self._permutation,
            "position": torch.tensor(self._position),
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the position that :meth:`state_dict` returned.

        Raises:
            CheckpointError: if the state is of a stream over another number of images.
        """
        permutation = state["permutation"]
        if len(permutation) != len(self._permutation):
            raise CheckpointError(
                f"The checkpoint was made with {len(permutation)} training images, and there are "
                f"now {len(self._permutation)}. Use the same dataset and validation size, or "
                "start the fit anew."
            )
        self._permutation = permutation.cpu()
        self._position = int(state["position"])
        self._generator.set_state(state["generator"].cpu())


class Reader:
    """Reads batches of images; of those that are read in parts, the next one in a thread.

    Of images in parts, each process of a group reads its own rows of a batch; the other rows of
    the batch are black.

    Args:
        images: on the device, or read in parts.
        device: of the batches.
        group: the processes that train together.
    """

    def __init__(self, images: Tensor, device: torch.device, group: processes.Group) -> None:
        self.images, self.device, self.group = images, device, group
        self._thread = None
        if isinstance(images, Images):
            self._thread = ThreadPoolExecutor(1)  # which ends when nothing refers to it
        self._next: tuple[Tensor, Future[Tensor]] | None = None

    def read(self, indices: Int[Tensor, " B"], stream: IndexStream) -> Tensor:
        """Return the images of indices, and begin to read those of the stream's next batch."""
        if self._thread is None:
            return self.images[to_device(indices, self.device)]
        if self._next and torch.equal(self._next[0], indices):
            images = self._next[1].result()
        else:  # the first batch of an epoch, or after a checkpoint was read
            images = self._load(indices)
        self._next = None
        following = stream.peek()
        if len(following):
            self._next = following, self._thread.submit(self._load, following)
        return images.to(self.device, non_blocking=True)

    def _load(self, indices: Int[Tensor, " B"]) -> Tensor:
        own = self.group.cut(torch.arange(len(indices)))
        images = self.images[indices[own]]
        if len(own) < len(indices):
            whole = images.new_zeros((len(indices), *images.shape[1:]))
            images = whole.index_copy(0, own, images)
        if self.device.type == "cuda":
            images = images.pin_memory()
        return images


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy values from the CPU without making the host wait for a GPU."""
    # from unpinned memory the copy would make it wait
    if device.type == "cuda":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


class Batches:
    """Random batches, augmented and with the recipe's noise, from :meth:`begin` on.

    Args:
        train: the images to train on, without those held out for validation.
        data: the description of the images.
        recipe: how to train.
        seed: the random seed of the training.
        device: where the images lie.
        outliers: True to draw the recipe's outliers too.

    Attributes:
        per_epoch: the number of whole batches in an epoch, a pass over the images of p(x) unless
            the recipe says otherwise.

    Raises:
        SpecError: if there are no labels, the augmentation does not suit the images, or the recipe
            names no outliers although they are to be drawn.
    """

    def __init__(
        self,
        train: Split,
        data: DataSpec,
        recipe: Recipe,
        *,
        seed: int,
        device: torch.device,
        outliers: bool = False,
    ) -> None:
        if train.labels is None:
            raise SpecError(f"The dataset {data.name} has no labels, and training needs them.")
        self.root, self.device = seed, device
        self.bounds, self.options = data.bounds, recipe.data
        images, labels = on_device(train.images, device), train.labels.to(device)
        self.sources = dict.fromkeys(("marginal", "labelled"), (images, labels))
        if recipe.data.labelled:
            generator = seeds.generator(seed, "labels")
            drawn = draw_labelled(train.labels, recipe.data.labelled, generator).to(device)
            self.sources["labelled"] = taken(images, drawn), labels[drawn]
        self.sizes = {
            "marginal": recipe.batch_size,
            "labelled": recipe.data.labelled_batch or recipe.batch_size,
        }
        self.outliers = None
        if outliers:
            self.outliers = _outliers(train, data, recipe)
            self.sizes["outliers"] = recipe.data.outlier_batch or recipe.batch_size
        epoch = recipe.data.epoch
        if recipe.data.shared:
            epoch = "labelled"
        self.per_epoch = len(self.sources[epoch][0]) // self.sizes[epoch]
        then = None
        if named := recipe.data.augmentation:
            then = registry.resolve("augmentations", named).make()
        self.augmentation = Augmentation(pad=recipe.data.pad, flip=recipe.data.flip, then=then)
        self.augmentation.check(*data.shape[1:])

    def begin(self, again: str) -> None:
        """Start all random streams, with a seed derived from ``again``."""
        self.generator = seeds.generator(self.root, f"images{again}", self.device)
        self.outlier_generator = seeds.generator(self.root, f"outliers{again}", self.device)
        self.streams = {}
        self.readers = {}
        group = processes.group
        if self.augmentation.then:  # which may mix the images of a batch
            group = processes.Group()
        for kind, (images, _) in self.sources.items():
            generator = seeds.generator(self.root, f"order/{kind}{again}")
            self.streams[kind] = IndexStream(len(images), self.sizes[kind], generator)
            self.readers[kind] = Reader(images, self.device, group)

    def draw(self) -> Batch:
        """Draw the next batch on the device of training.

        The images lie there, or a thread reads the next ones: no worker processes are needed. In a
        group only this process's rows need be right: see :class:`Reader`.
        """
        drawn: dict[str, tuple[Float[Tensor, "B C H W"], Int[Tensor, " B"]]] = {}
        for kind, stream in self.streams.items():
            indices = next(stream)
            if kind == "marginal" and self.options.shared:
                continue
            images = self.readers[kind].read(indices, stream)
            labels = self.sources[kind][1][to_device(indices, self.device)]
            if kind == "labelled" or self.options.augment_marginal:
                images = self.augmentation(images, self.generator)
            std = noise_to_model(self.options.noise, self.bounds)
            drawn[kind] = add_noise(to_float(images, self.bounds), std, self.generator), labels
        x_labelled, y = drawn["labelled"]
        x, _ = drawn.get("marginal", drawn["labelled"])
        outliers = None
        if self.outliers:
            outliers = self.outliers.draw(self.sizes["outliers"], None, self.outlier_generator)
        return Batch(x, x_labelled, y, outliers=outliers)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state that the next batch depends on."""
        streams = {name: stream.state_dict() for name, stream in self.streams.items()}
        state: dict[str, Any] = {"streams": streams, "generator": self.generator.get_state()}
        if self.outliers:
            state["outlier_generator"] = self.outlier_generator.get_state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.

        Raises:
            CheckpointError: if the state belongs to another number of images.
        """
        for name, stream in self.streams.items():
            stream.load_state_dict(state["streams"][name])
        self.generator.set_state(state["generator"].cpu())
        if self.outliers:
            self.outlier_generator.set_state(state["outlier_generator"].cpu())


def _outliers(train: Split, data: DataSpec, recipe: Recipe) -> Start:
    """Make the recipe's start of outliers, and inform it of the training images.

    Raises:
        SpecError: if the recipe names no outliers.
    """
    if not recipe.data.outliers:
        raise SpecError(
            f"The recipe {recipe.label} names no outliers, and the model is trained with them. "
            "Choose another recipe, or name the start that draws them, see `jembench list "
            "starts`: --set data.outliers=uniform."
        )
    start: Start = registry.resolve("starts", recipe.data.outliers).make(data)
    start.inform(train)
    return start
