import pytest
import torch
from torch import nn

from jembench import seeds
from jembench.attacks.pgd import PGD
from jembench.attacks.target import Target
from jembench.attacks.threat import distance, starts

NORMS = ["linf", "l2"]


def begin(n, restarts, norm, shape=(1, 4, 4)):
    return torch.stack(
        [starts(restarts, shape, norm, seeds.generator(0, f"start {i}")) for i in range(n)]
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("restarts", [1, 4])
def test_of_a_linear_classifier_the_smallest_eps_is_the_distance_to_its_hyperplane(
    linear, toy, norm, restarts
):
    target = Target(linear.model, toy)
    closest = PGD(norm=norm).minimal(target, linear.x, linear.y, begin(20, restarts, norm))
    ratio = closest.distance / linear.model.exact(linear.x, norm)
    assert (ratio >= 1 - 1e-5).all()  # nothing is nearer, but for float32
    assert (ratio <= 1.011).all()  # and the search ends within a hundredth
    assert (target.classes(closest.adversarial) != linear.y).all()
    assert ((closest.adversarial >= 0) & (closest.adversarial <= 1)).all()
    torch.testing.assert_close(
        distance(linear.x, closest.adversarial, norm), closest.distance, atol=0, rtol=0
    )


@pytest.mark.parametrize("norm", NORMS)
def test_within_an_eps_it_finds_those_that_are_nearer_and_no_others(linear, toy, norm):
    exact = linear.model.exact(linear.x, norm)
    eps = float(exact.median()) * 1.0001
    closest = PGD(norm=norm).robust(
        Target(linear.model, toy), linear.x, linear.y, eps, begin(20, 3, norm)
    )
    clear = (exact / eps - 1).abs() > 0.01
    assert torch.equal(closest.distance.isfinite()[clear], (exact < eps)[clear])
    assert (closest.distance[closest.distance.isfinite()] <= eps).all()
    assert clear.sum() >= 15


def near(model, norm, distances):
    """Grey images at these exact distances from the hyperplane."""
    slope = (model.weight[1] - model.weight[0]).detach().double()
    x = (
        0.4
        + 0.2 * torch.rand(len(distances), 16, generator=torch.Generator().manual_seed(1)).double()
    )
    margin = 2 * distances * (slope.abs().sum() if norm == "linf" else slope.norm())
    x += ((margin - (2 * x - 1) @ slope) / (2 * slope.dot(slope)))[:, None] * slope
    return x.float().view(-1, 1, 4, 4)


@pytest.mark.parametrize(
    ("norm", "size"), [("linf", 4), ("linf", 8), ("linf", 32), ("l2", 64), ("l2", 127.5)]
)
def test_the_search_and_the_attack_of_one_size_break_the_same_images(linear, toy, norm, size):
    """Images that are broken at eps, and not at .99 of it, where the search ends: eps is a size
    that it tries.
    """
    eps = size / 255
    distances = (
        eps * torch.tensor([0.98, 0.991, 0.993, 0.995, 0.997, 0.999, 1.001, 1.003, 1.005]).double()
    )
    x = near(linear.model, norm, distances)
    assert ((x > 0) & (x < 1)).all()
    target, begins, pgd = Target(linear.model, toy), begin(9, 2, norm), PGD(norm=norm)
    y = target.classes(x)
    fixed = pgd.robust(target, x, y, eps, begins)
    searched = pgd.minimal(target, x, y, begins, [eps])
    assert (fixed.distance <= eps).tolist() == [True] * 6 + [False] * 3
    assert (searched.distance <= eps).tolist() == [True] * 6 + [False] * 3


@pytest.mark.parametrize("norm", NORMS)
def test_neither_order_nor_company_matters(linear, toy, norm):
    begins = begin(20, 3, norm)
    attack = PGD(norm=norm)
    whole = attack.minimal(Target(linear.model, toy), linear.x, linear.y, begins)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    shuffled = attack.minimal(
        Target(linear.model, toy), linear.x[order], linear.y[order], begins[order]
    )
    torch.testing.assert_close(shuffled.distance, whole.distance[order], atol=1e-6, rtol=0)
    alone = attack.minimal(Target(linear.model, toy), linear.x[:1], linear.y[:1], begins[:1])
    torch.testing.assert_close(alone.distance, whole.distance[:1], atol=1e-6, rtol=0)


class Constant(nn.Module):
    def logits(self, x):
        return torch.tensor([1.0, 0.0]).expand(len(x), 2) + 0 * x.flatten(1)[:, :2]


@pytest.mark.parametrize("norm", NORMS)
def test_what_cannot_be_changed_is_at_no_distance(toy, norm):
    x = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(3, dtype=torch.long)
    closest = PGD(norm=norm, steps=3).minimal(Target(Constant(), toy), x, y, begin(3, 2, norm))
    assert closest.distance.isinf().all()
    assert torch.equal(closest.adversarial, x)


class Valleys(nn.Module):
    """A class that begins beyond a hill, whose slope leads away from it: only some restarts get
    there.
    """

    def logits(self, x):
        z = x.flatten(1).mean(dim=1)
        logit = torch.where(z > 0.3, 5.0, -z)
        return torch.stack([torch.zeros_like(z), logit - 0.5], dim=1)


def test_more_restarts_find_what_one_does_not(toy):
    x, y = torch.full((1, 1, 4, 4), 0.55), torch.zeros(1, dtype=torch.long)
    begins = torch.stack([torch.zeros(1, 4, 4), torch.ones(1, 4, 4)])[None]
    attack, target = PGD(norm="linf", steps=10), Target(Valleys(), toy)
    eps = torch.tensor([0.2])
    assert not attack.at(target, x, y, eps, begins[:, :1]).succeeded.item()
    hits = attack.at(target, x, y, eps, begins)
    assert hits.succeeded.item()
    assert hits.restart.item() == 1
    alone = attack.minimal(target, x, y, begins[:, :1])
    both = attack.minimal(target, x, y, begins)
    assert both.distance.item() < alone.distance.item()
    assert both.distance.item() == pytest.approx(0.1, rel=0.02)  # z > .3 begins at x > .65


def test_no_restart_succeeds_below_what_is_given_for_the_smallest(toy):
    generator = torch.Generator().manual_seed(0)
    with seeds.drawing(0, "initialisation"):
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 2))
    net.logits = net.forward
    x = torch.rand(12, 1, 4, 4, generator=generator)
    target = Target(net, toy)
    y, begins = target.classes(x), begin(12, 5, "linf")
    attack = PGD(norm="linf", tolerance=0.02)
    closest = attack.minimal(target, x, y, begins)
    attacked = closest.distance.isfinite()
    assert attacked.sum() >= 6
    below = (0.98 * closest.distance[attacked]).float()
    assert not attack.at(target, x[attacked], y[attacked], below, begins[attacked]).succeeded.any()


def test_the_first_success_ends_an_image(linear, toy):
    target, before = Target(linear.model, toy), linear.model.seen
    PGD(norm="linf", steps=40).at(target, linear.x, linear.y, torch.ones(20), begin(20, 4, "linf"))
    assert linear.model.seen - before < 20 * 4 * 8


class Lucky(nn.Module):
    """Wrong beyond its threshold, and before it by chance in a tenth of the answers."""

    copies = 1

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def logits(self, x):
        z = x.flatten(1).mean(dim=1)
        luck = torch.rand(len(x), generator=self.generator) < 0.1
        return torch.stack([0.3 - z, torch.where(luck, 10.0, z - 0.3)], dim=1)


def test_a_lucky_answer_is_no_success(toy):
    """Dozens of hundreds of answers are wrong by chance: the search must end at the threshold all
    the same.
    """
    x, y = torch.full((20, 1, 4, 4), 0.55), torch.zeros(20, dtype=torch.long)
    target = Target(Lucky(), toy)
    closest = PGD(norm="linf").minimal(target, x, y, begin(20, 3, "linf"))
    exact = 0.1  # the mean of the model's units is .3 at .65 of a pixel's range
    assert (closest.distance > 0.95 * exact).all()
    assert (closest.distance < 1.1 * exact).all()
    assert (target.wrong_share(closest.adversarial, y, looks=50) > 0.5).all()
    within = PGD(norm="linf").robust(target, x, y, 0.9 * exact, begin(20, 3, "linf"))
    assert within.distance.isinf().all()
