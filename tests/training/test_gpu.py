"""Training on a GPU. Skipped where there is none."""

import pytest
import torch

from jembench import seeds
from jembench.catalog import registry
from jembench.experiment import recipe as recipes
from jembench.training.loop import Trainer

QUICK = ("epochs=1", "data.pad=1", "data.flip=true", "chains.sampler=pcd:steps=3,buffer=100")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def trainer(*overrides, model="jem:net=small-4"):
    digits = registry.resolve("datasets", "digits").make()
    with seeds.initialising(0):
        model = registry.resolve("models", model).make(digits.spec)
    recipe = recipes.load("digits-paper", [*QUICK, *overrides])
    return Trainer(model, digits.spec, digits.split("train"), recipe, seed=0, device=torch.device("cuda"))


@pytest.mark.parametrize("dropout", [0, 0.3])
def test_the_host_never_waits_within_an_iteration(dropout):
    running = trainer("compute.compile=off", model=f"jem:net=small-4,dropout={dropout}")
    running.iterate()  # fills the buffer, chooses algorithms
    torch.cuda.set_sync_debug_mode("error")
    try:
        running.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_compiled_and_plain_iterations_agree():
    fast, plain = (trainer("compute.precision=float32", f"compute.compile={compile}") for compile in ("on", "off"))
    for _ in range(3):
        compiled, expected = fast.iterate(), plain.iterate()
    assert float(compiled["loss"]) == pytest.approx(float(expected["loss"]), abs=1e-2)


def test_a_resumed_run_follows_the_same_trajectory():
    straight, resumed = trainer("compute.compile=off"), trainer("compute.compile=off")
    for _ in range(3):
        straight.iterate()
    resumed.load_state_dict(straight.state_dict())
    for _ in range(3):
        expected, found = straight.iterate(), resumed.iterate()
    assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-2)


@pytest.mark.parametrize("compiled", ["on", "off"])
def test_dropout_depends_on_the_iteration_and_not_on_what_was_drawn_before(compiled):
    """In a captured graph, too: each replay takes the seed of its iteration."""
    plain, other = (trainer(f"compute.compile={compiled}", model="jem:net=small-4,dropout=0.5") for _ in range(2))
    for number in range(6):  # the first ones warm up and capture
        expected = plain.iterate()
        torch.rand(number, device="cuda")
        found = other.iterate()
        assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-2), number


def test_the_global_generator_of_the_device_is_left_where_it_was():
    running = trainer("compute.compile=off", model="jem:net=small-4,dropout=0.5")
    before = torch.cuda.get_rng_state()
    running.iterate()
    assert torch.equal(before, torch.cuda.get_rng_state())
