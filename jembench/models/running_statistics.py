"""Running statistics of batch norm, compared with those counted over training images.

Evaluation uses the running statistics that training left. They follow all images that pass through
the network: where samples or outliers have passes of their own, the statistics may be far from
those of the data, which costs accuracy.

Legend: N images, B images a pass, C channels, H height, W width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from jembench.data.images import taken
from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec, Resampling, Split
from jembench.models import predictions
from jembench.models.energies import LogitModel
from jembench.models.execution import mode, unchanged_buffers
from jembench.stats import paired

COUNTED = 2000
"""The most training images that statistics are counted over: the accuracy is within .3 points of
the accuracy with 8,000 images, on CIFAR-10 as JPEG."""

LEAST = 32
"""The least images per pass when statistics are counted. The variances of smaller passes, whose
mean is taken, miss more of the difference between images.
"""

JUDGED = 1000
"""The most images that accuracies are compared on."""

_ANEW = "count the statistics anew (torch.optim.swa_utils.update_bn) and import the weights"

OF_CHAINS = (
    "Chains or other images have passed through the network in training. Train with --set "
    f"model.momentum=0.9, so that the last pass counts most, or {_ANEW}"
)
"""The cause in a model that generates images."""

OF_TRAINING = (
    "The statistics lag behind weights that still change, or follow images as training changes "
    f"them. Train longer, or {_ANEW}"
)
"""The cause in a model that was trained here and generates no images."""

OF_INPUT = (
    "The likeliest cause is an input of another normalisation or range than the network was "
    "trained on: state it with the options of `adapted`, which are those of `jembench import "
    f"--set-input`. If the input is right, {_ANEW}"
)
"""The cause in a network that was trained elsewhere."""


def followed_layers(model: Any) -> list[_BatchNorm]:
    """Return the batch norms whose running statistics should follow the training images.

    There are none in a model without logits, nor in a model whose passes mix the images with other
    images by design (``joint_pass``). A layer that stays in evaluation mode during training keeps
    the statistics that it began with, and is left out.
    """
    if not hasattr(model, "logits") or getattr(model, "joint_pass", False):
        return []
    # a generator beside the network has statistics of its own
    network = model.net if isinstance(model, LogitModel) else cast(nn.Module, model)
    with mode(model, train=True):
        layers = []
        for layer in network.modules():
            if isinstance(layer, _BatchNorm) and layer.training:
                layers.append(layer)
    return [layer for layer in layers if layer.running_mean is not None]


@contextmanager
def counted_anew(
    model: Any,
    images: UInt8[Tensor, "N C H W"],
    data: DataSpec,
    device: torch.device,
) -> Iterator[None]:
    """Give a model the mean statistics of passes in training mode; its buffers are restored."""
    layers = followed_layers(model)
    momenta = [layer.momentum for layer in layers]
    size = min(max(LEAST, predictions.batch(device, data.shape)), len(images))
    with unchanged_buffers(model):
        try:
            for layer in layers:
                layer.reset_running_stats()
                layer.momentum = None  # the cumulative mean
            with torch.no_grad(), mode(model, train=True):
                # passes of one size, since all passes have the same weight
                for start in range(0, len(images) - size + 1, size):
                    x = images[start : start + size].to(device)
                    model.logits(to_float(x, data.bounds))
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum
        yield


def parts(train: Split, validation: Split | None) -> tuple[Split, Split]:
    """Return images to count statistics over, and other images to compare accuracies on.

    Accuracies are compared on validation images, or else on further training images. Training
    images are drawn at random, the same for every model, since the stored order may be by class.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(train.images), generator=generator)
    if validation is not None:
        first = torch.arange(len(validation.images))[:JUDGED]
        return _taken(train, order[:COUNTED]), _taken(validation, first)
    n = min(COUNTED, len(order) // 2)
    return _taken(train, order[:n]), _taken(train, order[n : n + JUDGED])


def _taken(split: Split, places: Tensor) -> Split:
    assert split.labels is not None
    return Split(taken(split.images, places), split.labels[places])


def correct(
    model: Any,
    counted: UInt8[Tensor, "N C H W"],
    judged: Split,
    data: DataSpec,
    device: torch.device,
) -> dict[str, Bool[Tensor, " N"]]:
    """Return which images are classified correctly by the stored and by counted statistics.

    Args:
        model: whose buffers are unchanged afterwards.
        counted: the images to count statistics over, as they are: not augmented, without noise.
        judged: the images to classify.
        data: the description of the images.
        device: of the model.
    """
    images, labels = judged
    assert labels is not None

    def is_right() -> Tensor:
        logits = predictions.read(model, images, data, device, {"logits"})["logits"]
        return torch.eq(logits.argmax(1), labels)

    stored = is_right()
    with counted_anew(model, counted, data, device):
        return {"stored": stored, "counted": is_right()}


def remark(
    stored: Bool[Tensor, " N"],
    counted: Bool[Tensor, " N"],
    images: int,
    judged_on: str,
    cause: str,
) -> str:
    """Return a remark on stored statistics that cost accuracy; "": they do not.

    They cost accuracy if counted statistics give a higher one, and the paired interval of the gain
    lies above 0. A lower accuracy gives no remark: the network may have been trained on other
    images too.

    Args:
        stored: the images that are classified correctly by the stored statistics.
        counted: the same by counted statistics.
        images: the number of images that statistics were counted over.
        judged_on: the images, in words.
        cause: the likeliest cause and its remedy, such as :data:`OF_CHAINS`.
    """
    before, after = 100 * stored.double().numpy(), 100 * counted.double().numpy()
    difference = float(after.mean() - before.mean())
    if difference <= 0 or len(before) < 2:
        return ""
    sides = _accuracy(after), _accuracy(before)
    gain = paired.bootstrap_difference(*sides, difference, paired=True, seed=0)
    if gain.low <= 0:
        return ""
    return (
        f"the running statistics of batch norm cost accuracy: {before.mean():.1f} % of "
        f"{len(before):,} {judged_on} are classified correctly with the stored ones, and "
        f"{after.mean():.1f} % with those counted over {images:,} training images "
        f"({gain.value:.1f} [{gain.low:.1f}, {gain.high:.1f}] points more), and log p(x) is "
        f"concerned too. {cause}"
    )


def _accuracy(percent: NDArray[np.float64]) -> Resampling:
    n = len(percent)
    return Resampling(lambda drawn: percent[drawn].mean(axis=1), (n,), (0.0, 100.0), n)
