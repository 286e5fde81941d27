"""Energies under attacks of a model whose worst images are known, and their figure."""

from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from fake_evaluation import FakeEvaluation
from numpy.testing import assert_allclose, assert_array_equal
from torch import Generator, nn

from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import DataSpec
from jembench.report.figures.base import Result
from jembench_robustness.energy_figure import draw
from jembench_robustness.energy_shift import EnergyShift

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4, bounds=(0.0, 1.0))
EPS = 0.1


class Slope(nn.Module):
    """The logits (s, -s, -20, -20) of s = w x + b.

    Every attack goes along w, and E(x) is nearly -log 2 cosh s.
    """

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1.2, 16))

    def logits(self, x):
        s = (x.flatten(1) - 0.5) @ self.weight
        low = torch.full_like(s, -20)
        return torch.stack([s, -s, low, low], dim=1)


def energy(s):
    return -np.logaddexp(s, -s)


@pytest.fixture
def evaluation():
    generator = Generator().manual_seed(0)
    images = torch.randint(60, 196, (20, 1, 4, 4), dtype=torch.uint8, generator=generator)
    labels = Slope().logits(images / 255).argmax(dim=1)
    model = Slope()
    return FakeEvaluation(sets={"test": images}, labels=labels, model=model, spec=DATA)


def test_energies_are_those_of_the_closed_form(evaluation):
    metric = EnergyShift(eps=str(EPS), images=20, steps=10)
    measurement = metric.compute(evaluation)
    arrays = measurement.arrays
    weight = Slope().weight.detach().double().numpy()
    pixels = arrays["image"].reshape(20, 16) / 255
    s = (pixels - 0.5) @ weight
    assert_allclose(arrays["energy-clean"], energy(s), atol=1e-5)
    worst = np.abs(s) - EPS * np.abs(weight).sum()
    assert_allclose(arrays["energy-pgd"], energy(worst), atol=1e-4)
    assert_array_equal(arrays["broken-pgd"], worst < 0)
    assert 0 < (worst < 0).sum() < 20
    assert_array_equal(arrays["broken-apgd-t"], worst < 0)
    unbroken = arrays["energy-clean"][worst > 0]
    assert_array_equal(arrays["energy-apgd-t"][worst > 0], unbroken)
    measured = arrays["energy-apgd-t"][worst < 0]
    expected = energy(worst[worst < 0])
    assert_allclose(measured, expected, atol=0.02)
    assert arrays["broken-cw"].all()
    boundary = -np.log(2)  # just beyond s = 0
    assert_allclose(arrays["energy-cw"], boundary, atol=0.02)
    shift = (energy(s) - energy(worst)).mean()
    assert measurement.values["energy-shift-pgd"].value == pytest.approx(shift, abs=1e-4)
    assert measurement.details["broken-by-cw"] == 20
    assert "energy-samples" not in arrays


def test_an_image_that_no_attack_breaks_keeps_its_energy(evaluation):
    evaluation.model.weight.data.zero_()
    evaluation.labels.zero_()  # the class of all images
    metric = EnergyShift(eps=str(EPS), images=20, steps=2)
    arrays = metric.compute(evaluation).arrays
    for attack in ("pgd", "apgd-t", "cw"):
        assert not arrays[f"broken-{attack}"].any()
        assert_array_equal(arrays[f"energy-{attack}"], arrays["energy-clean"])


def test_what_it_cannot_be(evaluation):
    with pytest.raises(SpecError, match="eps"):
        EnergyShift(eps="none")
    shape = (1, 4, 4)
    spec = DataSpec(name="toy", shape=shape, num_classes=3)
    planned = SimpleNamespace(spec=spec)
    with pytest.raises(NotApplicable, match="Targeted APGD needs 4 classes; toy has 3"):
        EnergyShift().check(planned)


class Shown(Result):
    protocol: ClassVar = {"eps": "0.1", "norm": "linf"}
    trained_on = model = "toy"


def test_the_figure_has_every_energy_and_shift():
    rng = np.random.default_rng(0)
    names = ("clean", "pgd", "apgd-t", "cw", "samples")
    arrays = {f"energy-{name}": rng.normal(size=30) for name in names}
    result = Shown(None, arrays)
    rows = draw([result, result]).rows
    counted = Counter((row["quantity"], row["images"]) for row in rows)
    assert len(counted) == 8
    assert set(counted.values()) == {60}
    of_pgd = [row for row in rows if row["images"] == "PGD"]
    shifts = [row["value"] for row in of_pgd if row["quantity"] != "E(x)"]
    expected = arrays["energy-clean"] - arrays["energy-pgd"]
    assert shifts[:30] == expected.tolist()
