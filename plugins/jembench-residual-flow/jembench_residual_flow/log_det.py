"""The log determinant log |det (I + J)| of a residual block.

J = dg/dx has a norm below 1. The log determinant is computed exactly or by a power series.

    log det (I + J) = sum over k >= 1 of (-1)^(k+1) / k tr J^k
    tr J^k = E[v' J^k v] for probes v of covariance I

Chen et al. (2019), arXiv:1906.02735, sections 3.1 and 3.2. The estimators of normflows are not
used: in evaluation they draw from the global generators, so that calls differ, and have no
gradient.

Legend: B batch, C channels, H height, W width, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor, autograd, nn

_ALWAYS = 2
"""The number of terms that training always computes."""


class Change(NamedTuple):
    """The change of x by a residual block, and the log determinant."""

    g: Tensor  # (B, C, H, W)
    log_det: Tensor  # (B,): log |det (I + dg/dx)|


@runtime_checkable
class LogDet(Protocol):
    """A method that computes the log determinant of a block."""

    def __call__(
        self, net: nn.Module, x: Float[Tensor, "B C H W"], *, differentiable: bool
    ) -> Change:
        """Return g = net(x) and the log determinant, with gradients if ``differentiable``.

        ``x`` must require a gradient.
        """
        ...


def exact(net: nn.Module, x: Float[Tensor, "B C H W"], *, differentiable: bool) -> Change:
    """Compute the log determinant from the whole Jacobian.

    Each backward pass gives one of its D rows.
    """
    change = net(x)
    identity = torch.eye(x[0].numel(), dtype=x.dtype, device=x.device)
    units = identity.view(-1, 1, *x.shape[1:])
    rows = []
    for unit in units.expand(-1, *x.shape):
        (row,) = autograd.grad(change, x, unit, retain_graph=True, create_graph=differentiable)
        rows.append(row)
    jacobian = torch.stack(rows, dim=1).flatten(2)
    return Change(change, torch.linalg.slogdet(identity + jacobian).logabsdet)


def omitted(net: nn.Module, x: Float[Tensor, "B C H W"], *, differentiable: bool) -> Change:
    """Return g and 0: p(y|x) does not depend on the determinant."""
    zero = torch.zeros_like(x[:, 0, 0, 0])
    return Change(net(x), zero)


@dataclass(frozen=True, slots=True)
class Truncated:
    """The first terms of the series, averaged over common probes.

    All images share the probes, so that an image has the same value in every call. But the error of
    the probes does not average out over images, and intervals over images do not include it.
    """

    terms: int
    probes: int
    generator: Generator  # on the CPU

    def __call__(
        self, net: nn.Module, x: Float[Tensor, "B C H W"], *, differentiable: bool
    ) -> Change:
        """Return g and the partial sum."""
        g = net(x)
        total = torch.zeros_like(x[:, 0, 0, 0])
        for _ in range(self.probes):
            signs = _signs(tuple(x.shape[1:]), self.generator)
            probe = signs.to(x).expand_as(x)
            moved = probe
            options = {"retain_graph": True, "create_graph": differentiable}
            for k in range(1, self.terms + 1):
                (moved,) = autograd.grad(g, x, moved, **options)
                total = total - (-1) ** k / k * _dot(moved, probe)
        return Change(g, total / self.probes)


@dataclass(frozen=True, slots=True)
class Unbiased:
    """The estimator for training, unbiased in value and gradient.

    It draws from PyTorch's global generators.

    The first two terms are always used. Each further term is used if one more coin toss shows
    heads, and is divided by the probability of reaching it. The gradient is that of the series of
    (I + J)^-1 (equation 8), which needs only one differentiable pass, not one per term.
    """

    def __call__(
        self, net: nn.Module, x: Float[Tensor, "B C H W"], *, differentiable: bool
    ) -> Change:
        """Return g and the estimate, with an independent probe for each image."""
        g = net(x)
        probe = torch.randint_like(x, 2) * 2 - 1
        moved = probe
        inverse = probe
        value = torch.zeros_like(x[:, 0, 0, 0])
        for k in range(1, _ALWAYS + self._heads() + 1):
            (moved,) = autograd.grad(g, x, moved, retain_graph=True)
            weight = (-1) ** k * 2.0 ** max(0, k - _ALWAYS)
            inverse = inverse + weight * moved
            value = value - weight / k * _dot(moved, probe)
        if not differentiable:
            return Change(g, value)
        (slope,) = autograd.grad(g, x, inverse, create_graph=True)
        surrogate = _dot(slope, probe)
        return Change(g, value + surrogate - surrogate.detach())

    def _heads(self) -> int:
        """Draw the number of heads before the first tails, on the CPU."""
        uniform = 1 - torch.rand((), dtype=torch.float64)
        return int(-uniform.log2())


def _signs(shape: tuple[int, ...], generator: Generator) -> Tensor:
    bits = torch.randint(2, shape, generator=generator, device=generator.device)
    return bits * 2.0 - 1.0


def _dot(a: Float[Tensor, "B C H W"], b: Float[Tensor, "B C H W"]) -> Float[Tensor, " B"]:
    return (a * b).flatten(1).sum(dim=1)
