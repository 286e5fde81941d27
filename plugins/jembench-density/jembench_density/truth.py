"""Errors of models' densities on synthetic images whose density is known.

Legend: N test images, n samples, M = 256^D cells of images of D <= 2 numbers, K modes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jembench.interfaces import (
    DataSpec,
    Evaluation,
    Measurement,
    Need,
    Planned,
    Quantity,
    Resampling,
    Value,
)
from jembench.interfaces.data import Truth
from jembench.metrics.base import Arrays
from jembench.metrics.densities import log_px
from jembench.plugin import Estimate, Metric, NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.interfaces.evaluation import Data
    from jembench.metrics.base import Array
    from jembench.stats.intervals import Indices


@dataclass(frozen=True, kw_only=True)
class DensityError(Metric):
    """Error of the density on synthetic images of known density; 0 is best.

    ``toy:rings`` is such a dataset.

    For images of one or two numbers, exp(-E) is normalised by its sum over all cells: ``kl`` is
    KL(data || model) in nats and ``total-variation`` the total variation distance, 0 to 1, both
    exact and so without intervals. Mass of the model outside of the cells does not count.
    ``log-px-error`` is the standard deviation over test images of the model's log p(x) minus the
    true log p(x), so that the unknown constant does not matter. ``mode-mass`` is the total
    variation distance, 0 to 1, between the probabilities of the modes and the mean of their true
    posterior over the model's samples; it is about .03 for 1,000 exact samples of 8 modes, and left
    out for models without samples.
    """

    name: ClassVar[str] = "density-error"
    requires: ClassVar[frozenset[Need]] = frozenset({"energy", "memory"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})

    def check(self, planned: Planned) -> None:
        """Check that the density of the dataset is known.

        Raises:
            NotApplicable: if the density is not known.
        """
        known(planned)

    def arrays(self, evaluation: Evaluation) -> Arrays:
        """Return log p(x) of test images and cells, and samples' true posteriors."""
        import torch

        from jembench.models.capabilities import capabilities

        truth = known(evaluation.data)
        data = evaluation.data.spec
        test = evaluation.data.part("test").images
        true_log_px = _log_joint(truth, test, data).logsumexp(1)
        arrays = {"log-px": log_px(evaluation), "true-log-px": true_log_px.numpy()}
        if data.dimensions <= 2:
            cells = all_cells(data.shape)
            log_cells = torch.from_numpy(log_px(evaluation, cells))
            arrays["log-cells"] = log_cells.log_softmax(0).numpy()
            true_cells = _log_joint(truth, cells, data).logsumexp(1)
            arrays["true-cells"] = true_cells.softmax(0).numpy()
            arrays["test"] = test.flatten(1).numpy()
        if "samples" in capabilities(evaluation.model):
            samples = evaluation.samples().images
            arrays["samples"] = samples.flatten(1).numpy()
            posteriors = _log_joint(truth, samples, data).softmax(1)
            arrays["posteriors"] = posteriors.numpy()
            shares = torch.as_tensor(truth.shares)
            arrays["shares"] = shares.double().numpy()
        return arrays

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the model; sums over all cells have no interval."""
        measured = self.measurement(evaluation, self.arrays(evaluation))
        values = {**_of_cells(measured.arrays), **measured.values}
        return dataclasses.replace(measured, values=values)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values that depend on test images or samples."""
        error = arrays["log-px"] - arrays["true-log-px"]
        size = (len(error),)
        spread = Resampling(lambda drawn: error[drawn].std(axis=1), size, (0.0, float("inf")))
        estimates = {"log-px-error": Estimate(spread, "nats", "lower")}
        if "posteriors" in arrays:
            posteriors = arrays["posteriors"]
            shares = arrays["shares"]

            def misplaced(drawn: Indices) -> Array:
                return abs(posteriors[drawn].mean(axis=1) - shares).sum(axis=1) / 2

            mass = Resampling(misplaced, (len(posteriors),), (0, 1))
            estimates["mode-mass"] = Estimate(mass, "", "lower")
        return estimates


def known(data: Data | Planned) -> Truth:
    """Return the density of a dataset.

    Raises:
        NotApplicable: if the density is not known.
    """
    if data.truth is None:
        raise NotApplicable(
            f"The density of {data.spec.name} is not known. Choose synthetic images: toy:rings, "
            "toy:checkerboard, toy:gaussians or toy:images."
        )
    return data.truth


def all_cells(shape: tuple[int, int, int]) -> Tensor:
    """Return all images of a shape with one or two numbers.

    The last number changes fastest.
    """
    import torch

    levels = torch.arange(256, dtype=torch.uint8)
    images = torch.cartesian_prod(*[levels] * math.prod(shape))
    return images.view(-1, *shape)


def _log_joint(truth: Truth, images: Tensor, data: DataSpec) -> Tensor:
    """Return the true log p(x, k), float64 (N, K), in nats."""
    from jembench.data.pixels import to_float

    x = to_float(images.cpu(), data.bounds)
    return truth.log_joint(x).double()


def _of_cells(arrays: Arrays) -> dict[str, Value]:
    """Return the sums over all cells, if there are cells."""
    import numpy as np
    from scipy.special import xlogy

    if "true-cells" not in arrays:
        return {}
    p = arrays["true-cells"]
    log_q = arrays["log-cells"]
    kl = float((xlogy(p, p) - p * log_q).sum())
    variation = abs(p - np.exp(log_q)).sum() / 2
    return {
        "kl": Value(kl, None, None, len(p), "nats", "lower"),
        "total-variation": Value(float(variation), None, None, len(p), "", "lower"),
    }
