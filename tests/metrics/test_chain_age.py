"""The age of kept chains against the class that the model sees, checked against SciPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kruskal

from jembench.errors import NotApplicable
from jembench.interfaces import Samples
from jembench.interfaces.evaluation import KEPT
from jembench.metrics.samples import ChainAge, epsilon_squared


class Model:
    """Three pixels of an image are its logits."""

    def logits(self, x):
        return x.flatten(1)[:, :3]


def of_classes(classes):
    """Images whose class is plain to see."""
    images = torch.zeros(len(classes), 1, 4, 4, dtype=torch.uint8)
    images[torch.arange(len(classes)), 0, 0, classes] = 255
    return images


@pytest.fixture
def evaluation(fake):
    """120 chains; those of class 2 are older."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(3, (120,), generator=generator)
    ages = 20 * (torch.randint(1, 9, (120,), generator=generator) + 3 * (classes == 2))
    return fake.Evaluation(
        model=Model(), by_source={KEPT: Samples(of_classes(classes), None, "buffer", ages)}
    )


def of_resample(ages, classes):
    """Epsilon squared by SciPy's H, of all chains."""
    groups = [ages[classes == number] for number in np.unique(classes)]
    return kruskal(*groups).statistic / (len(ages) - 1)


def test_values_are_scipys_and_numpys(evaluation):
    samples = evaluation.by_source[KEPT]
    ages, classes = samples.ages.numpy(), samples.images[:, 0, 0, :3].argmax(1).numpy()
    measured = ChainAge().compute(evaluation)
    assert measured.values["chain-age"].value == np.median(ages)
    assert measured.values["chain-age"].unit == "steps"
    assert measured.values["age-dependence"].value == pytest.approx(
        of_resample(ages, classes), abs=1e-12
    )
    assert np.array_equal(measured.arrays["ages"], ages)
    assert np.array_equal(measured.arrays["predicted"], classes)
    for value in measured.values.values():
        assert value.low <= value.value <= value.high
        assert value.n == 120
    assert measured.values["age-dependence"].low > 0
    assert measured.values["age-dependence"].high < 1


@settings(deadline=None)
@given(data=st.data(), n=st.integers(2, 30), seed=st.integers(0, 99))
def test_the_effect_size_of_every_resample_is_scipys_with_its_ties(data, n, seed):
    ages = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)))
    classes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    indices = np.random.default_rng(seed).integers(n, size=(6, n))
    for row, share in zip(indices, epsilon_squared(ages, classes)(indices), strict=True):
        if len(set(ages[row])) == 1 or len(set(classes[row])) == 1:
            assert share == 0
        else:
            assert share == pytest.approx(of_resample(ages[row], classes[row]), abs=1e-12)
        assert -1e-12 <= share <= 1 + 1e-12


@pytest.mark.parametrize(
    ("ages", "classes"), [([3] * 6, [0, 1, 2] * 2), ([1, 2, 3, 4, 5, 6], [1] * 6)]
)
def test_equal_ages_or_classes_have_no_dependence(fake, ages, classes):
    samples = Samples(of_classes(torch.tensor(classes)), None, "buffer", torch.tensor(ages))
    measured = ChainAge().compute(fake.Evaluation(model=Model(), by_source={KEPT: samples}))
    assert measured.values["age-dependence"][:3] == (0, None, None)


def test_a_model_without_kept_chains_has_no_ages(evaluation):
    evaluation.by_source[KEPT] = evaluation.by_source[KEPT]._replace(ages=None)
    with pytest.raises(NotApplicable, match="keeps no chains"):
        ChainAge().compute(evaluation)
