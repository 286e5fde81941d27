"""How easily noise is made into an image of which a model is sure, and what the model itself makes of such images.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4, Figure 6.

Legend: M ascents, N test images, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jembench import seeds
from jembench.attacks.distal import ascend, confidence
from jembench.attacks.threat import VERIFICATIONS
from jembench.catalog.spec import Scalar
from jembench.data.pixels import to_uint8
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import DataSpec, Density, Energy, Evaluation, Measurement, Resampling
from jembench.metrics.attacked import Attacked, Chosen, Shard, in_shards
from jembench.metrics.attacks import ALL, Distal
from jembench.metrics.densities import log_px
from jembench.metrics.estimates import Arrays, Estimate, measurement, median, share

_RANGE = (0.0, 1.0)


def distal(metric: Distal, evaluation: Evaluation) -> Measurement:
    """Make noise into images of classes."""
    found = _ascents(metric, evaluation)
    arrays = found.arrays | _densities(evaluation, found.arrays)
    parts: dict[str, Scalar] = {"images": found.images, "test_images": len(evaluation.data.part("test").images)}
    parts |= {**metric.options, **metric.defence.identity}
    details = {"unverified": int(arrays["unverified"].sum()), **found.details}
    return measurement(metric, evaluation, parts, metric.estimates(arrays), arrays, details)


def _ascents(metric: Distal, evaluation: Evaluation) -> Attacked:
    """The ends of the ascents, made now or remembered."""
    begin = _noise(evaluation.data.spec, metric.images, metric.target)

    def climb(shard: Shard) -> Mapping[str, Tensor]:
        target, fresh = metric.defence.targets(evaluation, f"{metric.name} {metric.target} {shard.number}")
        ends = ascend(target, shard.x, shard.y, steps=metric.steps, threshold=metric.threshold)
        sure = confidence(fresh, ends.images, shard.y, VERIFICATIONS)
        reached = ends.reached & (sure > metric.threshold)
        return {
            "images": to_uint8(ends.images, _RANGE),
            "confidence": sure,
            "reached": reached,
            "steps": ends.steps,
            "unverified": ends.reached & ~reached,
        }

    found = in_shards(metric, evaluation, begin, climb)
    noise, target = found.arrays.pop("image"), found.arrays.pop("label")
    return found._replace(arrays={**found.arrays, "noise": noise, "target": target})


def distal_estimates(metric: Distal, arrays: Arrays) -> dict[str, Estimate]:
    """The values, of ascents: of all, and of those that ended above the threshold."""
    reached, count = arrays["reached"], int(arrays["reached"].sum())
    found = {"distal": share(reached)}
    if count:
        found["distal-steps"] = median(arrays["steps"][reached], within=(0.0, float(metric.steps)))
    if count and "log-px" in arrays and arrays["log-px-test"].mean() > arrays["log-px-noise"][reached].mean():
        found["distal-log-px"] = Estimate(_way(arrays), "%")
    return found


def _noise(data: DataSpec, count: int, target: str) -> Chosen:
    """Uniform noise, the same for all models, and the classes that it is to be made into, in turn."""
    classes = classes_of(data, target)
    index = torch.arange(count)
    images = [
        torch.randint(256, data.shape, dtype=torch.uint8, generator=seeds.generator(0, f"robustness/noise {number}"))
        for number in range(count)
    ]
    return Chosen(index, torch.stack(images), classes[index % len(classes)])


def classes_of(data: DataSpec, target: str) -> Tensor:
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
    return {
        "log-px": log_px(evaluation, torch.from_numpy(arrays["images"])),
        "log-px-noise": log_px(evaluation, torch.from_numpy(arrays["noise"])),
        "log-px-test": log_px(evaluation),
    }


def _way(arrays: Arrays) -> Resampling:
    """How far log p(x) has come from that of the noise to that of the test images, of ascents and of test images."""
    ends, noise = (arrays[name][arrays["reached"]] for name in ("log-px", "log-px-noise"))
    test = arrays["log-px-test"]

    def share_of_way(ascents: NDArray[np.int64], images: NDArray[np.int64]) -> NDArray[np.float64]:
        begin = noise[ascents].mean(axis=1)
        part: NDArray[np.float64] = 100 * (ends[ascents].mean(axis=1) - begin) / (test[images].mean(axis=1) - begin)
        return part

    return Resampling(share_of_way, (len(ends), len(test)))
