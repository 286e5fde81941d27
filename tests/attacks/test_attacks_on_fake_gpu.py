"""No attack mixes up devices; how often a step makes the host wait for a GPU, counted on one that is not there."""

import numpy as np
import pytest
import torch
from fake_gpu import GPU, FakeGenerator, MixedDevices, fake_gpu
from torch import nn

from jembench.attacks.pgd import PGD
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Target
from jembench.interfaces import DataSpec
from jembench.models.energies import LogitModel
from jembench.sampling.sgld import Langevin, ShortRun

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=3)


@pytest.fixture
def gpu():
    with fake_gpu() as device:
        yield device


@pytest.fixture
def model(gpu):
    """It always answers class 1, so that no attack succeeds."""
    made = LogitModel(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
    nn.init.constant_(made.net[1].bias, 0.0)
    made.net[1].bias.data[1] = 1000.0
    return made.to(GPU).eval()


def waits(gpu, target, steps):
    """Of an attack on two images from three restarts each."""
    gpu.waits.clear()
    x, y = torch.full((2, *DATA.shape), 0.5, device=GPU), torch.ones(2, dtype=torch.int64, device=GPU)
    starts, eps = torch.zeros(2, 3, *DATA.shape, device=GPU), torch.full((2,), 0.1, device=GPU)
    PGD(norm="linf", steps=steps).at(target, x, y, eps, starts)
    return len(gpu.waits)


def a_step(gpu, target):
    return waits(gpu, target, 3) - waits(gpu, target, 2)


def refined(model, grad):
    sampler = ShortRun(DATA, Langevin(steps=1, step_size=0.1, noise=0.01))
    return Target(Refined(model, sampler, steps=1, chains=2, grad=grad, generator=FakeGenerator()), DATA)


def test_a_step_waits_four_times(gpu, model):
    assert a_step(gpu, Target(model, DATA)) == 4


@pytest.mark.parametrize("grad", ["through", "bpda"])
def test_a_refined_step_waits_at_most_twice_as_often(gpu, model, grad):
    """A model that uses chance is asked again where it was wrong once, so the host looks whether that is so."""
    assert a_step(gpu, refined(model, grad)) <= 8


def test_waits_of_the_search_grow_with_its_steps_alone(gpu, model):
    """For each eps that is tried, 15 waits beside those of its steps and of the last look."""
    x, y = torch.full((2, *DATA.shape), 0.5, device=GPU), torch.ones(2, dtype=torch.int64, device=GPU)
    counts = []
    for steps in (2, 3):
        gpu.waits.clear()
        PGD(norm="linf", steps=steps).minimal(Target(model, DATA), x, y, torch.zeros(2, 1, *DATA.shape, device=GPU))
        counts.append(len(gpu.waits))
    tries = (counts[1] - counts[0]) // 4
    assert tries > 1
    assert counts[0] <= tries * (4 * (2 + 1) + 15) + 4


def test_a_planted_tensor_of_the_cpu_is_refused(gpu, model):
    target, plain = Target(model, DATA), model.logits
    model.logits = lambda x: plain(x) + torch.zeros(3)
    with pytest.raises(MixedDevices):
        waits(gpu, target, 1)


def test_lists_and_arrays_as_indices_keep_their_values(gpu):
    """So foolbox indexes. PyTorch makes tensors of ``meta`` of lists, with which nothing is read or written."""
    x = torch.zeros(2, 3, device=GPU)
    x[np.array([0, 1]), [2, 0]] = torch.tensor([5.0, 7.0], device=GPU)
    assert x.tolist() == [[0, 0, 5], [7, 0, 0]]
    assert x[[1, 0], np.array([0, 2])].tolist() == [7, 5]


def test_a_tensor_without_values_is_refused(gpu):
    with pytest.raises(AssertionError, match="it has no values"):
        torch.zeros(1, device=GPU) + torch.as_tensor([1.0], device=GPU)
