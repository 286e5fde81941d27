"""Distal adversarials: noise changed into images of high confidence, and log p(x) of those images.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 6.

Legend: M ascents, N test images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from jembench.attacks.eps import UNIT
from jembench.catalog.validation import Range
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Measurement, Resampling
from jembench.metrics.attacks import Attack, Gradient
from jembench.metrics.base import Count, Estimate, median, share
from jembench.metrics.shards import Attacked, Chosen, Shard, in_shards

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.interfaces import DataSpec, Evaluation, Planned
    from jembench.metrics.base import Array, Arrays, Estimates, Needs, Parts

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Distal(Attack):
    """Noise changed into images of a class by gradient ascent.

    Its values are the share of ascents in % that reach a high confidence, and their steps.

    ``target`` is the name of a class, or ``all`` for equal numbers of each. The budget only gives
    the number of chains. Gradient ascent should reach a share of 100 %; models differ in the steps,
    in the images, and in ``distal-log-px``: the position of the ends' log p(x) on a scale from the
    noise (0 %) to the test images (100 %). A high position means that the model takes the ends for
    likely images, whatever they look like. The unknown constant and the scale of log p(x), which
    differ between models, cancel. The position is left out for a model without an energy, and if
    the noise is as likely as the test images.
    """

    target: str = ALL
    images: Count = 100
    steps: Count = 200
    threshold: Annotated[float, Range(above=0, below=1)] = 0.9
    grad: Gradient = "through"
    name = "distal"

    @property
    def requires(self) -> Needs:
        """The needs of the metric, which uses the classes of the dataset but no labels."""
        return super().requires - {"labels"}

    @property
    def protocol_options(self) -> Parts:
        """The parts of the protocol."""
        options = self.model_options
        options |= {"target": self.target, "steps": self.steps, "threshold": self.threshold}
        return options

    @property
    def passes(self) -> int:
        """The network passes of all ascents."""
        return self.images * self.steps * self.passes_each

    def check(self, planned: Planned) -> None:
        """Check that the dataset has the classes."""
        classes_of(planned.spec, self.target)

    def attack(self, evaluation: Evaluation) -> Attacked:
        """Run gradient ascents from noise, which is the same for all models."""
        from jembench.attacks.distal import ascend, confidence
        from jembench.attacks.threat import VERIFICATIONS
        from jembench.data.pixels import to_uint8

        def work(shard: Shard) -> Mapping[str, Tensor]:
            purpose = f"{self.name} {self.target} {shard.number}"
            target = self.attacked_model(evaluation, purpose)
            ends = ascend(target, shard.x, shard.y, steps=self.steps, threshold=self.threshold)

            fresh = self.attacked_model(evaluation, f"verify {purpose}")
            sure = confidence(fresh, ends.images, shard.y, VERIFICATIONS)
            reached = ends.reached & (sure > self.threshold)
            return {
                "images": to_uint8(ends.images, UNIT),
                "confidence": sure,
                "reached": reached,
                "steps": ends.steps,
                "unverified": ends.reached & ~reached,
            }

        attacked = in_shards(self, evaluation, self.noise(evaluation.data.spec), work)
        arrays = attacked.arrays
        starts, targets = arrays.pop("image"), arrays.pop("label")
        arrays |= {"noise": starts, "target": targets}
        return attacked

    def noise(self, data: DataSpec) -> Chosen:
        """Draw the starts of the ascents and the class of each ascent."""
        import torch

        from jembench import seeds

        images = []
        for number in range(self.images):
            generator = seeds.generator(0, f"robustness/noise {number}")
            images.append(torch.randint(256, data.shape, dtype=torch.uint8, generator=generator))
        index = torch.arange(self.images)
        classes = classes_of(data, self.target)
        return Chosen(index, torch.stack(images), classes[index % len(classes)])

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Run the ascents, and measure log p(x) of their ends.

        Raises:
            Diverged: if a log p(x) is not finite.
        """
        import torch

        from jembench.interfaces import Density, Energy
        from jembench.metrics.densities import log_px

        attacked = self.attack(evaluation)
        arrays = attacked.arrays
        if isinstance(evaluation.model, Energy | Density):
            ends, noise = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["noise"])
            arrays["log-px"] = log_px(evaluation, ends)
            arrays["log-px-noise"] = log_px(evaluation, noise)
            arrays["log-px-test"] = log_px(evaluation)
        test_images = len(evaluation.data.part("test").images)
        parts = {"images": attacked.images, "test_images": test_images}
        return self.measurement(evaluation, arrays, parts=parts, details=attacked.details)

    def estimates(self, arrays: Arrays) -> Estimates:
        """Return the share of successful ascents, and these ascents' steps and gain in log p(x).

        An ascent succeeds if it ends above the threshold.
        """
        reached = arrays["reached"]
        estimates = {"distal": share(reached)}
        if not reached.any():
            return estimates

        steps = arrays["steps"][reached]
        estimates["distal-steps"] = median(steps, within=(0.0, float(self.steps)))
        if "log-px" in arrays:
            noise = arrays["log-px-noise"][reached]
            if arrays["log-px-test"].mean() > noise.mean():
                estimates["distal-log-px"] = Estimate(density_gain(arrays), "%")
        return estimates


def classes_of(data: DataSpec, target: str) -> Tensor:
    """Return the numbers of the classes that ``target`` names.

    Raises:
        NotApplicable: if the dataset has no classes.
        SpecError: if there is no such class.
    """
    import torch

    if not data.num_classes:
        raise NotApplicable(
            f"The dataset {data.name} has no classes, and noise is changed into images of a class."
        )
    if target == ALL:
        return torch.arange(data.num_classes)
    names = data.class_names or tuple(map(str, range(data.num_classes)))
    if target not in names:
        raise SpecError(
            f"{data.name} has no class {target!r}; target must be {ALL} or one of "
            f"{', '.join(names)}."
        )
    return torch.tensor([names.index(target)])


def density_gain(arrays: Arrays) -> Resampling:
    """Return the share of the gap between noise and data that ascents close, in %."""
    reached, test = arrays["reached"], arrays["log-px-test"]
    ends, noise = arrays["log-px"][reached], arrays["log-px-noise"][reached]

    def gain(ascents: Array, images: Array) -> Array:
        begin = noise[ascents].mean(axis=1)
        gap = test[images].mean(axis=1) - begin
        closed: Array = 100 * (ends[ascents].mean(axis=1) - begin) / gap
        return closed

    return Resampling(gain, (len(ends), len(test)))
