"""Long chains without noise on a quadratic energy, whose every state is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_evaluation import FakeDataset, FakeEvaluation, random_images
from numpy.testing import assert_allclose
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from torch import Generator

from jembench.data.pixels import to_float, to_uint8
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Split
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin, ShortRun
from jembench_density.drift import ChainDrift

RATE = 0.02


class Quadratic:
    """An energy on which a step multiplies x by 1 - RATE."""

    chains = "marginal"

    def energy(self, x, y=None):
        return x.square().flatten(1).sum(dim=1) / 2


@pytest.fixture
def evaluation():
    train = random_images(90, 1)
    test = random_images(40, 2)
    langevin = Langevin(steps=4, step_size=RATE, noise=0.0)
    sampler = PersistentChains(FakeEvaluation().spec, langevin, buffer_size=30, reinit=0.0)
    sampler.init(1, generator=Generator().manual_seed(3))
    energies = Quadratic().energy(to_float(test, (-1, 1)))
    splits = {"train": Split(train, None), "test": Split(test, None)}
    made = FakeEvaluation(model=Quadratic(), sampler=sampler, test_energies=energies)
    dataset = FakeDataset(made.spec, splits)
    return made.but(sets={"train": train, "test": test}, dataset=dataset)


def frechet(first, second):
    a = np.cov(first, rowvar=False)
    b = np.cov(second, rowvar=False)
    gap = first.mean(axis=0) - second.mean(axis=0)
    root = sqrtm(a @ b).real
    return gap @ gap + np.trace(a + b - 2 * root)


def test_every_value_of_a_contracting_chain(evaluation):
    measurement = ChainDrift(steps=30, resamples=50).compute(evaluation)
    assert measurement.arrays["times"].tolist() == [0, 4, 10, 30]
    assert "images=30," in measurement.protocol
    assert "at=4+10+30," in measurement.protocol
    train = to_float(evaluation.sets["train"], (-1, 1))
    train = train.flatten(1).numpy()
    test = to_float(evaluation.sets["test"][:30], (-1, 1))
    kept = evaluation.sampler.kept().x
    starts = {"data": test, "noise": None, "buffer": kept}
    for start, x in starts.items():
        if x is None:  # known by its energies alone
            begin = measurement.arrays["energy-noise"][0]
            measured = measurement.arrays["energy-noise"][3]
            contracted = begin * (1 - RATE) ** 60
            assert_allclose(measured, contracted, rtol=1e-4)
            continue
        for place, steps in enumerate((0, 4, 10, 30)):
            at = x * (1 - RATE) ** steps
            shown = to_float(to_uint8(at, (-1, 1)), (-1, 1))
            shown = shown.flatten(1).numpy()
            moved = (at - x).flatten(1).norm(dim=1)
            nearest = cdist(shown, train).min(axis=1)
            expected = {"moved": moved.numpy() / 4, "nearest": nearest / 4}
            for quantity, values in expected.items():
                got = measurement.arrays[f"{quantity}-{start}"][place]
                values = np.sort(values)
                assert_allclose(np.sort(got), values, atol=1e-5)
            fid = frechet((shown[:, :8] + 1) / 2, (train[:, :8] + 1) / 2)
            assert measurement.arrays[f"fid-{start}"][place] == pytest.approx(fid, abs=1e-6)
        energy = at.square().flatten(1).sum(1) / 2
        gap = float(energy.mean() - evaluation.test_energies.mean())
        assert measurement.values[f"drift-energy-{start}-30"].value == pytest.approx(gap, abs=1e-4)
        assert (
            measurement.values[f"drift-fid-{start}-30"].value
            == measurement.arrays[f"fid-{start}"][3]
        )
    assert len(measurement.values) == 3 * 2 * 4
    for value in measurement.values.values():
        assert value.low <= value.value <= value.high
        assert value.n == 30


def test_chains_do_not_depend_on_batches_and_leave_the_buffer_alone(evaluation, monkeypatch):
    before = evaluation.sampler.kept().x
    evaluation.sampler.langevin = Langevin(steps=4, step_size=RATE, noise=0.1)
    metric = ChainDrift(at="1+5", start="buffer", resamples=0)
    measurement = metric.compute(evaluation)
    monkeypatch.setenv("JEMBENCH_BATCH", "7")
    again = metric.compute(evaluation)
    ends = {name.rpartition("-")[2] for name in measurement.arrays}
    assert ends == {"times", "trained", "test", "buffer"}
    for name, values in measurement.arrays.items():
        assert_allclose(again.arrays[name], values, atol=1e-5)
    assert measurement.arrays["times"].tolist() == [0, 1, 4, 5]
    assert torch.equal(evaluation.sampler.kept().x, before)


@pytest.mark.parametrize("at", ["", "5+", "0+5", "ten", "5-10"])
def test_a_list_of_steps_that_is_none_is_refused(at):
    with pytest.raises(SpecError, match="must be numbers of steps joined by"):
        ChainDrift(at=at)
    with pytest.raises(SpecError, match="steps must then be left out"):
        ChainDrift(at="5+10", steps=30)


def test_without_kept_chains_there_is_no_start_at_the_buffer(evaluation):
    langevin = Langevin(steps=2, step_size=RATE, noise=0.0)
    evaluation.sampler = ShortRun(evaluation.spec, langevin)
    values = ChainDrift(steps=3, resamples=0).compute(evaluation).values
    assert len(values) == 2 * 2 * 4
    with pytest.raises(NotApplicable, match="keeps no chains"):
        ChainDrift(start="buffer").compute(evaluation)
