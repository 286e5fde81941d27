"""What an attack sees of a classifier: its class and the gradient of its loss, on images in [0, 1].

Legend: B images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jembench import progress
from jembench.attacks.gradient import Gradient, cross_entropy, logits_of, settled
from jembench.errors import Diverged
from jembench.interfaces import DataSpec
from jembench.models import predictions
from jembench.models.capabilities import is_differentiable, require_gradients

LOOKS = 3
"""Number of predictions of a stochastic classifier; it counts as deceived if most of them are wrong."""

AGAIN, SURE = 10, 0.8
"""Number of predictions before a stochastic classifier counts as surely deceived, and the share that must be wrong.

The share is above one half, since the image was selected among many for its wrong predictions.
"""


@runtime_checkable
class Stochastic(Protocol):
    """A model whose logits are a mean over random draws."""

    @property
    def copies(self) -> int:
        """Copies of one image that pass through the network together."""
        ...

    @property
    def passes(self) -> int:
        """Network passes for the logits of one image."""
        ...


class LossGradient(NamedTuple):
    """The result of one forward and backward pass."""

    gradient: Tensor  # (B, C, H, W) of the cross-entropy, towards the image in [0, 1]
    wrong: Tensor  # bool (B,)


class Target:
    """A model under attack.

    Its parameters get no gradient, it is in evaluation mode, and large batches pass through it in parts.

    Args:
        model: with ``logits``; perhaps :class:`Stochastic`, as :class:`~jembench.attacks.refinement.Refined` is.
        data: its bounds and shape.
    """

    def __init__(self, model: nn.Module, data: DataSpec) -> None:
        self.model = model
        self.data = data
        self.stochastic = isinstance(model, Stochastic)
        self.passes = 0
        """Network passes so far: one per image and forward pass, with or without a backward pass."""
        self._passes_an_image = model.passes if isinstance(model, Stochastic) else 1
        self._gradient = Gradient(model, data, cross_entropy(model, data), varies=self.stochastic)
        self._unsound: Tensor | None = None  # bool (), of the logits since the last check
        self._parts = predictions.Parts(data.shape, model.copies if isinstance(model, Stochastic) else 1)

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """f(x) of any number of images in [0, 1], in float32 or float64; differentiable towards them.

        Raises:
            Diverged: as :meth:`check`.
        """
        logits = self._logits(x)
        self.check()
        return logits

    def _logits(self, x: Tensor) -> Tensor:
        return torch.cat(self._parts(len(x), x.device, lambda part: self._logits_of_batch(x[part])))

    def _logits_of_batch(self, x: Tensor) -> Tensor:
        with settled(self.model, x.device):
            logits = logits_of(self.model, self.data, x)
        self._note(logits)
        return logits

    def _note(self, logits: Tensor) -> None:
        passes = len(logits) * self._passes_an_image
        self.passes += passes
        progress.passed(passes)
        unsound = ~logits.isfinite().all()
        self._unsound = unsound if self._unsound is None else self._unsound | unsound

    def check(self) -> None:
        """Whether all logits so far were finite; the host waits for the device.

        Raises:
            Diverged: if they were not, since no class follows from them.
        """
        unsound, self._unsound = self._unsound, None
        if unsound is not None and bool(unsound):
            raise _diverged()

    def places(self, which: Bool[Tensor, " B"]) -> Int[Tensor, " M"]:
        """The indices where ``which`` holds. The host waits for the device, once, and so it makes this :meth:`check`.

        Raises:
            Diverged: as :meth:`check`.
        """
        unsound, self._unsound = self._unsound, None
        if unsound is None:
            return which.nonzero().flatten()
        found = torch.cat([which, unsound.expand(len(which) + 1)]).nonzero().flatten()
        if len(found) > len(which):  # more than ``which`` can hold
            raise _diverged()
        return found

    def slope(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]) -> LossGradient:
        """The gradient of the cross-entropy at x and whether the class is wrong there, from the same pass.

        On a GPU the caller makes the :meth:`check`, or asks for :meth:`places`, before it uses what came of it.

        Raises:
            Diverged: as :meth:`check`, at once on a CPU.
            NotApplicable: if the model has no gradients.
        """
        require_gradients(is_differentiable(self.model))
        parts = self._parts(len(x), x.device, lambda part: self._slope(x[part], y[part]))
        if x.device.type == "cpu":
            self.check()
        return LossGradient(*map(torch.cat, zip(*parts, strict=True)))

    def _slope(self, x: Tensor, y: Tensor) -> LossGradient:
        with settled(self.model, x.device):  # the backward pass may run the network again, through the steps of a chain
            gradient, logits = self._gradient(x, y)
        self._note(logits)
        return LossGradient(gradient, logits.argmax(dim=1) != y)

    def classes(self, x: Float[Tensor, "B C H W"]) -> Int[Tensor, " B"]:
        """The predicted class of each image; it may vary between calls if the model is stochastic."""
        found = self._classes(x)
        self.check()
        return found

    def _classes(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self._logits(x).argmax(dim=1)

    def probabilities(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """p(y|x)."""
        with torch.no_grad():
            return self.logits(x).softmax(dim=1)

    def wrong_share(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"], looks: int) -> Float[Tensor, " B"]:
        """The share of ``looks`` predictions that are wrong; of one prediction if the model is deterministic."""
        looks = looks if self.stochastic else 1
        answers = [self._classes(x) != y for _ in range(looks)]
        self.check()
        return torch.stack(answers).double().mean(dim=0)

    def misclassified(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Whether the class is wrong; for a stochastic model, in most of ``LOOKS`` predictions."""
        return self.wrong_share(x, y, LOOKS) > 0.5

    def surely_deceived(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Whether the class is wrong; for a stochastic model, in more than a share ``SURE`` of ``AGAIN`` predictions.

        An image that can no longer reach that share is not evaluated again.
        """
        if not self.stochastic:
            return self.classes(x) != y
        right = torch.zeros_like(y)
        left = torch.arange(len(y), device=y.device)
        for _ in range(AGAIN):
            right[left] += (self._classes(x[left]) == y[left]).long()
            left = left[self.places(AGAIN - right[left] > SURE * AGAIN)]
            if not len(left):
                break
        return AGAIN - right > SURE * AGAIN

    def confirmed(
        self, wrong: Bool[Tensor, " B"], x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]
    ) -> Bool[Tensor, " B"]:
        """Those images, among the once misclassified ones, whose class is wrong in most predictions."""
        if not self.stochastic:
            return wrong
        return self.those_of(wrong, lambda rows: self.misclassified(x[rows], y[rows]))

    def surely(self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Of once misclassified images, those that surely deceive the model."""
        often = self.misclassified(x, y)  # a few predictions discard most of them
        return self.those_of(often, lambda rows: self.surely_deceived(x[rows], y[rows]))

    def those_of(
        self, which: Bool[Tensor, " B"], test: Callable[[Int[Tensor, " M"]], Bool[Tensor, " M"]]
    ) -> Bool[Tensor, " B"]:
        """Where ``which`` and ``test`` both hold. The test gets the indices of the images where ``which`` holds."""
        both, rows = which.clone(), self.places(which)
        if len(rows):
            both[rows] = test(rows)
        return both


def _diverged() -> Diverged:
    return Diverged(
        "The model's logits of an attacked image are not finite: there is no class to be changed. It diverged, or "
        "overflows near its bounds; `jembench sample` shows what it has learnt."
    )
