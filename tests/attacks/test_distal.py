"""Ascents from noise, on a linear classifier where the number of steps follows from the margin."""

import math

import pytest
import torch
from torch import nn

from jembench.attacks.distal import STRIDE, ascend, confidence
from jembench.attacks.target import Target

STEPS, THRESHOLD = 60, 0.9


def other(y):
    return 1 - y


def ends_of(model, toy, x, y, steps=STEPS):
    return ascend(Target(model, toy), x, y, steps=steps, threshold=THRESHOLD)


def test_steps_follow_from_the_margin(linear, toy):
    model, x, y = linear
    x = (x * 255).round() / 255
    ends = ends_of(model, toy, x, other(y))
    slope = 2 * (model.weight[1] - model.weight[0]).double()
    log_odds = ((2 * x - 1).flatten(1).double() @ slope / 2) * (2 * other(y) - 1)
    away, of_a_step = math.log(9) - log_odds, STRIDE * 4 * slope.norm()
    rounding = slope.abs().sum() / (2 * 255)
    fewest, most = (((away + extra) / of_a_step).ceil() for extra in (-rounding, rounding))
    assert ends.reached.all()
    assert bool(((fewest <= ends.steps) & (ends.steps <= most)).all())
    assert (fewest == most).sum() > len(x) / 3
    assert ends.steps.max() > ends.steps.min()


def test_the_ends_are_images_of_8_bits_of_which_the_model_is_sure(linear, toy):
    model, x, y = linear
    images = ends_of(model, toy, x, other(y)).images
    levels = images * 255
    assert torch.equal(levels, levels.round())
    assert images.min() >= 0
    assert images.max() <= 1
    p = model.logits(2 * images - 1).softmax(1).gather(1, other(y)[:, None])
    assert p.min() > THRESHOLD
    assert p.max() < 0.99  # not farther than it takes


def test_an_image_that_is_sure_already_takes_no_step(linear, toy):
    model, x, y = linear
    model.weight.data *= 5
    ends = ends_of(model, toy, x, y)
    sure = model.logits(2 * x - 1).softmax(1).amax(1) > THRESHOLD + 0.02
    assert 0 < sure.sum() < len(x)
    assert (ends.steps[sure] == 0).all()
    assert (ends.images[sure] - x[sure]).abs().max() <= 0.5 / 255 + 1e-6


def test_too_few_steps_reach_nothing_and_give_what_they_came_to(linear, toy):
    model, x, y = linear
    ends = ends_of(model, toy, x, other(y), steps=1)
    none = ~ends.reached
    assert none.sum() > len(x) / 2
    assert (ends.steps[none] == 1).all()
    far = (ends.images - x).flatten(1).norm(dim=1)[none]
    assert far == pytest.approx(torch.full_like(far, STRIDE * 4), abs=0.5 * 4 / 255)


def test_another_class_of_which_the_model_is_certain_hides_no_gradient(linear, toy):
    """p(y|x) is 0 in float32, and so is its gradient; that of log p is not."""
    model, x, y = linear
    model.weight.data *= 1000
    p = model.logits(2 * x - 1).softmax(1).gather(1, other(y)[:, None]).squeeze(1)
    assert (p == 0).sum() > len(x) / 2
    assert ends_of(model, toy, x, other(y)).reached.all()


def test_each_image_goes_its_own_way(linear, toy):
    model, x, y = linear
    together = ends_of(model, toy, x, other(y))
    for row in (0, 7, 19):
        alone = ends_of(model, toy, x[row : row + 1], other(y)[row : row + 1])
        assert torch.equal(alone.images[0], together.images[row])
        assert alone.steps[0] == together.steps[row]


class Wavering(nn.Module):
    """Sure of class 0 every second time."""

    copies = 1

    def __init__(self):
        super().__init__()
        self.asked = 0

    def logits(self, x):
        self.asked += 1
        sure = 10.0 if self.asked % 2 else 0.1
        return torch.tensor([sure, 0.0]) + 0 * x.flatten(1)[:, :2]


def test_one_sure_answer_of_several_is_not_enough(toy):
    x, y = torch.full((3, 1, 4, 4), 0.5), torch.zeros(3, dtype=torch.long)
    seen = confidence(Target(Wavering(), toy), x, y, 4)
    expected = torch.tensor([[10.0, 0.0], [0.1, 0.0]], dtype=torch.float64).softmax(1)[:, 0].mean()
    assert seen == pytest.approx(expected.expand(3), abs=1e-6)
    assert not ends_of(Wavering(), toy, x, y, steps=3).reached.any()
