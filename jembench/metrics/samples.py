"""Metrics of generated images: their classes, the most confident ones, and the age of their chains.

Legend: N generated images or chains, K classes, R resamples, U different ages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jembench.errors import NotApplicable
from jembench.interfaces import Density, Energy, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.base import (
    PERCENT,
    Array,
    Arrays,
    Estimate,
    Estimates,
    Metric,
    Needs,
    OptionalCount,
    Parts,
    mean,
    median,
    share,
)
from jembench.metrics.classification import classified
from jembench.metrics.densities import log_px
from jembench.metrics.log_density import (
    among_highest,
    effective_classes,
    highest_first,
    size_of_end,
)
from jembench.metrics.sample_protocol import ALL_KEPT, SampleProtocol, SamplerSpec, require_images

if TYPE_CHECKING:
    from jembench.stats.intervals import Indices, Statistic

CONFIDENT = 0.9
"""The smallest max p(y|x) of a confident sample."""

SHOWN = 64
"""The number of confident samples in a figure: eight by eight."""


@dataclass(frozen=True, kw_only=True)
class ClassSamples(Metric):
    """Random samples of each class, and the model's own classification of its samples.

    For chains on E(x, y), ``agreement`` is the share of samples that the model classifies as the
    class they were drawn for. For chains on E(x), ``classes`` is the effective number of predicted
    classes, and ``confident`` the share of samples with a max p(y|x) above .9; ``classes-densest``,
    for a model with an energy, is the effective number of classes among the 100 samples of the
    highest log p(x), or a quarter of all samples, if fewer. The labels end with the source of the
    samples: ``classes-fresh``.

    ``source=fresh`` runs new chains: ``images`` of them, of ``steps`` steps, on E(x, y) if
    ``conditional``. ``sampler``: as for ``is``.
    """

    source: Literal["kept", "fresh"] = "kept"
    steps: OptionalCount = None
    images: OptionalCount = None
    conditional: bool | None = None
    sampler: SamplerSpec = None
    name = "class-samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.samples  # checks the options

    @property
    def requires(self) -> Needs:
        """The logits, and the needs of the samples."""
        return self.samples.requires | {"logits"}

    @property
    def protocol_options(self) -> Parts:
        """No options, since they are part of the description of the samples."""
        return {}

    @property
    def samples(self) -> SampleProtocol:
        """The images that are classified."""
        return SampleProtocol(
            source=self.source,
            steps=self.steps,
            images=self.images,
            conditional=self.conditional,
            sampler=self.sampler,
        )

    def check(self, planned: Planned) -> None:
        """Check that the model will have such samples."""
        planned.samples(self.samples.wanted)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure samples; ``grid`` (K, 10) holds random samples of each class.

        A sample's class is the class that it was drawn for, or else the predicted class.
        """
        import torch

        from jembench.data.grid import first_of_classes, pictures

        images, labels, source, _ = evaluation.samples(self.samples.wanted)
        n = len(images)
        arrays: dict[str, Any] = classified(evaluation, images)
        del arrays["log-odds"]
        if labels is not None:
            arrays["labels"] = labels.cpu().numpy()
        elif isinstance(evaluation.model, (Energy, Density)):
            arrays["log-px"] = log_px(evaluation, images)

        generator = evaluation.services.generator(f"{self.name} images")
        order = torch.randperm(n, generator=generator).numpy()
        classes = arrays.get("labels", arrays["predicted"])
        rows = first_of_classes(order, classes, evaluation.data.spec.num_classes)
        arrays |= pictures(images, {"grid": rows})

        parts = self.samples.description(n, n, source)
        parts |= {"confident": CONFIDENT, "data_noise": 0}
        return self.measurement(evaluation, arrays, parts=parts, details={"source": source})

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the values of samples, labelled with their source."""
        predicted = arrays["predicted"]
        source = "fresh" if self.sampler else self.source
        if "labels" in arrays:
            return {f"agreement-{source}": share(predicted == arrays["labels"], "higher")}
        classes = effective_classes(predicted, len(arrays["grid"]))
        estimates = {"confident": share(arrays["confidence"] > CONFIDENT), "classes": classes}
        if "log-px" in arrays:
            order = highest_first(arrays["log-px"])
            densest = among_highest(classes, order, size_of_end(len(order)))
            estimates["classes-densest"] = densest._replace(n=None)
        return {f"{label}-{source}": estimate for label, estimate in estimates.items()}


@dataclass(frozen=True, kw_only=True)
class ConfidentSamples(Metric):
    """The 64 samples of the highest confidence.

    Its values are these samples' mean confidence and effective number of classes.

    The intervals are over the samples: each resample has its own 64 most confident samples.
    ``sampler``: as for ``is``.
    """

    sampler: SamplerSpec = None
    name = "confident-samples"

    @property
    def requires(self) -> Needs:
        """The logits, and the needs of the samples."""
        return self.samples.requires | {"logits"}

    @property
    def samples(self) -> SampleProtocol:
        """The images of which the most confident are shown."""
        return SampleProtocol(sampler=self.sampler)

    def check(self, planned: Planned) -> None:
        """Check that there will be enough samples."""
        self.require(planned.samples(self.samples.wanted))

    def require(self, n: int | None) -> None:
        """Check that there are at least 64 samples; None: unknown."""
        require_images(n, SHOWN, "samples", self.name, "the most confident of which it shows")

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the kept samples."""
        import numpy as np
        import torch

        samples = evaluation.samples(self.samples.wanted)
        n = len(samples.images)
        self.require(n)
        arrays = classified(evaluation, samples.images)
        shown = highest_first(arrays["log-odds"])[:SHOWN]
        classes = arrays["predicted"][shown]
        num_classes = evaluation.data.spec.num_classes
        arrays["counts"] = np.bincount(classes, minlength=num_classes)
        arrays["images"] = samples.images[torch.from_numpy(shown)].numpy()
        arrays["shown"] = shown

        parts = ALL_KEPT.description(n, n, samples.source)
        parts |= {"data_noise": 0, "shown": SHOWN}
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the values of samples."""
        order = highest_first(arrays["log-odds"])
        confidence = mean(100 * arrays["confidence"], "%", within=PERCENT)
        classes = effective_classes(arrays["predicted"], len(arrays["counts"]))
        return {
            "confidence-64": among_highest(confidence, order, SHOWN),
            "classes-64": among_highest(classes, order, SHOWN),
        }


@dataclass(frozen=True, kw_only=True)
class ChainAge(Metric):
    """Median age of the chains in the replay buffer, in steps.

    ``age-dependence`` is epsilon squared, 0 to 1: the share of the variance of the ages' ranks that
    lies between classes. The arrays hold the age and the predicted class of each chain.
    """

    name = "chain-age"
    requires = frozenset({"logits", "samples", "buffer"})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Measure the kept chains."""
        samples = evaluation.samples(ALL_KEPT.wanted)
        if samples.ages is None:
            raise NotApplicable(
                "The model keeps no chains with their ages: only a replay buffer does."
            )
        arrays = {"ages": samples.ages.cpu().numpy()}
        arrays |= classified(evaluation, samples.images)
        del arrays["log-odds"]
        n = len(samples.images)
        parts = ALL_KEPT.description(n, n, samples.source)
        parts["data_noise"] = 0
        return self.measurement(evaluation, arrays, parts=parts)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the values of chains."""
        ages = arrays["ages"]
        statistic = epsilon_squared(ages, arrays["predicted"])
        dependence = Resampling(statistic, (len(ages),), (0.0, 1.0))
        return {self.name: median(ages, "steps"), "age-dependence": Estimate(dependence)}


def variance_between(values: Array, classes: Array) -> Array:
    """Return the share of the values' variance between classes, (R,), 0 to 1.

    Values and classes are (R, N). The share of equal values is 0.
    """
    import numpy as np

    rows, num_classes = len(values), int(classes.max()) + 1
    deviations = values - values.mean(axis=1, keepdims=True)
    total = (deviations**2).sum(axis=1)

    # a cell is a class of a resample
    cells = (classes + num_classes * np.arange(rows)[:, None]).ravel()
    sums = np.bincount(cells, deviations.ravel(), rows * num_classes)
    members = np.bincount(cells, None, rows * num_classes)
    squares = sums**2 / np.maximum(members, 1)
    between = squares.reshape(rows, num_classes).sum(axis=1)
    shares: Array = np.divide(between, total, out=np.zeros(rows), where=total > 0)
    return shares


def epsilon_squared(ages: Array, classes: Array) -> Statistic:
    """Return the share of the variance of ages' ranks between classes, 0 to 1.

    The statistic takes indices (R, N).

    It is H / (N - 1) with the H of Kruskal and Wallis, corrected for ties, and 0 if all ages are
    equal. Tomczak & Tomczak (2014), Trends in Sport Sciences 1(21), 19-25.
    """
    import numpy as np

    from jembench.stats.intervals import multiplicities

    different, place = np.unique(ages, return_inverse=True)

    def statistic(indices: Indices) -> Array:
        drawn = place[indices]
        counts = multiplicities(drawn, len(different))
        ranks = counts.cumsum(axis=1) - (counts - 1) / 2  # mean rank of equal ages: (R, U)
        of_chains = np.take_along_axis(ranks, drawn, axis=1)
        return variance_between(of_chains, classes[indices])

    return statistic
