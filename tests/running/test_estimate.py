"""The estimate is of the whole recipe, from a few short iterations, without a dataset's files."""

import pytest
import torch

from jembench.catalog import registry
from jembench.data.datasets import LazyDataset
from jembench.experiment import recipe_files as recipes
from jembench.experiment.plan import FitPlan
from jembench.interfaces import DataSpec
from jembench.running import estimate as module
from jembench.running.estimate import _stages, estimates, random_images

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
        return (trainer.sampling_steps + 7.0) * trainer.recipe.batch_size / 32

    monkeypatch.setattr(module, "_timed", timed)
    monkeypatch.setattr(module, "PATIENCE", 1e9)


def estimate(*arguments):
    """The last and best one."""
    return list(estimates(*arguments))[-1]


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_the_time_of_a_long_chain_follows_from_two_short_ones(clock, steps):
    found = estimate(plan("jem:net=small-2", f"chains.sampler=pcd:steps={steps},buffer=100"), TOY, CPU)
    assert found.seconds == pytest.approx(steps + 7)
    assert found.iterations == 100
    assert found.hours == pytest.approx((steps + 7) * 100 / 3600)


def test_a_model_without_chains_is_timed_as_it_is(clock):
    assert estimate(plan("baseline:net=small-2"), TOY, CPU).seconds == 7


def test_a_real_estimate_is_that_of_real_iterations():
    found = estimate(plan(), TOY, CPU)
    assert 0 < found.seconds < 10
    assert found.memory > 10_000_000  # PyTorch alone takes more


def test_a_first_answer_comes_from_two_images_and_better_ones_from_more(clock):
    found = list(estimates(plan("jem:net=small-2", "chains.sampler=pcd:steps=93,buffer=100"), TOY, CPU))
    assert [answer.timed for answer in found] == [
        *["2 of 32 images a batch"] * 2,
        "8 of 32 images a batch",
        "whole batches",
    ]
    assert found[0].seconds == pytest.approx(8 * 96 / 4)  # by network passes: 93 + 3 for 1 + 3
    assert [answer.seconds for answer in found[1:]] == [pytest.approx(100)] * 3
    assert {answer.iterations for answer in found} == {100}


def test_what_would_take_too_long_is_not_timed(clock, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 10)  # a short iteration of 8 images takes 2 seconds, of 32 takes 8
    *_, last = estimates(plan("jem:net=small-2", "chains.sampler=pcd:steps=93,buffer=100"), TOY, CPU)
    assert last.timed == "8 of 32 images a batch"
    assert last.seconds == pytest.approx(100)


def test_where_it_is_compiled_the_first_answer_is_not_and_nothing_of_the_compiler_is_timed(monkeypatch):
    calls, timed = [], []

    def compiler(function, **options):
        def fast(*arguments):
            calls.append(len(timed))
            return function(*arguments)

        return fast

    def watch(trainer, device):
        trainer.iterate()
        timed.append(trainer.execution.compiled)
        return 3.0

    monkeypatch.setattr(torch, "compile", compiler)
    monkeypatch.setattr(module, "_timed", watch)
    recipe = plan("baseline:net=small-2", "compute.compile=on").recipe
    stages = list(_stages(recipe, True, torch.device("cuda")))
    assert [stage.compute.compile for stage in stages] == ["off", "on"]
    assert [stage.batch_size for stage in stages] == [32, 32]
    monkeypatch.setattr(module, "_stages", lambda *_: iter(stages))
    found = list(estimates(plan("baseline:net=small-2", "compute.compile=on"), TOY, CPU))
    assert [answer.timed for answer in found] == ["whole batches, not compiled yet", "whole batches"]
    assert timed == [False] + [True] * 5
    assert calls == [1, 2, 3, 4, 5]  # compiles, warms up, records; the last is the one that counts


def test_small_batches_keep_the_share_of_labelled_images():
    recipe = plan("jem:net=small-2", "data.labelled_batch=8").recipe
    found = [(stage.batch_size, stage.data.labelled_batch) for stage in _stages(recipe, False, CPU)]
    assert found == [(2, 1), (2, 1), (8, 2), (32, 8)]
