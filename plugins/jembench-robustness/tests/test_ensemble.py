"""The ensemble breaks exactly what can be broken: linear classifiers, whose distances are known."""

import builtins
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation
from hyperplane import DATA, Linear, grey
from torch import nn

from jembench import seeds
from jembench.attacks.target import Target
from jembench.attacks.threat import distance
from jembench.errors import SpecError, Unavailable
from jembench.interfaces import DataSpec
from jembench.metrics.attacks import Shard, choose
from jembench_robustness.ensemble import MEMBERS, MISCLASSIFIED, STANDING, Ensemble

BUDGET = {"steps": 20, "restarts": 2, "queries": 200}


@pytest.fixture
def evaluation():
    images, labels = grey(60, 110, 146)
    return FakeEvaluation(sets={"test": images}, labels=labels, model=Linear(), spec=DATA)


@pytest.fixture
def shard():
    """Twenty grey images with the classes that the model gives."""
    x = 0.4 + 0.2 * torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return Shard(0, torch.arange(20), x, Linear().logits(2 * x - 1).argmax(dim=1))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_of_a_linear_classifier_it_breaks_those_that_are_nearer_than_eps_and_no_others(evaluation, shard, norm):
    exact = evaluation.model.exact(shard.x, norm)
    eps = float(exact.median()) * 1.0001
    target = Target(evaluation.model, DATA)
    found = Ensemble(norm=norm, eps=repr(eps), **BUDGET).find(evaluation, shard, target)
    by = found.others["by"]
    clear = (exact / eps - 1).abs() > 0.03
    assert torch.equal((by > STANDING)[clear], (exact < eps)[clear])
    assert (distance(shard.x, found.adversarial, norm)[by >= 0] <= eps + 1e-6).all()
    assert (target.classes(found.adversarial)[by >= 0] != shard.y[by >= 0]).all()
    assert torch.equal(found.adversarial[by < 0], shard.x[by < 0])


def test_misclassified_images_are_broken_and_not_attacked(evaluation, shard):
    target, before = Target(evaluation.model, DATA), evaluation.model.seen
    found = Ensemble(eps="0.5", **BUDGET).find(evaluation, replace(shard, y=1 - shard.y), target)
    assert found.others["by"].eq(MISCLASSIFIED).all()
    assert evaluation.model.seen - before == 20


class Saturated(nn.Module):
    """Its logits are so far apart that the cross-entropy has no gradient in float32, but their ratio has one."""

    def __init__(self):
        super().__init__()
        with seeds.drawing(0, "initialisation"):
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    def logits(self, x):
        return 1e5 * self.net(x)


def test_what_one_attack_cannot_do_another_does(evaluation, shard):
    data = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
    target = Target(Saturated(), data)
    x = 0.4 + 0.2 * torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    some = Shard(0, torch.arange(40), x, target.classes(x))
    by = Ensemble(eps="0.3", **BUDGET).find(evaluation, some, target).others["by"]
    assert [MEMBERS[place] for place in by.tolist() if place >= 0].count("apgd-dlr") >= 10


def test_without_the_toolbox_it_says_what_to_install(evaluation, shard, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("art."):
            raise ImportError("no art here")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unavailable, match=r"no art here.*pip install adversarial-robustness-toolbox"):
        Ensemble(eps="0.1", **BUDGET).find(evaluation, shard, Target(evaluation.model, DATA))


def test_the_global_generators_are_as_they_were(evaluation, shard):
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    Ensemble(eps="0.01", **BUDGET).find(evaluation, shard, Target(evaluation.model, DATA))
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_the_worst_case_of_each_image(evaluation):
    metric = Ensemble(eps="2/255", images=40, restarts=1, steps=10, queries=50)
    found = metric.compute(evaluation)
    chosen = choose(evaluation, 40)
    exact = evaluation.model.exact(chosen.images / 255, "linf").numpy()
    right = (evaluation.model.classes(chosen.images) == chosen.labels).numpy()
    standing = right & (exact > 2 / 255)
    assert 0.1 < standing.mean() < 0.8
    value = found.values["ensemble-linf@2/255"]
    assert value.value == pytest.approx(100 * standing.mean())
    assert value.low < value.value < value.high
    assert found.details["misclassified"] == (~right).sum()
    by = [found.details[f"broken-by-{member}"] for member in ("apgd-ce", "apgd-dlr", "boundary")]
    assert sum(by) + (~right).sum() + standing.sum() == 40
    assert by[1] == 0  # of two classes there is no such ratio
    (resampling,) = metric.resamplings(found.arrays).values()
    assert resampling.statistic(np.arange(40)[None])[0] == pytest.approx(value.value)
    for part in ("eps=2/255", "norm=linf", "members=apgd-ce+apgd-dlr+boundary"):
        assert part in found.protocol


def test_it_needs_a_size():
    with pytest.raises(SpecError, match="eps is 'large'"):
        Ensemble(eps="large")
    with pytest.raises(TypeError):
        Ensemble()
