import numpy as np
import pytest
from hyperplane import DATA, Linear, grey

from jembench.metrics.decisions import Boundary, Pointwise
from jembench.metrics.shards import choose

FACTORIES = [Boundary, Pointwise]


@pytest.fixture
def evaluation(fake):
    """60 grey images, of which every tenth has the wrong label."""
    images, labels = grey(60, 100, 156)
    return fake.Evaluation(sets={"test": images}, labels=labels, model=Linear(), spec=DATA)


@pytest.mark.parametrize("make", FACTORIES)
def test_distances_in_both_norms_and_never_below_the_exact_ones(evaluation, make):
    measured = make(images=40, queries=300).compute(evaluation)
    name = measured.protocol.partition(":")[0]
    assert {f"{name}-l2", f"{name}-linf", f"{name}-l2@128/255"} <= measured.values.keys()
    chosen = choose(evaluation, 40)
    arrays = measured.arrays
    right = arrays["distance-l2"] > 0
    for norm in ("l2", "linf"):
        exact = evaluation.model.exact(chosen.images / 255, norm).numpy()
        assert (arrays[f"distance-{norm}"] >= exact * (1 - 1e-5))[right].all()
    assert measured.values[f"{name}-l2"].value == pytest.approx(
        255 * np.median(arrays["distance-l2"])
    )
    assert (~right).any()
    assert arrays["started"].all()


@pytest.mark.parametrize("make", FACTORIES)
def test_an_image_without_a_start_counts_with_the_largest_distance(evaluation, make):
    # whatever the model takes for the other class is wrong: an attack cannot start there
    evaluation.labels[:] = 0
    measured = make(images=40, queries=50).compute(evaluation)
    name = measured.protocol.partition(":")[0]
    without = ~measured.arrays["started"]
    assert without.sum() == (~measured.arrays["found"]).sum() > 5
    assert (measured.arrays["distance-l2"][without] == 4).all()  # from black to white
    assert (measured.arrays["distance-linf"][without] == 1).all()
    assert measured.values[f"{name}-l2"].n == 40
    assert measured.values[f"{name}-l2@255/255"].value == pytest.approx(100 * without.mean())


def test_shards_do_not_matter_to_the_boundary_attack(evaluation, monkeypatch):
    metric = Boundary(images=20, queries=100)
    whole = metric.compute(evaluation).arrays
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 7)
    evaluation.memory.clear()
    parts = metric.compute(evaluation).arrays
    assert len(evaluation.memory) == 3
    np.testing.assert_allclose(parts["distance-l2"], whole["distance-l2"], rtol=1e-5)
