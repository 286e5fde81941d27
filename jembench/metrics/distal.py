"""How easily noise is made into an image of which a model is sure, and what the model itself makes of such images.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 6.

Legend: M ascents, N test images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks import verify
from jembench.attacks.distal import ascend, confidence
from jembench.catalog.spec import Scalar
from jembench.data.pixels import to_uint8
from jembench.errors import Diverged, NotApplicable, SpecError
from jembench.interfaces import (
    Capability,
    DataSpec,
    Density,
    Energy,
    Evaluation,
    Measurement,
    Planned,
    Resampling,
    Value,
)
from jembench.metrics.attacked import Arrays, Attacked, Chosen, Shard, in_shards, share
from jembench.metrics.defence import Defence
from jembench.metrics.protocol import bootstrap_rng, protocol_id, require_at_least
from jembench.metrics.resampled import bootstrapped
from jembench.stats import mean_of

ALL = "all"
_RANGE = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DistalAdversarials:
    """The share of ascents from noise that end in p(y|x) above a threshold, in %, and their median number of steps.

    A share of 100 % is what gradient ascent should come to; the steps, and the images, tell models apart. So does
    ``distal-log-px``: how far log p(x) has come on these ways from that of the noise (0 %) to that of the test images
    (100 %). Ends that look like their class are likely, those that still look like noise are not; as a share of the
    way it depends neither on the unknown constant of log p(x) nor on its scale, which both differ from model to model.
    It says what the model takes its ends for, not what they are. A model without an energy, or to which noise is as
    likely as the test images, leaves it out.
    """

    target: str = ALL  # the class that the ascents are to end in; "all": each as often
    defence: Defence = field(default_factory=Defence)
    images: int = 100
    steps: int = 200
    threshold: float = 0.9
    resamples: int = 1000
    name: ClassVar[str] = "distal"

    def __post_init__(self) -> None:
        require_at_least(1, self.name, images=self.images, steps=self.steps)
        require_at_least(0, self.name, resamples=self.resamples)
        if not 0 < self.threshold < 1:
            raise SpecError(f"threshold of {self.name} is {self.threshold}; it must be a probability between 0 and 1.")

    @property
    def requires(self) -> frozenset[Capability]:
        """What the defence needs."""
        return self.defence.requires

    @property
    def _options(self) -> dict[str, Scalar]:
        return {"target": self.target, "steps": self.steps, "threshold": self.threshold}

    def passes(self, images: int) -> int:
        """At most, as if no ascent ended; how many test images there are matters to none of them."""
        return self.images * (self.steps + 1) * self.defence.passes

    def check(self, planned: Planned) -> None:
        """Whether there will be the classes, and chains."""
        _classes(planned.data, self.target)
        self.defence.check(planned)

    def compute(self, evaluation: Evaluation) -> Measurement:
        found = self.attack(evaluation)
        arrays = found.arrays | _densities(evaluation, found.arrays)
        parts: dict[str, Scalar] = {"images": found.images, "test_images": len(evaluation.test().images)}
        return Measurement(
            protocol=protocol_id(self.name, evaluation, **parts, **self._options, **self.defence.identity),
            values=self._values(arrays, bootstrap_rng(evaluation, self.name)),
            arrays=arrays,
            details={"unverified": int(arrays["unverified"].sum()), **found.details},
        )

    def attack(self, evaluation: Evaluation) -> Attacked:
        """The ends of the ascents, made now or remembered."""
        begin = _noise(evaluation.data, self.images, self.target)

        def attack(shard: Shard) -> Mapping[str, Tensor]:
            purpose = f"{self.name} {self.target} {shard.number}"
            target, fresh = (self.defence.target(evaluation, look + purpose) for look in ("", "verify "))
            ends = ascend(target, shard.x, shard.y, steps=self.steps, threshold=self.threshold)
            sure = confidence(fresh, ends.images, shard.y, verify.LOOKS)
            reached = ends.reached & (sure > self.threshold)
            return {
                "images": to_uint8(ends.images, _RANGE),
                "confidence": sure,
                "reached": reached,
                "steps": ends.steps,
                "unverified": ends.reached & ~reached,
            }

        found = in_shards(evaluation, self.name, self._options, self.defence, begin, attack)
        noise, target = found.arrays.pop("image"), found.arrays.pop("label")
        return found._replace(arrays={**found.arrays, "noise": noise, "target": target})

    def _values(self, arrays: Arrays, rng: np.random.Generator) -> dict[str, Value]:
        units = {"distal-steps": "", "distal-log-px": "%"}
        values = {
            label: bootstrapped(resampling, rng, self.resamples, units[label])
            for label, resampling in self.resamplings(arrays).items()
            if label in units
        }
        return {"distal": share(arrays["reached"], ""), **values}

    def resamplings(self, arrays: Arrays) -> Mapping[str, Resampling]:
        """The statistics behind the values, of ascents: of all, and of those that ended above the threshold."""
        reached, count = arrays["reached"], int(arrays["reached"].sum())
        found = {"distal": Resampling(mean_of(100.0 * reached), (len(reached),), (0.0, 100.0))}
        if count:
            steps = arrays["steps"][reached]
            found["distal-steps"] = Resampling(
                lambda indices: np.median(steps[indices], axis=1), (count,), (0.0, float(self.steps))
            )
        if count and "log-px" in arrays and arrays["log-px-test"].mean() > arrays["log-px-noise"][reached].mean():
            found["distal-log-px"] = _way(arrays)
        return found


def _noise(data: DataSpec, count: int, target: str) -> Chosen:
    """Uniform noise, the same for all models, and the classes that it is to be made into, in turn."""
    classes = _classes(data, target)
    index = torch.arange(count)
    images = [
        torch.randint(256, data.shape, dtype=torch.uint8, generator=seeds.generator(0, f"robustness/noise {number}"))
        for number in range(count)
    ]
    return Chosen(index, torch.stack(images), classes[index % len(classes)])


def _classes(data: DataSpec, target: str) -> Tensor:
    """The classes that are meant, by their numbers.

    Raises:
        NotApplicable: if the dataset has no classes.
        SpecError: if there is no such class.
    """
    if not data.num_classes:
        raise NotApplicable(f"The dataset {data.name} has no classes, so there is none to be sure of.")
    names = data.class_names or tuple(map(str, range(data.num_classes)))
    if target not in (ALL, *names):
        raise SpecError(f"{data.name} has no class {target!r}; target must be {ALL} or one of {', '.join(names)}.")
    return torch.arange(data.num_classes) if target == ALL else torch.tensor([names.index(target)])


def _densities(evaluation: Evaluation, arrays: Arrays) -> dict[str, NDArray[np.float64]]:
    """log p(x) of ends, of noise and of the test images; nothing for a model without an energy.

    Raises:
        Diverged: if one is not finite.
    """
    if not isinstance(evaluation.model, Energy | Density):
        return {}
    found = {
        "log-px": evaluation.energies_of(torch.from_numpy(arrays["images"])),
        "log-px-noise": evaluation.energies_of(torch.from_numpy(arrays["noise"])),
        "log-px-test": evaluation.energies(),
    }
    if not all(bool(energies.isfinite().all()) for energies in found.values()):
        raise Diverged(
            "log p(x) of noise, of what it was made into or of the test images is not finite: the model has diverged. "
            "Train it again with another seed or a lower learning rate."
        )
    return {name: -energies.double().numpy() for name, energies in found.items()}


def _way(arrays: Arrays) -> Resampling:
    """How far log p(x) has come from that of the noise to that of the test images, of ascents and of test images."""
    ends, noise = (arrays[name][arrays["reached"]] for name in ("log-px", "log-px-noise"))
    test = arrays["log-px-test"]

    def share_of_way(ascents: NDArray[np.int64], images: NDArray[np.int64]) -> NDArray[np.float64]:
        begin = noise[ascents].mean(axis=1)
        share: NDArray[np.float64] = 100 * (ends[ascents].mean(axis=1) - begin) / (test[images].mean(axis=1) - begin)
        return share

    return Resampling(share_of_way, (len(ends), len(test)))
