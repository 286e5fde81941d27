"""Distal adversarials: noise that is changed until a model assigns it a class with high confidence.

Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Figure 6, after Schott et al. (2019),
arXiv:1805.09190.

Legend: N images, C channels, H height, W width.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jembench import progress
from jembench.attacks.eps import UNIT, largest_distance
from jembench.attacks.gradient import Classes, Images, Numbers, rows_where
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import steepest
from jembench.data.pixels import to_float, to_uint8

STRIDE = 0.01
"""The L2 length of a step, in units of the largest possible distance: .08 on 8x8 pixels, .55 on
CIFAR-10.
"""


class Ends(NamedTuple):
    """The ends of the ascents from noise."""

    images: Tensor  # (N, C, H, W) in [0, 1], on the 256 levels of a file
    reached: Tensor  # bool (N,): p(y|x) exceeds the threshold there
    steps: Tensor  # int64 (N,)


def ascend(target: Target, noise: Images, y: Classes, *, steps: int, threshold: float) -> Ends:
    """Ascend log p(y|x) by projected gradients until p(y|x) is above a threshold.

    The papers give the objective and the end of the ascent, but no algorithm. Here each step has a
    fixed length along the gradient, since the norm of the gradient grows a thousandfold during an
    ascent and does not tell the distance to the end. The gradient is that of log p, since the
    gradient of p vanishes in float32 where another class is certain. The only bounds are [0, 1].
    The model is evaluated at the nearest image of 8 bits, and this image is returned.

    Args:
        target: the model.
        noise: images in [0, 1], the starts of the ascents.
        y: the class of each ascent.
        steps: the largest number of steps.
        threshold: of p(y|x), 0 to 1.
    """
    images = noise.clone()
    reached = torch.zeros_like(y, dtype=torch.bool)
    taken = torch.full_like(y, steps)
    left = torch.arange(len(y), device=y.device)
    moved = noise
    size = STRIDE * largest_distance("l2", noise[0].numel())
    for step in progress.track(range(steps + 1), "", "steps"):
        shown = to_float(to_uint8(moved, UNIT), UNIT)
        gradient, wrong = target.slope(shown, y[left])
        target.check()
        sure = ~wrong
        rows = rows_where(sure)
        if len(rows):
            classes = y[left[rows]]
            sure[rows] = confidence(target, shown[rows], classes, LOOKS) > threshold
        images[left] = shown
        reached[left] = sure
        taken[left] = torch.where(sure, step, taken[left])
        stay = rows_where(~sure)
        if not len(stay):
            break
        left = left[stay]
        change = size * steepest(gradient[stay], "l2")
        moved = (moved[stay] - change).clamp(0, 1)
    return Ends(images, reached, taken)


def confidence(target: Target, x: Images, y: Classes, looks: int) -> Numbers:
    """Return p(y|x), in float64; for a stochastic model, the mean of ``looks`` evaluations."""
    if not target.stochastic:
        looks = 1
    answers = []
    for _ in range(looks):
        p = target.probabilities(x)
        answers.append(p.gather(1, y[:, None]))
    return torch.stack(answers).double().mean(dim=0).squeeze(1)
