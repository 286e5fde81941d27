"""Log Z of an energy, and with it the normalised log-likelihood of the test images.

Neal (2001), Statistics and Computing 11, 125-139: annealed importance sampling. Burda, Grosse & Salakhutdinov (2015),
arXiv:1412.8566: the reverse from samples. Grosse, Ghahramani & Adams (2015), arXiv:1511.02543: both as bounds.

Legend: B chains, N test images, R resamples, D dimensions.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from jembench.interfaces import Evaluation, Generative, Measurement, Need, Planned, Quantity, Resampling, Source
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
"""The source of direct samples that lie inside of the box."""

DRAWS = 10
"""Direct samples that are drawn for each that is needed, as some lie outside."""

Z95 = 1.96


@dataclass(frozen=True, kw_only=True)
class LogZ(Metric):
    """Log of Z, the integral of exp(-E(x)) over the box of the pixels' bounds, by annealed importance sampling.

    ``log-z-lower`` is annealed from uniform noise to the model: on average it is at most log Z. ``log-z-upper`` is
    annealed back from samples of the model: on average it is at least log Z if they are exact. Direct samples are, if
    all pixels lie inside of the box; those of chains are not, even though each chain first runs ``temperatures``
    further transitions on E, and the upper bound is then an estimate. Where the bounds differ by more than their
    errors, they have not converged; else ``log-z`` is their mean, whose interval holds those of both, and
    ``log-likelihood`` the mean of log2 p(x) of the test images per dimension, with p(x) = exp(-E(x)) / Z: minus their
    bits per dimension, of which noise has 8. For a density that is normalised over all of space, Z is the mass in the
    box.

    Each of ``chains`` chains passes ``temperatures`` temperatures, with a transition of ``leapfrog`` steps at each (1:
    MALA). Step sizes come from a pilot run, for an acceptance rate of 65 %. The details give the rates, and the number
    of images that passed forward and backward through the network. ``sampler``: as for ``is``.
    """

    chains: Annotated[int, Range(least=2, most=MOST)] = 100
    temperatures: Count = 200
    leapfrog: Count = 5
    sampler: SamplerSpec = None
    name: ClassVar[str] = "log-z"
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})

    @property
    def requires(self) -> frozenset[Need]:
        """A differentiable energy, and samples unless a sampler draws them."""
        return frozenset({"energy", "gradients"} if self.sampler else {"energy", "gradients", "samples"})

    def check(self, planned: Planned) -> None:
        """Check that the model will have samples."""
        planned.samples(Source(sampler=self.sampler))

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Anneal in both directions."""
        import numpy as np

        from jembench.parts import dequantisation

        arrays, details, source = self._anneal(evaluation)
        energy = evaluation.predictions.read("energy").double()
        for values, images in ((energy, "test images"), (arrays["forward"], "noise"), (arrays["reverse"], "samples")):
            require_finite(values, "energies", images)
        arrays["log2-px"] = -dequantisation.bits_per_dim(-energy, evaluation.data.spec)
        numbers = {name: values.cpu().numpy() for name, values in arrays.items()}
        numbers["dimensions"] = np.array(evaluation.data.spec.dimensions)
        estimates = self.estimates(numbers)
        if "log-z" not in estimates:
            low, high = float(log_mean_exp(numbers["forward"])), -float(log_mean_exp(-numbers["reverse"]))
            reason = (
                f"not converged: the bounds of log Z, {low:,.4g} and {high:,.4g} nats, differ by more than their "
                f"errors. Raise temperatures (now {self.temperatures:,})."
            )
            details["undefined"] = {"log-z": reason, "log-likelihood": reason}
        parts = describe_test_images(len(energy)) | {"source": source}
        measured = self.measurement(evaluation, numbers, estimates=estimates, parts=parts, details=details)
        if self.resamples and "log-z" in estimates:
            ends = [end for label in BOUNDS for end in measured.values[label][1:3] if end is not None]
            whole = measured.values["log-z"]._replace(low=min(ends), high=max(ends))
            measured = dataclasses.replace(measured, values={**measured.values, "log-z": whole})
        return measured

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return both bounds, and if they have converged log Z and the log-likelihood."""
        forward, reverse, log2_px = arrays["forward"], arrays["reverse"], arrays["log2-px"]
        sizes, bits = (len(forward), len(reverse)), float(arrays["dimensions"]) * math.log(2)

        def middle(drawn: Indices, drawn_reverse: Indices) -> Array:
            return (log_mean_exp(forward[drawn]) - log_mean_exp(-reverse[drawn_reverse])) / 2

        statistics = {
            "log-z-lower": Resampling(lambda drawn: log_mean_exp(forward[drawn]), sizes[:1]),
            "log-z-upper": Resampling(lambda drawn: -log_mean_exp(-reverse[drawn]), sizes[1:]),
            "log-z": Resampling(middle, sizes),
        }
        estimates = {label: Estimate(statistic, "nats") for label, statistic in statistics.items()}
        of_images = Resampling(
            lambda images, *drawn: log2_px[images].mean(axis=1) - middle(*drawn) / bits, (len(log2_px), *sizes)
        )
        estimates["log-likelihood"] = Estimate(of_images, "bits", "higher", len(log2_px))
        return estimates if converged(forward, reverse) else {label: estimates[label] for label in BOUNDS}

    def _anneal(self, evaluation: Evaluation) -> tuple[dict[str, Tensor], dict[str, Any], str]:
        """Return each chain's estimate of log Z by direction, details, and the source of the samples."""
        from jembench.models.energies import grad_energy
        from jembench.models.predictions import batched
        from jembench.sampling.starts import UniformStart
        from jembench_density.annealing import Annealing

        data, uniform = evaluation.data.spec, UniformStart(evaluation.data.spec)
        generator = evaluation.services.generator(self.name)
        energy = batched(grad_energy(evaluation.model), data)
        path = Annealing(energy, data.bounds, temperatures=self.temperatures, leapfrog=self.leapfrog)
        path.adapt(uniform.draw(PILOT_CHAINS, None, generator).to(evaluation.device), generator)
        forward, rate = path.run(uniform.draw(self.chains, None, generator).to(evaluation.device), generator)
        samples, source = self._samples(evaluation, generator)
        if source != EXACT:
            samples = path.equilibrate(samples, generator)
        reverse, rate_back = path.run(samples, generator, reverse=True)
        log_volume = data.dimensions * math.log(data.bounds[1] - data.bounds[0])
        arrays = {"forward": log_volume + forward, "reverse": log_volume - reverse}
        return arrays, {"acceptance": [rate, rate_back], "passes": path.passes}, source

    def _samples(self, evaluation: Evaluation, generator: Generator) -> tuple[Tensor, str]:
        """Return samples and their source: direct ones inside of the box if there are enough, else those of chains."""
        import torch

        from jembench.data.pixels import to_float
        from jembench.parts import seeds

        device, (low, high) = evaluation.device, evaluation.data.spec.bounds
        if isinstance(evaluation.model, Generative) and not self.sampler:
            seed = int(torch.randint(2**62, (), generator=generator))
            with torch.no_grad():
                x = evaluation.model.sample(DRAWS * self.chains, generator=seeds.seeded(seed, device))
            inside = x[((x > low) & (x < high)).flatten(1).all(dim=1)][: self.chains]
            if len(inside) == self.chains:
                return inside, EXACT
        images, _, source, _ = evaluation.samples(Source(sampler=self.sampler))
        chosen = torch.randperm(len(images), generator=generator)[: self.chains]
        return to_float(images[chosen], (low, high)).to(device), source


def log_mean_exp(values: Array) -> Array:
    """Return the log of the mean of exp along the last axis."""
    from scipy.special import logsumexp

    result: Array = logsumexp(values, axis=-1) - math.log(values.shape[-1])
    return result


def converged(forward: Array, reverse: Array) -> bool:
    """Return whether the bounds of chains' estimates (B,) differ by at most 1.96 standard errors of their difference.

    By the delta method, the standard error of a bound is that of the mean weight, relative to it.
    """
    import numpy as np

    weights = [np.exp(values - values.max()) for values in (forward, -reverse)]
    errors = [weight.std(ddof=1) / weight.mean() / math.sqrt(len(weight)) for weight in weights]
    return bool(abs(log_mean_exp(forward) + log_mean_exp(-reverse)) <= Z95 * math.hypot(*errors))
