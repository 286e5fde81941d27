"""Glow as a density, a generator and, with classes, a classifier.

    log p(x|y) = log p(z|y) + log |det dz/dx|,   log p(x) = logsumexp_y log p(x|y) - log K,
    p(y|x) = softmax_y log p(x|y): Bayes' rule under a uniform prior over the classes.

The flow's density integrates to 1 over all of R^D, so that mass outside of the bounds lowers the
density of images.

Legend: B batch, N samples, C channels, H height, W width, K classes (1 in the plain model).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from normflows import MultiscaleFlow  # type: ignore[import-untyped]
from torch import Generator, Tensor, nn

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import densities, dequantisation
from jembench.plugin import Diverged, SpecError
from jembench_glow.network import fitting_actnorms

_SAMPLES_PER_PASS = 100


class Glow(nn.Module):
    """A flow with exact log p(x), trained by maximum likelihood.

    Training images are dequantised.

    Only the first training batch initialises the actnorms; evaluation does not change them.

    Args:
        data: the description of the images.
        flow: see :func:`~jembench_glow.network.multiscale_flow`.
    """

    chains: Chains = "none"

    def __init__(self, data: DataSpec, flow: MultiscaleFlow) -> None:
        super().__init__()
        self.data = data
        self.flow = flow
        self.first_batch = densities.FirstBatch()

    def log_prob(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return log p(x) in nats.

        Raises:
            SpecError: for labels.
        """
        self._refuse(y)
        return self._log_prob_by_component(x).squeeze(1)

    def sample(
        self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator
    ) -> Float[Tensor, "N C H W"]:
        """Draw n images, clamped to the bounds, on the generator's device.

        Raises:
            SpecError: for labels.
            Diverged: if an image is not finite.
        """
        self._refuse(y)
        k = torch.zeros(n, dtype=torch.int64, device=generator.device)
        return self.draw(k, generator)

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return mean -log p(x) of dequantised images, and ``bits_per_dim``."""
        return self._negative_log_likelihood(batch.x, None)

    def _negative_log_likelihood(self, x: Tensor, y: Tensor | None) -> Loss:
        x = dequantisation.dequantised(x, self.data.bounds)
        if self.first_batch.is_to_come:
            with torch.no_grad(), fitting_actnorms(self.flow):
                self._log_prob_by_component(x)
            self.first_batch.end()
        log_prob = self.log_prob(x, y)
        nll = -log_prob.mean()
        bits = dequantisation.bits_per_dim(log_prob, self.data).mean()
        return Loss(nll, {"nll": nll.detach(), "bits_per_dim": bits.detach()})

    def _log_prob_by_component(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x|k) of each component from one pass, in nats."""
        # below float32 the flow is not invertible, and its determinant is inaccurate
        with torch.autocast(x.device.type, enabled=False):
            unit = dequantisation.to_unit(x, self.data.bounds)
            latents, log_det = self.flow.inverse_and_log_det(unit)
            log_det = log_det + dequantisation.log_det_to_unit(self.data)
            pairs = zip(self.flow.q0, latents, strict=True)
            priors = sum(prior.log_prob(z) for prior, z in pairs)
            log_prob: Tensor = priors + log_det[:, None]
        return log_prob

    def draw(self, k: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """Draw an image from each component in k, clamped to the bounds.

        Raises:
            Diverged: if an image is not finite.
        """
        # all latents are drawn first, so that no image depends on the size of passes
        latents = []
        for prior in self.flow.q0:
            z = prior.sample(k, generator)
            latents.append(torch.split(z, _SAMPLES_PER_PASS))
        passes = []
        for part in zip(*latents, strict=True):
            unit, _ = self.flow.forward_and_log_det(list(part))
            passes.append(unit)
        x = dequantisation.from_unit(torch.cat(passes), self.data.bounds)
        infinite = (~x.isfinite()).flatten(1)
        bad = int(infinite.any(dim=1).sum())
        if bad:
            raise Diverged(
                f"{bad} of {len(x)} samples of glow are not finite: the model has diverged. Train "
                "it again with another seed or a lower learning rate."
            )
        low, high = self.data.bounds
        return x.clamp(low, high)

    def _refuse(self, y: Tensor | None) -> None:
        if y is not None:
            raise SpecError(
                "This glow has no classes. Train the class-conditional one: glow:conditional=true."
            )


class ConditionalGlow(densities.ByBayes, Glow):
    """A flow with exact log p(x|y) and a prior for each class.

    It is trained by maximum likelihood on labelled images.
    """

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x|y) of every class, in nats; their softmax is p(y|x)."""
        return self._log_prob_by_component(x)

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return mean -log p(x|y) of dequantised images, in nats, and ``bits_per_dim``."""
        return self._negative_log_likelihood(batch.x_labelled, batch.y_labelled)
