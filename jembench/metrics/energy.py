"""Where a model's energy puts its own samples, compared with the test images.

Legend: N examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jembench.errors import Diverged
from jembench.interfaces import Capability, Evaluation, Measurement, Resampling
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.stats import mean_of


def _sorted_finite(energies: Tensor, what: str) -> NDArray[np.float64]:
    """Energies in float64, sorted: then neither means nor resamples depend on the order of the images.

    Raises:
        Diverged: if one is not finite.
    """
    bad = int((~energies.isfinite()).sum())
    if bad:
        raise Diverged(
            f"The energies of {bad} of {len(energies)} {what} are not finite (NaN or infinite): the model has "
            "diverged. Train it again with another seed or a lower learning rate."
        )
    return np.sort(energies.double().numpy())


@dataclass(frozen=True, kw_only=True, slots=True)
class EnergyGap:
    """Mean E(x) of the test images minus mean E(x) of the model's samples, in nats, with a bootstrap interval.

    Near 0 where the sampler has found what the model thinks likely and the model what the data are; below 0 where the
    samples are less likely than the data. The unknown constant of E cancels in the gap; in the
    two means, which the details give, it does not.
    """

    resamples: int = 1000
    name: ClassVar[str] = "energy-gap"
    requires: ClassVar[frozenset[Capability]] = frozenset({"energy", "samples"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def compute(self, evaluation: Evaluation) -> Measurement:
        samples = evaluation.samples()
        of_data, of_samples = evaluation.energies().cpu(), evaluation.energies_of(samples.images)
        data = _sorted_finite(of_data, "test images")
        drawn = _sorted_finite(of_samples, "samples")
        in_order = {"energy-data": data, "energy-samples": drawn}
        details = {"energy-data": float(data.mean()), "energy-samples": float(drawn.mean())}
        arrays: dict[str, NDArray[Any]] = {"energy-data": of_data.numpy(), "energy-samples": of_samples.numpy()}
        protocol = protocol_id(
            self.name,
            evaluation,
            split="test",
            images=len(data),
            samples=len(drawn),
            source=samples.source,
            data_noise=0,
        )
        rng = bootstrap_rng(evaluation, self.name)
        values = {self.name: bootstrapped(self.resamplings(in_order)[self.name], rng, self.resamples, "nats")}
        return Measurement(protocol=protocol, values=values, arrays=arrays, details=details)

    def resamplings(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, Resampling]:
        """The gap of resampled test images and samples."""
        data, drawn = (arrays[name].astype(np.float64) for name in ("energy-data", "energy-samples"))
        mean_data, mean_drawn = mean_of(data), mean_of(drawn)
        return {self.name: Resampling(lambda i, j: mean_data(i) - mean_drawn(j), (len(data), len(drawn)))}
