"""How many bits a normalised density spends on a pixel.

Legend: N test images, D dimensions.
"""

from __future__ import annotations

import numpy as np

from jembench.data.dequantisation import bits_per_dim
from jembench.errors import Diverged
from jembench.interfaces import Evaluation, Measurement
from jembench.metrics.densities import BitsPerDim
from jembench.metrics.estimates import Arrays, Estimate, mean, values_of
from jembench.metrics.protocol import protocol_id


def compute(metric: BitsPerDim, evaluation: Evaluation) -> Measurement:
    """Measure the test images.

    Raises:
        Diverged: if the density of an image is not finite.
    """
    log_prob = -evaluation.predictions.read("energy").double()  # of a normalised density, the energy is -log p(x)
    bad = int((~log_prob.isfinite()).sum())
    if bad:
        raise Diverged(
            f"log p(x) of {bad} of {len(log_prob)} test images is not finite (NaN or infinite): the model has "
            "diverged. Train it again with another seed or a lower learning rate."
        )
    arrays = {metric.name: bits_per_dim(log_prob, evaluation.data.spec).cpu().numpy()}
    in_order = {metric.name: np.sort(arrays[metric.name])}  # then no resample depends on the order of the images
    return Measurement(
        protocol=protocol_id(
            metric.name, evaluation, split="test", images=len(log_prob), at="cell-middle", data_noise=0
        ),
        values=values_of(estimates(metric, in_order), evaluation, metric.name, metric.resamples),
        arrays=arrays,
    )


def estimates(metric: BitsPerDim, arrays: Arrays) -> dict[str, Estimate]:
    """The mean over test images."""
    return {metric.name: mean(arrays[metric.name].astype(np.float64), "bits", "lower")}
