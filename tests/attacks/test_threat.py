import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from jembench.attacks.eps import largest_distance, parse_eps
from jembench.attacks.target import Target
from jembench.attacks.threat import (
    Closest,
    ascend,
    distance,
    in_unit_ball,
    project,
    stabilise,
    steepest,
    verify,
)
from jembench.errors import SpecError


@pytest.mark.parametrize(
    ("text", "value"), [("8/255", 8 / 255), ("0.5", 0.5), (".03", 0.03), (" 2 / 255", 2 / 255)]
)
def test_eps_is_read_exactly(text, value):
    assert parse_eps(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1/255", "8/0", "eight", "nan", "inf"])
def test_what_is_no_eps(text):
    with pytest.raises(SpecError, match="it must be a number above 0 in units of a pixel's range"):
        parse_eps(text)


def test_distances_by_hand():
    x = torch.zeros(1, 1, 2, 2)
    moved = torch.tensor([[[[0.3, 0.0], [0.4, 0.0]]]])
    assert distance(x, moved, "linf").item() == pytest.approx(0.4, abs=1e-7)
    assert distance(x, moved, "l2").item() == pytest.approx(0.5, abs=1e-7)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_largest_distance_is_that_from_black_to_white(norm):
    black, white = torch.zeros(1, 3, 5, 5), torch.ones(1, 3, 5, 5)
    assert distance(black, white, norm).item() == pytest.approx(largest_distance(norm, 75))


@given(st.integers(0, 10_000), st.floats(0.001, 2), st.sampled_from(["linf", "l2"]))
def test_a_projection_is_within_the_ball_and_the_bounds_and_projects_to_itself(seed, eps, norm):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(3, 1, 4, 4, generator=generator)
    moved = x + 3 * torch.randn(3, 1, 4, 4, generator=generator)
    radius = torch.full((3,), eps)
    once = project(moved, x, radius, norm)
    assert (distance(x, once, norm) <= eps).all()
    assert ((once >= 0) & (once <= 1)).all()
    torch.testing.assert_close(project(once, x, radius, norm), once, atol=1e-6, rtol=0)


def test_each_image_has_a_radius_of_its_own():
    x = torch.full((2, 1, 2, 2), 0.5)
    projected = project(x + 0.4, x, torch.tensor([0.1, 0.2]), "linf")
    torch.testing.assert_close(
        distance(x, projected, "linf"), torch.tensor([0.1, 0.2]).double(), atol=1e-6, rtol=0
    )


def test_ascent_climbs_to_the_farthest_point_of_the_ball():
    """Ascend a linear score w x in L2 to x + eps w / |w|; return the projected start if there is no
    step.
    """
    x, w = torch.full((2, 1, 2, 2), 0.5), torch.tensor([[[[3.0, 0.0], [0.0, -4.0]]]])

    def climb(steps, start=None):
        return ascend(
            lambda at: (at * w).sum(), x, 0.1, "l2", steps=steps, step_size=0.06, start=start
        )

    torch.testing.assert_close(climb(2), x + 0.02 * w)
    torch.testing.assert_close(climb(1), x + 0.012 * w)
    assert torch.equal(climb(0), x)
    torch.testing.assert_close(climb(0, x - w), x - 0.02 * w, atol=1e-6, rtol=0)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_step_of_its_length_grows_a_linear_function_faster(norm):
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(1, 1, 3, 3, generator=generator)
    best = (gradient * steepest(gradient, norm)).sum()
    others = in_unit_ball(1000, (1, 3, 3), norm, generator.device, generator)
    assert ((gradient * others).flatten(1).sum(dim=1) <= best).all()
    assert distance(
        torch.zeros_like(gradient), steepest(gradient, norm), norm
    ).item() == pytest.approx(1)


def test_no_gradient_gives_no_step():
    assert steepest(torch.zeros(2, 1, 3, 3), "l2").eq(0).all()
    assert steepest(torch.full((2, 1, 3, 3), torch.nan), "linf").eq(0).all()
    assert steepest(torch.full((2, 1, 3, 3), torch.inf), "l2").eq(0).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_starts_fill_the_ball_evenly(norm):
    drawn = in_unit_ball(
        20_000, (1, 2, 2), norm, torch.device("cpu"), torch.Generator().manual_seed(0)
    )
    far = distance(torch.zeros_like(drawn), drawn, norm)
    # the share of a ball of 4 dimensions within half its radius is 1/16, whatever the norm
    assert (far <= 1).all()
    assert (far < 0.5).double().mean().item() == pytest.approx(
        1 / 16, abs=4 * math.sqrt(1 / 16 / 20_000)
    )


class Chancy(nn.Module):
    """Wrong where the mean pixel is above .5; elsewhere half of the answers are."""

    copies = 1

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def logits(self, x):
        chance = torch.rand(len(x), generator=self.generator) < 0.5
        wrong = (x.flatten(1).mean(dim=1) > 0) | chance
        return torch.stack([torch.zeros(len(x)), torch.where(wrong, 1.0, -1.0)], dim=1)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_images_that_were_misclassified_by_luck_are_moved_until_they_hold(toy, norm):
    target, y = Target(Chancy(), toy), torch.zeros(40, dtype=torch.long)
    x = torch.full((40, 1, 4, 4), 0.2)
    lucky = x + 0.28
    lucky[0] = x[0]
    closest = stabilise(target, x, y, Closest(lucky.clone(), distance(x, lucky, norm)), norm)
    assert closest.distance[0] == 0
    torch.testing.assert_close(closest.distance, distance(x, closest.adversarial, norm))
    assert (
        verify(target, x, y, closest.adversarial, closest.distance > 0)["found"][1:].double().mean()
        > 0.9
    )
    far = (closest.adversarial - x).amax(dim=(1, 2, 3))[1:]
    assert far.max() < 0.31 * 1.03  # no farther than it takes


def test_what_a_deterministic_model_was_deceived_by_stays(linear, toy):
    closest = Closest(linear.x + 0.01, distance(linear.x, linear.x + 0.01, "linf"))
    held = stabilise(Target(linear.model, toy), linear.x, linear.y, closest, "linf")
    assert torch.equal(held.adversarial, linear.x + 0.01)
