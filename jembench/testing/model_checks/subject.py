"""A model under examination: how it is made, what it is shown and what it can be asked.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from jembench import seeds
from jembench.catalog.registry import Resolved
from jembench.interfaces import Batch, Classifier, DataSpec, Density, Energy, Generative, Loss, Negatives, Trainable
from jembench.models.adapters.classifier import as_classifier
from jembench.models.capabilities import capabilities
from jembench.testing.checks import CheckFailed, DoesNotApply

IMAGES = 5
"""B and N: no likely number of channels, pixels or classes."""

BATCH = 32
"""Of training: enough for what a model sets by the statistics of its first batch."""

Answers = Mapping[str, Tensor]
"""What a model says, by how it was asked: ``energy(x, y)``."""


@dataclass(frozen=True)
class Subject:
    """The model of a spec for some data."""

    resolved: Resolved
    data: DataSpec

    # --- making -------------------------------------------------------------------------------------------------------

    def make(self, seed: int = 0) -> Any:
        """The model in evaluation mode, its weights drawn under a seed.

        Raises:
            CheckFailed: if the factory gives something else than a module.
        """
        with seeds.initialising(seed):
            model = self.resolved.make(self.data)
            if not isinstance(model, nn.Module):
                raise CheckFailed(f"The factory gives a {type(model).__name__}. Return a torch.nn.Module.")
            if not capabilities(model) and not isinstance(model, Trainable):
                model = as_classifier(model, self.data, str(self.resolved))
        return model.eval()

    @cached_property
    def model(self) -> Any:
        """The model.

        Raises:
            DoesNotApply: if it cannot be made, which one check alone tells.
        """
        try:
            return self.make()
        except Exception as error:
            raise DoesNotApply("It cannot be made: see can-be-made.") from error

    def check_made(self) -> None:
        """Go on with a model that can be made alone.

        Raises:
            DoesNotApply: if it cannot.
        """
        _ = self.model

    def needs_classes(self) -> None:
        """Go on with a model that can be made, for classes that can be told apart.

        Raises:
            DoesNotApply: if it cannot, or there are fewer than two.
        """
        self.check_made()
        if self.data.num_classes < 2:
            raise DoesNotApply(f"{self.data.name} has no classes to be told apart.")

    @property
    def _another(self) -> Any:
        """One that is made alike; deep copies are a promise of their own."""
        self.check_made()
        return self.make()

    @cached_property
    def shaken(self) -> Any:
        """Another, whose parameters have moved a little: a last layer that begins at zero hides what is behind it."""
        model, generator = self._another, _generator("shaken")
        with torch.no_grad():
            for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        return model

    # --- what it is shown ---------------------------------------------------------------------------------------------

    @property
    def x(self) -> Tensor:
        """Images within the bounds, none of them at the edge: (B, C, H, W)."""
        return self.images("images")

    @property
    def y(self) -> Tensor:
        """Their labels: int64 (B,)."""
        return self.labels(IMAGES)

    def labels(self, n: int) -> Tensor:
        """Labels, each another as far as there are classes: int64 (n,)."""
        return torch.arange(n) % max(self.data.num_classes, 1)

    def images(self, purpose: str, n: int = IMAGES) -> Tensor:
        """Other images for each purpose."""
        low, high = self.data.bounds
        uniform = torch.rand(n, *self.data.shape, generator=_generator(purpose))
        return low + (high - low) * (0.1 + 0.8 * uniform)

    # --- what it can be asked -----------------------------------------------------------------------------------------

    def answers(self, model: Any, x: Tensor | None = None, y: Tensor | None = None) -> Answers:
        """All that the model says of images, without gradients. What it does to the images reaches nobody else."""
        x, y = self.x if x is None else x, self.y if y is None else y
        with torch.no_grad():
            return {name: ask(x.clone(), y.clone()) for name, ask in self.questions(model).items()}

    def questions(self, model: Any) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
        """All that can be asked of images and their labels."""
        asked: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
        if isinstance(model, Classifier):
            asked["logits(x)"] = lambda x, y: model.logits(x)
        for name in ("energy", "log_prob"):
            if has(model, name):
                asked[f"{name}(x)"] = partial(_without_labels, getattr(model, name))
            if has(model, name) and self.takes_labels(name):
                asked[f"{name}(x, y)"] = getattr(model, name)
        return asked

    def drawn(self, model: Any, seed: int = 0) -> Answers:
        """Images that the model draws without a chain, if it does; with labels too, if it takes them."""
        if not isinstance(model, Generative):
            return {}
        with torch.no_grad():
            images = {"sample(n)": model.sample(IMAGES, generator=_generator("samples", seed))}
            if self.takes_labels("sample"):
                images["sample(n, y)"] = model.sample(IMAGES, self.y, generator=_generator("samples", seed))
        return images

    def drawn_of_class(self, model: Any, k: int) -> Tensor:
        """Images of class k that the model draws, always by the same random numbers."""
        with torch.no_grad():
            images: Tensor = model.sample(IMAGES, torch.full((IMAGES,), k), generator=_generator("samples"))
        return images

    def everything(self, model: Any) -> dict[str, Callable[[], Tensor]]:
        """All that can be asked, with the images and labels at hand."""
        calls: dict[str, Callable[[], Tensor]] = {
            name: partial(ask, self.x, self.y) for name, ask in self.questions(model).items()
        }
        if isinstance(model, Generative):
            calls["sample(n)"] = lambda: model.sample(IMAGES, generator=_generator("samples"))
        return calls

    def takes_labels(self, method: str) -> bool:
        """Whether energy, log_prob or sample can be asked by class; whatever else it does, one check alone tells."""
        return method in self._by_class

    @cached_property
    def _by_class(self) -> frozenset[str]:
        if not self.data.num_classes:
            return frozenset()
        model = self._another
        return frozenset(method for method in ("energy", "log_prob", "sample") if self._answers_by_class(model, method))

    def _answers_by_class(self, model: Any, method: str) -> bool:
        try:
            with torch.no_grad():
                self.ask_by_class(model, method)
        except Exception:  # a refusal, or a fault that labels-taken-or-refused tells
            return False
        return True

    def ask_by_class(self, model: Any, method: str) -> Tensor:
        """Energy, log_prob or sample of labels, whether it takes them or not."""
        answer: Tensor
        if method == "sample":
            answer = model.sample(IMAGES, self.y, generator=_generator("samples"))
        else:
            answer = getattr(model, method)(self.x, self.y)
        return answer

    # --- energies -----------------------------------------------------------------------------------------------------

    def energies(self, model: Any, x: Tensor) -> Tensor:
        """E(x), or -log p(x) of a model that has a density alone: (B,), with gradients.

        Raises:
            DoesNotApply: if it has neither, or not one for each image.
        """
        energies: Tensor
        if isinstance(model, Energy):
            energies = model.energy(x)
        elif isinstance(model, Density):
            energies = -model.log_prob(x)
        else:
            raise DoesNotApply("It has neither an energy nor a density.")
        if energies.shape != (len(x),):
            raise DoesNotApply("It has not one energy for each image: see energy-shape or log-prob-shape.")
        return energies

    def gradient(self, model: Any) -> Tensor:
        """dE/dx: (B, C, H, W)."""
        x = self.x.requires_grad_()
        (gradient,) = torch.autograd.grad(self.energies(model, x).sum(), x)
        return gradient

    def each_class(self, method: str, model: Any) -> Tensor:
        """Energy or log_prob of every image with every class: (B, K).

        Raises:
            DoesNotApply: if it is not asked by class.
        """
        if not self.takes_labels(method):
            raise DoesNotApply(f"It has no {method}(x, y).")
        classes = [torch.full((IMAGES,), k) for k in range(self.data.num_classes)]
        with torch.no_grad():
            return torch.stack([getattr(model, method)(self.x, y) for y in classes], dim=1)

    # --- training -----------------------------------------------------------------------------------------------------

    @property
    def trained(self) -> Any:
        """The model in training mode.

        Raises:
            DoesNotApply: if it is not trained here.
        """
        if not isinstance(self.model, Trainable):
            raise DoesNotApply("It is finished: it has no training_loss.")
        return self.model.train()  # type: ignore[attr-defined]  # an nn.Module, too

    @property
    def batch(self) -> Batch:
        """A batch of training."""
        return Batch(self.images("batch", BATCH), self.images("labelled batch", BATCH), self.labels(BATCH))

    def negatives(self, model: Any) -> Negatives | None:
        """Samples such as the model's loss asks for."""
        if model.chains == "none":
            return None
        return Negatives(self.images("negatives", BATCH), self.labels(BATCH) if model.chains == "conditional" else None)

    def loss(self, model: Any, batch: Batch | None = None, negatives: Negatives | None = None) -> Loss:
        """The training loss of what is given, or is at hand; its chance (as of dropout) under a seed."""
        with seeds.initialising(0):
            loss: Loss = model.training_loss(batch or self.batch, negatives or self.negatives(model))
        return loss


def has(model: Any, method: str) -> bool:
    """Whether a model has the method; a None in its place takes away what it would inherit."""
    return getattr(model, method, None) is not None


def needs(model: Any, method: str) -> Any:
    """The model, if it has the method.

    Raises:
        DoesNotApply: if it has not.
    """
    if not has(model, method):
        raise DoesNotApply(f"It has no {method}.")
    return model


def close(a: Tensor, b: Tensor, tolerance: float = 2e-5) -> bool:
    """Whether two answers differ by no more than rounding, measured by the largest of their values."""
    if a.shape != b.shape:
        return False
    scale = max(1.0, float(b.abs().max())) if b.numel() else 1.0
    return bool(((a - b).abs() <= tolerance * scale).all())


def distance(a: Tensor, b: Tensor) -> str:
    """How far apart two answers are, for a message."""
    if a.shape != b.shape:
        return f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
    return f"{float((a - b).abs().max()):.2g}"


def _without_labels(method: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
    return method(x)


def _generator(purpose: str, seed: int = 0) -> Generator:
    return seeds.generator(seed, f"testing/{purpose}")
