"""A model's images by class: what they look like, drawn at random, and which classes they are of.

Legend: N generated images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jembench.interfaces import Capability, Density, Energy, Evaluation, Measurement, Planned, Resampling, Value
from jembench.metrics.classified import classified
from jembench.metrics.log_density import log_density, size_of_end
from jembench.metrics.pictures import pictures, random_of_classes
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped, highest_of
from jembench.metrics.sample_protocol import ALL_KEPT, SampleProtocol
from jembench.metrics.shares import class_resampling, share, share_resampling

Arrays = Mapping[str, NDArray[Any]]

CONFIDENT = 0.9
"""The model is sure of an image from this max p(y|x) on, exclusively."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassSamples:
    """A row of random samples for each class, and what the model itself takes its samples for.

    Of chains on E(x, y), ``agreement`` is the share of samples that the model classifies as the class they were drawn
    for. Of chains on E(x), ``classes`` is the effective number of classes among them, and ``confident`` the share of
    samples whose max p(y|x) is above .9; ``classes-densest``, of a model with an energy, is the effective number of
    classes among the 100 samples of the highest log p(x), or a quarter of them if that is fewer. The labels end with
    where the samples come from: ``classes-fresh``.

    ``grid`` (K, 10) holds, for every class, samples drawn at random among those drawn for it, or else among those that
    the model takes for it.
    """

    samples: SampleProtocol = ALL_KEPT
    resamples: int = 1000
    name: ClassVar[str] = "class-samples"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits", "samples"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def check(self, planned: Planned) -> None:
        """Whether there will be such samples."""
        planned.samples(self.samples.wanted)

    def compute(self, evaluation: Evaluation) -> Measurement:
        images, labels, source, _ = evaluation.samples(self.samples.wanted)
        seen = classified(evaluation.read("logits", images), "samples")
        arrays: dict[str, NDArray[Any]] = {"predicted": seen.predicted, "confidence": seen.confidence}
        if labels is not None:
            arrays["labels"] = labels.cpu().numpy()
        elif isinstance(evaluation.model, (Energy, Density)):
            arrays["log-px"] = log_density(evaluation.read("energy", images), "samples")
        num_classes = evaluation.data.num_classes
        rows = random_of_classes(
            images,
            arrays.get("labels", seen.predicted),
            num_classes,
            evaluation.generator(f"{self.name} images"),
        )
        arrays |= pictures(images, {"grid": rows})
        parts = self.samples.parts(len(images), len(images), source)
        return Measurement(
            protocol=protocol_id(self.name, evaluation, confident=CONFIDENT, data_noise=0, **parts),
            values=self._values(arrays, evaluation),
            arrays=arrays,
            details={"source": source, "counts": np.bincount(seen.predicted, minlength=num_classes).tolist()},
        )

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of samples."""
        found = {label: share_resampling(flags) for label, flags in self._shares(arrays).items()}
        return found if "labels" in arrays else found | self._classes(arrays, len(arrays["grid"]))

    def _classes(self, arrays: Arrays, num_classes: int) -> dict[str, Resampling]:
        """The effective numbers of classes, of all samples and of those of the highest log p(x)."""
        classes = class_resampling(arrays["predicted"], num_classes)
        found = {self._label("classes"): classes}
        if "log-px" in arrays:
            order = np.lexsort((arrays["predicted"], -arrays["log-px"]))
            densest = highest_of(order, size_of_end(len(order)))
            found[self._label("classes-densest")] = classes._replace(
                statistic=lambda indices: classes.statistic(densest(indices))
            )
        return found

    def _label(self, value: str) -> str:
        return f"{value}-{self.samples.source}"

    def _shares(self, arrays: Arrays) -> dict[str, NDArray[np.bool_]]:
        """What is true of each sample, by the label of its share."""
        if "labels" in arrays:
            return {self._label("agreement"): arrays["predicted"] == arrays["labels"]}
        return {self._label("confident"): arrays["confidence"] > CONFIDENT}

    def _values(self, arrays: Arrays, evaluation: Evaluation) -> dict[str, Value]:
        better: Any = "higher" if "labels" in arrays else ""
        values = {label: share(flags, better) for label, flags in self._shares(arrays).items()}
        if "labels" not in arrays:
            known = {name: arrays[name] for name in ("predicted", "log-px") if name in arrays}
            order = np.lexsort(tuple(known.values()))  # then the resamples do not depend on the order of the samples
            in_order = {name: array[order] for name, array in known.items()}
            rng = bootstrap_rng(evaluation, self._label(self.name))
            for label, resampling in self._classes(in_order, evaluation.data.num_classes).items():
                values[label] = bootstrapped(resampling, rng, self.resamples)
        return values
