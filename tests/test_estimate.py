"""The estimate is of the whole recipe, from a few short iterations, without a dataset's files."""

import pytest
import torch

from jembench import estimate as estimates
from jembench import registry
from jembench.data.lazy import LazyDataset
from jembench.estimate import Estimate, estimate, random_images
from jembench.interfaces import DataSpec
from jembench.plan import FitPlan
from jembench.training import recipe as recipes

CPU = torch.device("cpu")


def unread(name):
    raise AssertionError(f"the images of {name} were read")


TOY = LazyDataset(DataSpec(name="toy", shape=(1, 8, 8), num_classes=10), unread, train_size=320)


def plan(model="jem:net=small-2", *overrides):
    return FitPlan(
        model=registry.resolve("models", model),
        dataset=registry.resolve("datasets", "digits"),
        recipe=recipes.load("digits-paper", ["data.validation=0", "epochs=10", "batch_size=32", *overrides]),
        seed=0,
    )


def test_random_images_are_as_many_as_the_dataset_has_and_of_every_class():
    images, labels = random_images(TOY)
    assert images.shape == (320, 1, 8, 8)
    assert images.dtype == torch.uint8
    assert labels.unique().tolist() == list(range(10))


@pytest.fixture
def clock(monkeypatch):
    """Time passes by network passes alone: a step of a chain takes one second, the rest of an iteration seven."""

    def timed(trainer, device):
        trainer.iterate()
        return trainer.sampling_steps + 7.0

    monkeypatch.setattr(estimates, "_timed", timed)


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_the_time_of_a_long_chain_follows_from_two_short_ones(clock, steps):
    found = estimate(plan("jem:net=small-2", f"chains.sampler=pcd:steps={steps},buffer=100"), TOY, CPU)
    assert found.seconds == pytest.approx(steps + 7)
    assert found.iterations == 100
    assert found.hours == pytest.approx((steps + 7) * 100 / 3600)
    assert found.passes == steps + 3


def test_a_model_without_chains_is_timed_as_it_is(clock):
    assert estimate(plan("baseline:net=small-2"), TOY, CPU).seconds == 7


def test_a_real_estimate_is_that_of_real_iterations():
    found = estimate(plan(), TOY, CPU)
    assert 0 < found.seconds < 10
    assert found.memory > 10_000_000  # PyTorch alone takes more


def test_hours_are_of_the_whole_recipe():
    assert Estimate(seconds=1.8, iterations=2000, memory=0, passes=1).hours == 1
