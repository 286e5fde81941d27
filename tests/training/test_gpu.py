"""Training on a GPU. Skipped where there is none."""

import pytest
import torch

from jembench import registry, seeds
from jembench.training import recipe as recipes
from jembench.training.loop import Trainer

QUICK = ("epochs=1", "data.pad=1", "data.flip=true", "chains.sampler=pcd:steps=3,buffer=100")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def trainer(*overrides):
    digits = registry.resolve("datasets", "digits").make()
    with seeds.initialising(0):
        model = registry.resolve("models", "jem:net=small-4").make(digits.spec)
    recipe = recipes.load("digits-paper", [*QUICK, *overrides])
    return Trainer(model, digits.spec, digits.split("train"), recipe, seed=0, device=torch.device("cuda"))


def test_the_host_never_waits_within_an_iteration():
    running = trainer("compute.compile=off")
    running.iterate()  # fills the buffer, chooses algorithms
    torch.cuda.set_sync_debug_mode("error")
    try:
        running.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_compiled_and_plain_iterations_agree():
    fast, plain = trainer("compute.precision=float32"), trainer("compute.precision=float32", "compute.compile=off")
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
