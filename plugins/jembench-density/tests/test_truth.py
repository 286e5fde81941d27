import contextlib
import math

import pytest
import torch
from fake_evaluation import FakeEvaluation
from scipy.stats import norm

from jembench.data.factories import digits, toy
from jembench.errors import NotApplicable
from jembench.interfaces import DataSpec, Split
from jembench.running.planned import PlannedFit
from jembench_density.truth import DensityError

PLANE = DataSpec(name="plane", shape=(2, 1, 1), num_classes=1)
LEVELS = torch.tensor([[100, 120], [130, 128], [140, 90], [128, 128]], dtype=torch.uint8)
TEST = LEVELS.view(-1, 2, 1, 1)


class Gaussian:
    """An energy and a density of one mode.

    Up to rounding of its tails it is normalised within the bounds.
    """

    shares = (1.0,)

    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(2, 1, 1)
        self.std = std

    def energy(self, x, y=None):
        distance = (x.double() - self.mean).square().flatten(1).sum(1)
        return distance / (2 * self.std**2) + 3

    def log_joint(self, x):
        log_z = math.log(2 * math.pi * self.std**2)
        return 3 - log_z - self.energy(x)[:, None]


class Exact:
    """The energy of a toy, with test images as samples."""

    def __init__(self, dataset):
        self.truth = dataset.truth

    def energy(self, x, y=None):
        return 7 - self.truth.log_joint(x).logsumexp(dim=1)

    def sample(self, n, y=None, *, generator): ...


def evaluated(model, truth, spec, test, **options):
    sets = {"test": test}
    made = FakeEvaluation(model=model, truth=truth, spec=spec, sets=sets, labels=None, **options)
    made.test_energies = made.read("energy", test)
    return made


def values(evaluation):
    return DensityError(resamples=50).compute(evaluation).values


def test_one_gaussian_against_another_has_the_divergences_of_the_closed_forms():
    narrow = Gaussian([0.1, -0.05], 0.1)
    wide = Gaussian([0.0, 0.0], 0.15)
    measured = values(evaluated(wide, narrow, PLANE, TEST))
    ratio = (0.1 / 0.15) ** 2
    kl = ratio - 1 - math.log(ratio) + 0.0125 / (2 * 0.15**2)
    assert measured["kl"].value == pytest.approx(kl, rel=1e-6)
    moved = Gaussian([0.13, -0.01], 0.1)
    shifted = values(evaluated(moved, narrow, PLANE, TEST))
    variation = 2 * norm.cdf(0.05 / 0.2) - 1
    assert shifted["total-variation"].value == pytest.approx(variation, rel=1e-3)
    assert {"kl", "total-variation", "log-px-error"} == shifted.keys()  # it has no samples
    assert measured["kl"].low is None
    assert measured["kl"].n == 65536
    assert measured["kl"].unit == "nats"
    assert measured["kl"].better == "lower"


def test_the_error_of_log_px_is_its_deviation_up_to_a_constant():
    truth = Gaussian([0.0, 0.0], 0.1)
    model = Gaussian([0.02, 0.0], 0.1)
    x = TEST[:, 0, 0, 0].double() * 2 / 255 - 1
    measured = values(evaluated(model, truth, PLANE, TEST))["log-px-error"]
    # the slope is .02 / .1^2
    deviation = float((2 * x).std(correction=0))
    assert measured.value == pytest.approx(deviation, rel=1e-5)
    assert measured.low < measured.value < measured.high


@pytest.mark.parametrize("kind", ["rings", "checkerboard", "gaussians", "images"])
def test_the_truth_has_no_error(kind):
    dataset = toy(kind=kind)
    test = dataset.split("test").images
    model = Exact(dataset)
    measured = values(evaluated(model, dataset.truth, dataset.spec, test, sampled=test))
    of_cells = {"kl", "total-variation"} if kind != "images" else set()
    assert set(measured) == {"log-px-error", "mode-mass"} | of_cells
    for label in measured.keys() - {"mode-mass"}:
        assert measured[label].value == pytest.approx(0, abs=2e-5)
    assert 0 < measured["mode-mass"].value < 0.04


def test_the_mass_of_modes_is_counted_by_the_true_posterior():
    dataset = toy(kind="gaussians")
    levels = torch.tensor([[210, 128], [45, 128], [128, 210]], dtype=torch.uint8)
    centres = levels.view(-1, 2, 1, 1)
    sampled = centres[[0] * 5 + [1] * 4 + [2]]  # shares of .5, .4 and .1 where each mode has .125
    model = Exact(dataset)
    evaluation = evaluated(model, dataset.truth, dataset.spec, centres, sampled=sampled)
    measured = values(evaluation)["mode-mass"]
    expected = (0.375 + 0.275 + 0.025 + 5 * 0.125) / 2
    assert measured.value == pytest.approx(expected, abs=1e-4)
    assert measured.low < measured.value < measured.high
    assert measured.n == 10
    assert measured.unit == ""
    assert measured.better == "lower"


def test_it_is_not_defined_for_data_whose_density_is_unknown():
    with pytest.raises(
        NotApplicable, match=r"density of plane is not known\. Choose synthetic images: toy:rings"
    ):
        values(evaluated(Gaussian([0.0, 0.0], 0.1), None, PLANE, TEST))


@pytest.mark.parametrize("kind", ["rings", None])
def test_a_plan_knows_whether_it_is_defined(kind):
    dataset = toy(kind=kind) if kind else digits()
    test = Split(TEST, None)
    planned = PlannedFit(dataset=dataset, test=test, fetching=False)
    expected = contextlib.nullcontext()
    if not kind:
        expected = pytest.raises(NotApplicable, match="density of digits is not known")
    with expected:
        DensityError().check(planned)
