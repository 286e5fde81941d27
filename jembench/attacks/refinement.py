"""Models that add noise to an image, or move it by steps of their own chain, before they classify it: JEM-k.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G; noise alone is randomised smoothing, Cohen et al.
(2019), arXiv:1902.02918.

Legend: B images, N chains of each, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from jembench.attacks.gradient import gradient_of, settled
from jembench.interfaces import ChainState, Classifier, Sampler
from jembench.models.predictions import energy

Way = Literal["through", "bpda"]
"""How the gradient gets past the chain."""


class Refined(nn.Module):
    """Logits are the mean over chains, each started at the image, of log p(y|x) at its end; without steps, of copies.

    ``through`` differentiates through the chain, which takes second derivatives of the energy; no more than one step's
    graph is held at a time, whatever their number. ``bpda`` passes the gradient at the end of a chain straight on to
    the image, as if the chain were the identity (Athalye et al., 2018, arXiv:1802.00420), which is what the authors'
    code does.

    The network is in evaluation mode and gets no gradient of its own; afterwards it is as it was.

    Args:
        model: with logits, and an energy or a density.
        sampler: of its chains, on E(x). Its memory is not touched. None: there are no steps.
        steps: of each chain; the paper's JEM-1 and JEM-10.
        chains: of each image, N; their mean is the expectation over transformation of Appendix G.
        grad: how the gradient gets past the chain.
        generator: of all noise, on the images' device.
        noise: standard deviation of Gaussian noise on each copy before its chain, in the model's units.
        smooth: whether logits are the log of the mean of p(y|x), which is the soft smoothed classifier of Salman et al.
            (2019), arXiv:1906.04584, in place of the mean of its log.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: Sampler | None,
        *,
        steps: int,
        chains: int,
        grad: Way,
        generator: Generator,
        noise: float = 0.0,
        smooth: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.sampler = sampler
        self.steps = steps
        self.copies = chains
        self.grad = grad
        self.generator = generator
        self.noise = noise
        self.smooth = smooth

    @property
    def passes(self) -> int:
        """Network passes for the logits of one image."""
        return self.copies * (self.steps + 1)

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return the mean over chains of log p(y|x) at their ends, or the log of that of p(y|x), with new noise."""
        with settled(self.model, x.device):
            copies = x.repeat_interleave(self.copies, dim=0)
            if self.noise:
                drawn = torch.randn(copies.shape, generator=self.generator, device=x.device, dtype=x.dtype)
                copies = copies + self.noise * drawn
            answers = cast(Classifier, self.model).logits(self._refine(copies)).log_softmax(dim=1)
        answers = answers.view(len(x), self.copies, answers.shape[1])
        return answers.logsumexp(dim=1) - math.log(self.copies) if self.smooth else answers.mean(dim=1)

    def _refine(self, x: Tensor) -> Tensor:
        if self.grad == "through":
            for taken in range(self.steps):
                x = _Step.apply(x, self, taken)
            return x
        moved = x.detach()
        for taken in range(self.steps):
            moved = self.step(moved, taken, self.generator)
        return moved + (x - x.detach())  # exactly the chain's end, with the gradient of x

    def step(
        self, x: Float[Tensor, "B C H W"], taken: int, generator: Generator, *, differentiable: bool = False
    ) -> Float[Tensor, "B C H W"]:
        """Make one step of chains that have taken ``taken`` steps; differentiable with respect to x on request."""

        def total(at: Tensor) -> tuple[Tensor, Tensor]:
            energies = energy(self.model, at)
            return energies.sum(), energies

        def gradient(at: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
            if not differentiable:
                slope, energies = gradient_of(total, at)
                return energies, slope
            summed, energies = total(at)
            (slope,) = torch.autograd.grad(summed, at, create_graph=True)
            return energies, slope

        assert self.sampler is not None
        return self.sampler.step(ChainState(x, steps=taken), gradient, generator)[0].x


class _Step(torch.autograd.Function):
    """One step of the chain, whose graph is made in the backward pass and freed at once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, refined: Refined, taken: int) -> Tensor:
        ctx.refined, ctx.taken = refined, taken
        ctx.noise = refined.generator.clone_state()  # for the same noise in the backward pass
        ctx.save_for_backward(x)
        return refined.step(x, taken, refined.generator)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        with settled(ctx.refined.model, x.device), torch.enable_grad():
            x = x.detach().requires_grad_()
            moved = ctx.refined.step(x, ctx.taken, ctx.noise.clone_state(), differentiable=True)
            (towards,) = torch.autograd.grad(moved, x, grads[0])
        return towards, None, None
