"""The images that a model is surest of among its own.

Legend: N generated images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from jembench.interfaces import Capability, Evaluation, Measurement, Planned, Resampling
from jembench.metrics.classified import classified
from jembench.metrics.generation import require_images
from jembench.metrics.pictures import places
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped, highest_of
from jembench.metrics.sample_protocol import ALL_KEPT
from jembench.metrics.shares import class_resampling
from jembench.stats import mean_of

Arrays = Mapping[str, NDArray[Any]]

SHOWN = 64
"""Images: a sheet of eight by eight."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfidentSamples:
    """The 64 samples of the highest max p(y|x): their mean confidence, in %, and their effective number of classes.

    The intervals are over the samples: each resample has 64 most confident ones of its own.
    """

    resamples: int = 1000
    name: ClassVar[str] = "confident-samples"
    requires: ClassVar[frozenset[Capability]] = frozenset({"logits", "samples"})

    def __post_init__(self) -> None:
        require_at_least(0, self.name, resamples=self.resamples)

    def check(self, planned: Planned) -> None:
        """Whether there will be enough samples."""
        self._require(planned.samples(ALL_KEPT.wanted))

    def _require(self, n: int | None) -> None:
        require_images(n, SHOWN, "samples", self.name, "the most confident of which it shows")

    def compute(self, evaluation: Evaluation) -> Measurement:
        samples = evaluation.samples(ALL_KEPT.wanted)
        n = len(samples.images)
        self._require(n)
        seen = classified(evaluation.read("logits", samples.images), "samples")
        order = np.lexsort((places(samples.images), seen.predicted, -seen.log_odds))
        shown = order[:SHOWN]
        arrays: dict[str, NDArray[Any]] = {
            **seen.arrays(),
            "counts": np.bincount(seen.predicted[shown], minlength=evaluation.data.num_classes),
            "images": samples.images[torch.from_numpy(shown)].numpy(),
            "shown": shown,
        }
        resamplings = self.resamplings(arrays | {name: array[order] for name, array in seen.arrays().items()})
        rng = bootstrap_rng(evaluation, self.name)
        values = {
            label: bootstrapped(resampling, rng, self.resamples, "%" if label == "confidence-64" else "", n=SHOWN)
            for label, resampling in resamplings.items()
        }
        parts = ALL_KEPT.parts(n, n, samples.source)
        return Measurement(
            protocol=protocol_id(self.name, evaluation, data_noise=0, shown=SHOWN, **parts),
            values=values,
            arrays=arrays,
        )

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of samples."""
        predicted, size = arrays["predicted"], len(arrays["predicted"])
        highest = highest_of(np.lexsort((predicted, -arrays["log-odds"])), SHOWN)
        confidence, classes = mean_of(100 * arrays["confidence"]), class_resampling(predicted, len(arrays["counts"]))
        return {
            "confidence-64": Resampling(lambda indices: confidence(highest(indices)), (size,), (0.0, 100.0)),
            "classes-64": Resampling(lambda indices: classes.statistic(highest(indices)), (size,), classes.within),
        }
