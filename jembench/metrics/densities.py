"""Energies and densities of test images and samples: bits per dimension, the energy gap, and the extremes of log p(x).

Legend: N test images, K classes, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jembench.catalog.spec import Scalar
from jembench.interfaces import Classifier, Evaluation, Measurement, Need, Planned, Quantity, Resampling, Source, Split
from jembench.metrics.base import Array, Arrays, Estimate, Metric, describe_test_images, mean, share
from jembench.metrics.classification import classified, require_finite
from jembench.metrics.sample_protocol import SamplerSpec

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.stats.intervals import Indices

END = 100
"""The number of images at either end, at most a quarter of all."""


@dataclass(frozen=True, kw_only=True)
class BitsPerDim(Metric):
    """Bits per dimension of the test images under a normalised density; a uniform density has 8.

    The density is taken at the middle of each 8-bit cell. Papers report the mean over images
    with uniform noise (Theis et al., 2016, arXiv:1511.01844), which is not smaller for a log-concave density; the
    protocol says ``at=cell-middle``.
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

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the mean over test images."""
        return {self.name: mean(arrays[self.name].astype("float64"), "bits", "lower")}


@dataclass(frozen=True, kw_only=True)
class EnergyGap(Metric):
    """Mean energy of the test images minus that of the model's samples, in nats; near 0 is good.

    Below 0 the samples are less likely than the data. The unknown constant of E cancels in the gap, but not in
    the two means, which are in the details. ``sampler``: as for ``is``.
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
        arrays = {"energy-data": energies(evaluation), "energy-samples": energies(evaluation, samples.images)}
        parts = describe_test_images(len(arrays["energy-data"]))
        parts |= {"samples": len(samples.images), "source": samples.source}
        means = {name: float(array.mean(dtype="float64")) for name, array in arrays.items()}
        return self.measurement(evaluation, arrays, parts=parts, details=means)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the gap, of test images and samples."""
        data, drawn = (arrays[name].astype("float64") for name in ("energy-data", "energy-samples"))
        gap = Resampling(lambda i, j: data[i].mean(axis=1) - drawn[j].mean(axis=1), (len(data), len(drawn)))
        return {self.name: Estimate(gap, "nats")}


@dataclass(frozen=True, kw_only=True)
class LogDensity(Metric):
    """Log p(x) of the test images, in nats: its spread, and the classes at its extremes.

    The two ends are the 100 images of the highest and of the lowest log p(x), or a quarter of the images each if that
    is fewer. ``classes-top`` is the effective number of classes, by label, at the upper end; ``accuracy-top`` and
    ``accuracy-bottom`` the share of images classified correctly at each end, in %; ``auroc-correct`` the AUROC of
    log p(x) for images that are classified correctly (the positive class) against the others. Values that need
    logits or labels are left out where there are none.
    """

    name: ClassVar[str] = "log-density"
    requires: ClassVar[frozenset[Need]] = frozenset({"energy"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy", "logits"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the test images; the arrays hold the images at the ends as well."""
        test, num_classes = evaluation.data.part("test"), evaluation.data.spec.num_classes
        arrays: dict[str, Any] = {"log-px": log_px(evaluation)}
        if test.labels is not None:
            arrays["labels"] = test.labels.cpu().numpy()
        if isinstance(evaluation.model, Classifier):
            arrays |= classified(evaluation)
        arrays |= _images_at_ends(arrays, test, num_classes, evaluation)
        n = len(arrays["log-px"])
        estimates = self.estimates(arrays) | _detection(arrays)
        parts = {**describe_test_images(n), "top": size_of_end(n)}
        details: dict[str, Any] = {}
        if "accuracy-top" in estimates and "auroc-correct" not in estimates:
            details["undefined"] = {"auroc-correct": "All images are classified correctly, or none is."}
        return self.measurement(evaluation, arrays, estimates=estimates, parts=parts, details=details)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values of test images, except ``auroc-correct``; each resample has its own extremes.

        The correctly classified images, from which ``auroc-correct`` is resampled, differ between models, so that two
        models cannot be compared image by image.
        """
        log_px = arrays["log-px"]
        n = len(log_px)
        spread = Resampling(lambda drawn: log_px[drawn].std(axis=1), (n,), (0.0, float("inf")))
        estimates = {"log-px-spread": Estimate(spread, "nats")}
        if "labels" not in arrays:
            return estimates
        order, end = highest_first(log_px), size_of_end(n)
        classes = effective_classes(arrays["labels"], len(arrays["highest"]))
        estimates["classes-top"] = among_highest(classes, order, end)
        if "predicted" in arrays:
            right = share(arrays["predicted"] == arrays["labels"], "higher")
            estimates["accuracy-top"] = among_highest(right, order, end)
            estimates["accuracy-bottom"] = among_highest(right, order[::-1], end)
        return estimates


def energies(evaluation: Evaluation, images: str | Tensor = "test") -> Array:
    """Return E(x), or -log p(x) of a normalised density, of the test images or of samples: (N,), nats.

    Raises:
        Diverged: if an energy is not finite.
    """
    energy = evaluation.predictions.read("energy", images).cpu()
    require_finite(energy, "energies", "test images" if images == "test" else "samples")
    return energy.numpy()


def log_px(evaluation: Evaluation, images: str | Tensor = "test") -> Array:
    """Return log p(x) = -E(x) up to an unknown constant, in nats; errors as for :func:`energies`."""
    return -energies(evaluation, images).astype("float64")


def size_of_end(n: int) -> int:
    """Return the number of images at either end of n test images."""
    return max(1, min(END, n // 4))


def highest_first(values: Array) -> Array:
    """Return the order from the highest value to the lowest; equal values keep their order."""
    return (-values).argsort(kind="stable")


def effective_classes(classes: Array, num_classes: int) -> Estimate:
    """Return the effective number of classes, 1 to K: exp(H) of their shares among the classes (N,) of images.

    It is the Hill number of order 1. Jost (2006), Oikos 113(2), 363-375.
    """
    import numpy as np
    from scipy.special import entr

    from jembench.stats.intervals import multiplicities

    def hill_number(indices: Indices) -> Array:
        counts = multiplicities(classes[indices], num_classes)
        numbers: Array = np.exp(entr(counts / counts.sum(axis=1, keepdims=True)).sum(axis=1))
        return numbers

    return Estimate(Resampling(hill_number, (len(classes),), (1.0, float(num_classes))))


def among_highest(estimate: Estimate, order: Array, n: int) -> Estimate:
    """Return a statistic restricted to the n highest images of each resample.

    Args:
        estimate: of all N images.
        order: (N,) the images from the highest to the lowest.
        n: at most N.
    """
    import numpy as np

    rank, statistic = np.empty_like(order), estimate.resampling.statistic
    rank[order] = np.arange(len(order))

    resampling = estimate.resampling._replace(
        statistic=lambda indices: statistic(order[np.partition(rank[indices], n - 1, axis=1)[:, :n]]),
        trials=min(n, estimate.resampling.trials),
    )
    flags = None if estimate.flags is None else estimate.flags[order[:n]]
    return estimate._replace(resampling=resampling, n=n, flags=flags)


def _detection(arrays: Arrays) -> dict[str, Estimate]:
    """Return the AUROC of log p(x) for correctly classified images, if some images are correct and some are not."""
    if not {"predicted", "labels"} <= arrays.keys():
        return {}
    right = arrays["predicted"] == arrays["labels"]
    if right.all() or not right.any():
        return {}
    from sklearn.metrics import roc_auc_score  # scikit-learn takes a second to import

    from jembench.stats import ranking

    log_px = arrays["log-px"]
    resampling = ranking.auroc_resampling(log_px[right], log_px[~right])
    return {"auroc-correct": Estimate(resampling, "", "higher", value=float(roc_auc_score(right, log_px)))}


def _images_at_ends(arrays: Arrays, test: Split, num_classes: int, evaluation: Evaluation) -> Arrays:
    """Return the images at the extremes, of all and of each class, and random ones of each class."""
    from jembench.metrics.pictures import first_of_classes, in_rows, pictures, random_of_classes

    order, n = highest_first(arrays["log-px"]), size_of_end(len(arrays["log-px"]))
    grids = {"top": in_rows(order[:n]), "bottom": in_rows(order[::-1][:n])}
    if "log-odds" in arrays:
        surest = highest_first(arrays["log-odds"])
        grids |= {"top-confidence": in_rows(surest[:n]), "bottom-confidence": in_rows(surest[::-1][:n])}
    if "labels" in arrays:
        labels, generator = arrays["labels"], evaluation.services.generator("log-density images")
        grids |= {
            "highest": first_of_classes(order, labels, num_classes),
            "random": random_of_classes(labels, num_classes, generator),
            "lowest": first_of_classes(order[::-1], labels, num_classes),
        }
    return pictures(test.images, grids)
