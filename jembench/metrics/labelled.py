"""Logits beside the labels that they should have said, checked, and calibrated if that is asked for.

Legend: N examples, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from torch import Tensor

from jembench.catalog.spec import Scalar
from jembench.errors import NotApplicable
from jembench.interfaces import DataSpec, Evaluation, Planned
from jembench.metrics.classified import require_finite
from jembench.metrics.predictive import Scaling
from jembench.metrics.temperature import fit_temperature


class LabelledLogits(NamedTuple):
    """The test images' logits and what they should have said."""

    logits: Tensor  # float64 (N, K), finite
    labels: Tensor  # int64 (N,)
    identity: Mapping[str, Scalar] = {}  # what a protocol must say of how they were scaled
    details: Mapping[str, Any] = {}


def check_labels(planned: Planned) -> None:
    """Whether there will be labels.

    Raises:
        NotApplicable: if not.
    """
    if not planned.labelled:
        raise no_labels(planned.spec)


def no_labels(data: DataSpec) -> NotApplicable:
    """The error for a dataset without labels."""
    return NotApplicable(f"The dataset {data.name} has no labels, so there is nothing to classify.")


def labelled_logits(evaluation: Evaluation, scaling: Scaling = "none", data_noise: float = 0.0) -> LabelledLogits:
    """The test images' logits in float64, checked, with their labels, both on the CPU.

    With temperature scaling they are divided by the one number that makes the *validation* images likeliest; test
    images have no part in it. Guo et al. (2017), arXiv:1706.04599, section 4.2. ``data_noise`` is that on both.

    Raises:
        NotApplicable: if the dataset has no labels, or if no temperature follows from validation images.
        Diverged: if a logit is not finite; a number made from the others would hide it.
    """
    plain = _labelled(evaluation, "test", data_noise)
    if scaling == "none":
        return plain
    held = _labelled(evaluation, "validation", data_noise)
    temperature, n = fit_temperature(held.logits, held.labels), len(held.labels)
    return LabelledLogits(
        plain.logits / temperature,
        plain.labels,
        identity={"scaling": scaling, "validation_images": n},
        details={"temperature": temperature, "validation_images": n},
    )


def _labelled(evaluation: Evaluation, images: Literal["test", "validation"], noise: float) -> LabelledLogits:
    labels = evaluation.data.part(images).labels
    if labels is None:
        raise no_labels(evaluation.data.spec)
    logits = evaluation.predictions.read("logits", images, noise).cpu().double()
    require_finite(logits, f"{images} images of {evaluation.data.spec.name}")
    return LabelledLogits(logits, labels.cpu())
