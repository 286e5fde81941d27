"""Long chains without noise on a quadratic energy, whose every state is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_evaluation import FakeDataset, FakeEvaluation, random_images
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist

from jembench.data.pixels import to_float, to_uint8
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Split
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin, ShortRun
from jembench_density.drift import ChainDrift

RATE = 0.02


class Quadratic:
    """E(x) = sum x^2 / 2, on which a step without noise multiplies x by 1 - RATE."""

    chains = "marginal"

    def energy(self, x, y=None):
        return x.square().flatten(1).sum(dim=1) / 2


@pytest.fixture
def evaluation():
    train, test = random_images(90, 1), random_images(40, 2)
    langevin = Langevin(steps=4, step_size=RATE, noise=0.0)
    sampler = PersistentChains(FakeEvaluation().spec, langevin, buffer_size=30, reinit=0.0)
    sampler.init(1, generator=torch.Generator().manual_seed(3))
    energies = Quadratic().energy(to_float(test, (-1, 1)))
    splits = {"train": Split(train, None), "test": Split(test, None)}
    made = FakeEvaluation(model=Quadratic(), sampler=sampler, test_energies=energies)
    return made.but(sets={"train": train, "test": test}, dataset=FakeDataset(made.spec, splits))


def frechet(first, second):
    a, b = (np.cov(each, rowvar=False) for each in (first, second))
    gap = first.mean(axis=0) - second.mean(axis=0)
    return gap @ gap + np.trace(a + b - 2 * sqrtm(a @ b).real)


def test_every_value_of_a_contracting_chain(evaluation):
    found = ChainDrift(steps=30, resamples=50).compute(evaluation)
    assert found.arrays["times"].tolist() == [0, 4, 10, 30]
    assert "images=30," in found.protocol
    assert "at=4+10+30," in found.protocol
    train = to_float(evaluation.sets["train"], (-1, 1)).flatten(1).numpy()
    starts = {
        "data": to_float(evaluation.sets["test"][:30], (-1, 1)),
        "noise": None,
        "buffer": evaluation.sampler.kept().x,
    }
    for start, x in starts.items():
        if x is None:  # known by its energies alone
            begin = found.arrays["energy-noise"][0]
            np.testing.assert_allclose(
                found.arrays["energy-noise"][3], begin * (1 - RATE) ** 60, rtol=1e-4
            )
            continue
        for place, steps in enumerate((0, 4, 10, 30)):
            at = x * (1 - RATE) ** steps
            shown = to_float(to_uint8(at, (-1, 1)), (-1, 1)).flatten(1).numpy()
            expected = {
                "moved": (at - x).flatten(1).norm(dim=1).numpy() / 4,
                "nearest": cdist(shown, train).min(axis=1) / 4,
            }
            for quantity, values in expected.items():
                got = found.arrays[f"{quantity}-{start}"][place]
                np.testing.assert_allclose(np.sort(got), np.sort(values), atol=1e-5)
            pools = (shown[:, :8] + 1) / 2, (train[:, :8] + 1) / 2
            assert found.arrays[f"fid-{start}"][place] == pytest.approx(frechet(*pools), abs=1e-6)
        gap = (at.square().flatten(1).sum(1) / 2).mean() - evaluation.test_energies.mean()
        assert found.values[f"drift-energy-{start}-30"].value == pytest.approx(float(gap), abs=1e-4)
        assert found.values[f"drift-fid-{start}-30"].value == found.arrays[f"fid-{start}"][3]
    assert len(found.values) == 3 * 2 * 4
    for value in found.values.values():
        assert value.low <= value.value <= value.high
        assert value.n == 30


def test_chains_do_not_depend_on_batches_and_leave_the_buffer_alone(evaluation, monkeypatch):
    before = evaluation.sampler.kept().x
    evaluation.sampler.langevin = Langevin(steps=4, step_size=RATE, noise=0.1)
    metric = ChainDrift(at="1+5", start="buffer", resamples=0)
    found = metric.compute(evaluation)
    monkeypatch.setenv("JEMBENCH_BATCH", "7")
    again = metric.compute(evaluation)
    assert {name.rpartition("-")[2] for name in found.arrays} == {
        "times",
        "trained",
        "test",
        "buffer",
    }
    for name, values in found.arrays.items():
        np.testing.assert_allclose(again.arrays[name], values, atol=1e-5)
    assert found.arrays["times"].tolist() == [0, 1, 4, 5]
    assert torch.equal(evaluation.sampler.kept().x, before)


@pytest.mark.parametrize("at", ["", "5+", "0+5", "ten", "5-10"])
def test_a_list_of_steps_that_is_none_is_refused(at):
    with pytest.raises(SpecError, match="must be numbers of steps joined by"):
        ChainDrift(at=at)
    with pytest.raises(SpecError, match="steps must then be left out"):
        ChainDrift(at="5+10", steps=30)


def test_without_kept_chains_there_is_no_start_at_the_buffer(evaluation):
    evaluation.sampler = ShortRun(evaluation.spec, Langevin(steps=2, step_size=RATE, noise=0.0))
    assert len(ChainDrift(steps=3, resamples=0).compute(evaluation).values) == 2 * 2 * 4
    with pytest.raises(NotApplicable, match="keeps no chains"):
        ChainDrift(start="buffer").compute(evaluation)
