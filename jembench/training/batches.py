"""The batches of a training: images of p(x), labelled images, or one batch for both, in a random order that resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from jembench import seeds
from jembench.catalog import registry
from jembench.data.augment import NONE, Augmentation
from jembench.data.batches import Drawn, ImageSource, IndexStream
from jembench.data.holdout import labelled_only
from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe, TrainingData
from jembench.interfaces import Batch, DataSpec, Split
from jembench.training.processes import ProcessGroup


class Batches:
    """Random batches, augmented and with the recipe's noise.

    In a group, all processes draw the same batches, augmentation and noise included, and each keeps its part.

    Args:
        train: the images to train on, without those held out for validation.
        data: what they are.
        recipe: how to train.
        seed: the random seed of the training.
        device: where the images lie.
        group: the processes that train together.

    Raises:
        SpecError: if there are no labels, or the augmentation does not suit the images.
    """

    def __init__(
        self, train: Split, data: DataSpec, recipe: Recipe, *, seed: int, device: torch.device, group: ProcessGroup
    ) -> None:
        if train.labels is None:
            raise SpecError(f"The dataset {data.name} has no labels, and training needs them.")
        self.root, self.device, self.group = seed, device, group
        labelled = labelled_only(train, recipe.data.labelled, seeds.generator(seed, "labels"))
        images = ImageSource(train, data.bounds, device)
        with_labels = images if labelled is train else ImageSource(labelled, data.bounds, device)
        self.sources = {"marginal": images, "labelled": with_labels}
        self.augmentation = make_augmentation(recipe.data)
        self.augmentation.check(*data.shape[1:])
        self.begin(recipe, "")

    def begin(self, recipe: Recipe, again: str) -> None:
        """Begin every stream of randomness, another one for each text ``again``, in batches of the recipe's sizes."""
        self.options = recipe.data
        self.sizes = {"marginal": recipe.batch_size, "labelled": recipe.data.labelled_batch or recipe.batch_size}
        self.generator = seeds.generator(self.root, f"images{again}", self.device)
        self.streams = {
            name: IndexStream(len(self.sources[name]), size, seeds.generator(self.root, f"order/{name}{again}"))
            for name, size in self.sizes.items()
        }

    @property
    def labelled(self) -> int:
        """Images of the p(y|x) batch, of all processes."""
        return self.sizes["labelled"]

    @property
    def per_epoch(self) -> int:
        """Whole batches of the images that an epoch is a pass over: those of p(x), unless the recipe says otherwise."""
        kind = "labelled" if self.options.shared else self.options.epoch
        return len(self.sources[kind]) // self.sizes[kind]

    def draw(self) -> Batch:
        """The next batch, of this process."""
        indices = {name: next(stream) for name, stream in self.streams.items()}
        images = None
        if not self.options.shared:
            images = self._draw("marginal", indices, self.augmentation if self.options.augment_marginal else NONE).x
        labelled = self._draw("labelled", indices, self.augmentation)
        assert labelled.y is not None
        return Batch(labelled.x if images is None else images, labelled.x, labelled.y)

    def _draw(self, name: str, indices: Mapping[str, torch.Tensor], augmentation: Augmentation) -> Drawn:
        """The part of this process; all processes use the same random numbers."""
        x, y = self.sources[name].draw(indices[name], augmentation, self.options.noise, self.generator)
        mine = self.group.part(len(x))
        return Drawn(x[mine], None if y is None else y[mine])

    def state_dict(self) -> dict[str, Any]:
        """All that the next batch depends on."""
        return {
            "streams": {name: stream.state_dict() for name, stream in self.streams.items()},
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken.

        Raises:
            CheckpointError: if it is of another number of images.
        """
        for name, stream in self.streams.items():
            stream.load_state_dict(state["streams"][name])
        self.generator.set_state(state["generator"].cpu())


def make_augmentation(options: TrainingData) -> Augmentation:
    """What the recipe does to training images: its own crop and flip, then the augmentation that it names.

    Raises:
        SpecError: for a name or an option that does not exist.
    """
    named = registry.resolve("augmentations", options.augmentation).make() if options.augmentation else None
    return Augmentation(pad=options.pad, flip=options.flip, then=named)
