import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation
from hyperplane import DATA, Linear, grey
from numpy.testing import assert_array_equal
from scipy.special import bdtr
from scipy.stats import norm as normal

from jembench.errors import SpecError
from jembench.metrics.shards import choose
from jembench_robustness.certified import Certified


@pytest.fixture
def evaluation():
    images, labels = grey(40, 0, 256)
    model = Linear()
    return FakeEvaluation(sets={"test": images}, labels=labels, model=model, spec=DATA)


def test_of_a_linear_classifier_the_radius_is_the_distance_to_its_hyperplane(evaluation):
    """Smoothing leaves a linear classifier as it is.

    The radius is exact: Cohen et al. (2019), Proposition 4.
    """
    metric = Certified(sigma=0.1, budget="quick", images=40, copies=2000)
    measurement = metric.compute(evaluation)
    chosen = choose(evaluation, 40)
    exact = evaluation.model.exact(chosen.images / 255, "l2").numpy()
    radius = measurement.arrays["radius"]
    far = exact > 0.05
    clear = (exact > 0.02) & (exact < 0.2)  # beyond, 2000 copies of one class certify no more
    assert clear.sum() > 5
    predicted = measurement.arrays["predicted"]
    assert (predicted == evaluation.model.classes(chosen.images).numpy())[far].all()
    assert (radius <= exact + 1e-9).all()  # each with probability .999, by the seed
    # of one class; its lower bound is about 3.1 standard errors below
    share = normal.cdf(exact / 0.1)
    deviation = np.sqrt(share * (1 - share) / 2000)
    expected = 0.1 * normal.ppf(share - 3.1 * deviation)
    assert radius[clear] == pytest.approx(expected[clear], abs=0.02)
    right = np.where(predicted == chosen.labels.numpy(), radius, 0)
    expected_values = {
        "certified-l2@64/255": 100 * (right > 64 / 255).mean(),
        "certified-radius": 255 * right.mean(),
        "abstained": 100 * (radius == 0).mean(),
    }
    for label, value in expected_values.items():
        assert measurement.values[label].value == pytest.approx(value)


def test_the_probability_is_the_exact_lower_bound_of_clopper_and_pearson():
    """Check the lower bound; at half of all answers it abstains."""
    metric = Certified(sigma=2.0, copies=100, alpha=0.01)
    most, half, every = metric.radius(torch.tensor([80, 50, 100])).tolist()
    probability = normal.cdf(most / 2)
    assert 1 - bdtr(79, 100, probability) == pytest.approx(0.01)
    assert half == 0
    assert normal.cdf(every / 2) == pytest.approx(0.01 ** (1 / 100))


def test_other_images_and_shards_change_nothing(evaluation, monkeypatch):
    metric = Certified(sigma=0.1, images=12, copies=50)
    whole = metric.compute(evaluation).arrays["radius"]
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 5)
    evaluation.memory.clear()
    assert_array_equal(metric.compute(evaluation).arrays["radius"], whole)


@pytest.mark.parametrize("options", [{"sigma": 0.0}, {"alpha": 1.0}, {"copies": 0}])
def test_what_it_cannot_be(options):
    with pytest.raises(SpecError, match="must be"):
        Certified(**options)
