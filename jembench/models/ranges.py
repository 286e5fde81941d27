"""Remarks on networks that classify better if they get images of another range.

Legend: N images, C channels, H height, W width.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from jembench.data.images import taken
from jembench.interfaces import DataSpec, Split
from jembench.models import predictions
from jembench.models.adapted import Adapted, adapt
from jembench.models.preparation import Affine, Preparation
from jembench.stats.paired import mcnemar

IMAGES = 256
"""The most training images that are classified."""

_P = 0.001
"""The p value of McNemar's test below which another range is better."""

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def judged(train: Split) -> Split:
    """Return random training images, the same for every network."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(train.images), generator=generator)[:IMAGES]
    assert train.labels is not None
    return Split(taken(train.images, rows), train.labels[rows])


def correct(
    model: Any, split: Split, data: DataSpec, device: torch.device
) -> dict[str, Bool[Tensor, " N"]]:
    """Return which images are classified correctly, as stated and under each other range.

    Args:
        model: of any range.
        split: labelled images.
        data: the description of the images.
        device: of the model.
    """
    assert split.labels is not None
    net, form, outputs = model, Preparation(bounds=data.bounds), None
    if isinstance(model, Adapted):
        net, form, outputs = model.net, model.preparation, model.outputs
    stated = form.affine(data.bounds)
    forms = {"stated": form, **_others(split.images, form.shape(data)[0], form)}
    right = {}
    for name, asked in forms.items():
        if name != "stated" and _are_close(asked.affine(data.bounds), stated):
            continue
        adapted = adapt(net, data, asked, outputs).to(device)
        read = predictions.read(adapted, split.images, data, device, {"logits"})
        right[name] = torch.eq(read["logits"].argmax(1), split.labels)
    return right


def _are_close(a: Affine, b: Affine) -> bool:
    factors = torch.allclose(a.factor, b.factor, rtol=1e-3)
    shifts = torch.allclose(a.shift, b.shift, rtol=1e-3, atol=1e-3)
    return factors and shifts


def _others(
    images: UInt8[Tensor, "N C H W"], channels: int, form: Preparation
) -> Mapping[str, Preparation]:
    """Return usual ranges by the options that give a network them."""
    units = images[:].float() / 255
    own_mean = units.mean((0, 2, 3)).tolist()
    own_std = units.std((0, 2, 3)).clamp(min=1e-3).tolist()
    imagenet = [list(values) for values in _IMAGENET]
    if channels != 3:
        imagenet = [[sum(values) / 3] for values in imagenet]
    forms = {}
    for high, low in ((1, -1), (1, 0), (255, 0)):
        plain = Preparation(bounds=(low, high))
        forms[f"bounds={low}..{high}"] = _in_range_of(plain, form)
    for mean, std in (imagenet, (own_mean, own_std)):
        plain = Preparation(mean=tuple(mean), std=tuple(std))
        means, stds = ("+".join(map("{:.3g}".format, values)) for values in (mean, std))
        forms[f"bounds=0..1,mean={means},std={stds}"] = _in_range_of(plain, form)
    return forms


def _in_range_of(plain: Preparation, form: Preparation) -> Preparation:
    """Return ``form`` in the range of ``plain``."""
    return dataclasses.replace(form, bounds=plain.bounds, mean=plain.mean, std=plain.std)


ADAPTED = "give it these: adapted:model=...,"
"""The beginning of the remedy for a network with a spec."""

IMPORTED = "import it again with --set-input "
"""The beginning of the remedy for imported weights."""


def remark(right: Mapping[str, Bool[Tensor, " N"]], remedy: str = ADAPTED) -> str:
    """Return a remark on the best other range if it is better than the stated one; else "".

    Args:
        right: see :func:`correct`.
        remedy: the beginning of the remedy, which the options of the range follow.
    """
    others = dict(right)
    stated = others.pop("stated")
    if not others:
        return ""
    best = max(others, key=lambda name: int(others[name].sum()))
    n, before, after = len(stated), int(stated.sum()), int(others[best].sum())
    if after <= before or mcnemar(stated.numpy(), others[best].numpy()) >= _P:
        return ""
    return (
        f"the network seems to expect images of another range: {100 * before / n:.0f} % of {n} "
        f"training images are classified correctly, and {100 * after / n:.0f} % with {best} (p < "
        f"{_P:g}). If it was trained so, {remedy}{best}"
    )
