"""Ours does what foolbox's PGD does, step by step, from the same start; it only stops sooner."""

import pytest
import torch
from torch import nn

from jembench import seeds
from jembench.attacks.foolbox_bridge import foolbox, wrapped
from jembench.attacks.pgd import PGD, STRIDE
from jembench.attacks.target import Target
from jembench.interfaces import DataSpec

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
STEPS = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with seeds.drawing(1, "initialisation"):
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 3))

    def logits(self, x):
        return 3 * self.net(x)


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.3)])
def test_the_first_success_is_foolboxs_after_as_many_steps(norm, eps):
    target = Target(Net(), DATA)
    x = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = target.classes(x)
    ours = PGD(norm=norm, steps=STEPS).at(
        target, x, y, torch.full((40,), eps), torch.zeros(40, 1, 1, 4, 4)
    )
    attacks = foolbox().attacks
    make = (
        attacks.LinfProjectedGradientDescentAttack
        if norm == "linf"
        else attacks.L2ProjectedGradientDescentAttack
    )
    model = wrapped(target.logits, x.device)
    waiting = torch.ones(40, dtype=torch.bool)
    for steps in range(1, STEPS + 1):
        attack = make(abs_stepsize=STRIDE / STEPS * eps, steps=steps, random_start=False)
        _, images, success = attack(model, x, y, epsilons=eps)
        first = waiting & success
        assert ours.succeeded[first].all()
        torch.testing.assert_close(ours.adversarial[first], images[first], atol=1e-6, rtol=0)
        waiting &= ~success
    assert torch.equal(ours.succeeded, ~waiting)
    assert 5 < int(ours.succeeded.sum()) < 38
