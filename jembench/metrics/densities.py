"""Energies and densities of test images and samples: bits per dimension and the energy gap.

Legend: N test images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jembench.interfaces import Evaluation, Measurement, Planned, Resampling, Source
from jembench.metrics.base import (
    Array,
    Arrays,
    Estimate,
    Estimates,
    Metric,
    Needs,
    Parts,
    describe_test_images,
    mean,
)
from jembench.metrics.classification import read_finite, require_finite
from jembench.metrics.sample_protocol import SamplerSpec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BitsPerDim(Metric):
    """Bits per dimension of the test images under a normalised density; a uniform density has 8.

    The density is taken at the middle of each 8-bit cell. Papers report the mean over images with
    uniform noise (Theis et al., 2016, arXiv:1511.01844), which is not smaller for a log-concave
    density; the protocol says ``at=cell-middle``. If the model only bounds log p(x), the value is
    an upper bound, and the protocol says ``density=bound``.
    """

    name = "bits-per-dim"
    requires = frozenset({"log_prob"})
    reads = frozenset({"energy"})

    @property
    def protocol_options(self) -> Parts:
        """The point in the cell of a pixel at which the density is taken."""
        return {"at": "cell-middle"}

    def arrays(self, evaluation: Evaluation) -> Arrays:
        """Return the bits per dimension of each test image (N,)."""
        from jembench.data import dequantisation

        energy = evaluation.predictions.read("energy").double()
        require_finite(energy, "log densities", "test images")
        bits = dequantisation.bits_per_dim(-energy, evaluation.data.spec)
        return {self.name: bits.cpu().numpy()}

    def measurement(self, evaluation: Evaluation, arrays: Arrays, **others: Any) -> Measurement:
        """Return a measurement, whose protocol says whether the density is a bound."""
        parts = describe_test_images(len(arrays[self.name]))
        if getattr(evaluation.model, "log_prob_is_bound", False):
            parts["density"] = "bound"
        return super().measurement(evaluation, arrays, **{"parts": parts, **others})

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the mean over test images."""
        bits = arrays[self.name].astype("float64")
        return {self.name: mean(bits, "bits", "lower")}


@dataclass(frozen=True, kw_only=True)
class EnergyGap(Metric):
    """Mean energy of test images minus mean energy of samples, in nats; near 0 is good.

    Below 0 the samples are less likely than the data. The unknown constant of E cancels in the gap.
    ``sampler``: as for ``is``.
    """

    sampler: SamplerSpec = None
    name = "energy-gap"

    @property
    def requires(self) -> Needs:
        """An energy, and samples unless a sampler draws them."""
        if self.sampler:
            return frozenset({"energy"})
        return frozenset({"energy", "samples"})

    def check(self, planned: Planned) -> None:
        """Check that the model will have samples."""
        planned.samples(Source(sampler=self.sampler))

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the test images and the samples."""
        samples = evaluation.samples(Source(sampler=self.sampler))
        of_data = energies(evaluation)
        of_samples = energies(evaluation, samples.images)
        parts = describe_test_images(len(of_data))
        parts |= {"samples": len(samples.images), "source": samples.source}
        arrays = {"energy-data": of_data, "energy-samples": of_samples}
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the gap, a statistic of test images and samples."""
        data = arrays["energy-data"].astype("float64")
        drawn = arrays["energy-samples"].astype("float64")

        def gap(images: Array, samples: Array) -> Any:
            return data[images].mean(axis=1) - drawn[samples].mean(axis=1)

        resampling = Resampling(gap, (len(data), len(drawn)))
        return {self.name: Estimate(resampling, "nats")}


def energies(evaluation: Evaluation, images: str | Tensor = "test") -> Array:
    """Return E(x), or -log p(x) of a normalised density: (N,), nats.

    The images are test images or samples.

    Raises:
        Diverged: if an energy is not finite.
    """
    return read_finite(evaluation, "energy", images).numpy()


def log_px(evaluation: Evaluation, images: str | Tensor = "test") -> Array:
    """Return log p(x) = -E(x) up to a constant, in nats; errors as for :func:`energies`."""
    return -energies(evaluation, images).astype("float64")
