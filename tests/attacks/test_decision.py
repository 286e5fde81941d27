import pytest
import torch
from torch import nn

from jembench.attacks import decision
from jembench.attacks.decision import FirstImages
from jembench.attacks.target import LOOKS, Target
from jembench.attacks.threat import STRETCHES, distance


@pytest.fixture
def begin(linear):
    """For each image the first one of the other class."""
    rows = torch.tensor([int((linear.y != label).nonzero()[0]) for label in linear.y])
    return FirstImages(linear.x[rows], torch.ones(20, dtype=torch.bool))


def run(name, case, toy, start, queries, **options):
    target = Target(options.pop("model", case.model), toy)
    return decision.attack(
        name, target, case.x, case.y, start, queries=queries, seed=options.get("seed", 0)
    )


def test_the_boundary_attack_comes_near_the_hyperplane_and_never_nearer(linear, toy, begin):
    ratio = run("boundary", linear, toy, begin, 3000).distance / linear.model.exact(linear.x, "l2")
    assert (ratio >= 1 - 1e-5).all()
    assert ratio.median() < 1.1
    assert ratio.max() < 1.5


def test_pointwise_sets_pixels_back_one_by_one(linear, toy, begin):
    closest = run("pointwise", linear, toy, begin, 3000)
    exact = linear.model.exact(linear.x, "l2")
    assert (closest.distance >= exact * (1 - 1e-5)).all()
    assert (closest.distance < distance(linear.x, begin.x, "l2")).all()
    untouched = (closest.adversarial == linear.x).flatten(1).double().mean(dim=1)
    assert untouched.median() > 0.25


@pytest.mark.parametrize("name", ["boundary", "pointwise"])
def test_it_asks_no_more_than_it_may(linear, toy, begin, name):
    linear.model.seen = 0
    target = Target(linear.model, toy)
    closest = decision.attack(name, target, linear.x, linear.y, begin, queries=30, seed=0)
    # the queries, and a look each at the images and at their starts
    assert linear.model.seen <= 20 * (30 + 2)
    assert closest.distance.isfinite().all()
    assert (target.classes(closest.adversarial) != linear.y).all()


@pytest.mark.parametrize("name", ["boundary", "pointwise"])
def test_misclassified_images_and_those_without_a_start_do_not_stop_the_others(
    linear, toy, begin, name
):
    y = linear.y.clone()
    y[0] = 1 - y[0]
    exists = begin.exists.clone()
    exists[1] = False
    x = begin.x.clone()
    x[2] = linear.x[2]  # a start that is of no other class
    target = Target(linear.model, toy)
    closest = decision.attack(
        name, target, linear.x, y, FirstImages(x, exists), queries=200, seed=0
    )
    assert closest.distance[0] == 0
    assert closest.distance[1:3].isinf().all()
    assert closest.distance[3:].isfinite().all()
    assert (closest.distance[3:] > 0).all()


def test_what_the_boundary_attack_makes_of_an_image_depends_on_no_other(linear, toy, begin):
    together = run("boundary", linear, toy, begin, 300).distance
    for order in (torch.arange(19, -1, -1), torch.arange(0, 20, 3)):
        target = Target(linear.model, toy)
        start = FirstImages(begin.x[order], begin.exists[order])
        shuffled = decision.attack(
            "boundary", target, linear.x[order], linear.y[order], start, queries=300, seed=0
        )
        torch.testing.assert_close(shuffled.distance, together[order], rtol=1e-5, atol=0)


class Noisy(nn.Module):
    """The linear classifier with noise on its logits, as a mean over chance would have it."""

    copies = 1

    def __init__(self, inner, noise):
        super().__init__()
        self.inner = inner
        self.noise = noise
        self.generator = torch.Generator().manual_seed(0)

    def logits(self, x):
        clean = self.inner.logits(x)
        return clean + self.noise * torch.randn(clean.shape, generator=self.generator)


@pytest.mark.parametrize(("name", "noise"), [("boundary", 0.05), ("pointwise", 0.2)])
def test_of_a_model_that_uses_chance_it_finds_images_that_hold(linear, toy, begin, name, noise):
    closest = run(name, linear, toy, begin, 1000, model=Noisy(linear.model, noise))
    attacked = closest.distance.isfinite() & (closest.distance > 0)
    assert attacked.sum() >= 15
    wrong = Target(Noisy(linear.model, noise), toy).wrong_share(closest.adversarial, linear.y, 200)
    assert (wrong[attacked] > 0.5).double().mean() > 0.85


def test_a_model_that_uses_chance_is_asked_no_more_than_it_may(linear, toy, begin):
    linear.model.seen = 0
    run("boundary", linear, toy, begin, 100, model=Noisy(linear.model, 0.05))
    at_once = 2 * LOOKS  # of each image and of each start
    # those found are looked at again, and moved where they do not hold
    afterwards = STRETCHES * LOOKS
    assert 20 * 90 < linear.model.seen <= 20 * (100 + at_once + afterwards)
