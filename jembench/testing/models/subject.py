"""A model under test: its images, its outputs and its loss.

Legend: B batch, N samples, C channels, H height, W width, K classes.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from jembench import seeds
from jembench.interfaces import Batch, Density, Energy, Loss, Negatives, Trainable
from jembench.models.capabilities import is_fitted
from jembench.models.objective import as_model
from jembench.testing.checks import Subject, only_if, require
from jembench.testing.comparing import same
from jembench.training.optimizers import phases_of

IMAGES = 5
"""B and N, different from common numbers of channels, pixels and classes."""

BATCH = 32
"""Images of a training batch: enough for models that initialise themselves by its statistics."""

FITTED = 20
"""Training images per class, for models that are fitted at once."""

Outputs = Mapping[str, Tensor]
"""The outputs of a model by their call: ``energy(x, y)``."""


@dataclass(frozen=True)
class ModelSubject(Subject):
    """The model of a spec for some data."""

    kind = "models"

    def build(self, seed: int = 0) -> Any:
        """Make the model in evaluation mode from a seed."""
        with seeds.drawing(seed, "initialisation"):
            model = super().build()
            kind = type(model).__name__
            is_module = isinstance(model, nn.Module)
            require(is_module, f"The factory returns a {kind}, not a torch.nn.Module.")
            model = as_model(model, self.data, str(self.resolved))
            if is_fitted(model):
                self.fit(model, seed)
        return model.eval()

    def fit(self, model: Any, seed: int = 0, purpose: str = "training") -> None:
        """Call the model's fit with images of each class."""
        n = FITTED * max(self.data.num_classes, 1)
        labels = self.labels(n) if self.data.num_classes else None
        images, generator = self.images(purpose, n), seeds.generator(seed, "testing/fit")
        with torch.no_grad():
            model.fit(images, labels, generator=generator)

    @cached_property
    def model(self) -> Any:
        """The model, which is made once for the check."""
        return self.build()

    @cached_property
    def perturbed(self) -> Any:
        """Another model with slightly changed parameters.

        A last layer of zeros would hide all other layers.
        """
        model, generator = self.build(), seeds.generator(0, "testing/shaken")
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        return model

    # --- images and labels ------------------------------------------------------------------------

    @property
    def x(self) -> Tensor:
        """Images (B, C, H, W) inside of the bounds."""
        return self.images("images")

    @property
    def y(self) -> Tensor:
        """The labels of the images, int64 (B,)."""
        return self.labels(IMAGES)

    def labels(self, n: int) -> Tensor:
        """Return alternating labels, int64 (n,)."""
        return torch.arange(n) % max(self.data.num_classes, 1)

    def images(self, purpose: str, n: int = IMAGES) -> Tensor:
        """Return random images (n, C, H, W), different for each purpose."""
        low, high = self.data.bounds
        generator = seeds.generator(0, f"testing/{purpose}")
        uniform = torch.rand(n, *self.data.shape, generator=generator)
        return low + (high - low) * (0.1 + 0.8 * uniform)

    # --- outputs ----------------------------------------------------------------------------------

    def calls(self, model: Any) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
        """Return the methods for images, without and with labels, by call."""
        calls: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
        for name in ("logits", "energy", "log_prob"):
            if has(model, name):
                method = getattr(model, name)
                calls[f"{name}(x)"] = partial(_call_without_labels, method)
                if self.takes_labels(name):
                    calls[f"{name}(x, y)"] = method
        return calls

    def draws(self, model: Any, seed: int = 0) -> dict[str, Callable[[], Tensor]]:
        """Return the methods that draw samples, by their call."""
        calls: dict[str, Callable[[], Tensor]] = {}
        if has(model, "sample"):
            calls["sample(n)"] = lambda: model.sample(IMAGES, generator=sampling(seed))
            if self.takes_labels("sample"):
                calls["sample(n, y)"] = lambda: model.sample(
                    IMAGES, self.y, generator=sampling(seed)
                )
        return calls

    @torch.no_grad()
    def outputs(self, model: Any) -> Outputs:
        """Return all outputs for the images, and all samples."""
        outputs = {name: call(self.x, self.y) for name, call in self.calls(model).items()}
        return outputs | {name: draw() for name, draw in self.draws(model).items()}

    def takes_labels(self, method: str) -> bool:
        """Return whether energy, log_prob or sample can be called with labels."""
        return method in self._by_class

    @cached_property
    def _by_class(self) -> set[str]:
        methods = set[str]()
        if not self.data.num_classes:
            return methods
        model = self.build()
        for method in ("energy", "log_prob", "sample"):
            # the check labels-taken-or-refused reports faults
            with suppress(Exception), torch.no_grad():
                self.call_by_class(model, method)
                methods.add(method)
        return methods

    def call_by_class(self, model: Any, method: str) -> Tensor:
        """Call energy, log_prob or sample with labels."""
        with_labels: Callable[..., Tensor] = getattr(model, method)
        if method == "sample":
            return with_labels(IMAGES, self.y, generator=sampling())
        return with_labels(self.x, self.y)

    def output(self, method: str) -> Tensor:
        """Return an output of the perturbed model.

        Skips the check if the model has no such method.
        """
        with torch.no_grad():
            output: Tensor = getattr(needs(self.perturbed, method), method)(self.x)
        return output

    def each_class(self, method: str) -> Tensor:
        """Return energy or log_prob of every image and every class, (B, K)."""
        only_if(self.takes_labels(method), f"It has no {method}(x, y).")
        call, outputs = getattr(self.perturbed, method), []
        with torch.no_grad():
            for k in range(self.data.num_classes):
                outputs.append(call(self.x, torch.full((IMAGES,), k)))
        return torch.stack(outputs, dim=1)

    def energies(self, model: Any, x: Tensor) -> Tensor:
        """Return E(x), or -log p(x) of a model without energies, (B,)."""
        only_if(isinstance(model, Energy | Density), "It has neither an energy nor a density.")
        energies: Tensor = model.energy(x) if isinstance(model, Energy) else -model.log_prob(x)
        only_if(
            energies.shape == (len(x),), "Its energies are not (B,): see the check output-shapes."
        )
        return energies

    def gradient(self, model: Any) -> Tensor:
        """Return dE/dx, (B, C, H, W)."""
        x = self.x.requires_grad_()
        (gradient,) = torch.autograd.grad(self.energies(model, x).sum(), x)
        return gradient

    # --- training ---------------------------------------------------------------------------------

    @property
    def trained(self) -> Any:
        """The model in training mode."""
        only_if(isinstance(self.model, Trainable), "It has no training_loss.")
        return self.model.train()

    @property
    def batch(self) -> Batch:
        """A training batch."""
        return Batch(
            self.images("batch", BATCH),
            self.images("labelled batch", BATCH),
            self.labels(BATCH),
            outliers=self.images("outliers", BATCH),
        )

    def negatives(self, model: Any) -> Negatives | None:
        """Return the samples that the model's loss needs, if any."""
        if model.chains == "none":
            return None
        labels = self.labels(BATCH) if model.chains == "conditional" else None
        return Negatives(self.images("negatives", BATCH), labels)

    def loss(
        self,
        model: Any,
        batch: Batch | None = None,
        negatives: Negatives | None = None,
        phase: str = "",
    ) -> Loss:
        """Compute the loss of a phase under a seed.

        By default it is training_loss with the subject's batch and negatives.
        """
        batch, negatives = batch or self.batch, negatives or self.negatives(model)
        with seeds.drawing(0, "initialisation"):
            return phases_of(model)[phase].loss(batch, negatives)


def _call_without_labels(method: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
    return method(x)


def sampling(seed: int = 0) -> Generator:
    """Return a generator for samples."""
    return seeds.generator(seed, "testing/samples")


def has(model: Any, method: str) -> bool:
    """Return whether a model has a method.

    The value None removes an inherited method.
    """
    return getattr(model, method, None) is not None


def needs(model: Any, method: str) -> Any:
    """Return the model; skip the check if it has no such method."""
    only_if(has(model, method), f"It has no {method}.")
    return model


def require_equal(
    outputs: Outputs, expected: Outputs, how: str, equal: Callable[[Tensor, Tensor], bool] = same
) -> None:
    """Fail the check if outputs differ, by default bit for bit."""
    for name, output in outputs.items():
        difference = distance(output, expected[name])
        require(equal(output, expected[name]), f"{name}, {how}, differs by {difference}.")


def close(a: Tensor, b: Tensor, tolerance: float = 2e-5) -> bool:
    """Return whether outputs are equal, relative to the largest value."""
    scale = max(1.0, float(b.abs().max()))
    return a.shape == b.shape and bool(((a - b).abs() <= tolerance * scale).all())


def distance(a: Tensor, b: Tensor) -> str:
    """Describe the largest difference of two outputs."""
    if a.shape != b.shape:
        return f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
    return f"{float((a - b).abs().max()):.2g}"
