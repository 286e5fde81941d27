"""Joint passes, outliers, attacked images and the scale, each against a computation that is written
out.
"""

import copy

import pytest
import torch
from torch import Generator
from torch.nn import functional as F
from torch.testing import assert_close

from jembench import seeds
from jembench.attacks.threat import distance
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.interfaces import Batch, DataSpec, Negatives
from jembench.models.capabilities import capabilities
from jembench.models.energies import energy_function, grad_energy
from jembench.testing import check_model, parametrize
from jembench_jem.joint_pass import JointPassJEM
from jembench_jem.model import JEM

SHAPE = (3, 8, 8)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4)
ALL = "jem:net=small-4,norm=batch,marginal=0.2,passes=joint,outliers=0.1,attacked=0.25,scaled=true"


def make(spec):
    with seeds.drawing(0, "initialisation"):
        return registry.resolve("models", spec).make(DATA).train()


def images(seed, n=8):
    generator = Generator().manual_seed(seed)
    return torch.rand(n, *SHAPE, generator=generator) * 1.9 - 0.95


X, Y = images(0), torch.arange(8) % 4
SHARED = Batch(X, X, Y, outliers=images(1, 5))
APART = Batch(images(3), X, Y, outliers=images(1, 5))
SAMPLES = Negatives(images(2, 6), None)


@parametrize(check_model(ALL))
def test_jem_with_all_of_its_options(check):
    check()


@parametrize(check_model("jem:net=small-4,marginal=0,outliers=1"))
def test_jem_without_chains(check):
    check()


def test_without_the_options_it_is_the_model_of_the_paper():
    assert type(make("jem:net=small-4")) is JEM
    for option in ("marginal=0", "passes=joint", "outliers=1", "attacked=0.5", "scaled=true"):
        assert type(make(f"jem:net=small-4,{option}")) is JointPassJEM


@pytest.mark.parametrize("batch", [SHARED, APART], ids=["shared", "apart"])
@pytest.mark.parametrize("joint", [True, False])
def test_the_loss_and_its_gradients_by_hand(joint, batch):
    """Check all terms but the attack, with a scale of exp(.3)."""
    options = ALL.replace("attacked=0.25", "attacked=0")
    if not joint:
        options = options.replace("joint", "each")
    model = make(options)
    model.log_scale.data.fill_(0.1)
    twin = copy.deepcopy(model)
    loss = model.training_loss(batch, SAMPLES)

    if batch is SHARED:
        kinds = [SAMPLES.x, batch.outliers, X]
    else:
        kinds = [SAMPLES.x, batch.outliers, batch.x, X]
    if joint:
        outputs = twin.net(torch.cat(kinds)).split([len(x) for x in kinds])
    else:
        outputs = [twin.net(x) for x in kinds]
    samples, outliers, data = (-output.logsumexp(1) for output in outputs[:3])
    scaled = (0.3 * torch.ones(())).exp() * outputs[-1]
    log_p = scaled.log_softmax(1)
    cross_entropy = -log_p[range(8), Y].mean()
    binary = F.softplus(data).mean() + F.softplus(-outliers).mean()
    gap = data.mean() - samples.mean()
    expected = cross_entropy + 0.2 * gap + 0.1 * binary

    assert_close(loss.total, expected, rtol=1e-5, atol=1e-5)
    loss.total.backward(), expected.backward()
    pairs = zip(model.net.parameters(), twin.net.parameters(), strict=True)
    for weight, same in pairs:
        assert_close(weight.grad, same.grad, rtol=1e-3, atol=1e-5)
    probabilities = scaled.softmax(1).detach()
    errors = probabilities - F.one_hot(Y, 4)
    slope = 3 * (scaled.detach() * errors).sum(1).mean()  # ds/dt = 3 s
    assert_close(model.log_scale.grad, slope, rtol=1e-4, atol=1e-6)
    for name, value in twin.net.named_buffers():
        measured = dict(model.net.named_buffers())[name]
        assert_close(measured, value)


def test_running_statistics_of_a_joint_pass_are_those_of_all_images():
    model = make(ALL.replace("norm=batch", "norm=batch,momentum=1").replace("0.25", "0"))
    model.training_loss(SHARED, SAMPLES)
    first = torch.cat([SAMPLES.x, SHARED.outliers, X])
    maps = model.net.conv1(first)
    measured = model.net.layer1[0].norm1.running_mean
    expected = maps.mean((0, 2, 3))
    assert_close(measured, expected)


def test_the_attacked_share_moves_towards_a_higher_loss_within_the_radius(monkeypatch):
    model = make(ALL.replace("0.25", "0.5") + ",radius=0.3")
    model.log_scale.data.fill_(0.5)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    torch.manual_seed(0)
    x = model._partly_attacked(X, Y)
    for name, value in model.named_buffers():
        assert torch.equal(value, buffers[name])  # the attack leaves running statistics as they are
    assert torch.equal(x[4:], X[4:])
    unit = (X[:4] + 1) / 2
    moved = (x[:4] + 1) / 2
    assert distance(unit, moved, "l2").max() <= 0.3
    assert distance(unit, moved, "l2").min() > 0.1

    torch.manual_seed(0)
    start = model.attack.random_start(unit).clamp(0, 1)
    start.requires_grad_()
    model.eval()
    logits = model.logits(start * 2 - 1)
    F.cross_entropy(logits, Y[:4], reduction="sum").backward()
    length = start.grad.flatten(1).norm(dim=1)
    step = start + 0.3 * start.grad / length[:, None, None, None]
    change = step - unit
    share = (0.3 / change.flatten(1).norm(dim=1)).clamp(max=1)
    change = change * share[:, None, None, None]
    expected = (unit + change).clamp(0, 1)
    assert_close(moved, expected, rtol=0, atol=1e-3)


def test_chains_follow_f_and_scores_are_of_the_scaled_logits():
    model = make(ALL).eval()
    model.log_scale.data.fill_(0.4)
    f = model.net(X).detach()
    scale = torch.tensor(1.2).exp()
    assert_close(model.logits(X), scale * f)
    scaled = -(scale * f).logsumexp(1)
    assert_close(energy_function(model)(X), scaled)
    measured = energy_function(model, of_chains=True)(X)
    assert_close(measured, -f.logsumexp(1))
    energy, slope = grad_energy(model, of_chains=True)(X, Y)
    assert_close(energy, -f.gather(1, Y[:, None])[:, 0])
    at = X.clone().requires_grad_()
    total = -model.net(at).gather(1, Y[:, None]).sum()
    (expected,) = torch.autograd.grad(total, at)
    assert_close(slope, expected)


def test_it_says_what_it_needs():
    assert make(ALL).needs_outliers
    without = make("jem:net=small-4,norm=batch,marginal=0,attacked=0.25")
    assert without.chains == "none"
    assert without.needs_outliers is False
    assert capabilities(without) == {"logits", "energy"}
    assert without.training_loss(APART, None).energies is None
    with pytest.raises(SpecError, match="attacked of jem is 2"):
        make("jem:attacked=2")
