"""DAT's loss and one training step against plain PyTorch, its frozen batch norm, and its
curriculum.
"""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Generator, nn
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.experiment.recipe import Chains, Guard, Optimizer, Recipe, TrainingData, load
from jembench.interfaces import Batch, DataSpec, Energies, Negatives, Split
from jembench.interfaces.samplers import Adaptive
from jembench.training.loop import Trainer
from jembench.training.optimizers import make_optimizer
from jembench_dat.curriculum import auroc

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3, bounds=(-0.5, 1.5))
RECIPE = Recipe(
    name="r",
    title="",
    epochs=2,
    batch_size=4,
    log_every=2,
    checkpoint_every=4,
    optimizer=Optimizer(name="sgd", learning_rate=0.1),
    data=TrainingData(noise=0, validation=0, shared=True),
    chains=Chains(sampler="ascent-curriculum:auroc=0,step_size=0.3,start=permuted"),
    guard=Guard(mode="off"),
)


def make(options="", data=DATA):
    with seeds.drawing(0, "initialisation"):
        return registry.resolve("models", f"dat:net=small-4{options}").make(data)


def images(n=6, seed=0):
    generator = Generator().manual_seed(seed)
    return torch.rand(n, *SHAPE, generator=generator) * 2 - 0.5


def batch():
    x = images()
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    negatives = Negatives(images(seed=1), y)
    return Batch(x, x, y), negatives


def by_hand(net, x, y, outliers, outlier_labels, *, logit, weight, eps, steps, step_size, clean=0):
    """Return the loss as the paper writes it, without a line of jembench."""
    moved = x.clone()
    for _ in range(steps):
        moved.requires_grad_()
        loss = nn.functional.cross_entropy(net(moved), y, reduction="sum")
        (slope,) = torch.autograd.grad(loss, moved)
        with torch.no_grad():
            length = slope.flatten(1).norm(dim=1)[:, None, None, None]
            unit = (moved + 0.5) / 2 + step_size * slope / length
            away = unit - (x + 0.5) / 2
            length = away.flatten(1).norm(dim=1)[:, None, None, None]
            share = (eps / length).clamp(max=1)
            unit = (x + 0.5) / 2 + away * share
            moved = unit.clamp(0, 1) * 2 - 0.5

    def energy(images, labels):
        logits = net(images)
        if logit == "joint":
            return -logits[torch.arange(len(images)), labels]
        return -logits.exp().sum(1).log()

    inside = energy(x, y)
    outside = energy(outliers, outlier_labels)
    binary = nn.functional.softplus(inside).mean() + nn.functional.softplus(-outside).mean()
    attacked = nn.functional.cross_entropy(net(moved), y)
    before = nn.functional.cross_entropy(net(x), y)
    return attacked + clean * before + weight * binary


@pytest.mark.parametrize(
    ("options", "logit", "weight", "steps", "clean"),
    [
        ("", "code", 0.5, 10, 0),
        (",logit=marginal,marginal=1,clean=2", "marginal", 1.0, 10, 2),
        (",logit=joint,steps=0,ramp=4", "joint", 0.375, 0, 0),
    ],
)
def test_loss_and_gradient_are_those_of_plain_torch(options, logit, weight, steps, clean):
    model = make(options)
    labelled, negatives = batch()
    labelled = labelled._replace(iteration=torch.tensor(3.0))
    if logit == "marginal":
        negatives = negatives._replace(y=None)
    loss = model.training_loss(labelled, negatives)
    loss.total.backward()
    gradients = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    expected = by_hand(
        model.net, labelled.x, labelled.y_labelled, negatives.x, labelled.y_labelled,
        logit=logit, weight=weight, eps=0.5, steps=steps, step_size=0.1, clean=clean,
    )  # fmt: skip
    expected.backward()
    assert_close(loss.total, expected)
    for gradient, weight in zip(gradients, model.parameters(), strict=True):
        assert_close(gradient, weight.grad, rtol=1e-3, atol=1e-5)


def test_outliers_and_curriculum_have_another_energy_than_the_loss_of_the_code():
    """Curriculum, guard and history see f(x)[y], the energy penalty logsumexp f(x)."""
    model = make()
    labelled, negatives = batch()
    loss = model.training_loss(labelled, negatives)
    inside = model.logits(labelled.x).detach().double()
    outside = model.logits(negatives.x).detach().double()
    rows = torch.arange(len(labelled.x))
    of_pairs = [-inside[rows, labelled.y_labelled], -outside[rows, negatives.y]]
    of_images = [-inside.logsumexp(1), -outside.logsumexp(1)]
    pairs = [(loss.of_chains, of_pairs), (loss.energies, of_images)]
    for energies, expected in pairs:
        for measured, values in zip(energies, expected, strict=True):
            assert_close(measured.detach().double(), values, rtol=1e-5, atol=1e-5)
    labels = [0] * len(rows) + [1] * len(rows)
    ranked = roc_auc_score(labels, torch.cat(of_pairs))
    assert ranked != roc_auc_score(labels, torch.cat(of_images))
    assert float(loss.parts["auroc"]) == pytest.approx(ranked)
    means = {"joint_energy_samples": of_pairs[1], "energy_samples": of_images[1]}
    for name, energies in means.items():
        mean = float(energies.mean())
        assert float(loss.parts[name]) == pytest.approx(mean, rel=1e-5)


def test_the_curriculum_and_the_guard_see_the_energies_of_the_chains():
    run = trainer()
    observed = []
    run.chains.sampler.observe = observed.append
    rows, _ = run.window(1)
    of_chains = observed[0]
    samples = of_chains.samples
    expected = {
        "joint_energy_samples": samples.mean(),
        "highest_sample": samples.max(),
        "highest_data": of_chains.data.max(),
    }
    for name, value in expected.items():
        assert rows[0][name] == pytest.approx(float(value), rel=1e-5)
    assert rows[0]["energy_samples"] < rows[0]["joint_energy_samples"]


@pytest.mark.parametrize("name", ["dat", "dat-paper"])
def test_recipes_of_the_code_have_nesterov_momentum(name):
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer([parameter], load(name).optimizer)
    assert optimizer.defaults["nesterov"]
    assert optimizer.defaults["momentum"] == 0.9


def split(n=12):
    generator = Generator().manual_seed(2)
    values = torch.randint(256, (n, *SHAPE), generator=generator, dtype=torch.uint8)
    return Split(values, torch.arange(n) % 3)


def trainer(model=None, recipe=RECIPE):
    model = model or make(",steps=2")
    return Trainer(model, DATA, split(), recipe, seed=0, device=torch.device("cpu"))


def test_a_step_of_training_is_that_of_plain_sgd_with_ascended_outliers_of_the_same_labels():
    run = trainer()
    plain = make(",steps=2").net
    run.window(2)  # chains of no step
    assert run.chains.sampler.steps == 1
    plain.load_state_dict(run.model.net.state_dict())
    shown = []
    loss = run.model.training_loss

    def record(batch, negatives):
        shown.append((batch, negatives))
        return loss(batch, negatives)

    run.functions.losses = {"": record}
    start = run.chains.sampler.starts.draw
    drawn = []

    def draw(*arguments):
        drawn.append(start(*arguments))
        return drawn[-1]

    run.chains.sampler.starts.draw = draw
    run.window(1)
    assert shown[0][0].iteration == 2
    labelled, negatives = shown[0]
    y = labelled.y_labelled
    assert torch.equal(negatives.y, y)
    x = drawn[0].clone().requires_grad_()
    scores = plain(x)[torch.arange(len(x)), y]
    scores.sum().backward()
    length = x.grad.flatten(1).norm(dim=1)
    step = x.grad / length[:, None, None, None]
    expected = (drawn[0] + 2 * 0.3 * step).clamp(-0.5, 1.5)
    assert_close(negatives.x, expected)
    plain.zero_grad()
    options = {"logit": "code", "weight": 0.5, "eps": 0.5, "steps": 2, "step_size": 0.1}
    by_hand(plain, labelled.x, y, negatives.x, y, **options).backward()
    pairs = zip(run.model.net.parameters(), plain.parameters(), strict=True)
    for new, old in pairs:
        expected = old - 0.1 * old.grad
        assert_close(new, expected, rtol=1e-4, atol=1e-5)


def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_scales():
    model = make(",norm=batch,steps=1")
    run = trainer(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run.window(2)
    changed = set()
    for name, value in model.state_dict().items():
        if not torch.equal(value, before[name]):
            changed.add(name)
    assert changed == {name for name, _ in model.named_parameters()}
    free = make(",norm=batch,steps=1,freeze=false")
    trainer(free).window(1)
    assert not torch.equal(
        free.state_dict()["net.norm.running_mean"], before["net.norm.running_mean"]
    )


def test_auroc_is_that_of_scikit_learn_with_ties():
    generator = np.random.default_rng(0)
    data = generator.integers(0, 8, 40).astype(np.float32)
    samples = generator.integers(2, 12, 30).astype(np.float32)
    labels = np.r_[np.zeros(40), np.ones(30)]
    pair = Energies(torch.from_numpy(data), torch.from_numpy(samples))
    expected = roc_auc_score(labels, np.r_[data, samples])
    assert float(auroc(pair)) == pytest.approx(expected)


def curriculum(options):
    sampler = registry.resolve("samplers", f"ascent-curriculum:{options}").make(DATA)
    assert isinstance(sampler, Adaptive)
    return sampler


def seen(*aurocs):
    """Yield energies with each AUROC, of one image and ten samples."""
    for value in aurocs:
        right = round(10 * value)
        samples = torch.tensor([1.0] * right + [-1.0] * (10 - right))
        yield Energies(torch.zeros(1), samples)


def test_chains_grow_where_the_mean_of_a_window_reaches_the_threshold():
    sampler = curriculum("auroc=0.8,most=3,steps=1")
    grown = []
    windows = [(0.7, 1.0), (0.7, 0.8), (), (1.0,), (0.9, 0.9, 0.9)]
    for window in windows:
        for energies in seen(*window):
            sampler.observe(energies)
        sampler.adapt()
        grown.append(sampler.steps)
    assert grown == [2, 2, 2, 3, 3]


def test_a_resumed_curriculum_is_bit_for_bit_that_of_one_run_in_the_middle_of_a_window_too():
    recipe = dataclasses.replace(RECIPE, log_every=4)
    whole = trainer(recipe=recipe)
    first = trainer(recipe=recipe)
    whole.window(4)
    whole.window(2)
    first.window(3)
    second = trainer(recipe=recipe)
    second.load_state_dict(first.state_dict())
    second.window(1)
    second.window(2)
    assert whole.chains.sampler.steps == second.chains.sampler.steps == 1
    weights = second.model.parameters()
    pairs = zip(whole.model.parameters(), weights, strict=True)
    for weight, same in pairs:
        assert torch.equal(weight, same)
    assert torch.equal(whole.chains.state_dict()["seen"], second.chains.state_dict()["seen"])
