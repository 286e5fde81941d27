"""The losses against the formula, worked out by hand on a network whose logits are known."""

import math

import pytest
import torch

from jembench.energies import LogitModel
from jembench.interfaces import Batch, Negatives
from jembench.training.objective import Weights, hybrid_loss


class Table(torch.nn.Module):
    """Images of one pixel; its value v gives the logits (v, 2 v, 0) times a parameter of 1."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        v = x.flatten(1)
        return self.scale * torch.cat([v, 2 * v, 0 * v], 1)


def images(*values):
    return torch.tensor(values).view(-1, 1, 1, 1)


def logsumexp(v):
    return math.log(math.exp(v) + math.exp(2 * v) + 1)


BATCH = Batch(images(0.5, -1.0), images(1.0, 2.0), torch.tensor([0, 1]))
NEGATIVES = Negatives(images(0.25, 3.0), torch.tensor([1, 2]))

CROSS_ENTROPY = ((logsumexp(1) - 1) + (logsumexp(2) - 4)) / 2
DATA = -(logsumexp(0.5) + logsumexp(-1)) / 2
SAMPLES = -(logsumexp(0.25) + logsumexp(3)) / 2
JOINT_DATA = -(1.0 + 4.0) / 2  # E(1, class 0) = -1, E(2, class 1) = -4
JOINT_SAMPLES = -(0.5 + 0.0) / 2  # E(1/4, class 1) = -1/2, E(3, class 2) = 0


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (Weights(cross_entropy=1), CROSS_ENTROPY),
        (Weights(cross_entropy=1, marginal=1), CROSS_ENTROPY + DATA - SAMPLES),
        (Weights(conditional=1), JOINT_DATA - JOINT_SAMPLES),
        (
            Weights(cross_entropy=0.5, marginal=2, conditional=3),
            0.5 * CROSS_ENTROPY + 2 * (DATA - SAMPLES) + 3 * (JOINT_DATA - JOINT_SAMPLES),
        ),
    ],
)
def test_the_loss_is_the_formula(weights, expected):
    loss = hybrid_loss(LogitModel(Table()), BATCH, NEGATIVES, weights)
    assert loss.total.item() == pytest.approx(expected, rel=1e-6)


def test_the_parts_are_the_terms():
    parts = hybrid_loss(LogitModel(Table()), BATCH, NEGATIVES, Weights(cross_entropy=1, marginal=1)).parts
    expected = {"cross_entropy": CROSS_ENTROPY, "energy_data": DATA, "energy_samples": SAMPLES}
    assert {name: float(part) for name, part in parts.items()} == pytest.approx(expected, rel=1e-6)
    assert not any(part.requires_grad for part in parts.values())


def test_descending_makes_data_likelier_and_samples_less_likely():
    model = LogitModel(Table())
    hybrid_loss(model, BATCH, NEGATIVES, Weights(marginal=1)).total.backward()
    with torch.no_grad():
        before = model.energy(BATCH.x).mean() - model.energy(NEGATIVES.x).mean()
        model.net.scale -= 1e-3 * model.net.scale.grad
        after = model.energy(BATCH.x).mean() - model.energy(NEGATIVES.x).mean()
    assert float(after) < float(before)


def test_a_constant_added_to_all_logits_changes_no_loss():
    class Shifted(Table):
        def forward(self, x):
            return super().forward(x) + 7

    weights = Weights(cross_entropy=1, marginal=1, conditional=1)
    plain = hybrid_loss(LogitModel(Table()), BATCH, NEGATIVES, weights)
    shifted = hybrid_loss(LogitModel(Shifted()), BATCH, NEGATIVES, weights)
    assert plain.total.item() == pytest.approx(shifted.total.item(), rel=1e-5)
    assert float(shifted.parts["energy_data"]) == pytest.approx(DATA - 7, rel=1e-6)
