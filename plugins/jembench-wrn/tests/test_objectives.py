"""Each loss on adversarial images and one training step of it, against the same written out."""

import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.interfaces import Batch, DataSpec, Negatives

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
RATE = 0.1


def make(spec):
    """Return a model in float64, where no gradient's sign depends on rounding."""
    with seeds.drawing(0, "initialisation"):
        model = registry.resolve("models", spec).make(DATA)
    return model.double().train()


def images(n, seed):
    generator = Generator().manual_seed(seed)
    return torch.rand(n, *SHAPE, generator=generator, dtype=torch.float64)


X = images(6, 1)
OUTLIERS = images(4, 2)
Y = torch.arange(6) % 3
SCALED = Batch(torch.full_like(X, torch.nan), 2 * X - 1, Y)  # on [-1, 1]


def after_step(model, total):
    """The parameters after a step of gradient descent."""
    names, weights = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(total, weights)
    moved = [weight - RATE * slope for weight, slope in zip(weights, gradients, strict=True)]
    return dict(zip(names, moved, strict=True))


def logits(model, x):
    return model.net(2 * x - 1)


def ascent(model, objective, start, x, eps, steps, size, norm):
    """Projected gradient ascent, image by image, of a network in evaluation mode."""
    model.eval()
    moved = start.clamp(0, 1)
    for _ in range(steps):
        moved = moved.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(moved), moved)
        rows = []
        triples = zip(x, gradient, moved.detach(), strict=True)
        for own, g, at in triples:
            if norm == "linf":
                change = at + size * g.sign() - own
                change = change.clamp(-eps, eps)
            else:
                change = at + size * g / g.norm() - own
                change = change * min(1.0, eps / float(change.norm()))
            rows.append((own + change).clamp(0, 1))
        moved = torch.stack(rows)
    model.train()
    return moved.detach()


def check_step(spec, expected_of, negatives=None):
    """Compare loss, step and batch norm's statistics of equal models.

    Return the loss.
    """
    model = make(spec)
    twin = make(spec)
    torch.manual_seed(3)
    loss = model.training_loss(SCALED, negatives)
    torch.manual_seed(3)
    expected = expected_of(twin)
    assert_close(loss.total, expected, atol=1e-6, rtol=1e-5)
    step = after_step(model, loss.total)
    assert_close(step, after_step(twin, expected), atol=1e-5, rtol=1e-4)
    statistics = dict(model.named_buffers())
    assert_close(statistics, dict(twin.named_buffers()), atol=1e-6, rtol=1e-5)
    return loss


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.5)])
def test_adversarial(norm, eps):
    def expected(net):
        def surprise(at):
            log_p = logits(net, at).log_softmax(dim=1)
            return -log_p[torch.arange(6), Y]

        def total(at):
            return surprise(at).sum()

        moved = ascent(net, total, X, X, eps, 3, 0.4 * eps, norm)
        return surprise(moved).mean()

    options = f"threat={norm}@{eps},steps=3,step_size=0.4,random_start=false"
    check_step(f"adversarial:net=small-4,norm=batch,{options}", expected)


@pytest.mark.parametrize(
    ("spec", "beta", "weighted", "adversarial"),
    [
        ("trades:beta=3", 3, False, False),
        ("weat", 6, True, False),
        ("weat:variant=adv", 7, True, True),
    ],
)
def test_trades_and_weat(spec, beta, weighted, adversarial):
    options = "net=small-4,norm=batch,threat=linf@0.1,steps=3,step_size=0.4"

    def expected(net):
        def divergence(p, q):
            terms = p * (p.log() - q.log())
            return terms.sum(dim=1)

        def total(at):
            return divergence(p, logits(net, at).softmax(dim=1)).sum()

        start = X + 0.001 * torch.randn_like(X)
        net.eval()
        p = logits(net, X).softmax(dim=1).detach()
        moved = ascent(net, total, start, X, 0.1, 3, 0.04, "linf")
        clean = logits(net, X)
        attacked = logits(net, moved)
        p = clean.softmax(dim=1)
        q = attacked.softmax(dim=1)
        weight = torch.ones(6, dtype=torch.float64)
        if weighted:
            energy = -clean.logsumexp(dim=1).detach()
            weight = 1 / torch.log1p(energy.abs().exp())
        labelled = q if adversarial else p
        surprise = -labelled[torch.arange(6), Y].log()
        mean_divergence = (weight * divergence(p, q)).mean()
        return (weight * surprise).mean() + beta * mean_divergence

    loss = check_step(f"{spec}{',' if ':' in spec else ':'}{options}", expected)
    measured = loss.parts["cross_entropy"] + loss.parts["kl"]
    assert_close(measured, loss.total.detach())


def test_ratio():
    spec = "ratio:net=small-4,norm=batch,threat=l2@0.5,steps=4,step_size=0.5"
    spec += ",outlier_threat=l2@0.8,outlier_steps=5,weight=2"
    assert make(spec).chains == "marginal"

    def expected(net):
        def surprise(at):
            log_p = logits(net, at).log_softmax(dim=1)
            return -log_p[torch.arange(6), Y]

        def from_uniform(values):
            return -values.log_softmax(dim=1).sum(dim=1) / 3

        def total(at):
            return surprise(at).sum()

        def total_from_uniform(at):
            return from_uniform(logits(net, at)).sum()

        moved = ascent(net, total, X, X, 0.5, 4, 0.25, "l2")
        size = 0.8 * 2 / 5
        outliers = ascent(net, total_from_uniform, OUTLIERS, OUTLIERS, 0.8, 5, size, "l2")
        net.eval()
        assert total_from_uniform(outliers) > total_from_uniform(OUTLIERS)
        both = logits(net.train(), torch.cat([moved, outliers]))  # batch norm sees them together
        log_p = both[:6].log_softmax(dim=1)
        cross_entropy = -log_p[torch.arange(6), Y].mean()
        uniform = from_uniform(both[6:]).mean()
        return 0.5 * (cross_entropy + 2 * uniform)

    check_step(spec, expected, Negatives(2 * OUTLIERS - 1, None))


def test_smoothadv():
    spec = "smoothadv:net=small-4,norm=batch,threat=l2@0.5,steps=3,step_size=0.5,sigma=0.2,draws=4"

    def expected(net):
        noise = 0.2 * torch.randn(4, *X.shape, dtype=torch.float64)

        def smoothed(at):
            p = sum(logits(net, at + draw).softmax(dim=1) for draw in noise) / 4
            return -p[torch.arange(6), Y].log().sum()

        moved = ascent(net, smoothed, X, X, 0.5, 3, 0.25, "l2")
        noisy = torch.cat([moved + draw for draw in noise])
        log_p = logits(net, noisy).log_softmax(dim=1)
        return -log_p[torch.arange(24), Y.repeat(4)].mean()

    check_step(spec, expected)


def test_wrong_threat_of_outliers_is_refused():
    with pytest.raises(SpecError, match=r"'l2' is no threat.* outlier_threat=l2@0.5"):
        make("ratio:outlier_threat=l2")


def test_one_cycle_is_the_schedule_of_pytorch():
    factor = registry.resolve("schedules", "one-cycle:rise=0.25").make()
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, pct_start=0.25, total_steps=40, cycle_momentum=False
    )
    expected = []
    for _ in range(40):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step() if len(expected) < 40 else None
    assert [0.1 * factor(i, 4, 40) for i in range(40)] == pytest.approx(expected)
