"""Optimisers, sharpness-aware steps and averages of the weights."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from jembench.catalog import discovery
from jembench.catalog.spec import Spec
from jembench.catalog.validation import read_untyped
from jembench.errors import SpecError
from jembench.experiment.recipe import Optimizer
from jembench.interfaces import Phase
from jembench.interfaces.models import Phased

TINY = 1e-12


def phases_of(model: Any) -> dict[str, Phase]:
    """Return the turns of an iteration.

    They are the turn of ``training_loss``, named "", and the model's phases.
    """
    further: dict[str, Phase] = {}
    if isinstance(model, Phased):
        further |= model.phases()
    taken = {parameter for phase in further.values() for parameter in phase.parameters}
    rest = [parameter for parameter in model.parameters() if parameter not in taken]
    return {"": Phase(rest, model.training_loss), **further}


def make_optimizer(parameters: Iterable[nn.Parameter], options: Optimizer) -> torch.optim.Optimizer:
    """Return the recipe's optimiser of some parameters, fused where it can be.

    The factory is called with the recipe's constants that its signature has, and with the options
    of the spec.

    Raises:
        SpecError: if there is no such optimiser, or the optimiser refuses its options.
    """
    named = Spec(options.name)
    factory = discovery.load(discovery.find("optimizers", named.name))
    constants = {
        "lr": options.learning_rate,
        "betas": tuple(options.betas),
        "momentum": options.momentum,
        "weight_decay": options.weight_decay,
        "fused": True,
    }
    accepted = inspect.signature(factory).parameters
    arguments = {name: value for name, value in constants.items() if name in accepted}
    for name, text in named.options.items():
        arguments[name] = read_untyped(text)
    try:
        optimizer: torch.optim.Optimizer = factory(parameters, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SpecError(
            f"The optimizer {options.name} refuses its options: {error}. Write --set "
            "optimizer.name=NAME:key=value, or change the recipe's constants."
        ) from error
    return optimizer


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load a copy of the state of an optimiser.

    Its tensors take the memory layout of their parameters.

    A fused step goes through the memory of weights and state in the same order: in another layout
    it would combine a weight with the momentum of another weight.
    """
    optimizer.load_state_dict(dict(state))
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                like = parameter if value.shape == parameter.shape else value
                place = torch.empty_like(like, dtype=value.dtype, device=value.device)
                values[name] = place.copy_(value)


@contextmanager
def sam_perturbation(model: nn.Module, radius: float, *, adaptive: bool) -> Iterator[None]:
    """Move the weights along their gradients within the context.

    The moved weights have about the highest loss within a ball.

    The optimiser then follows the gradient that is computed inside: sharpness-aware minimisation
    (Foret et al., 2021), w + rho g / |g|. With ``adaptive``, the ball is measured relative to each
    weight (ASAM; Kwon et al., 2021): w + rho w^2 g / |w g|; SADA-JEM uses it with rho = 2.

    Args:
        model: its parameters' ``grad`` are the gradients of the loss at the weights.
        radius: rho, above 0.
        adaptive: True for ASAM, False for SAM.
    """
    weights = list(model.parameters())
    before = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        directions, lengths = [], []
        for weight, value in zip(weights, before, strict=True):
            scale, scaled = torch.ones_like(value), torch.zeros_like(value)
            if adaptive:
                scale = value.abs()
            if weight.grad is not None:
                scaled = scale * weight.grad
            lengths.append(scaled.norm())
            directions.append(scale * scaled)
        length = torch.stack(lengths).norm() + TINY
        for weight, direction in zip(weights, directions, strict=True):
            weight.add_(direction * (radius / length))
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, value in zip(weights, before, strict=True):
                weight.copy_(value)


class WeightAverage:
    """The exponential moving average of a model's weights.

    It is less noisy than the weights of any one iteration.

    The decay grows from .1 at the first step to ``decay``, so that the initial weights are soon
    forgotten.

    Args:
        model: its state, buffers included, is averaged.
        decay: in [0, 1).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, number: int) -> None:
        """Update the average by the model's present weights.

        ``number`` counts the updates, this one included.
        """
        weight = 1 - min(self.decay, number / (number + 9))
        current = model.state_dict()
        averages, values = [], []
        for name, average in self.state.items():
            if average.is_floating_point():
                averages.append(average)
                values.append(current[name])
            else:
                average.copy_(current[name])
        torch._foreach_lerp_(averages, values, weight)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights for the duration of the context."""
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.state)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the average from ``state``."""
        for name, value in self.state.items():
            value.copy_(state[name])
