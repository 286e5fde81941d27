"""One training run: what an iteration does, and all the state that it changes.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jembench import registry, seeds
from jembench.data.augment import Augmentation
from jembench.data.batches import ImageSource, IndexStream
from jembench.data.holdout import holdout
from jembench.data.pixels import to_float
from jembench.devices import sampling_precision
from jembench.energies import grad_energy
from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import Batch, DataSpec, Loss, Negatives, Sampler, Split, Trainable
from jembench.sampling import chain
from jembench.training.recipe import Optimizer, Recipe


class Validation(NamedTuple):
    """How the model does on the held-out images."""

    accuracy: float  # 0..1
    nll: float  # nats


class Trainer:
    """A model, its optimiser, its chains and its place in the data.

    Nothing else is remembered between two iterations: a trainer that loads another's ``state_dict`` goes on exactly
    as that one would have (bit for bit on the CPU).

    Args:
        model: an ``nn.Module`` that is :class:`~jembench.interfaces.Trainable`.
        data: what the images are.
        images: the training split; the recipe holds its validation images out of it.
        recipe: how to train.
        seed: the root of all randomness.
        device: where to train.
    """

    def __init__(
        self, model: Any, data: DataSpec, images: Split, recipe: Recipe, *, seed: int, device: torch.device
    ) -> None:
        self.model = model.to(device)
        self.data = data
        self.recipe = recipe
        self.device = device
        self.sampler = make_sampler(model, data, recipe)
        train, self.validation = holdout(images, recipe.data.validation, stratified=recipe.data.stratified)
        if train.labels is None:
            raise SpecError(f"The dataset {data.name} has no labels, and training needs them.")
        self.source = ImageSource(train, data.bounds, device)
        self.streams = {
            name: IndexStream(len(self.source), recipe.batch_size, seeds.generator(seed, f"order/{name}"))
            for name in ("marginal", "labelled")
        }
        self.generators = {name: seeds.generator(seed, name, device) for name in ("images", "chains")}
        self.optimizer = make_optimizer(model, recipe.optimizer)
        self.augmentation = Augmentation(pad=recipe.data.pad, flip=recipe.data.flip)
        self.grad_energy = grad_energy(model, sampling_precision(recipe.chains.precision, data, device))
        self.iteration = 0

    @property
    def iterations_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(self.source) // self.recipe.batch_size

    @property
    def iterations(self) -> int:
        """The recipe's whole budget."""
        return max(1, round(self.recipe.epochs * self.iterations_per_epoch))

    @property
    def learning_rate(self) -> float:
        """What the next iteration will use."""
        factor = self.recipe.schedule.factor(self.iteration, self.iterations_per_epoch)
        return self.recipe.optimizer.learning_rate * factor

    def iterate(self) -> dict[str, Tensor]:
        """One optimiser step; gives the loss and its parts, still on the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        batch = self._batch()
        negatives = self._negatives(batch)
        self.model.train()
        loss: Loss = self.model.training_loss(batch, negatives)
        self.optimizer.zero_grad(set_to_none=True)
        loss.total.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.iteration += 1
        return {"loss": loss.total.detach(), **loss.parts}

    def _batch(self) -> Batch:
        noise, generator = self.recipe.data.noise, self.generators["images"]
        marginal = self.source.draw(next(self.streams["marginal"]), self.augmentation, noise, generator)
        labelled = self.source.draw(next(self.streams["labelled"]), self.augmentation, noise, generator)
        assert labelled.y is not None
        return Batch(marginal.x, labelled.x, labelled.y)

    def _negatives(self, batch: Batch) -> Negatives | None:
        if self.sampler is None:
            return None
        y = batch.y_labelled if self.model.chains == "conditional" else None
        with chain.mode(self.model, train=self.recipe.chains.mode == "train"):
            state = chain.draw(self.sampler, len(batch.x), self.grad_energy, self.generators["chains"], y)
        return Negatives(state.x, state.y)

    def validate(self) -> Validation | None:
        """Accuracy and NLL on the held-out images; None if the recipe holds none out."""
        if self.validation is None or self.validation.labels is None:
            return None
        logits = logits_of(self.model, self.validation.images, self.data, self.device)
        labels = self.validation.labels
        return Validation(
            accuracy=float((logits.argmax(1) == labels).double().mean()),
            nll=float(F.cross_entropy(logits.double(), labels)),
        )

    def is_finite(self) -> bool:
        """Whether every parameter, buffer and stored chain is a finite number."""
        kept = self.sampler.state_dict() if self.sampler else {}
        tensors = [*self.model.state_dict().values(), *kept.values()]
        return all(bool(tensor.isfinite().all()) for tensor in tensors)

    def state_dict(self) -> dict[str, Any]:
        """All that the next iteration depends on."""
        return {
            "iteration": self.iteration,
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict() if self.sampler else {},
            "streams": {name: stream.state_dict() for name, stream in self.streams.items()},
            "generators": {name: generator.get_state() for name, generator in self.generators.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken.

        Raises:
            CheckpointError: if the state is of another model, dataset or sampler.
        """
        load_weights(self.model, state["model"])
        if self.sampler:
            self.sampler.load_state_dict(state["sampler"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name, stream in self.streams.items():
            stream.load_state_dict(state["streams"][name])
        for name, generator in self.generators.items():
            generator.set_state(state["generators"][name])
        self.iteration = state["iteration"]


def make_sampler(model: Trainable, data: DataSpec, recipe: Recipe) -> Sampler | None:
    """The recipe's sampler, or None for a model that is trained without chains."""
    if model.chains == "none":
        return None
    sampler: Sampler = registry.resolve("samplers", recipe.chains.sampler).make(data)
    return sampler


def make_optimizer(model: nn.Module, options: Optimizer) -> torch.optim.Optimizer:
    """The recipe's optimiser over all parameters of the model."""
    rate, decay = options.learning_rate, options.weight_decay
    if options.name == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=options.momentum, weight_decay=decay)
    first, second = options.betas
    return torch.optim.Adam(model.parameters(), rate, betas=(first, second), weight_decay=decay)


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load a state dictionary whose names and shapes must all fit; nothing is loaded if one does not.

    Raises:
        CheckpointError: that lists what does not fit.
    """
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own.keys() - weights.keys()]
    wrong += [f"{name} is unknown" for name in weights.keys() - own.keys()]
    wrong += [
        f"{name} is {tuple(weights[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if own[name].shape != weights[name].shape
    ]
    if wrong:
        shown = "; ".join(sorted(wrong)[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        raise CheckpointError(
            f"The checkpoint belongs to another model: {shown}. Use the model spec that it was trained with, or "
            "another folder with --store."
        )
    model.load_state_dict(weights)


@torch.no_grad()
def logits_of(model: Any, images: Tensor, data: DataSpec, device: torch.device, batch_size: int = 500) -> Tensor:
    """f(x) of uint8 images (N, C, H, W) in evaluation mode: float32 (N, K) on the CPU."""
    with chain.mode(model, train=False):
        batches = [
            model.logits(to_float(part.to(device), data.bounds)).float().cpu()
            for part in torch.split(images, batch_size)
        ]
    return torch.cat(batches)
