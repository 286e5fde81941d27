"""Where a model's energy puts its own samples, compared with the test images.

Legend: N examples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jembench.errors import Diverged
from jembench.interfaces import Evaluation, Measurement, Resampling
from jembench.metrics.densities import EnergyGap
from jembench.metrics.estimates import Arrays, Estimate, values_of
from jembench.metrics.protocol import protocol_id
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


def compute(metric: EnergyGap, evaluation: Evaluation) -> Measurement:
    """Measure the test images and the kept samples."""
    samples = evaluation.samples()
    of_data, of_samples = (
        evaluation.predictions.read("energy").cpu(),
        evaluation.predictions.read("energy", samples.images),
    )
    in_order = {
        "energy-data": _sorted_finite(of_data, "test images"),
        "energy-samples": _sorted_finite(of_samples, "samples"),
    }
    return Measurement(
        protocol=protocol_id(
            metric.name,
            evaluation,
            split="test",
            images=len(of_data),
            samples=len(of_samples),
            source=samples.source,
            data_noise=0,
        ),
        values=values_of(estimates(metric, in_order), evaluation, metric.name, metric.resamples),
        arrays={"energy-data": of_data.numpy(), "energy-samples": of_samples.numpy()},
        details={name: float(energies.mean()) for name, energies in in_order.items()},
    )


def estimates(metric: EnergyGap, arrays: Arrays) -> dict[str, Estimate]:
    """The gap, of test images and samples."""
    data, drawn = (arrays[name].astype(np.float64) for name in ("energy-data", "energy-samples"))
    mean_data, mean_drawn = mean_of(data), mean_of(drawn)
    gap = Resampling(lambda i, j: mean_data(i) - mean_drawn(j), (len(data), len(drawn)))
    return {metric.name: Estimate(gap, "nats")}
