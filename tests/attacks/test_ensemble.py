import builtins

import pytest
import torch
from torch import nn

from jembench import seeds
from jembench.attacks import ensemble
from jembench.attacks.decision import Start
from jembench.attacks.ensemble import MEMBERS
from jembench.attacks.target import Target
from jembench.attacks.threat import distance
from jembench.errors import Unavailable
from jembench.interfaces import DataSpec

BUDGET = {"steps": 20, "restarts": 2, "queries": 200, "seed": 0}


@pytest.fixture
def begin(linear):
    rows = torch.tensor([int((linear.y != label).nonzero()[0]) for label in linear.y])
    return Start(linear.x[rows], torch.ones(20, dtype=torch.bool))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_of_a_linear_classifier_it_breaks_those_that_are_nearer_than_eps_and_no_others(linear, toy, begin, norm):
    exact = linear.model.exact(linear.x, norm)
    eps = float(exact.median()) * 1.0001
    target = Target(linear.model, toy)
    broken = ensemble.attack(target, linear.x, linear.y, begin, norm=norm, eps=eps, **BUDGET)
    clear = (exact / eps - 1).abs() > 0.03
    assert torch.equal((broken.by > -2)[clear], (exact < eps)[clear])
    found = broken.by >= 0
    assert (distance(linear.x, broken.adversarial, norm)[found] <= eps + 1e-6).all()
    assert (target.classes(broken.adversarial)[found] != linear.y[found]).all()
    assert torch.equal(broken.adversarial[~found], linear.x[~found])


def test_misclassified_images_are_broken_and_not_attacked(linear, toy, begin):
    target = Target(linear.model, toy)
    broken = ensemble.attack(target, linear.x, 1 - linear.y, begin, norm="linf", eps=0.5, **BUDGET)
    assert broken.by.eq(-1).all()
    assert target.passes == 20


class Saturated(nn.Module):
    """Its logits are so far apart that the cross-entropy has no gradient in float32, but their ratio has one."""

    def __init__(self):
        super().__init__()
        with seeds.initialising(0):
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    def logits(self, x):
        return 1e5 * self.net(x)


def test_what_one_attack_cannot_do_another_does():
    data = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
    target = Target(Saturated(), data)
    x = 0.4 + 0.2 * torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    y = target.classes(x)
    nowhere = Start(x, torch.zeros(20, dtype=torch.bool))
    broken = ensemble.attack(target, x, y, nowhere, norm="linf", eps=0.3, **BUDGET)
    by = [MEMBERS[place] for place in broken.by.tolist() if place >= 0]
    assert by.count("apgd-dlr") >= 10


def test_without_the_toolbox_it_says_what_to_install(linear, toy, begin, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("art."):
            raise ImportError("no art here")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unavailable, match=r"no art here.*pip install 'jembench\[ensemble\]'"):
        ensemble.attack(Target(linear.model, toy), linear.x, linear.y, begin, norm="linf", eps=0.1, **BUDGET)
