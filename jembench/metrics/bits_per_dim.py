"""How many bits a normalised density spends on a pixel.

Legend: N test images, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jembench.data.dequantisation import bits_per_dim
from jembench.errors import Diverged
from jembench.interfaces import Capability, Evaluation, Measurement, Quantity, Resampling
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.stats import mean_of


@dataclass(frozen=True, kw_only=True, slots=True)
class BitsPerDim:
    """Mean -log2 of the probability of the test images' cells, over D; uniform noise costs 8 bits.

    The density is taken at the middle of each 8-bit cell. Papers take its mean over the cell, of images that uniform
    noise was added to (Theis et al., 2016, arXiv:1511.01844), which is never less for a log-concave density: the
    protocol says ``at=cell-middle``.
    """

    resamples: int = 1000
    name: ClassVar[str] = "bits-per-dim"
    requires: ClassVar[frozenset[Capability]] = frozenset({"log_prob"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """In bits, with a bootstrap interval over the test images.

        Raises:
            Diverged: if the density of an image is not finite.
        """
        log_prob = -evaluation.energies().double()  # of a normalised density, the energy is -log p(x)
        bad = int((~log_prob.isfinite()).sum())
        if bad:
            raise Diverged(
                f"log p(x) of {bad} of {len(log_prob)} test images is not finite (NaN or infinite): the model has "
                "diverged. Train it again with another seed or a lower learning rate."
            )
        arrays: dict[str, NDArray[Any]] = {self.name: bits_per_dim(log_prob, evaluation.data).cpu().numpy()}
        protocol = protocol_id(
            self.name, evaluation, split="test", images=len(log_prob), at="cell-middle", data_noise=0
        )
        rng = bootstrap_rng(evaluation, self.name)
        in_order = {self.name: np.sort(arrays[self.name])}  # then no resample depends on the order of the images
        value = bootstrapped(self.resamplings(in_order)[self.name], rng, self.resamples, "bits", "lower")
        return Measurement(protocol=protocol, values={self.name: value}, arrays=arrays)

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The mean over resampled test images."""
        bits = arrays[self.name].astype(np.float64)
        return {self.name: Resampling(mean_of(bits), (len(bits),))}
