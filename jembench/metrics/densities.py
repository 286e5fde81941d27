"""Energies and densities of test images and samples: bits per dimension and the energy gap.

Legend: N test images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jembench.catalog.spec import Scalar
from jembench.interfaces import Evaluation, Measurement, Need, Planned, Quantity, Resampling, Source
from jembench.metrics.base import Array, Arrays, Estimate, Metric, describe_test_images, mean
from jembench.metrics.classification import require_finite
from jembench.metrics.sample_protocol import SamplerSpec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BitsPerDim(Metric):
    """Bits per dimension of the test images under a normalised density; a uniform density has 8.

    The density is taken at the middle of each 8-bit cell. Papers report the mean over images with
    uniform noise (Theis et al., 2016, arXiv:1511.01844), which is not smaller for a log-concave
    density; the protocol says ``at=cell-middle``. Of a model that bounds log p(x) the value is an
    upper bound, and the protocol says ``density=bound``.
    """

    name: ClassVar[str] = "bits-per-dim"
    requires: ClassVar[frozenset[Need]] = frozenset({"log_prob"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The point in the cell of a pixel at which the density is taken."""
        return {"at": "cell-middle"}

    def arrays(self, evaluation: Evaluation) -> Arrays:
        """Return the bits per dimension of each test image (N,)."""
        from jembench.data import dequantisation

        energy = evaluation.predictions.read("energy").double()
        require_finite(energy, "log densities", "test images")
        return {self.name: dequantisation.bits_per_dim(-energy, evaluation.data.spec).cpu().numpy()}

    def measurement(self, evaluation: Evaluation, arrays: Arrays, **others: Any) -> Measurement:
        """Return a measurement, whose protocol says whether the density is a bound."""
        bound = (
            {"density": "bound"} if getattr(evaluation.model, "log_prob_is_bound", False) else {}
        )
        parts = describe_test_images(len(arrays[self.name])) | bound
        return super().measurement(evaluation, arrays, **{"parts": parts, **others})

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the mean over test images."""
        return {self.name: mean(arrays[self.name].astype("float64"), "bits", "lower")}


@dataclass(frozen=True, kw_only=True)
class EnergyGap(Metric):
    """Mean energy of the test images minus that of the model's samples, in nats; near 0 is good.

    Below 0 the samples are less likely than the data. The unknown constant of E cancels in the gap.
    ``sampler``: as for ``is``.
    """

    sampler: SamplerSpec = None
    name: ClassVar[str] = "energy-gap"

    @property
    def requires(self) -> frozenset[Need]:
        """An energy, and samples unless a sampler draws them."""
        return frozenset({"energy"} if self.sampler else {"energy", "samples"})

    def check(self, planned: Planned) -> None:
        """Check that the model will have samples."""
        planned.samples(Source(sampler=self.sampler))

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the test images and the samples."""
        samples = evaluation.samples(Source(sampler=self.sampler))
        arrays = {
            "energy-data": energies(evaluation),
            "energy-samples": energies(evaluation, samples.images),
        }
        parts = describe_test_images(len(arrays["energy-data"]))
        parts |= {"samples": len(samples.images), "source": samples.source}
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the gap, of test images and samples."""
        data, drawn = (arrays[name].astype("float64") for name in ("energy-data", "energy-samples"))
        gap = Resampling(
            lambda i, j: data[i].mean(axis=1) - drawn[j].mean(axis=1), (len(data), len(drawn))
        )
        return {self.name: Estimate(gap, "nats")}


def energies(evaluation: Evaluation, images: str | Tensor = "test") -> Array:
    """Return E(x), or -log p(x) of a normalised density: (N,), nats.

    The images are test images or samples.

    Raises:
        Diverged: if an energy is not finite.
    """
    energy = evaluation.predictions.read("energy", images).cpu()
    require_finite(energy, "energies", "test images" if images == "test" else "samples")
    return energy.numpy()


def log_px(evaluation: Evaluation, images: str | Tensor = "test") -> Array:
    """Return log p(x) = -E(x) up to a constant, in nats; errors of :func:`energies`."""
    return -energies(evaluation, images).astype("float64")
