"""Metrics of attacked images: of a linear model, accuracy and scores of outliers under attack have
closed forms.
"""

import re
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation, random_images
from hyperplane import DATA, Linear, grey
from torch import Generator, nn

from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.errors import NotApplicable, OutOfTime, SpecError
from jembench.interfaces import DataSpec, Planned
from jembench.metrics import functional
from jembench.metrics.pgd import PGD
from jembench.metrics.shards import choose
from jembench_robustness.under_attack import Attacked, OutliersUnderAttack, highest

SPENT = "budget=quick,images=40,restarts=1"


def measured(metric, evaluation):
    return registry.resolve("metrics", metric).make().compute(evaluation)


@pytest.fixture
def evaluation():
    """Return an evaluation on grey images, far from the bounds."""
    images, labels = grey(60, 110, 146)
    model = Linear()
    logits = model.logits(to_float(images, DATA.bounds)).detach()
    sets = {"test": images}
    return FakeEvaluation(sets=sets, labels=labels, model=model, spec=DATA, test_logits=logits)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_accuracy_and_calibration_are_those_of_the_images_of_the_attack(evaluation, norm):
    chosen = choose(evaluation, 40)
    exact = evaluation.model.exact(chosen.images / 255, norm)
    eps = 1.001 * float(exact.median())
    attack = f"pgd:{SPENT},norm={norm}"
    measurements = {}
    for name in ("accuracy", "nll", "ece"):
        spec = f'attacked:metric={name},attack="{attack}@{eps}"'
        measurements[name] = measured(spec, evaluation)
    right = evaluation.model.classes(chosen.images) == chosen.labels
    robust = right & (exact > eps)
    accuracy = measurements["accuracy"].values[f"accuracy-under-pgd-{norm}@{eps}"]
    assert accuracy.value == 100 * robust.double().mean()
    attacked = measured(f"{attack},eps={eps}", evaluation).arrays
    x = 2 * torch.from_numpy(attacked["adversarial"]) - 1
    logits = evaluation.model.logits(x).detach().numpy()
    for name, expected in (("nll", functional.nll), ("ece", functional.ece)):
        value = measurements[name].values[f"{name}-under-pgd-{norm}@{eps}"]
        by_hand = expected(logits, attacked["label"]).value
        assert value.value == pytest.approx(by_hand)
        assert value.n == 40
    assert len(evaluation.memory) == 1  # one attack for all
    assert "images=40" in measurements["nll"].protocol
    assert f"norm={norm},refine=0,restarts=1" in measurements["nll"].protocol


def test_images_on_which_the_attack_fails_stay_as_they_are(evaluation):
    chosen = choose(evaluation, 40)
    x = to_float(chosen.images, DATA.bounds)
    clean = functional.nll(evaluation.model.logits(x).detach(), chosen.labels)
    metric = Attacked(metric="nll", attack=f"pgd:{SPENT}@1e-9")
    value = metric.compute(evaluation).values["nll-under-pgd-linf@1e-9"]
    assert value.value == pytest.approx(clean.value)


def test_a_model_with_chains_in_its_answer_needs_them():
    plain = Attacked(metric="ece")
    refined = Attacked(metric="ece:scaling=temperature", attack="pgd:refine=1@8/255")
    assert plain.requires == {"logits", "labels", "gradients"}
    assert refined.requires == plain.requires | {"validation", "energy", "samples", "chains"}
    arrays = {"confidence": np.array([0.5]), "correct": np.array([True])}
    assert list(refined.estimates(arrays)) == ["ece-scaled-under-pgd-linf@8/255"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"attack": "pgd"},
            "attack of attacked is 'pgd'; write an attack with its eps: pgd@8/255.",
        ),
        ({"attack": "pdg@8/255"}, "no metric named 'pdg'"),
        ({"attack": "pgd@large"}, "eps is 'large'"),
        ({"attack": "boundary@0.1"}, "no option of boundary named 'eps'"),
        (
            {"metric": "accuracy:data_noise=0.1"},
            "without data_noise, which is an option of the attack",
        ),
        ({"metric": "fid"}, "it must be a metric of classification or calibration"),
    ],
)
def test_what_is_no_attack_within_an_eps_is_refused(options, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        Attacked(**options)


def test_part_of_the_images_is_no_measurement(evaluation, monkeypatch):
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 15)
    evaluation.shards_left = 1
    with pytest.raises(OutOfTime, match="after 15 of 40 images"):
        Attacked(attack=f"pgd:{SPENT}@0.1").compute(evaluation)


class Smooth(nn.Module):
    """A linear energy, and logits that are not linear.

    An attack lowers the energy by eps times the dual norm.
    """

    def __init__(self):
        super().__init__()
        generator = Generator().manual_seed(0)
        self.slope = nn.Parameter(torch.randn(16, generator=generator))
        self.first = nn.Parameter(torch.randn(16, 12, generator=generator))
        self.second = nn.Parameter(torch.randn(12, 3, generator=generator))

    def energy(self, x):
        return x.flatten(1) @ self.slope

    def logits(self, x):
        hidden = (x.flatten(1) @ self.first).tanh()
        return hidden @ self.second


class Curved(Smooth):
    def energy(self, x):
        return -self.logits(x).logsumexp(dim=1)


@pytest.fixture
def outliers():
    def of(model):
        sets = {"test": random_images(30, 1), "inverted": random_images(40, 2, 90, 165)}
        shape = (1, 4, 4)
        spec = DataSpec(name="toy", shape=shape, num_classes=3)
        options = {"labels": torch.arange(30) % 3, "set_labels": {"validation": None}}
        made = FakeEvaluation(sets=sets, model=model, spec=spec, **options)
        sets["validation"] = random_images(50, 3)
        for name, images in sets.items():
            for quantity in ("logits", "energy", "grad-norm"):
                readings = made.read(quantity, images)
                made.readings[quantity, name] = readings.detach()
        return made

    return of


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_linear_score_rises_by_eps_times_the_dual_norm(outliers, norm):
    """The ball is twice as large in the model's units."""
    evaluation = outliers(Smooth())
    eps = {"linf": 0.05, "l2": 0.2}[norm]
    plain = measured("ood:set=inverted", evaluation)
    under = measured(
        f'ood-attacked:set=inverted,attack="pgd:{SPENT},norm={norm}@{eps}"', evaluation
    )
    slope = evaluation.model.slope.detach().double()
    length = slope.abs().sum() if norm == "linf" else slope.norm()
    raised = np.sort(plain.arrays["outside"] + 2 * eps * float(length))
    assert np.sort(under.arrays["outside"]) == pytest.approx(raised, abs=1e-4)
    assert (under.arrays["inside"] == plain.arrays["inside"]).all()
    expected = functional.auroc(plain.arrays["inside"], raised)
    assert under.values[f"auroc-under-pgd-{norm}@{eps}"].value == pytest.approx(expected.value)
    assert "outliers=40" in under.protocol
    assert f"norm={norm}" in under.protocol


@pytest.mark.parametrize(
    "score", ["log-px", "max-py", "max-logit", "grad-norm", "log-px-given-class"]
)
def test_every_differentiable_score_rises_with_eps_from_its_plain_value(outliers, score):
    evaluation = outliers(Curved())
    plain = np.sort(measured(f"ood:set=inverted,score={score}", evaluation).arrays["outside"])
    reached = []
    for eps in ("1e-9", "0.02", "0.1"):
        spec = f'ood-attacked:set=inverted,score={score},attack="pgd:{SPENT}@{eps}"'
        reached.append(np.sort(measured(spec, evaluation).arrays["outside"]))
    assert reached[0] == pytest.approx(plain, rel=1e-5)
    assert reached[1].mean() > plain.mean()
    assert (reached[2] >= reached[1]).mean() > 0.9
    assert reached[2].mean() > reached[1].mean()


def test_at_eps_0_nothing_moves():
    x = torch.rand(5, 1, 4, 4)

    def scores(at):
        return at.sum(), at.flatten(1).sum(dim=1)

    starts = torch.zeros(5, 1, 1, 4, 4)
    scores_at_0 = highest(PGD(steps=3, eps="1e-30"), scores, x, starts)
    assert torch.equal(scores_at_0, x.flatten(1).sum(dim=1))


@pytest.mark.parametrize("attack", ["autoattack@8/255", "pgd:refine=1@8/255"])
def test_outliers_are_attacked_by_plain_pgd_alone(attack):
    with pytest.raises(SpecError, match="it must be pgd, without refine, data_noise and smooth"):
        OutliersUnderAttack(set="inverted", attack=attack)


def test_a_score_without_a_gradient_is_not_attacked():
    planned = MagicMock(spec=Planned)
    planned.spec.dimensions = 16
    metric = OutliersUnderAttack(set="inverted", score="refinement")
    with pytest.raises(NotApplicable, match="score refinement is not a differentiable function"):
        metric.check(planned)
    planned.check_ood_set.assert_called_once_with("inverted")
    assert "gradients" in metric.requires
