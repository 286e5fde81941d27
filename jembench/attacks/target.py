"""The target of an attack: classes and the gradient of the loss for images in [0, 1].

Legend: N images, C channels, H height, W width, K classes.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.attacks.gradient import (
    Classes,
    Flags,
    Images,
    Logits,
    Numbers,
    gradient_of,
    logits_of,
    rows_where,
    settled,
)
from jembench.errors import Diverged
from jembench.interfaces import DataSpec
from jembench.models import predictions
from jembench.models.capabilities import require_gradients

T = TypeVar("T")

LOOKS = 5
"""The number of predictions of a stochastic classifier, all of which must be wrong before it counts
as deceived.

A majority is not enough, since the image was selected among many for its wrong predictions.
"""


@runtime_checkable
class Stochastic(Protocol):
    """A model whose logits are a mean over random draws."""

    copies: int
    """The number of copies of an image that pass through the network together."""


class LossGradient(NamedTuple):
    """The result of one forward and backward pass."""

    gradient: Tensor  # (N, C, H, W) of the cross-entropy, towards the image in [0, 1]
    wrong: Tensor  # bool (N,): the predicted class is not y


class Target:
    """A model under attack.

    The model is in evaluation mode, its parameters get no gradients, and large batches pass through
    it in parts.

    Args:
        model: with ``logits``; perhaps :class:`Stochastic`, as
            :class:`~jembench.attacks.refinement.Refined` is.
        data: the images' bounds and shape.
    """

    def __init__(self, model: nn.Module, data: DataSpec) -> None:
        self.model = model
        self.data = data
        self.stochastic = isinstance(model, Stochastic)
        self._copies = 1
        if isinstance(model, Stochastic):
            self._copies = model.copies
        self._finite: list[Tensor] = []  # bool (), one for each pass since the last check

    def logits(self, x: Images) -> Logits:
        """Return f(x) of any number of images in [0, 1], in float32 or float64.

        The result is differentiable with respect to x.

        Raises:
            Diverged: as for :meth:`check`.
        """

        def compute(part: slice) -> Tensor:
            with settled(self.model, x.device):
                logits = logits_of(self.model, self.data, x[part])
            self._finite.append(logits.isfinite().all())
            return logits

        logits = torch.cat(self._in_parts(compute, x))
        self.check()
        return logits

    def _in_parts(self, work: Callable[[slice], T], x: Tensor) -> list[T]:
        return predictions.in_parts(work, len(x), x.device, self.data.shape, self._copies)

    def check(self) -> None:
        """Check that all logits so far were finite; the host waits for the device.

        Raises:
            Diverged: if a logit was not finite.
        """
        finite, self._finite = self._finite, []
        if finite and not bool(torch.stack(finite).all()):
            raise Diverged(
                "The model's logits of an attacked image are not finite, so that it has no class. "
                "The model diverged, or overflows near its bounds; `jembench sample` shows what "
                "it has learnt."
            )

    def slope(self, x: Images, y: Classes) -> LossGradient:
        """Return the gradient of the cross-entropy at x, and whether the class is wrong.

        One pass computes both. Callers call :meth:`check` before they use the results.

        Raises:
            NotApplicable: if the model has no gradients.
        """
        require_gradients(self.model)
        parts = self._in_parts(lambda part: self._slope(x[part], y[part]), x)
        gradients, wrong = zip(*parts, strict=True)
        return LossGradient(torch.cat(gradients), torch.cat(wrong))

    def _slope(self, x: Tensor, y: Tensor) -> LossGradient:
        def cross_entropy(at: Tensor) -> tuple[Tensor, Tensor]:
            logits = logits_of(self.model, self.data, at)
            return F.cross_entropy(logits, y, reduction="sum"), logits

        # the backward pass through a chain runs the network again
        with settled(self.model, x.device):
            gradient, logits = gradient_of(cross_entropy, x)
        self._finite.append(logits.isfinite().all())
        return LossGradient(gradient, logits.argmax(dim=1) != y)

    def classes(self, x: Images) -> Classes:
        """Return the predicted class of each image.

        The class may vary between calls if the model is stochastic.
        """
        with torch.no_grad():
            return self.logits(x).argmax(dim=1)

    def probabilities(self, x: Images) -> Logits:
        """Return p(y|x)."""
        with torch.no_grad():
            return self.logits(x).softmax(dim=1)

    def wrong_share(self, x: Images, y: Classes, looks: int) -> Numbers:
        """Return the share of ``looks`` predictions that are wrong, 0 to 1.

        A deterministic model predicts once.
        """
        if not self.stochastic:
            looks = 1
        wrong = torch.stack([self.classes(x) != y for _ in range(looks)])
        return wrong.double().mean(dim=0)

    def confirmed(self, wrong: Flags, x: Images, y: Classes) -> Flags:
        """Return whether each image deceives the model.

        ``wrong`` says whether an image's first prediction is wrong; of a stochastic model, all of
        ``LOOKS`` predictions must be wrong, the first included.
        """
        if not self.stochastic:
            return wrong
        deceived = wrong.clone()
        rows = rows_where(wrong)
        if len(rows):
            share = self.wrong_share(x[rows], y[rows], LOOKS - 1)
            deceived[rows] = share == 1
        return deceived

    def deceived(self, x: Images, y: Classes) -> Flags:
        """Return whether each image deceives the model, see :meth:`confirmed`."""
        return self.confirmed(self.classes(x) != y, x, y)
