"""From logits to energies. The sign conventions of the whole project stand here and nowhere else.

    E(x, y)    = -f(x)[y]
    E(x)       = -logsumexp_y f(x)[y]
    log p(x)   = -E(x) - log Z, with Z unknown: compare only within one model
    log p(y|x) = log_softmax f(x)

Lower energy = likelier. Adding a constant to all logits shifts log p(x) and leaves p(y|x). Grathwohl et al. (2020),
arXiv:1912.03263, equations 4 to 7.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jembench.interfaces import Energy, GradEnergy
from jembench.models.execution import PLAIN, Execution, at_least_float32, autocast, compiled


def marginal_energy(logits: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
    """E(x) = -logsumexp_y f(x)[y], in float32 or, for logits in float64, in float64."""
    return -at_least_float32(logits).logsumexp(dim=1)


def joint_energy(logits: Float[Tensor, "B K"], y: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """E(x, y) = -f(x)[y]."""
    return -at_least_float32(logits).gather(1, y[:, None]).squeeze(1)


def energy_of(logits: Float[Tensor, "B K"], y: Int[Tensor, " B"] | None) -> Float[Tensor, " B"]:
    """E(x, y) if labels are given, else E(x)."""
    return marginal_energy(logits) if y is None else joint_energy(logits, y)


class LogitModel(nn.Module):
    """The energy-based reading of a classifier: any network with K outputs gives E(x) and E(x, y).

    Where the recipe computes in bfloat16, the networks of jembench pool and make their logits in float32. Another
    network makes them in bfloat16, whose numbers are half a nat apart around 64, unless its last layer turns autocast
    off for itself or the recipe says ``compute.precision = "float32"``.

    Args:
        net: (B, C, H, W) -> (B, K), or an object whose ``logits`` these are, as Hugging Face's classifiers return.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        output = self.net(x)
        logits: Tensor = getattr(output, "logits", output)
        return logits

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """f(x)."""
        logits: Tensor = self(x)
        return logits

    def energy(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None) -> Float[Tensor, " B"]:
        """E(x, y) if labels are given, else E(x); nats."""
        return energy_of(self.logits(x), y)


def grad_energy(model: Energy, execution: Execution = PLAIN, given_up: list[str] | None = None) -> GradEnergy:
    """(x, y) -> (E, dE/dx) of a model, without gradients of its parameters.

    E is float32, or float64 if the model's is; dE/dx is of the type of x. Differentiating towards x alone leaves
    ``.grad`` of the parameters as it was and computes none of them, but for a compiled one whose caller has not frozen
    them: that computes them all, and throws them away. In bfloat16 the network runs under autocast: on a
    CPU with bfloat16 instructions two to five times as fast as float32, for a gradient whose cosine to it is above .99.

    Args:
        model: with an energy.
        execution: how the network is computed.
        given_up: a list that the reason is appended to when compilation fails.
    """

    def energy_of_images(x: Tensor, y: Tensor | None) -> Tensor:
        with autocast(execution.precision, x.device):
            return at_least_float32(model.energy(x, y))

    # a chain's steps are captured as one CUDA graph, or not at all
    energy = compiled(energy_of_images, given_up, captured=False) if execution.compiled else energy_of_images

    def evaluate(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        # whatever autocast the caller is in would reach into the backward pass as well
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            x = x.detach().requires_grad_()
            found = energy(x, y)
            (grad,) = torch.autograd.grad(found.sum(), x)
        return found.detach(), grad

    return evaluate
