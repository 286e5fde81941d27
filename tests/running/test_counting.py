"""Operations and memory are counted without computing: the ones are those of a closed form, the other a process's."""

import subprocess
import sys

import pytest

from jembench.data.datasets import LazyDataset
from jembench.errors import Unavailable
from jembench.experiment.plan import plan_fit
from jembench.interfaces import DataSpec
from jembench.running.counting import counted
from jembench.running.estimate import random_images

TOY = LazyDataset(DataSpec(name="toy", shape=(3, 32, 32), num_classes=10), print, train_size=320)
BATCH, STEPS = 8, 5
CHAINS = f"chains.sampler=pcd:steps={STEPS},buffer=100"


def count(model, recipe, *settings):
    plan = plan_fit(model, "cifar10", recipe, ["data.validation=0", f"batch_size={BATCH}", *settings])
    return counted(plan, TOY, random_images(TOY))


def convolution(inputs, outputs, size, kernel=3):
    """Of one image: a multiplication and an addition for each weight and place."""
    return 2 * inputs * outputs * kernel**2 * size**2


FIRST = convolution(3, 16, 32)
FORWARD = (
    FIRST
    + (convolution(16, 16, 32) * 2)  # the first group keeps its 16 channels
    + (convolution(16, 32, 32) + convolution(32, 32, 16) + convolution(16, 32, 16, kernel=1))
    + (convolution(32, 64, 16) + convolution(64, 64, 8) + convolution(32, 64, 8, kernel=1))
    + 2 * 64 * 10
)
"""WRN-10-1: the stride is on the second convolution of a block, and a 1x1 convolution where the shape changes."""

LEARN = 3 * FORWARD - FIRST
"""Forward, towards the weights, and towards the maps but not the images."""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_operations_of_jem_are_those_of_a_wide_resnet(precision):
    found = count("jem:net=wrn-10-1", "paper", CHAINS, f"compute.precision={precision}")
    assert found.step == BATCH * 2 * FORWARD
    assert found.iteration == STEPS * found.step + 3 * BATCH * LEARN  # data, samples, labelled images
    assert found.iterations == 150 * (320 // BATCH)


def test_a_classifier_has_no_chains():
    found = count("baseline:net=wrn-10-1", "paper")
    assert (found.step, found.iteration) == (0, BATCH * LEARN)


def test_both_terms_on_the_same_images_and_sharpness():
    shared = count("jem:net=wrn-10-1", "paper", CHAINS, "data.shared=true", "data.labelled_batch=32")
    assert shared.iteration == STEPS * BATCH * 2 * FORWARD + (32 + BATCH) * LEARN
    sharp = count("baseline:net=wrn-10-1", "paper", "optimizer.sharpness=0.1")
    assert sharp.iteration == 2 * BATCH * LEARN


MEASURE = """
import sys
import torch
from jembench.data.datasets import LazyDataset
from jembench.experiment.plan import plan_fit
from jembench.interfaces import DataSpec
from jembench.running import estimate
from jembench.running.fits import make_model

toy = LazyDataset(DataSpec(name="toy", shape=(3, 32, 32), num_classes=10), print, train_size=320)
cpu = torch.device("cpu")
for more in (["batch_size=2", "chains.sampler=pcd:steps=1,buffer=100"], []):  # the first loads what the second needs
    plan = plan_fit(sys.argv[1], "cifar10", sys.argv[2], [*sys.argv[3:], *more])
    before = estimate._memory(cpu)
    images = estimate.random_images(toy)
    trainer = estimate.Trainer(make_model(plan, toy), toy.spec, images, plan.recipe, seed=0, device=cpu)
    for _ in range(2):
        trainer.iterate()
print(estimate._peak(cpu) - before)
"""


def test_memory_is_that_of_a_process_within_a_third():
    settings = ("chains.sampler=pcd:steps=1,buffer=10000", "compute.precision=float32", "batch_size=64")
    command = [sys.executable, "-c", MEASURE, "jem:net=wrn-10-2", "paper", "data.validation=0", *settings]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    found = count("jem:net=wrn-10-2", "paper", *settings)
    assert found.memory == pytest.approx(int(process.stdout), rel=1 / 3)  # whose heap has gaps


def test_saved_maps_take_half_in_bfloat16():
    full, half = (
        count("baseline:net=wrn-10-2", "paper", f"compute.precision={precision}", "batch_size=64").memory
        for precision in ("float32", "bfloat16")
    )
    maps = 64 * 4 * 1024 * (3 + 16 + 32)  # at least: the images, and what the first two convolutions read
    assert maps / 2 < full - half < full / 2


def test_a_loss_that_depends_on_numbers_cannot_be_counted():
    with pytest.raises(Unavailable, match=r"^The operations of residual-flow.* cannot be counted: its loss depends"):
        count("residual-flow:hidden=4,levels=1,blocks=1", None)
