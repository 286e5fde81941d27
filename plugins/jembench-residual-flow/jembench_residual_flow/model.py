"""A residual flow as a density, a generator and, with classes, a classifier.

    log p(x|y) = log p(z|y) + log |det dz/dx|,   log p(x) = logsumexp_y log p(x|y) - log K,
    p(y|x) = softmax_y log p(x|y): Bayes' rule under a uniform prior over the classes.

The flow's density integrates to 1 over all of R^D, so that mass outside of the bounds lowers the
density of images.

Legend: B batch, N samples, C channels, H height, W width, K classes (1 in the plain model).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import densities, dequantisation, seeds
from jembench.plugin import Diverged, SpecError
from jembench_residual_flow.flow import Flow
from jembench_residual_flow.log_det import LogDet, Truncated, Unbiased, exact, omitted

_SAMPLES_PER_PASS = 100


class ResidualFlow(nn.Module):
    """A flow with log p(x), trained by maximum likelihood on dequantised images.

    Only the first training batch initialises the actnorms. The singular vectors by which
    convolutions are bounded are part of the state, and only training changes them.

    Args:
        data: the description of the images.
        flow: maps images to latents.
        terms: the number of terms of the determinants' power series in evaluation; 0: exact
            determinants.
        probes: the number of probes that the terms are averaged over.
    """

    chains: Chains = "none"
    compiles = False  # the number of passes through the network is random

    def __init__(
        self, data: DataSpec, flow: Flow, terms: int, probes: int, components: int = 1
    ) -> None:
        super().__init__()
        self.data = data
        self.flow = flow
        self.prior = densities.ClassGaussians(flow.latent_shape, components)
        self.terms = terms
        self.probes = probes
        self.first_batch = densities.FirstBatch()

    def log_prob(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return log p(x) in nats.

        Raises:
            SpecError: for labels.
        """
        self._refuse(y)
        return self._log_prob_by_component(x, self._evaluation()).squeeze(1)

    def sample(
        self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator
    ) -> Float[Tensor, "N C H W"]:
        """Draw n images, clamped to the bounds, on the generator's device.

        Raises:
            SpecError: for labels.
            Diverged: if an image is not finite, or a block cannot be inverted.
        """
        self._refuse(y)
        k = torch.zeros(n, dtype=torch.int64, device=generator.device)
        return self.draw(k, generator)

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return mean -log p(x) of dequantised images in nats, unbiased.

        ``bits_per_dim`` is a part.
        """
        k = torch.zeros_like(batch.x[:, 0, 0, 0], dtype=torch.int64)
        return self._negative_log_likelihood(batch.x, k)

    def _negative_log_likelihood(self, x: Float[Tensor, "B C H W"], k: Int[Tensor, " B"]) -> Loss:
        x = dequantisation.dequantised(x, self.data.bounds)
        with torch.autocast(x.device.type, enabled=False):
            self.flow.update_norms()
            if self.first_batch.is_to_come:
                self.flow.fit(dequantisation.to_unit(x, self.data.bounds))
                self.first_batch.end()
        of_all = self._log_prob_by_component(x, Unbiased())
        log_prob = of_all.gather(1, k[:, None]).squeeze(1)
        nll = -log_prob.mean()
        bits = dequantisation.bits_per_dim(log_prob, self.data).mean()
        parts = {"nll": nll.detach(), "bits_per_dim": bits.detach()}
        return Loss(nll, parts)

    def _evaluation(self) -> LogDet:
        if not self.terms:
            return exact
        return Truncated(self.terms, self.probes, seeds.generator(0, "residual-flow/probes"))

    def _log_prob_by_component(
        self, x: Float[Tensor, "B C H W"], log_det: LogDet
    ) -> Float[Tensor, "B K"]:
        """Return log p(x|k) of each component from one pass, in nats."""
        # below float32 the determinant is inaccurate
        with torch.autocast(x.device.type, enabled=False):
            unit = dequantisation.to_unit(x, self.data.bounds)
            moved = self.flow(unit, log_det)
            log_det_of_all = moved.log_det + dequantisation.log_det_to_unit(self.data)
            prior = self.prior.log_prob(moved.z)
            log_prob: Tensor = prior + log_det_of_all[:, None]
        return log_prob

    @torch.no_grad()
    def draw(self, k: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """Draw an image from each component in k, clamped to the bounds.

        Raises:
            Diverged: if an image is not finite, or a block cannot be inverted.
        """
        latents = self.prior.sample(k, generator)
        infinite = (~latents.isfinite()).flatten(1)
        bad = int(infinite.any(dim=1).sum())
        if bad:
            raise Diverged(
                f"{bad} of {len(k)} samples of residual-flow are not finite: the model has "
                "diverged. Train it again with another seed or a lower learning rate."
            )
        parts = torch.split(latents, _SAMPLES_PER_PASS)
        x = torch.cat([self.flow.invert(z) for z in parts])
        low, high = self.data.bounds
        return dequantisation.from_unit(x, self.data.bounds).clamp(low, high)

    def _refuse(self, y: Tensor | None) -> None:
        if y is not None:
            raise SpecError(
                "This residual flow has no classes. Train the class-conditional one: "
                "residual-flow:conditional=true."
            )


class ConditionalResidualFlow(densities.ByBayes, ResidualFlow):
    """A flow with log p(x|y) and a prior for each class.

    It is trained by maximum likelihood on labelled images.
    """

    def __init__(self, data: DataSpec, flow: Flow, terms: int, probes: int) -> None:
        super().__init__(data, flow, terms, probes, data.num_classes)

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x|y) of each class without the determinants.

        All classes share the determinants, so that the softmax is p(y|x).
        """
        return self._log_prob_by_component(x, omitted)

    def log_prob_by_class(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return log p(x|y) of every class, in nats."""
        return self._log_prob_by_component(x, self._evaluation())

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return mean -log p(x|y) of dequantised images, in nats, and ``bits_per_dim``."""
        return self._negative_log_likelihood(batch.x_labelled, batch.y_labelled)
