"""VERA as a jembench model: an energy, generator and posterior, trained in turns.

Legend: B batch, N samples, K classes, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.interfaces import Batch, Chains, Energies, Loss, Negatives, Phase
from jembench.parts import LogitModel, marginal_energy
from jembench.plugin import SpecError
from jembench_vera.generator import Generator
from jembench_vera.refinement import refined

_SAMPLES_PER_PASS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The weights of the energy's loss terms, and of the entropy."""

    classification: float = 100.0
    gradient: float = 0.1
    p_control: float = 0.0
    n_control: float = 0.0
    unlabelled: float = 0.0
    entropy: float = 1e-4


class VERA(LogitModel):
    """A classifier whose energies are trained against the samples of a generator.

    Each of the three turns of an iteration draws new samples, whereas the code (wgrathwohl/VERA)
    draws once, so that its generator and posterior learn from the samples that the energy has just
    been trained against.

    Args:
        net: (B, C, H, W) -> (B, K), without batch norm.
        generator: draws the samples.
        terms: the weights of the loss's terms.
        rates: the learning rates of the phases ``generator`` and ``posterior``.
        refinement: the number of MALA steps of a sample.
    """

    chains: Chains = "none"
    compiles = False  # the gradient penalty is differentiated twice

    def __init__(
        self,
        net: nn.Module,
        generator: Generator,
        terms: Terms,
        rates: Mapping[str, float],
        refinement: int = 0,
    ) -> None:
        super().__init__(net)
        self.generator = generator
        self.terms = terms
        self.rates = rates
        self.refinement = refinement

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the loss of the energy E(x) = -logsumexp f(x).

        The generator draws the samples x_g.

        L = mean E(x) - mean E(x_g) + gradient mean |dE/dx|^2 / 2 + p_control mean E(x)^2
          + n_control mean E(x_g)^2 + classification CE(f(x_l), y_l) + unlabelled mean H(p(y|x))
        """
        terms = self.terms
        x = batch.x.detach().requires_grad_()
        logits = self.logits(x)
        data = marginal_energy(logits)
        (slope,) = torch.autograd.grad(data.sum(), x, create_graph=True)
        with torch.no_grad():
            samples, _ = self.generator.draw(len(x))
        if batch.x is batch.x_labelled:
            labelled, of_samples = logits, self.logits(samples)
        else:
            both = self.logits(torch.cat([batch.x_labelled, samples]))
            sizes = [len(batch.x_labelled), len(samples)]
            labelled, of_samples = both.split(sizes)
        energies = Energies(data, marginal_energy(of_samples))
        squared = slope.square().flatten(1).sum(1)
        parts = {
            "energy_data": energies.data.mean(),
            "energy_samples": energies.samples.mean(),
            "gradient": squared.mean() / 2,
            "cross_entropy": F.cross_entropy(labelled.float(), batch.y_labelled),
        }
        total = parts["energy_data"] - parts["energy_samples"] + terms.gradient * parts["gradient"]
        total = total + terms.classification * parts["cross_entropy"]
        total = total + terms.p_control * energies.data.square().mean()
        total = total + terms.n_control * energies.samples.square().mean()
        if terms.unlabelled:
            log_p = logits.float().log_softmax(1)
            entropy = -(log_p.exp() * log_p).sum(1)
            parts["class_entropy"] = entropy.mean()
            total = total + terms.unlabelled * parts["class_entropy"]
        detached = {name: part.detach() for name, part in parts.items()}
        return Loss(total, detached, energies)

    def phases(self) -> dict[str, Phase]:
        """Return the alternating phases: generator, posterior's width.

        The generator's turn trains the noise of its pixels too.
        """
        log_eta = self.generator.log_eta
        own = [weight for weight in self.generator.parameters() if weight is not log_eta]
        of_generator = {"learning_rate": self.rates["generator"]}
        of_posterior = {"learning_rate": self.rates["posterior"], "betas": (0.9, 0.999)}
        return {
            "generator": Phase(own, self.generator_loss, of_generator),
            "posterior": Phase([log_eta], self.posterior_loss, of_posterior),
        }

    def generator_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return mean E(x_g) - entropy H at new samples.

        The second term has the gradient of H but another value.
        """
        self.generator.clamp_sigma()
        x, z = self.generator.draw(len(batch.x))
        towards = self.generator.entropy_gradient(x, z)
        entropy = (towards * x).flatten(1).sum(1).mean()
        total = self.energy(x).mean() - self.terms.entropy * entropy
        sigma = self.generator.log_sigma.detach().exp()
        return Loss(total, {"sigma": sigma})

    def posterior_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the posterior's loss at new samples.

        Its part ``eta`` is the mean standard deviation.
        """
        with torch.no_grad():
            x, z = self.generator.draw(len(batch.x))
        loss = self.generator.posterior_loss(x, z)
        eta = self.generator.log_eta.detach().exp()
        return Loss(loss, {"eta": eta.mean()})

    def sample(
        self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: torch.Generator
    ) -> Float[Tensor, "N C H W"]:
        """Draw n mean images G(z) on the generator's device.

        With ``refinement`` images are G(z) + sigma eps, at the ends of chains on (z, eps). As in
        the code, the density of the chains is proportional to exp(-E(G(z) + sigma eps)), and the
        prior of z and eps only draws their starts.

        Raises:
            SpecError: for labels.
        """
        if y is not None:
            raise SpecError(
                "The generator of vera has no classes, so that its samples cannot be of a class."
            )
        passes = torch.arange(n).split(_SAMPLES_PER_PASS)
        return torch.cat([self._draw(len(part), generator) for part in passes])

    def _draw(self, n: int, random: torch.Generator) -> Tensor:
        size = (n, self.generator.latent)
        z = torch.randn(size, generator=random, device=random.device)
        if not self.refinement:
            return self.generator(z)

        def image(z: Tensor, eps: Tensor) -> Tensor:
            return self.generator(z) + self.generator.log_sigma.exp() * eps

        def log_density(*latents: Tensor) -> Tensor:
            return -self.energy(image(*latents))

        shape = self.generator(z).shape
        eps = torch.randn(shape, generator=random, device=random.device)
        step_size = 1 / self.generator.latent
        ends = refined(log_density, (z, eps), step_size, self.refinement, random)
        low, high = self.generator.bounds
        return image(*ends).clamp(low, high)
