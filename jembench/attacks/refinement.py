"""Models that refine an image by noise or by their own chain: JEM-k.

Such a model adds noise to an image, or moves it by steps of a chain, and then classifies it.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G; noise without a chain is
randomised smoothing, Cohen et al. (2019), arXiv:1902.02918.

Legend: N images, C channels, H height, W width, K classes.
"""

import math
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from jembench.attacks.gradient import Images, Logits, gradient_of, settled
from jembench.interfaces import ChainState, Sampler
from jembench.models.energies import energy_function, logits_function

Way = Literal["through", "bpda"]
"""The treatment of the chain by gradients."""


class Refined(nn.Module):
    """A classifier whose logits are means over chains or noisy copies.

    It averages log p(y|x) over the ends of chains from the image, or p(y|x) over noisy copies.

    ``through`` differentiates through the chain, which takes second derivatives of the energy; the
    graph of only one step is in memory at a time. ``bpda`` passes the gradient at the end of a
    chain on to the image, as if the chain were the identity (Athalye et al., 2018,
    arXiv:1802.00420), as the authors' code does.

    The network is in evaluation mode during a call, its parameters get no gradients, and its mode
    is restored.

    Args:
        model: with logits, and an energy or a density.
        sampler: of the chains, on E(x); its buffer is not changed. None: there are no steps.
        steps: per chain: 1 in the paper's JEM-1, 10 in JEM-10.
        chains: per image; their mean is the expectation over transformation of Appendix G.
        grad: the treatment of the chain by gradients.
        generator: of all noise, on the images' device.
        noise: standard deviation of Gaussian noise on each copy before its chain, in the model's
            units.
        smooth: True for the log of the mean of p(y|x) as logits, the soft smoothed classifier of
            Salman et al. (2019), arXiv:1906.04584, instead of the mean of log p(y|x).
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

    def logits(self, x: Images) -> Logits:
        """Return the mean over chains of log p(y|x) at their ends, with new noise.

        For noisy copies it returns the log of the mean of p(y|x).
        """
        with settled(self.model, x.device):
            copies = x.repeat_interleave(self.copies, dim=0)
            if self.noise:
                drawn = torch.randn(
                    copies.shape, generator=self.generator, device=x.device, dtype=x.dtype
                )
                copies = copies + self.noise * drawn
            logits = logits_function(self.model, 0)(self._refine(copies))
            log_p = logits.log_softmax(dim=1)
        log_p = log_p.view(len(x), self.copies, log_p.shape[1])
        if self.smooth:
            return log_p.logsumexp(dim=1) - math.log(self.copies)
        return log_p.mean(dim=1)

    def _refine(self, x: Tensor) -> Tensor:
        if self.grad == "through":
            for taken in range(self.steps):
                x = _Step.apply(x, self, taken)
            return x
        moved = x.detach()
        for taken in range(self.steps):
            moved = self.step(moved, taken, self.generator)
        return moved + (x - x.detach())  # the chain's end exactly, with the gradient of x

    def step(
        self, x: Images, taken: int, generator: Generator, *, differentiable: bool = False
    ) -> Images:
        """Take one step of chains that have taken ``taken`` steps.

        With ``differentiable`` the result has a gradient with respect to x.
        """

        def total(at: Tensor) -> tuple[Tensor, Tensor]:
            energies = energy_function(self.model, of_chains=True)(at)
            return energies.sum(), energies

        def gradient(at: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
            if not differentiable:
                slope, energies = gradient_of(total, at)
                return energies, slope
            summed, energies = total(at)
            (slope,) = torch.autograd.grad(summed, at, create_graph=True)
            return energies, slope

        assert self.sampler is not None
        return self.sampler.step(ChainState(x, steps=taken), gradient, generator).x


class _Step(torch.autograd.Function):
    """A step of the chain whose graph is made in the backward pass and freed at once."""

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
