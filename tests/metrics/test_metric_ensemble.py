import numpy as np
import pytest
from hyperplane import DATA, Linear, grey

from jembench.errors import SpecError
from jembench.metrics.attacked import choose
from jembench.metrics.attacks import Ensemble


@pytest.fixture
def evaluation(fake):
    images, labels = grey(60, 110, 146)
    return fake.Evaluation(sets={"test": images}, labels=labels, model=Linear(), spec=DATA)


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
