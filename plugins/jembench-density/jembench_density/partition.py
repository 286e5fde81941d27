"""Log Z of an energy, and the normalised log-likelihood of test images.

Neal (2001), Statistics and Computing 11, 125-139: annealed importance sampling. Burda, Grosse &
Salakhutdinov (2015), arXiv:1412.8566: annealing in reverse from samples. Grosse, Ghahramani & Adams
(2015), arXiv:1511.02543: both directions as bounds.

Legend: B chains, N test images, R resamples, D dimensions.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from jembench.interfaces import (
    Evaluation,
    Generative,
    Measurement,
    Need,
    Planned,
    Quantity,
    Resampling,
    Source,
    Value,
)
from jembench.metrics.base import MOST, Array, Arrays, Count, describe_test_images
from jembench.metrics.classification import require_finite
from jembench.metrics.sample_protocol import SamplerSpec
from jembench.plugin import Estimate, Metric, Range

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from jembench.stats.intervals import Indices

BOUNDS = ("log-z-lower", "log-z-upper")
PILOT_CHAINS = 20

EXACT = "exact"
"""The name of this source: a density's direct samples that lie inside of the box."""

DRAWS = 10
"""Direct samples drawn per sample needed, since some lie outside of the box."""

Z95 = 1.96


@dataclass(frozen=True, kw_only=True)
class LogZ(Metric):
    """Log Z, the integral of exp(-E(x)) over the box of the pixels' bounds.

    It is estimated by annealed importance sampling.

    ``log-z-lower`` is annealed from uniform noise to the model: on average it is at most log Z.
    ``log-z-upper`` is annealed back from samples of the model: on average it is at least log Z if
    they are exact. Both bounds hold in expectation only: estimates by few chains may violate them
    by chance. Direct samples of a model with a density (``log_prob``) are exact, if all pixels lie
    inside of the box. Otherwise half of the chains start at samples and half at test images, each
    runs ``temperatures`` transitions on E first, and the upper bound is an estimate: a mode that no
    chain reaches is missing in both bounds.

    ``log-z-ess`` is the smaller effective sample size of the two directions, out of ``chains``.
    Where this size is below ``effective``, or the bounds differ by more than their errors, the
    bounds have not converged. Else ``log-z`` is their mean, whose interval covers both bounds'
    intervals, and ``log-likelihood`` is the test images' mean of log2 p(x) per dimension, p(x) =
    exp(-E(x)) / Z: minus the bits per dimension, of which noise has 8. For a density that is
    normalised over all of space, Z is the mass in the box.

    Each of ``chains`` chains passes ``temperatures`` temperatures, with a transition of
    ``leapfrog`` steps at each (1: MALA). Step sizes come from a pilot run, for an acceptance rate
    of 65 %. The details give the rates, and the number of images that passed forward and backward
    through the network. ``sampler``: as for ``is``.
    """

    chains: Annotated[int, Range(least=2, most=MOST)] = 100
    temperatures: Count = 200
    leapfrog: Count = 5
    effective: Count = 20
    sampler: SamplerSpec = None
    name: ClassVar[str] = "log-z"
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})

    @property
    def requires(self) -> frozenset[Need]:
        """A differentiable energy, and samples unless a sampler draws them."""
        if self.sampler:
            return frozenset({"energy", "gradients"})
        return frozenset({"energy", "gradients", "samples"})

    def check(self, planned: Planned) -> None:
        """Check that the model will have samples."""
        planned.samples(Source(sampler=self.sampler))

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Anneal in both directions."""
        import numpy as np

        from jembench.parts import dequantisation

        arrays, details, source = self._anneal(evaluation)
        energy = evaluation.predictions.read("energy").double()
        readings = {
            "test images": energy,
            "noise": arrays["forward"],
            "samples": arrays["reverse"],
        }
        for images, values in readings.items():
            require_finite(values, "energies", images)
        arrays["log2-px"] = -dequantisation.bits_per_dim(-energy, evaluation.data.spec)
        numbers = {name: values.cpu().numpy() for name, values in arrays.items()}
        numbers["dimensions"] = np.array(evaluation.data.spec.dimensions)
        estimates = self.estimates(numbers)
        reason = not_converged(numbers["forward"], numbers["reverse"], self.effective)
        if reason:
            remedy = f"{reason} Raise temperatures (now {self.temperatures:,})."
            details["undefined"] = {"log-z": remedy, "log-likelihood": remedy}
        parts = describe_test_images(len(energy)) | {"source": source}
        described: dict[str, Any] = {"estimates": estimates, "parts": parts, "details": details}
        measured = self.measurement(evaluation, numbers, **described)
        return dataclasses.replace(measured, values=self._with_ess(measured))

    def _with_ess(self, measured: Measurement) -> dict[str, Value]:
        """Add the effective sample size and the interval of log Z."""
        values = dict(measured.values)
        bounds = [values.pop(label) for label in BOUNDS]
        sizes = effective_sizes(measured.arrays["forward"], measured.arrays["reverse"])
        ess = Value(min(sizes), None, None, self.chains, "", "higher")
        if self.resamples and "log-z" in values:
            ends = []
            for bound in bounds:
                ends += [end for end in (bound.low, bound.high) if end is not None]
            log_z = values["log-z"]
            values["log-z"] = log_z._replace(low=min(ends), high=max(ends))
        first = dict(zip(BOUNDS, bounds, strict=True))
        return first | {"log-z-ess": ess} | values

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return both bounds, and log Z and log-likelihood if they converged."""
        forward = arrays["forward"]
        reverse = arrays["reverse"]
        log2_px = arrays["log2-px"]
        sizes = (len(forward), len(reverse))
        bits = float(arrays["dimensions"]) * math.log(2)

        def lower(drawn: Indices) -> Array:
            return log_mean_exp(forward[drawn])

        def upper(drawn: Indices) -> Array:
            return -log_mean_exp(-reverse[drawn])

        def middle(drawn: Indices, drawn_reverse: Indices) -> Array:
            return (lower(drawn) + upper(drawn_reverse)) / 2

        def log_likelihood(images: Indices, *drawn: Indices) -> Array:
            return log2_px[images].mean(axis=1) - middle(*drawn) / bits

        estimates = {
            "log-z-lower": Estimate(Resampling(lower, sizes[:1]), "nats"),
            "log-z-upper": Estimate(Resampling(upper, sizes[1:]), "nats"),
            "log-z": Estimate(Resampling(middle, sizes), "nats"),
        }
        of_images = Resampling(log_likelihood, (len(log2_px), *sizes))
        estimates["log-likelihood"] = Estimate(of_images, "bits", "higher", len(log2_px))
        if not_converged(forward, reverse, self.effective):
            return {label: estimates[label] for label in BOUNDS}
        return estimates

    def _anneal(self, evaluation: Evaluation) -> tuple[dict[str, Tensor], dict[str, Any], str]:
        """Estimate log Z by each chain of both directions.

        Returns the estimates by direction, details, and the source of the samples.
        """
        from jembench.models.energies import grad_energy
        from jembench.models.predictions import batched
        from jembench.sampling.starts import UniformStart
        from jembench_density.annealing import Annealing

        data = evaluation.data.spec
        uniform = UniformStart(data)
        device = evaluation.device
        generator = evaluation.services.generator(self.name)
        energy = batched(grad_energy(evaluation.model), data)
        low, high = data.bounds
        lengths = {"temperatures": self.temperatures, "leapfrog": self.leapfrog}
        path = Annealing(energy, data.bounds, **lengths)
        # a pilot run sets the steps
        pilot = uniform.draw(PILOT_CHAINS, None, generator).to(device)
        path.adapt(pilot, generator)
        # forward from uniform images, in reverse from samples
        noise = uniform.draw(self.chains, None, generator).to(device)
        forward, rate = path.run(noise, generator)
        samples, source = self._samples(evaluation, generator)
        if source != EXACT:
            samples = path.equilibrate(samples, generator)
        reverse, rate_back = path.run(samples, generator, reverse=True)
        log_volume = data.dimensions * math.log(high - low)
        arrays = {"forward": log_volume + forward, "reverse": log_volume - reverse}
        details = {"acceptance": [rate, rate_back], "passes": path.passes}
        return arrays, details, source

    def _samples(self, evaluation: Evaluation, generator: Generator) -> tuple[Tensor, str]:
        """Return starts of reverse annealing (B, C, H, W) and their source.

        Starts are a density's direct samples inside of the box if there are enough. Else half are
        the model's samples, and half are test images, whose modes chains from noise may all have
        missed.
        """
        import torch

        from jembench.data.pixels import to_float
        from jembench.models.capabilities import capabilities
        from jembench.parts import seeds

        device = evaluation.device
        low, high = evaluation.data.spec.bounds
        has_density = "log_prob" in capabilities(evaluation.model)
        if has_density and isinstance(evaluation.model, Generative) and not self.sampler:
            seed = int(torch.randint(2**62, (), generator=generator))
            on_device = seeds.seeded(seed, device)
            with torch.no_grad():
                x = evaluation.model.sample(DRAWS * self.chains, generator=on_device)
            is_inside = (x > low) & (x < high)
            inside = x[is_inside.flatten(1).all(dim=1)][: self.chains]
            if len(inside) == self.chains:
                return inside, EXACT
        images, _, source, _ = evaluation.samples(Source(sampler=self.sampler))
        test = evaluation.data.part("test").images
        half = self.chains // 2
        chosen = []
        for pool, n in ((images, self.chains - half), (test, half)):
            places = torch.randint(len(pool), (n,), generator=generator)
            chosen.append(pool[places])
        starts = to_float(torch.cat(chosen), (low, high)).to(device)
        return starts, f"{source}+test-images"


def log_mean_exp(values: Array) -> Array:
    """Return the log of the mean of exp along the last axis."""
    from scipy.special import logsumexp

    total = logsumexp(values, axis=-1)
    result: Array = total - math.log(values.shape[-1])
    return result


def effective_sizes(forward: Array, reverse: Array) -> tuple[float, float]:
    """Return each direction's effective sample size, (sum w)^2 / sum w^2."""
    from scipy.special import logsumexp

    def size(log_weights: Array) -> float:
        return math.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights))

    return size(forward), size(-reverse)


def not_converged(forward: Array, reverse: Array, least: int) -> str:
    """Return why the bounds have not converged, or an empty text.

    By the delta method, the variance of a bound from B estimates is 1 / ESS - 1 / B. This is too
    small where the largest weights were not drawn, so that a least ESS is required too.
    """
    low = float(log_mean_exp(forward))
    high = -float(log_mean_exp(-reverse))
    bounds = f"not converged: the bounds of log Z, {low:,.4g} and {high:,.4g} nats,"
    sizes = effective_sizes(forward, reverse)
    if min(sizes) < least:
        written = " and ".join(f"{size:.3g}" for size in sizes)
        return f"{bounds} have effective sample sizes of {written}, below {least:,}."
    variances = [1 / size - 1 / len(forward) for size in sizes]
    if abs(low - high) > Z95 * math.sqrt(sum(variances)):
        return f"{bounds} differ by more than their errors."
    return ""
