"""EB-JDAT: losses, attacks and a step of both versions against PyTorch written out, in the units of
the code.
"""

import pytest
import torch
from torch import Generator
from torch.nn import functional as F
from torch.testing import assert_close

from jembench.catalog import registry
from jembench.experiment import recipe as recipes
from jembench.interfaces import Batch, DataSpec, Negatives
from jembench.testing import check_model, parametrize

SHAPE = (1, 8, 8)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4)
EPS, ALPHA = 0.08, 0.03  # on [-1, 1]
Y = torch.tensor([0, 3, 1, 1])


def make(options, seed=0):
    torch.manual_seed(seed)
    text = f"eb-jdat:net=small-4,eps={EPS / 2},step_size={ALPHA / 2},{options}"
    return registry.resolve("models", text).make(DATA)


def images(n, seed=0):
    """Draw images of the pixel levels that a dataset has."""
    generator = Generator().manual_seed(seed)
    levels = torch.randint(0, 256, (n, *SHAPE), generator=generator)
    return levels.float() / 127.5 - 1


def ascend(model, x, y, score, *, project, seed):
    """Ascend by signs from a uniform start, in evaluation mode."""
    torch.manual_seed(seed)
    noise = torch.rand(x.shape) * 2 - 1
    moved = (x + noise * EPS).clamp(-1, 1)
    model.eval()
    for _ in range(5):
        moved.requires_grad_()
        (gradient,) = torch.autograd.grad(score(model, x, y, moved), moved)
        step = ALPHA * gradient.sign()
        moved = (moved.detach() + step).clamp(-1, 1)
        if project:
            moved = torch.minimum(torch.maximum(moved, x - EPS), x + EPS)
    model.train()
    return moved.detach()


def energy_of(model, x, y, moved):
    return -model.net(moved).logsumexp(1).sum()


def published(model, x, y, moved):
    """The attack of the code, whose distance is between each image's logits."""
    gain = model.net(moved)[torch.arange(len(y)), y].sum()
    before = model.net(x).detach()
    after = model.net(moved)
    for p, q in zip(before, after, strict=True):
        gain = gain + ((p / p.norm() - q / q.norm()) ** 2).sum()
    return gain


@pytest.mark.parametrize("version", ["paper", "code"])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_loss_and_a_step_by_hand(version, norm):
    options = f"norm={norm},version={version},marginal=0.45,gap=0.2,clean=0.3,adversarial=0.7"
    model = make(options)
    again = make(options)
    x_p = images(4, 1)
    x = images(4)
    x_q = images(4, 2)
    torch.manual_seed(5)
    batch = Batch(x_p, x, Y)
    loss = model.train().training_loss(batch, Negatives(x_q, None))

    again.train()
    data, samples, logits = (again.net(images) for images in (x_p, x_q, x))
    energies = [-images.logsumexp(1).mean() for images in (data, samples, logits)]
    is_code = version == "code"
    attack = published if is_code else energy_of
    moved = ascend(again, x, Y, attack, project=not is_code, seed=5)
    attacked = again.net(moved)
    energy = -attacked.logsumexp(1).mean()
    gap = energies[0] - energy if is_code else energy - energies[2]
    cross_entropy = F.cross_entropy(logits, Y)
    total = 0.45 * (energies[0] - energies[1]) + 0.2 * gap + 0.3 * cross_entropy
    total = total + 0.7 * F.cross_entropy(attacked, Y)
    assert_close(loss.total, total, rtol=1e-4, atol=1e-5)
    of_gap = loss.parts["gap"]
    assert_close(of_gap, gap.detach(), rtol=1e-4, atol=1e-5)
    for trained, value in ((model, loss.total), (again, total)):
        value.backward()
        torch.optim.SGD(trained.parameters(), 0.1).step()
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    for trained, same in pairs:
        assert_close(trained, same, rtol=1e-3, atol=1e-5)


def test_the_paper_projects_and_raises_the_energy_and_the_code_does_neither():
    x = (images(4) + 1) / 2
    reach = {}
    for version in ("paper", "code"):
        model = make(f"version={version}")
        torch.manual_seed(0)
        moved = model._adversarial(x, Y)
        farthest = (moved - x).abs().max()
        reach[version] = float(farthest) * 2
        y = None if version == "paper" else Y
        before = model.energy(x * 2 - 1, y)
        after = model.energy(moved * 2 - 1, y)
        raised = (after > before) if version == "paper" else (after < before)
        assert raised.all()
        assert float(moved.min()) >= 0
        assert float(moved.max()) <= 1
    assert reach["paper"] <= EPS
    assert EPS < reach["code"] <= EPS + 5 * ALPHA + 1e-6


@parametrize(check_model("eb-jdat:net=small-4,version=code,steps=2"))
def test_what_every_model_promises(check):
    check()


def test_the_published_constants():
    loaded = {name: recipes.load(name) for name in ("eb-jdat", "eb-jdat-code")}
    steps = [(loaded["eb-jdat"], 100, (25, 50, 75)), (loaded["eb-jdat-code"], 200, (50, 100, 150))]
    for recipe, epochs, decays in steps:
        assert recipe.epochs == epochs
        assert recipe.schedule.decay_epochs == decays
        assert recipe.optimizer.learning_rate == 0.01
        assert recipe.batch_size == 64
        assert recipe.data.labelled_batch == 128
        assert recipe.optimizer.sharpness == 2
    code = loaded["eb-jdat-code"].model
    assert float(code["eps"]) * 2 == pytest.approx(8 / 255)  # on [-1, 1]
    assert float(code["step_size"]) * 2 == pytest.approx(2 / 255)
    arguments = registry.resolve("models", "eb-jdat").arguments
    assert arguments["eps"] == 8 / 255
    assert arguments["steps"] == 5
    assert arguments["step_size"] == 2 / 255
    weights = [arguments[name] for name in ("marginal", "gap", "clean", "adversarial")]
    assert weights == [1, 1, 0, 1]
