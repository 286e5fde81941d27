"""The heuristics of Appendix H.3 and proper SGLD, against computations that are written out."""

import copy
import math

import pytest
import torch
from torch import Generator, nn
from torch.testing import assert_close

from jembench.catalog import registry
from jembench.interfaces import Batch, ChainState, DataSpec, Negatives
from jembench.testing import check_model, check_sampler, parametrize
from jembench_jem.heuristics import TamedJEM

SHAPE = (1, 2, 2)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)


@parametrize(check_model("jem-tamed:net=small-4,energies=drop"))
def test_tamed_jem(check):
    check()


@parametrize(check_sampler("proper-sgld:buffer=100"))
def test_proper_sgld(check):
    check()


@pytest.mark.parametrize("energies", ["clip", "drop"])
def test_an_outlier_has_no_gradient_and_the_others_keep_theirs(energies):
    """The limit is 3 * 1.4826 around the median 3."""
    model = TamedJEM(nn.Identity(), energies, 3.0)
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0], requires_grad=True)
    mean = model.tamed_mean(values)
    (grad,) = torch.autograd.grad(mean, values)
    if energies == "clip":
        last, share = 3 + 3 * 1.4826, 1 / 5
    else:
        last, share = 0, 1 / 4
    assert mean.item() == pytest.approx((10 + last) * share, rel=1e-6)
    assert grad.tolist() == pytest.approx([share, share, share, share, 0])


@pytest.mark.parametrize("energies", ["clip", "drop"])
def test_the_loss_and_a_step_by_hand_and_the_guard_sees_all_energies(energies):
    """One sample lies beyond the limit.

    Its clipped energy is a constant, as the median and the spread are.
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    twin = copy.deepcopy(net)
    x = torch.randn(5, *SHAPE)
    samples = torch.randn(5, *SHAPE)
    y = torch.tensor([0, 1, 2, 0, 1])
    samples[0] *= 1000
    model = TamedJEM(net, energies, 3.0)
    loss = model.training_loss(Batch(x, x, y), Negatives(samples, None))

    energy = -twin(samples).logsumexp(1)
    middle = energy.detach().median()
    away = (energy.detach() - middle).abs()
    limit = 3 * 1.4826 * away.median()
    assert (away > limit).tolist() == [True, False, False, False, False]
    inliers = energy[1:].sum()
    side = torch.sign(energy[0].detach() - middle)
    bound = middle + limit * side
    mean = (inliers + bound) / 5 if energies == "clip" else inliers / 4
    logits = twin(x)
    cross_entropy = nn.functional.cross_entropy(logits, y)
    expected = cross_entropy - logits.logsumexp(1).mean() - mean
    assert_close(loss.total, expected, rtol=1e-4, atol=1e-4)
    assert_close(loss.energies.samples, energy)
    gradients = torch.autograd.grad(expected, twin.parameters())
    triples = zip(net.parameters(), twin.parameters(), gradients, strict=True)
    for weight, same, grad in triples:
        (slope,) = torch.autograd.grad(loss.total, weight, retain_graph=True)
        step = weight - 0.1 * slope
        assert_close(step, same - 0.1 * grad, rtol=1e-4, atol=1e-5)


def test_noise_has_twice_the_variance_of_a_step_and_steps_decay():
    spec = "proper-sgld:step_size=0.1,decay=0.5,offset=2,temperature=0.25,buffer=10"
    sampler = registry.resolve("samplers", spec).make(DATA)
    x = torch.zeros(20_000, *SHAPE)
    state = ChainState(x, steps=6)  # of size .1 * (1 + 6 / 2) ** -.5 = .05

    def uphill(x, y):
        return x.flatten(1).sum(1), torch.ones_like(x)

    generator = Generator().manual_seed(0)
    moved = sampler.step(state, uphill, generator)
    assert moved.steps == 7
    error = math.sqrt(0.025 / x.numel())
    assert moved.x.mean().item() == pytest.approx(-0.05, abs=4 * error)
    variance = 2 * 0.05 * 0.25
    assert moved.x.var().item() == pytest.approx(variance, rel=0.02)
