"""A clean linear model passes every check; models that hide their gradients are found out, each by
the right ones.
"""

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation, random_images
from scipy.stats import binomtest
from torch import Generator, nn

from jembench.attacks.target import Target
from jembench.data.pixels import to_float
from jembench.errors import OutOfTime, SpecError
from jembench.interfaces import DataSpec
from jembench.metrics.decisions import Boundary
from jembench.metrics.pgd import PGD
from jembench.metrics.shards import Shard
from jembench_robustness.gradient_checks import BY_EPS, BY_STEPS, GradientChecks, flat, rises

SPEC = DataSpec(name="toy", shape=(1, 4, 4), num_classes=2)

N = 30
SEARCH = {"images": N, "restarts": 1, "steps": 12}
BUDGET = {**SEARCH, "queries": 100, "resamples": 50}


class Linear(nn.Module):
    """Two classes on either side of a hyperplane."""

    def __init__(self):
        super().__init__()
        generator = Generator().manual_seed(0)
        weight = torch.randn(16, generator=generator)
        self.weight = nn.Parameter(weight / weight.norm())

    def margin(self, x):
        return x.flatten(1) @ self.weight

    def logits(self, x):
        margin = self.margin(x)
        return torch.stack([-margin, margin], dim=1) / 2


class Hidden(Linear):
    """The same classes and confidences, without a gradient."""

    def margin(self, x):
        return super().margin(x.detach()) + 0 * x.sum()


class Quantising(Linear):
    """Five levels of grey are all that it sees."""

    def margin(self, x):
        return super().margin((2 * x).round() / 2 + 1e-3)


class Certain(Linear):
    """A model so sure that the loss has no gradient in float32.

    The probability of the other class is 0.
    """

    def margin(self, x):
        return 1e5 * super().margin(x)


class Sawtooth(Linear):
    """A ramp with teeth, beyond which class 1 wins.

    Short steps are caught between them, and long ones leap across.
    """

    def margin(self, x):
        ramp = super().margin(x)
        return ramp + 0.05 * torch.sin(2 * torch.pi * ramp / 0.1)


class Broken(Linear):
    """A root of what is exactly 0, as in a step of a chain.

    Its derivative is infinite, and 0 times that NaN.
    """

    def margin(self, x):
        return super().margin(x) + (0 * x).abs().sqrt().sum()


class Overflowing(Linear):
    """A slope beyond the range of float32, unlike the logits."""

    def margin(self, x):
        flat = (1e30 * super().margin(x)).tanh()
        steep = 1e20 * (x - x.detach())
        return flat + 1e20 * steep.sum(dim=(1, 2, 3))


@pytest.fixture
def checked():
    def check(model, **options):
        images = random_images(2 * N, 1)
        with torch.no_grad():
            margin = model.margin(2 * images.float() / 255 - 1)
        margin = Linear().margin(2 * images.float() / 255 - 1)
        far = (margin.abs() > 0.1).nonzero().flatten()[:N]
        labels = (margin[far] > 0).long()
        sets = {"test": images[far]}
        evaluation = FakeEvaluation(model=model, spec=SPEC, sets=sets, labels=labels)
        return evaluation, GradientChecks(**{**BUDGET, **options})

    return check


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def measured(checked, known):
    """Measure a model, once in these tests; the result is not changed."""

    def measured(model, *, norm="linf", steps=SEARCH["steps"]):
        if (model, norm, steps) not in known:
            evaluation, metric = checked(model(), norm=norm, steps=steps)
            known[model, norm, steps] = metric.compute(evaluation)
        return known[model, norm, steps]

    return measured


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_linear_model_passes_all_checks(measured, norm):
    measurement = measured(Linear, norm=norm)
    assert measurement.details["suspicious"] == []
    assert set(measurement.values) == {
        "unlimited",
        "steps",
        "larger-eps",
        "white-box",
        "zero-gradients",
    }
    for value in measurement.values.values():
        assert value.value == 0
    for value in measurement.values.values():
        assert value.unit == "%"
        assert value.better == "lower"
    assert measurement.values["unlimited"].high == pytest.approx(
        11.4, abs=0.1
    )  # Wilson's, of 0 of 30


@pytest.mark.parametrize(
    ("model", "norm"), [(Hidden, "linf"), (Quantising, "linf"), (Certain, "l2")]
)
def test_a_model_without_gradients_is_found_out(measured, model, norm):
    measurement = measured(model, norm=norm)
    assert measurement.values["zero-gradients"].value == 100
    assert measurement.values["unlimited"].value == 100
    text = " ".join(measurement.details["suspicious"])
    assert f"{N} of {N} images withstand PGD at any distance" in text
    assert f"The gradient at {N} of {N} images is 0 or not finite." in text


def test_the_boundary_attack_outdoes_gradients_that_are_hidden(measured):
    measurement = measured(Hidden)
    arrays = measurement.arrays
    nearer = arrays["black-box"] < 0.95 * arrays["white-box"]
    assert measurement.values["white-box"].value == pytest.approx(100 * nearer.mean())
    assert nearer.mean() > 0.5
    assert "which uses no gradient" in " ".join(measurement.details["suspicious"])


def test_steps_that_help_the_defender_are_found_out(measured):
    measurement = measured(Sawtooth, steps=16)
    assert measurement.values["steps"].value > 10
    assert measurement.values["zero-gradients"].value == 0
    suspicious = measurement.details["suspicious"]
    (sentence,) = [text for text in suspicious if text.startswith("Accuracy rises")]
    accuracies = measurement.details["accuracy-by-steps"]
    assert list(accuracies) == ["4", "8", "16", "32"]
    _, _, settings = sentence.partition(" from ")
    first, _, last = settings.partition(" steps")[0].partition(" to ")
    rise = accuracies[last] - accuracies[first]
    assert f"rises by {rise:.1f} points" in sentence
    assert rise > 0


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    ("model", "expected"), [(Linear, False), (Broken, True), (Overflowing, True)]
)
def test_gradients_that_are_not_finite_count_as_none(checked, model, expected, norm):
    evaluation, _ = checked(Linear())
    x = to_float(evaluation.sets["test"], (0.0, 1.0))
    shard = Shard(0, torch.arange(N), x, evaluation.labels)
    target = Target(model(), evaluation.spec)
    assert flat(target, shard, norm).tolist() == [expected] * N


def test_rises_are_tested_in_pairs():
    """Of 20 images 8 more withstand the third setting than the first.

    The other differences could be chance.
    """
    standing = np.zeros((20, 3), dtype=bool)
    standing[:5] = True
    standing[5:7, 1] = standing[5:13, 2] = True
    between = {(rise.weaker, rise.stronger): rise for rise in rises(standing, (0, 1, 2))}
    points = [between[pair].points for pair in ((0, 1), (1, 2), (0, 2))]
    assert points == pytest.approx([10, 30, 40])
    two, six, eight = (binomtest(0, count).pvalue for count in (2, 6, 8))
    assert between[0, 2].p == pytest.approx(3 * eight)
    assert between[1, 2].p == pytest.approx(2 * six)
    assert between[0, 1].p == pytest.approx(two)


def arrays_of(standing=None, nearer=0, flat=0, unbroken=0, n=100):
    """Return the arrays of a model, which passes by default."""
    rows = np.arange(n)
    if standing is None:
        standing = np.zeros((n, 6), dtype=bool)
    return {
        "standing": standing,
        "unbroken": rows < unbroken,
        "flat": rows < flat,
        "black-box": np.where(rows < nearer, 0.94, 0.96),
        "white-box": np.ones(n),
        "eps": np.array([0.1]),
        "image": np.zeros((n, 1, 4, 4), dtype=np.uint8),
    }


@pytest.mark.parametrize(
    ("failing", "tolerated", "too_many"), [("unbroken", 2, 3), ("nearer", 9, 10), ("flat", 1, 2)]
)
def test_a_few_images_are_tolerated(failing, tolerated, too_many):
    metric = GradientChecks()
    assert metric.suspicions(arrays_of(**{failing: tolerated})) == []
    assert len(metric.suspicions(arrays_of(**{failing: too_many}))) == 1


def test_accuracy_that_rises_with_eps_is_suspicious_only_beyond_chance():
    metric = GradientChecks()
    standing = np.zeros((100, 6), dtype=bool)
    for column, count in zip(BY_EPS, (60, 40, 43), strict=True):
        standing[:count, column] = True
    standing[:40, BY_STEPS] = True
    assert metric.suspicions(arrays_of(standing)) == []  # 3 of 100
    standing[:50, BY_EPS[2]] = True
    (sentence,) = metric.suspicions(arrays_of(standing))
    assert sentence.startswith("Accuracy rises by 10.0 points from eps 0.1 to 0.2 (p = 0.00")
    resamplings = metric.resamplings(arrays_of(standing))
    everybody = np.arange(100)[None]
    assert resamplings["larger-eps"].statistic(everybody) == pytest.approx([10])
    assert resamplings["steps"].statistic(everybody) == pytest.approx([0])


def test_settings_differ_in_steps_or_in_eps_alone():
    settings = GradientChecks(steps=40).settings(0.6, 1.0)
    by_steps = [settings[column] for column in BY_STEPS]
    assert by_steps == [(0.6, 10), (0.6, 20), (0.6, 40), (0.6, 80)]
    by_eps = [settings[column] for column in BY_EPS]
    assert by_eps == [(0.3, 40), (0.6, 40), (1.0, 40)]


def test_eps_is_the_median_of_what_had_to_be_looked_for(checked):
    evaluation, metric = checked(Linear())
    evaluation.labels[:8] = 1 - evaluation.labels[:8]
    measurement = metric.compute(evaluation)
    distances = PGD(**SEARCH).attack(evaluation).arrays["distance-linf"]
    assert (distances == 0).sum() == 8
    assert measurement.arrays["eps"][0] == np.median(distances[distances > 0])
    nearer, at, farther = measurement.details["accuracy-by-eps"].values()
    assert nearer > at > farther


def test_what_the_attacks_have_made_is_not_made_again(checked):
    evaluation, metric = checked(Linear())
    for norm in ("linf", "l2"):
        PGD(norm=norm, **SEARCH).compute(evaluation)
    Boundary(images=N, queries=100).compute(evaluation)
    before = set(evaluation.memory)
    metric.compute(evaluation)
    new = set(evaluation.memory) - before
    made = sorted(name.rpartition("-")[0] for name in new)
    assert made == ["gradient-checks-0", *["pgd-0"] * 7]  # six settings and the unlimited one


def test_resamplings_give_the_values(measured):
    measurement = measured(Sawtooth, steps=16)
    metric = GradientChecks(**{**BUDGET, "steps": 16})
    resamplings = metric.resamplings(measurement.arrays)
    assert resamplings.keys() == measurement.values.keys()
    for label, resampling in resamplings.items():
        value = resampling.statistic(np.arange(N)[None])
        assert value == pytest.approx([measurement.values[label].value])


def test_time_that_is_up_leaves_parts_which_the_next_run_completes(checked, monkeypatch):
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 12)
    evaluation, metric = checked(Linear())
    evaluation.shards_left = 11
    with pytest.raises(OutOfTime, match="goes on from here"):
        metric.compute(evaluation)
    done = set(evaluation.memory)
    evaluation.shards_left = None
    assert "partial" not in metric.compute(evaluation).details
    assert len(done) == 11
    assert done < set(evaluation.memory)


def test_protocol_and_needs(measured):
    measurement = measured(Linear)
    assert measurement.protocol == (
        f"gradient-checks:data=toy,images={N},norm=linf,queries=100,refine=0,restarts=1,steps=12,tolerance=0.01"
    )
    plain = GradientChecks(**BUDGET, refine=0, eot=2)
    refined = GradientChecks(**BUDGET, refine=1, eot=2)
    assert refined.requires == plain.requires | {"energy", "samples", "chains"}


def test_fewer_than_four_steps_cannot_be_quartered():
    with pytest.raises(SpecError, match="steps of gradient-checks is 3; it must be at least 4"):
        GradientChecks(steps=3)
