"""Test-time adaptation of batch norm to shifted images without labels.

Images come in random order, in batches; a network that adapted to one batch goes on with the next
batch of the same shift. Networks without batch norm have nothing to adapt.

Legend: N images, B images a batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from jembench.interfaces import DataSpec
from jembench.plugin import Names, NotApplicable, Range, resolve

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

Classify = Callable[["Tensor"], "Tensor"]
"""The function from a batch (B, C, H, W) to its logits (B, K)."""


@dataclass(frozen=True, kw_only=True)
class BatchStatistics:
    """Batch norm with the statistics of each test batch; no weight changes.

    Schneider et al. (2020), arXiv:2006.16971. Batches have equal sizes, of at most ``batch``
    images.
    """

    batch: Annotated[int, Range(least=2, most=100_000)] = 200

    def logits(
        self, model: nn.Module, x: Tensor, data: DataSpec, *, generator: Generator
    ) -> Tensor:
        """Adapt a model to images (N, C, H, W); return their logits (N, K).

        Raises:
            NotApplicable: if the model has no batch norm.
        """
        import torch

        model.eval().requires_grad_(False)  # dropout stays off
        kind = torch.nn.modules.batchnorm._BatchNorm
        norms = [module for module in model.modules() if isinstance(module, kind)]
        if not norms:
            raise NotApplicable(
                "The network has no batch norm, the kind of layer that is adapted. "
                "Train one that has: baseline:norm=batch or jem:norm=batch."
            )
        # without running statistics, batch norm uses the batch's in evaluation mode too
        for norm in norms:
            norm.track_running_stats = False
            norm.running_mean = None
            norm.running_var = None
        classify = self.classifier(model, norms, data, generator)
        order = torch.randperm(len(x), generator=generator, device=x.device)
        number_of_batches = -(-len(x) // self.batch)
        batches = order.tensor_split(number_of_batches)
        logits = [classify(x[places]).detach() for places in batches]
        return torch.cat(logits)[order.argsort()]

    def classifier(
        self, model: Any, norms: list[nn.Module], data: DataSpec, generator: Generator
    ) -> Classify:
        """Return the function from a batch to its logits."""
        classify: Classify = model.logits
        return classify


@dataclass(frozen=True, kw_only=True)
class Tent(BatchStatistics):
    """Tent: a step of Adam on the mean entropy of p(y|x).

    The step changes the scales and shifts of batch norm.

    Wang et al. (2021), arXiv:2006.10726. A batch is classified by the pass that gives the gradient,
    before the step.
    """

    learning_rate: Annotated[float, Range(above=0)] = 1e-3

    def classifier(
        self, model: Any, norms: list[nn.Module], data: DataSpec, generator: Generator
    ) -> Classify:
        """Return the function that classifies a batch, then takes a step."""
        step = _steps(norms, self.learning_rate)

        def classify(x: Tensor) -> Tensor:
            logits: Tensor = model.logits(x)
            entropy = -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1)
            step(entropy.mean())
            return logits

        return classify


@dataclass(frozen=True, kw_only=True)
class TEA(Tent):
    """TEA: a step of Adam on mean E(x) - mean E(x_sample), E = -LSE f(x).

    Everything else is as in Tent.

    Yuan et al. (2024), arXiv:2311.14402. A batch is classified after the step. ``sampler`` draws as
    many samples as the batch has images, and its buffer outlives the batch; by default chains take
    20 steps of size .1 with noise .01, and 5 % restart. The published code draws slots of the
    buffer with replacement, and runs its chains on images of [0, 1].
    """

    sampler: Annotated[str, Names("samplers")] = (
        "pcd:steps=20,step_size=0.1,noise=0.01,buffer=10000"
    )

    def classifier(
        self, model: Any, norms: list[nn.Module], data: DataSpec, generator: Generator
    ) -> Classify:
        """Return the function that takes a step, then classifies the batch."""
        import torch

        from jembench.parts import chain, marginal_energy

        step = _steps(norms, self.learning_rate)
        sampler = resolve("samplers", self.sampler).make(data)

        def gradient(x: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
            x = x.detach().requires_grad_()
            energy = marginal_energy(model.logits(x))
            (slope,) = torch.autograd.grad(energy.sum(), x)
            return energy.detach(), slope

        def classify(x: Tensor) -> Tensor:
            samples = chain.draw(sampler, len(x), gradient, generator).x
            of_images = marginal_energy(model.logits(x)).mean()
            of_samples = marginal_energy(model.logits(samples)).mean()
            step(of_images - of_samples)
            with torch.no_grad():
                logits: Tensor = model.logits(x)
            return logits

        return classify


def _steps(norms: list[nn.Module], learning_rate: float) -> Callable[[Tensor], None]:
    """Return a function that steps on batch norm's scales and shifts.

    Raises:
        NotApplicable: if batch norm has neither scales nor shifts.
    """
    import torch

    weights: list[nn.Parameter] = []
    for norm in norms:
        weights += norm.parameters(recurse=False)
    for weight in weights:
        weight.requires_grad_()
    if not weights:
        raise NotApplicable(
            "The network's batch norm has neither scales nor shifts, which would be adapted."
        )
    optimizer = torch.optim.Adam(weights, lr=learning_rate)

    def step(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
