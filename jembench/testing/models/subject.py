"""A model under test: its images, its outputs and its loss.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from jembench import seeds
from jembench.interfaces import Batch, Density, Energy, Loss, Negatives, Trainable
from jembench.models.capabilities import capabilities, is_fitted
from jembench.models.objective import as_classifier
from jembench.testing.checks import DoesNotApply, Subject, only_if, require
from jembench.testing.comparing import same

IMAGES = 5
"""B and N: different from likely numbers of channels, pixels and classes."""

BATCH = 32
"""Training images: enough for models that set parameters by the statistics of their first batch."""

FITTED = 20
"""Training images of each class, for models that are fitted at once."""

Outputs = Mapping[str, Tensor]
"""Outputs of a model by the call that gave them: ``energy(x, y)``."""


@dataclass(frozen=True)
class ModelSubject(Subject):
    """The model of a spec for some data."""

    kind = "models"

    def build(self, seed: int = 0) -> Any:
        """Make the model in evaluation mode, its weights drawn under a seed."""
        with seeds.initialising(seed):
            model = super().build()
            require(isinstance(model, nn.Module), f"The factory gives a {type(model).__name__}, not a torch.nn.Module.")
            if not capabilities(model) and not isinstance(model, Trainable):
                model = as_classifier(model, self.data, str(self.resolved))
            if is_fitted(model):
                self.fit(model, seed)
        return model.eval()

    def fit(self, model: Any, seed: int = 0, purpose: str = "training") -> None:
        """Fit a model that is fitted at once, to images of each class."""
        n = FITTED * max(self.data.num_classes, 1)
        labels = self.labels(n) if self.data.num_classes else None
        with torch.no_grad():
            model.fit(self.images(purpose, n), labels, generator=seeds.generator(seed, "testing/fit"))

    @cached_property
    def model(self) -> Any:
        """The model, made once for this check."""
        return self.make()

    @cached_property
    def shaken(self) -> Any:
        """Another model with parameters moved a little: a last layer that begins at zero hides all before it."""
        model, generator = self.make(), seeds.generator(0, "testing/shaken")
        with torch.no_grad():
            for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        return model

    # --- images and labels --------------------------------------------------------------------------------------------

    @property
    def x(self) -> Tensor:
        """Images within the bounds, none of them at the edge: (B, C, H, W)."""
        return self.images("images")

    @property
    def y(self) -> Tensor:
        """Labels of the images: int64 (B,)."""
        return self.labels(IMAGES)

    def labels(self, n: int) -> Tensor:
        """Return labels that take turns: int64 (n,)."""
        return torch.arange(n) % max(self.data.num_classes, 1)

    def images(self, purpose: str, n: int = IMAGES) -> Tensor:
        """Return images, other ones for each purpose: (n, C, H, W)."""
        low, high = self.data.bounds
        uniform = torch.rand(n, *self.data.shape, generator=seeds.generator(0, f"testing/{purpose}"))
        return low + (high - low) * (0.1 + 0.8 * uniform)

    # --- outputs ------------------------------------------------------------------------------------------------------

    def calls(self, model: Any) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
        """Return every call that the model takes for images; with their labels too, if it takes them."""
        calls: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
        for name in filter(partial(has, model), ("logits", "energy", "log_prob")):
            calls[f"{name}(x)"] = partial(_call_without_labels, getattr(model, name))
            if self.takes_labels(name):
                calls[f"{name}(x, y)"] = getattr(model, name)
        return calls

    def draws(self, model: Any, seed: int = 0) -> dict[str, Callable[[], Tensor]]:
        """Return every call that draws samples."""
        calls: dict[str, Callable[[], Tensor]] = {}
        if has(model, "sample"):
            calls["sample(n)"] = lambda: model.sample(IMAGES, generator=sampling(seed))
            if self.takes_labels("sample"):
                calls["sample(n, y)"] = lambda: model.sample(IMAGES, self.y, generator=sampling(seed))
        return calls

    @torch.no_grad()
    def outputs(self, model: Any, x: Tensor | None = None, y: Tensor | None = None) -> Outputs:
        """Return all outputs for images, by default ``x`` and ``y``, and all samples."""
        x, y = self.x if x is None else x, self.y if y is None else y
        answers = {name: ask(x.clone(), y.clone()) for name, ask in self.calls(model).items()}
        return answers | {name: draw() for name, draw in self.draws(model).items()}

    def takes_labels(self, method: str) -> bool:
        """Return True if energy, log_prob or sample can be called with labels."""
        return method in self._by_class

    @cached_property
    def _by_class(self) -> set[str]:
        model, found = self.make(), set()
        for method in ("energy", "log_prob", "sample") if self.data.num_classes else ():
            with suppress(Exception), torch.no_grad():  # a refusal, or a fault that labels-taken-or-refused reports
                self.call_by_class(model, method)
                found.add(method)
        return found

    def call_by_class(self, model: Any, method: str) -> Tensor:
        """Call energy, log_prob or sample with labels."""
        with_labels: Callable[..., Tensor] = getattr(model, method)
        if method == "sample":
            return with_labels(IMAGES, self.y, generator=sampling())
        return with_labels(self.x, self.y)

    def answer(self, method: str) -> Tensor:
        """Return an output of the model with moved parameters. Skip the check if it has no such method."""
        with torch.no_grad():
            answer: Tensor = getattr(needs(self.shaken, method), method)(self.x)
        return answer

    def each_class(self, method: str) -> Tensor:
        """Return energy or log_prob of every image with every class: (B, K)."""
        only_if(self.takes_labels(method), f"It has no {method}(x, y).")
        classes = [torch.full((IMAGES,), k) for k in range(self.data.num_classes)]
        with torch.no_grad():
            return torch.stack([getattr(self.shaken, method)(self.x, y) for y in classes], dim=1)

    def energies(self, model: Any, x: Tensor) -> Tensor:
        """Return E(x), or -log p(x) of a model that has a density alone: (B,), with gradients."""
        if isinstance(model, Energy):
            energies = model.energy(x)
        elif isinstance(model, Density):
            energies = -model.log_prob(x)
        else:
            raise DoesNotApply("It has neither an energy nor a density.")
        only_if(energies.shape == (len(x),), "It has not one energy for each image: see the check output-shapes.")
        return energies

    def gradient(self, model: Any) -> Tensor:
        """Return dE/dx: (B, C, H, W)."""
        x = self.x.requires_grad_()
        (gradient,) = torch.autograd.grad(self.energies(model, x).sum(), x)
        return gradient

    # --- training -----------------------------------------------------------------------------------------------------

    @property
    def trained(self) -> Any:
        """The model in training mode."""
        only_if(isinstance(self.model, Trainable), "It has no training_loss.")
        return self.model.train()

    @property
    def batch(self) -> Batch:
        """A batch of training."""
        return Batch(self.images("batch", BATCH), self.images("labelled batch", BATCH), self.labels(BATCH))

    def negatives(self, model: Any) -> Negatives | None:
        """Return samples such as the model's loss needs."""
        if model.chains == "none":
            return None
        return Negatives(self.images("negatives", BATCH), self.labels(BATCH) if model.chains == "conditional" else None)

    def loss(self, model: Any, batch: Batch | None = None, negatives: Negatives | None = None) -> Loss:
        """Compute the training loss under a seed; of the subject's own batch and negatives by default."""
        with seeds.initialising(0):
            loss: Loss = model.training_loss(batch or self.batch, negatives or self.negatives(model))
        return loss


def _call_without_labels(method: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
    return method(x)


def sampling(seed: int = 0) -> Generator:
    """Return a generator for samples."""
    return seeds.generator(seed, "testing/samples")


def has(model: Any, method: str) -> bool:
    """Return True if a model has the method; None in its place removes an inherited one."""
    return getattr(model, method, None) is not None


def needs(model: Any, method: str) -> Any:
    """Return the model. Skip the check if it has no such method."""
    only_if(has(model, method), f"It has no {method}.")
    return model


def require_equal(found: Outputs, expected: Outputs, how: str, equal: Callable[[Tensor, Tensor], bool] = same) -> None:
    """Fail the check if outputs differ, by default in any bit."""
    for name, answer in found.items():
        require(equal(answer, expected[name]), f"{name}, {how}, differs by {distance(answer, expected[name])}.")


def close(a: Tensor, b: Tensor, tolerance: float = 2e-5) -> bool:
    """Return True if two outputs differ by rounding only, relative to the largest value."""
    scale = max(1.0, float(b.abs().max()))
    return a.shape == b.shape and bool(((a - b).abs() <= tolerance * scale).all())


def distance(a: Tensor, b: Tensor) -> str:
    """Describe the largest difference of two outputs."""
    if a.shape != b.shape:
        return f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
    return f"{float((a - b).abs().max()):.2g}"
