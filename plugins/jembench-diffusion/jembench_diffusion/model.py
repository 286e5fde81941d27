"""Diffusion models as classifiers, densities and generators.

    x_t = alpha_t x + sigma_t eps, alpha_t^2 + sigma_t^2 = 1, gamma_t = log(sigma_t^2 / alpha_t^2),
    t = 0 .. T-1, e_t(y) = |eps - eps_theta(x_t, t, y)|^2

The variational bound of Ho et al. (2020), arXiv:2006.11239, with the variances of the posterior
q(x_s|x_t, x) and a Gaussian decoder of standard deviation sigma_0 / alpha_0 is

    log p(x|y) >= - D/2 log(2 pi sigma_0^2 / alpha_0^2) - E[e_0] / 2 - sum_{t>0} expm1(gamma_t -
    gamma_{t-1}) E[e_t] / 2
                  - KL(N(alpha_{T-1} x, sigma_{T-1}^2) | N(0, 1)).

Legend: B batch, N samples, C channels, H height, W width, D dimensions, K classes, T timesteps, M
    evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.parts import densities, seeds

_SAMPLES_PER_PASS = 100


def log_noise_to_signal(schedule: str, timesteps: int) -> Float[Tensor, " T"]:
    """Return gamma of a schedule, float64.

    ``linear`` has the betas of Ho et al. (2020), 1e-4 to .02 at 1,000 timesteps, else times 1,000 /
    T; ``cosine`` is the schedule of Nichol & Dhariwal (2021), arXiv:2102.09672, equation 17;
    ``log-snr`` goes from -7 to 6 in equal steps.
    """
    if schedule == "log-snr":
        return torch.linspace(-7, 6, timesteps, dtype=torch.float64)
    if schedule == "linear":
        betas = torch.linspace(1e-4, 0.02, timesteps, dtype=torch.float64)
        betas = betas * (1000 / timesteps)
    else:
        places = torch.linspace(0, 1, timesteps + 1, dtype=torch.float64)
        angles = (places + 0.008) / 1.008 * (math.pi / 2)
        squared = angles.cos().square()
        betas = 1 - squared[1:] / squared[:-1]
    signal = (1 - betas.clamp(max=0.999)).cumprod(0)
    return ((1 - signal) / signal).log()


class DiffusionClassifier(nn.Module):
    """A network that predicts noise, trained on its mean squared error.

    Its logits are -mean_t e_t(y).

    Li et al. (2023), arXiv:2303.16203. The M pairs of t and eps are the same for all classes and
    images, with t drawn from M equal parts of 0 .. T-1, so that logits are deterministic.

    Args:
        data: the description of the images.
        net: (x_t, t, y) -> eps: (B, C, H, W), int64 (B,) in 0 .. T-1, int64 (B,) -> (B, C, H, W),
            or to an object whose ``sample`` is eps, as networks of diffusers return.
        timesteps: T.
        schedule: see :func:`log_noise_to_signal`.
        evaluations: M.
        sampling_steps: the number of steps per sample.
        eta: 0 for DDIM (Song et al., 2021, arXiv:2010.02502), 1 for ancestral sampling.
    """

    chains: Chains = "none"
    alpha: Tensor
    sigma: Tensor
    weight: Tensor

    def __init__(
        self,
        data: DataSpec,
        net: nn.Module,
        timesteps: int,
        schedule: str,
        evaluations: int,
        sampling_steps: int,
        eta: float,
    ) -> None:
        super().__init__()
        self.data = data
        self.net = net
        self.timesteps = timesteps
        self.evaluations = evaluations
        self.sampling_steps = sampling_steps
        self.eta = eta
        gamma = log_noise_to_signal(schedule, timesteps)
        first = torch.full((1,), 0.5, dtype=gamma.dtype)
        weight = torch.cat([first, gamma.diff().expm1() / 2])
        alpha = gamma.neg().sigmoid().sqrt()
        sigma = gamma.sigmoid().sqrt()
        for name, values in (("alpha", alpha), ("sigma", sigma), ("weight", weight)):
            self.register_buffer(name, values.float(), persistent=False)

    def predict(self, x: Tensor, t: Int[Tensor, " B"], y: Int[Tensor, " B"]) -> Tensor:
        """Return the predicted noise (B, C, H, W)."""
        output = self.net(x, t, y)
        noise: Tensor = getattr(output, "sample", output)
        return noise

    def noised(self, x: Tensor, t: Int[Tensor, " B"], noise: Tensor) -> Tensor:
        """Return x_t."""
        alpha = self.alpha[t][:, None, None, None]
        sigma = self.sigma[t][:, None, None, None]
        return alpha * x + sigma * noise

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return the mean squared error of the predicted noise at random t.

        Ho et al. (2020), equation 14.
        """
        x, y = batch.x_labelled, batch.y_labelled
        size = (len(x),)
        t = torch.randint(self.timesteps, size, device=x.device)
        noise = torch.randn_like(x)
        predicted = self.predict(self.noised(x, t, noise), t, y)
        error = (predicted - noise).square().mean()
        return Loss(error, {"error": error.detach()})

    def errors(self, x: Float[Tensor, "B C H W"]) -> Iterator[tuple[int, Float[Tensor, "B K"]]]:
        """Yield t and e_t of every class, M times."""
        generator = seeds.generator(0, "diffusion/evaluations")
        offsets = torch.rand(self.evaluations, generator=generator, device="cpu")
        classes = self.data.num_classes
        y = torch.arange(classes, device=x.device).repeat(len(x))
        for part, offset in enumerate(offsets.tolist()):
            # one time in each of M equal parts
            place = int((part + offset) * self.timesteps / self.evaluations)
            place = min(place, self.timesteps - 1)
            noise = torch.randn(self.data.shape, generator=generator, device="cpu").to(x)
            t = torch.full((len(x),), place, device=x.device)
            noisy = self.noised(x, t, noise).repeat_interleave(classes, dim=0)
            predicted = self.predict(noisy, t.repeat_interleave(classes), y)
            squared = (predicted - noise).flatten(1).square()
            yield place, squared.sum(dim=1).view(len(x), -1)

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return minus the mean squared error of every class."""
        total = sum(error for _, error in self.errors(x))
        logits: Tensor = -total / self.evaluations
        return logits

    def sample(
        self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator
    ) -> Float[Tensor, "N C H W"]:
        """Draw n images of the classes y, or of random classes."""
        if y is None:
            size = (n,)
            classes = self.data.num_classes
            y = torch.randint(classes, size, generator=generator, device=generator.device)
        return self.draw(y, generator)

    @torch.no_grad()
    def draw(self, y: Int[Tensor, " N"], generator: Generator) -> Float[Tensor, "N C H W"]:
        """Draw an image of each of the classes y, within the bounds."""
        passes = y.split(_SAMPLES_PER_PASS)
        return torch.cat([self._denoised(part, generator) for part in passes])

    def _denoised(self, y: Tensor, generator: Generator) -> Tensor:
        """Return images of the classes y, with x_0 clamped to the bounds.

        Song et al. (2021), equation 12.
        """
        shape = (len(y), *self.data.shape)
        device = generator.device
        x = torch.randn(shape, generator=generator, device=device)
        low, high = self.data.bounds
        last = self.timesteps - 1
        times = torch.linspace(last, 0, self.sampling_steps).round().long().tolist()
        pairs = zip(times, [*times[1:], None], strict=True)
        for t, s in pairs:
            at = torch.full((len(y),), t, device=device)
            noise = self.predict(x, at, y)
            clean = ((x - self.sigma[t] * noise) / self.alpha[t]).clamp(low, high)
            if s is None:
                return clean
            noise = (x - self.alpha[t] * clean) / self.sigma[t]
            ratio = (self.alpha[t] / self.alpha[s]).square()
            smaller = (self.sigma[s] / self.sigma[t]).square()
            variance = self.eta**2 * smaller * (1 - ratio)
            fresh = torch.randn(shape, generator=generator, device=device)
            kept = (self.sigma[s].square() - variance).sqrt()
            x = self.alpha[s] * clean + kept * noise + variance.sqrt() * fresh
        raise AssertionError("there is a last step")


class DiffusionDensity(densities.ByBayes, DiffusionClassifier):
    """A diffusion model whose log p(x|y) is the variational bound.

    M pairs of t and eps estimate the bound, without bias over the pairs; for one image, an estimate
    by few pairs may exceed the bound.
    """

    log_prob_is_bound = True

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return the bound of log p(x|y) of every class, in nats."""
        scale = self.timesteps / self.evaluations
        error = torch.zeros((), device=x.device)
        for t, error_at in self.errors(x):
            error = error + scale * self.weight[t] * error_at
        alpha = self.alpha[-1]
        sigma = self.sigma[-1]
        squared = sigma.square() + (alpha * x).square()
        to_prior = (squared - 1 - 2 * sigma.log()).flatten(1).sum(dim=1) / 2
        log_width = (self.sigma[0] / self.alpha[0]).log()
        decoder = self.data.dimensions * (math.log(2 * math.pi) / 2 + log_width)
        return -(error + to_prior[:, None] + decoder)
