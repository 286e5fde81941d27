"""Distal adversarials: noise changed into images of high confidence, and log p(x) of those images.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 6.

Legend: M ascents, N test images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from jembench.catalog.spec import Scalar
from jembench.catalog.validation import Range
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Measurement, Need, Resampling
from jembench.metrics.attacks import Attack, Attacked, Chosen, Gradient, Shard, in_shards
from jembench.metrics.base import Count, Estimate, median, share

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.interfaces import DataSpec, Evaluation, Planned
    from jembench.metrics.base import Array, Arrays

ALL = "all"
_RANGE = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Distal(Attack):
    """Noise changed into images of a class by gradient ascent.

    Its values are the share in % that reaches a high confidence, and the number of steps.

    ``target`` is a class by its name, or ``all``, in equal numbers. The budget only gives the
    number of chains. Gradient ascent should reach a share of 100 %; models differ in the steps, in
    the images, and in ``distal-log-px``: the position of the ends' log p(x) between that of the
    noise (0 %) and that of the test images (100 %). It is high if the model takes the ends for
    likely images, whatever they look like. As a relative position it does not depend on the unknown
    constant of log p(x) or its scale, which differ between models. It is left out for a model
    without an energy, and if the noise is as likely as the test images.
    """

    target: str = ALL
    images: Count = 100
    steps: Count = 200
    threshold: Annotated[float, Range(above=0, below=1)] = 0.9
    grad: Gradient = "through"
    name: ClassVar[str] = "distal"

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the metric, which uses the classes of the dataset but no labels."""
        return super().requires - {"labels"}

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The parts of the protocol."""
        return {
            **self.model_options,
            "target": self.target,
            "steps": self.steps,
            "threshold": self.threshold,
        }

    @property
    def passes(self) -> int:
        """The network passes of all ascents."""
        return self.images * self.steps * self.passes_each

    def check(self, planned: Planned) -> None:
        """Check that the dataset has the classes."""
        classes_of(planned.spec, self.target)

    def attack(self, evaluation: Evaluation) -> Attacked:
        """Run gradient ascents from noise, which is the same for all models."""
        import torch

        from jembench import seeds
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
                "images": to_uint8(ends.images, _RANGE),
                "confidence": sure,
                "reached": reached,
                "steps": ends.steps,
                "unverified": ends.reached & ~reached,
            }

        data = evaluation.data.spec
        classes, index = classes_of(data, self.target), torch.arange(self.images)
        generators = [
            seeds.generator(0, f"robustness/noise {number}") for number in range(self.images)
        ]
        noise = [
            torch.randint(256, data.shape, dtype=torch.uint8, generator=each) for each in generators
        ]
        begin = Chosen(index, torch.stack(noise), classes[index % len(classes)])
        attacked = in_shards(self, evaluation, begin, work)
        starts, target = attacked.arrays.pop("image"), attacked.arrays.pop("label")
        return attacked._replace(arrays={**attacked.arrays, "noise": starts, "target": target})

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
            arrays |= {
                "log-px": log_px(evaluation, torch.from_numpy(arrays["images"])),
                "log-px-noise": log_px(evaluation, torch.from_numpy(arrays["noise"])),
                "log-px-test": log_px(evaluation),
            }
        parts = {"images": attacked.images, "test_images": len(evaluation.data.part("test").images)}
        return self.measurement(evaluation, arrays, parts=parts, details=attacked.details)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the share of successful ascents, their steps and their gain in log p(x).

        An ascent succeeds if it ends above the threshold.
        """
        reached, count = arrays["reached"], int(arrays["reached"].sum())
        estimates = {"distal": share(reached)}
        if count:
            estimates["distal-steps"] = median(
                arrays["steps"][reached], within=(0.0, float(self.steps))
            )
        if (
            count
            and "log-px" in arrays
            and arrays["log-px-test"].mean() > arrays["log-px-noise"][reached].mean()
        ):
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
    names = data.class_names or tuple(map(str, range(data.num_classes)))
    if target not in (ALL, *names):
        raise SpecError(
            f"{data.name} has no class {target!r}; target must be {ALL} or one of "
            f"{', '.join(names)}."
        )
    return torch.arange(data.num_classes) if target == ALL else torch.tensor([names.index(target)])


def density_gain(arrays: Arrays) -> Resampling:
    """Return the share of the gap between noise and data that ascents close, in %."""
    ends, noise = (arrays[name][arrays["reached"]] for name in ("log-px", "log-px-noise"))
    test = arrays["log-px-test"]

    def gain(ascents: Array, images: Array) -> Array:
        begin = noise[ascents].mean(axis=1)
        part: Array = (
            100 * (ends[ascents].mean(axis=1) - begin) / (test[images].mean(axis=1) - begin)
        )
        return part

    return Resampling(gain, (len(ends), len(test)))
