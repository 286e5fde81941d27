"""Energies from logits, with the sign conventions of the whole project.

    E(x, y)    = -f(x)[y]
    E(x)       = -logsumexp_y f(x)[y]
    log p(x)   = -E(x) - log Z, with Z unknown: compare only within one model
    log p(y|x) = log_softmax f(x)

A lower energy means a higher density. Adding a constant to all logits shifts log p(x) and leaves
p(y|x) unchanged. Grathwohl et al. (2020), arXiv:1912.03263, equations 4 to 7.

Legend: B batch, C channels, H height, W width, K classes.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jembench.errors import NotApplicable, PluginError
from jembench.interfaces import Density, GradEnergy
from jembench.models.execution import PLAIN, Execution, at_least_float32, autocast, compiled


def marginal_energy(logits: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
    """Return E(x) = -logsumexp_y f(x)[y], in float32 or, for logits in float64, in float64."""
    return -at_least_float32(logits).logsumexp(dim=1)


def joint_energy(logits: Float[Tensor, "B K"], y: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return E(x, y) = -f(x)[y]; types as for :func:`marginal_energy`."""
    return -at_least_float32(logits).gather(1, y[:, None]).squeeze(1)


def logits_in(output: Any) -> Any:
    """Return a network's logits: the output, or the output's item or attribute ``logits``."""
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)


class LogitModel(nn.Module):
    """The energy-based reading of a classifier: any network with K outputs gives E(x) and E(x, y).

    Where the recipe computes in bfloat16, the networks of jembench pool and compute their logits in
    float32. Other networks compute their logits in bfloat16, whose resolution around 64 is half a
    nat, unless the last layer turns autocast off for itself or the recipe says ``compute.precision
    = "float32"``.

    Args:
        net: (B, C, H, W) -> (B, K), or an output that :func:`logits_in` takes logits from.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        logits: Tensor = logits_in(self.net(x))
        return logits

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return f(x)."""
        logits: Tensor = self(x)
        return logits

    def energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return E(x, y) if labels are given, else E(x), in nats."""
        logits = self.logits(x)
        if y is None:
            return marginal_energy(logits)
        return joint_energy(logits, y)


class JointEnergyModel(LogitModel):
    """A model that only has E(x, y), read as f(x)[y] = -E(x, y).

    This gives E(x) and p(y|x).

    Args:
        net: has the method ``energy(x, y)``, (B, C, H, W) and (B,) -> (B,).
        num_classes: K. Logits of a batch take K passes.
    """

    def __init__(self, net: nn.Module, num_classes: int) -> None:
        super().__init__(net)
        self.num_classes = num_classes

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        energy = energy_function(self.net)
        labels = torch.arange(self.num_classes, device=x.device)
        energies = [energy(x, label.expand(len(x))) for label in labels]
        return -torch.stack(energies, dim=1)


def accepts(method: Callable[..., Any], arguments: int) -> bool:
    """Return whether a method takes a number of positional arguments.

    E(x) takes 1, and E(x, y) takes 2.
    """
    with suppress(TypeError):
        inspect.signature(method).bind(*range(arguments))
        return True
    return False


def checked(output: Any, x: Tensor, method: Callable[..., Any], classes: int | None) -> Tensor:
    """Return a checked copy of a network's output, in float32 or float64.

    The copy is on the device of the images: a network may write its next output over its last.

    Args:
        output: of the method for the images x (B, C, H, W).
        x: the images.
        method: of a model.
        classes: K of logits (B, K), or 0 if any number will do; None: the output is energies (B,).

    Raises:
        PluginError: if the output is no dense tensor of real floating-point numbers of that shape.
    """
    wanted = "(B,), by squeeze(1)" if classes is None else f"(B, {classes or 'K'})"
    if not isinstance(output, Tensor) or output.layout is not torch.strided:
        kind = type(output).__name__
        raise PluginError(
            f"{_name(method)} returns a {kind} for {len(x)} images; return a dense tensor {wanted}."
        )
    columns: tuple[int, ...] = ()
    if classes is not None:
        columns = (classes or output.shape[-1],) if output.ndim else (1,)
    if output.shape != (len(x), *columns):
        shape = tuple(output.shape)
        raise PluginError(f"{_name(method)} returns {shape} for {len(x)} images; return {wanted}.")
    if not output.is_floating_point():
        kind = str(output.dtype).removeprefix("torch.")
        raise PluginError(
            f"{_name(method)} returns {kind} numbers; return real floating-point ones, such as "
            "float32."
        )
    return at_least_float32(output.to(x.device)).clone()


def _name(method: Callable[..., Any]) -> str:
    """Return a method's name for errors, with the class that the user wrote."""
    if not inspect.ismethod(method):
        return "The network"
    model = method.__self__
    owner = model.net if isinstance(model, LogitModel) else model
    return f"{type(owner).__name__}.{method.__name__}"


def logits_function(model: Any, classes: int) -> Callable[[Tensor], Tensor]:
    """Return the function from x to the logits f(x), (B, K) in float32 or float64.

    It calls the model with a copy of x, which a network may change in place, and raises PluginError
    for a result of another shape or type. ``classes`` is K; 0: any number.
    """
    return lambda x: checked(model.logits(x.clone()), x, model.logits, classes)


def energy_function(model: Any, *, of_chains: bool = False) -> Callable[..., Tensor]:
    """Return the function of x, and of labels y if given, that computes energies.

    They are E(x) or E(x, y), (B,) in float32 or float64.

    With ``of_chains`` it is the energy that the model's chains follow: ``chain_energy``, if the
    model has one.

    The model's method is ``energy(x)``, ``energy(x, y=None)``, or ``log_prob`` in either form, with
    E = -log p; a model with ``logits`` alone has their energies. The method is called with a copy
    of x, which a network may change in place. The function raises NotApplicable for labels that it
    does not take, and PluginError for a result of another shape or type.
    """
    method = None
    if of_chains:
        method = getattr(model, "chain_energy", None)
    is_density = method is None and isinstance(model, Density)
    if is_density:
        method = model.log_prob
    elif method is None:
        method = getattr(model, "energy", None) or partial(LogitModel.energy, model)
    takes_labels = accepts(method, 2)

    def energy(x: Tensor, y: Tensor | None = None) -> Tensor:
        if y is not None and not takes_labels:
            raise NotApplicable(
                f"{_name(method)}(x) takes no labels, so that E(x, y) is not defined."
            )
        copy = x.clone()
        output = method(copy) if y is None else method(copy, y)
        value = checked(output, x, method, None)
        return -value if is_density else value

    return energy


def gradient(value: Tensor, x: Tensor, *, graph: bool = False) -> Tensor:
    """Return the gradient of the summed values with respect to x; ``graph`` keeps its graph.

    Raises:
        PluginError: if the values were not computed from x by differentiable operations.
    """
    result = None
    if value.requires_grad:
        (result,) = torch.autograd.grad(value.sum(), x, create_graph=graph, allow_unused=True)
    if result is None:
        raise PluginError(
            "The outputs of the model have no gradient with respect to the images. Compute them by "
            "PyTorch alone, without torch.no_grad() and detach()."
        )
    return result


def grad_energy(
    model: Any,
    execution: Execution = PLAIN,
    given_up: list[str] | None = None,
    *,
    of_chains: bool = False,
) -> GradEnergy:
    """Return the function (x, y) -> (E, dE/dx) of a model.

    It leaves the gradients of the model's parameters unchanged.

    E is float32, or float64 if the model's is; dE/dx has the type of x. Gradients of the parameters
    are not computed, except by a compiled function whose caller has not frozen the parameters, and
    which discards the gradients. In bfloat16 the network runs under autocast: on a CPU with
    bfloat16 instructions it is two to five times as fast as in float32, and the cosine between the
    two gradients is above .99.

    Args:
        model: has an energy or a normalised density.
        execution: the precision, and whether the function is compiled.
        given_up: a list to which the reason is appended when compilation fails.
        of_chains: see :func:`energy_function`.
    """
    of_model = energy_function(model, of_chains=of_chains)

    def energy_of_images(x: Tensor, y: Tensor | None) -> Tensor:
        with autocast(execution.precision, x.device):
            return of_model(x, y)

    energy: Callable[[Tensor, Tensor | None], Tensor] = energy_of_images
    if execution.compiled:
        # a chain's steps are captured as one CUDA graph, or not at all
        energy = compiled(energy_of_images, given_up, captured=False)

    def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        # an autocast context of the caller would also affect the backward pass
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            x = x.detach().requires_grad_()
            value = energy(x, y)
            grad = gradient(value, x)
        return value.detach(), grad

    return evaluate
