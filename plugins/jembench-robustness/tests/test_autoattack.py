"""AutoAttack is pyautoattack's, image by image, and breaks of a linear classifier exactly what is
nearer than eps.
"""

import logging
import sys
from types import SimpleNamespace

import numpy as np
import pyautoattack
import pytest
import torch
from fake_evaluation import FakeEvaluation
from torch import Generator, nn

from jembench.attacks.target import Target
from jembench.attacks.threat import distance
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import DataSpec
from jembench.metrics.shards import Shard
from jembench.parts import seeds
from jembench_robustness.autoattack import CHECKS, MEMBERS, MISCLASSIFIED, STANDING, AutoAttack

SHAPE = (1, 6, 6)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=5)
NORMS = {"linf": "Linf", "l2": "L2"}


class Linear(nn.Module):
    def __init__(self, hidden=0):
        super().__init__()
        with seeds.drawing(0, "initialisation"):
            layers = [nn.Linear(36, hidden), nn.Tanh()] if hidden else []
            head = nn.Linear(hidden or 36, 5)
            self.net = nn.Sequential(nn.Flatten(), *layers, head)

    def logits(self, x):
        return 10 * self.net(x)


class Random(Linear):
    def logits(self, x):
        return super().logits(x) + 0.1 * torch.randn(len(x), 5)


class Dynamic(Linear):
    def logits(self, x):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            density = super().logits(at).logsumexp(dim=1)
            (slope,) = torch.autograd.grad(density.sum(), at)
        return super().logits(x + 1e-3 * slope)


class Flat(Linear):
    def logits(self, x):
        return super().logits(x.round()) + 0 * x.sum()


class Probabilities(Linear):
    def logits(self, x):
        return super().logits(x).softmax(dim=1)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Fewer iterations of every attack, for all calls alike."""

    class Short(pyautoattack.AutoAttack):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.apgd.n_iter = self.apgd_targeted.n_iter = self.fab.n_iter = 15
            self.apgd.eot_iter = min(self.apgd.eot_iter, 2)
            self.square.n_queries = 60

    monkeypatch.setattr(pyautoattack, "AutoAttack", Short)


def shard_of(model, n=24, number=3):
    """Return grey images with the model's classes but for every sixth."""
    generator = Generator().manual_seed(1)
    noise = torch.rand(n, *SHAPE, generator=generator)
    x = 0.35 + 0.3 * noise
    y = model.logits(2 * x - 1).argmax(dim=1)
    y[::6] = (y[::6] + 1) % 5
    return Shard(number, torch.arange(n), x, y)


def found_of(model, **options):
    shard = shard_of(model)
    attack = AutoAttack(**options)
    return shard, attack.find(FakeEvaluation(), shard, Target(model, DATA))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("version", ["standard", "rand"])
def test_it_is_pyautoattack_image_by_image(norm, version):
    model = Linear(hidden=12)
    size = {"linf": 0.015, "l2": 0.06}[norm]
    shard, attacked = found_of(model, eps=str(size), norm=norm, version=version)
    seed = seeds.derive(0, "robustness/autoattack 3") % 2**31
    options = {"norm": NORMS[norm], "eps": size, "seed": seed, "version": version}
    by_hand = pyautoattack.AutoAttack(lambda x: model.logits(2 * x - 1), **options)
    by_hand.fab.n_target_classes = by_hand.apgd_targeted.n_target_classes = 4
    logging.getLogger("auto-attack").addHandler(logging.NullHandler())
    made, predicted = by_hand.run_standard_evaluation(shard.x, shard.y)
    assert torch.equal(attacked.adversarial, made)
    wrong = attacked.others["by"] == MISCLASSIFIED
    assert torch.equal(attacked.claimed | wrong, predicted != shard.y)
    by = attacked.others["by"]
    assert (by == MISCLASSIFIED).sum() == 4
    assert (by == STANDING).any()
    assert (by == 0).any()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_of_a_linear_classifier_it_breaks_those_that_are_nearer_than_eps_and_no_others(norm):
    model = Linear()
    x = shard_of(model).x
    y = shard_of(model).y
    # of images in [0, 1], which are half as far apart
    slope = 2 * model.net[1].weight.detach().double()
    logits = model.logits(2 * x - 1).detach().double() / 10
    margin = logits.gather(1, y[:, None]) - logits
    towards = slope[y][:, None] - slope
    dual = towards.abs().sum(dim=2) if norm == "linf" else towards.norm(dim=2)
    distances = (margin / dual).nan_to_num(torch.inf)
    distances = distances.scatter(1, y[:, None], torch.inf)
    exact = distances.amin(dim=1).clamp_min(0)
    size = float(exact[exact > 0].median()) * 1.0001
    _, attacked = found_of(model, eps=repr(size), norm=norm)
    clear = (exact / size - 1).abs() > 0.03
    broken = attacked.others["by"] > STANDING
    assert torch.equal(broken[clear], (exact < size)[clear])
    assert clear.sum() > 15
    assert (distance(x, attacked.adversarial, norm) <= size + 1e-6).all()
    unbroken = attacked.others["by"] < 0
    assert torch.equal(attacked.adversarial[unbroken], x[unbroken])


def test_an_image_beyond_eps_is_an_error(monkeypatch):
    """As of a package whose eps is of images in [-1, 1]."""
    real = pyautoattack.AutoAttack

    def twice_as_far(*arguments, eps, **options):
        return real(*arguments, eps=2 * eps, **options)

    monkeypatch.setattr(pyautoattack, "AutoAttack", twice_as_far)
    with pytest.raises(ValueError, match=r"at a distance of 0\.2, beyond eps 0\.1"):
        found_of(Linear(hidden=12), eps="0.1")


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        (Dynamic, {"dynamic"}),
        (Linear, set()),  # pyautoattack itself remembers the gradients of the former model
        (Random, {"random"}),
        (Flat, {"zero-gradients"}),
        (Probabilities, {"probabilities"}),
    ],
)
def test_each_check_tells_its_model_and_nothing_global_changes(model, flags, caplog, capsys):
    shard = shard_of(model())
    before = torch.random.get_rng_state()
    tracer = sys.gettrace()
    target = Target(model(), DATA)
    attacked = AutoAttack(eps="0.05").find(FakeEvaluation(), shard, target)
    assert {name for name in CHECKS if attacked.others[name].all()} == flags
    assert model is Random or torch.equal(torch.random.get_rng_state(), before)
    assert sys.gettrace() is tracer
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_details_have_the_contribution_of_each_attack_and_the_failed_checks():
    by = np.array([MISCLASSIFIED, STANDING, 0, 0, 1, 2, 3, 3])
    arrays = {"by": by, "found": by > STANDING}
    arrays |= {name: by > (9 if name == "random" else -9) for name in CHECKS}
    details = AutoAttack(eps="0.05").details(arrays)
    counts = [details[f"broken-by-{member}"] for member in MEMBERS["standard"]]
    assert counts == [2, 1, 1, 2]
    *checks, square = details["suspicious"]
    assert checks == [check.verdict for name, check in CHECKS.items() if name != "random"]
    assert "broke 2 images" in square


def test_a_whole_measurement():
    model = Linear(hidden=12)
    generator = Generator().manual_seed(1)
    shape = (30, *SHAPE)
    images = torch.randint(90, 165, shape, dtype=torch.uint8, generator=generator)
    x = 2 * images.float() / 255 - 1
    labels = model.logits(x).argmax(dim=1)
    evaluation = FakeEvaluation(sets={"test": images}, labels=labels, model=model, spec=DATA)
    attacked = AutoAttack(eps="0.015", images=30).compute(evaluation)
    (value,) = attacked.values.values()
    assert (
        attacked.protocol
        == "autoattack:data=toy,eps=0.015,images=30,norm=linf,refine=0,version=standard"
    )
    standing = attacked.arrays["by"] == STANDING
    assert value.value == pytest.approx(100 * standing.mean())
    assert 0 < value.low < value.value < value.high < 100
    assert not attacked.arrays["unverified"].any()


def test_random_predictions_have_the_version_for_them():
    assert AutoAttack(eps="0.1").chosen == "standard"
    refined = AutoAttack(eps="0.1", refine=1)
    smoothed = AutoAttack(eps="0.1", smooth=0.2)
    assert refined.chosen == smoothed.chosen == "rand"
    with pytest.raises(SpecError, match=r"version of autoattack is standard.*write version=rand"):
        AutoAttack(eps="0.1", version="standard", refine=1)


@pytest.mark.parametrize(
    ("options", "shape", "classes", "message"),
    [
        ({"eps": "0.1"}, (1, 8, 8), 3, "AutoAttack standard needs 4 classes"),
        ({"eps": "0.1", "version": "rand"}, (1, 8, 8), 2, "AutoAttack rand needs 3 classes"),
        ({"eps": "0.1", "norm": "l2"}, (1, 4, 8), 10, "needs images of 5 x 5 pixels"),
    ],
)
def test_data_on_which_it_is_not_defined(options, shape, classes, message):
    spec = DataSpec(name="toy", shape=shape, num_classes=classes)
    planned = SimpleNamespace(spec=spec)
    with pytest.raises(NotApplicable, match=message):
        AutoAttack(**options).check(planned)
