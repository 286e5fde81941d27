"""The cost of the whole recipe, from a few short iterations."""

import pytest
import torch

from jembench.data.datasets import LazyDataset
from jembench.experiment.plan import plan_fit
from jembench.interfaces import DataSpec
from jembench.running import estimate as module
from jembench.running.estimate import estimate

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """A dataset of 320 images that must not be read, in place of any other."""

    def read(name):
        raise AssertionError(f"the images of {name} were read")

    def make(dataset, *, download):
        assert download  # without looking for its files
        shape = (1, 8, 8) if dataset.component.name == "digits" else (3, 32, 32)
        return LazyDataset(
            DataSpec(name="toy", shape=shape, num_classes=10), read, train_size=320, test_size=10
        )

    monkeypatch.setattr(module, "make", make)
    return make


def plan(model, dataset="digits", recipe="digits-paper", *settings):
    return plan_fit(
        model, dataset, recipe, ["data.validation=0", "epochs=10", "batch_size=8", *settings]
    )


@pytest.fixture
def timed(monkeypatch):
    """The lengths of the chains that were timed: a step takes one second, the rest of an iteration
    seven.
    """
    lengths = []

    def once(trainer):
        trainer.iterate()
        lengths.append(trainer.sampling_steps)
        return trainer.sampling_steps + 7.0

    monkeypatch.setattr(module, "_timed", once)
    return lengths


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_the_time_of_a_long_chain_follows_from_two_short_ones(timed, steps):
    settings = ("digits", "digits-paper", f"chains.sampler=pcd:steps={steps},buffer=100")
    found = estimate(plan("jem:net=small-2", *settings), CPU)
    assert found.seconds == pytest.approx(steps + 7)
    assert found.iterations == 400
    assert found.hours == pytest.approx((steps + 7) * 400 / 3600)
    assert timed == [1, 1, *([3, 3] if steps > 1 else [])]  # the first of each length warms up


def test_a_model_without_chains_is_timed_as_it_is(timed):
    assert estimate(plan("baseline:net=small-2"), CPU).seconds == 7
    assert timed == [0, 0]


def test_a_real_estimate_is_that_of_real_iterations():
    found = estimate(plan("jem:net=small-2"), CPU)
    assert 0 < found.seconds < 10
    assert found.memory > 10_000_000  # PyTorch alone takes more
