"""No attack mixes up devices; how often a step makes the host wait for a GPU, counted on one that
is not there.
"""

import numpy as np
import pytest
import torch
from fake_gpu import GPU, fake_gpu
from torch import nn

from jembench.attacks.pgd import PGD, REMOVAL_INTERVAL
from jembench.attacks.target import Target
from jembench.errors import Diverged
from jembench.interfaces import DataSpec
from jembench.models.energies import LogitModel

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=3)
_DRAW = torch.Generator().manual_seed(0)
WEIGHT, IMAGES, STARTS = (
    torch.rand(*shape, generator=_DRAW) for shape in ((3, 4), (6, *DATA.shape), (6, 2, *DATA.shape))
)
STARTS = 2 * STARTS - 1


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
    gpu.waits.clear()
    x, y = (
        torch.full((2, *DATA.shape), 0.5, device=GPU),
        torch.ones(2, dtype=torch.int64, device=GPU),
    )
    starts, eps = torch.zeros(2, 3, *DATA.shape, device=GPU), torch.full((2,), 0.1, device=GPU)
    PGD(norm="linf", steps=steps).at(target, x, y, eps, starts)
    return len(gpu.waits)


def test_the_host_waits_once_for_some_steps(gpu, model):
    target = Target(model, DATA)
    assert waits(gpu, target, 4 * REMOVAL_INTERVAL) - waits(gpu, target, 2 * REMOVAL_INTERVAL) == 2


def test_what_is_found_is_what_the_cpu_finds(gpu):
    """Although images that have ended stay for some steps, the first success of each counts."""
    results = {}
    for device in (torch.device("cpu"), GPU):
        model = LogitModel(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
        model.net[1].load_state_dict({"weight": WEIGHT, "bias": torch.zeros(3)})
        target = Target(model.to(device).eval(), DATA)
        x, starts = IMAGES.to(device), STARTS.to(device)
        y = target.classes(x)
        pgd = PGD(norm="linf", steps=7, tolerance=0.3)
        hits = pgd.at(target, x, y, torch.linspace(0.02, 0.4, len(x), device=device), starts)
        results[device.type] = [
            tensor.cpu() for tensor in (*hits, *pgd.minimal(target, x, y, starts))
        ]
    _, restart, ended, _, distance = results["cpu"]
    assert 0 < ended.sum() < len(IMAGES)
    assert restart[ended].unique().numel() > 1
    assert distance.isfinite().any()
    assert all(torch.equal(*pair) for pair in zip(*results.values(), strict=True))


def test_logits_that_are_not_finite_are_seen_at_the_end_of_an_attempt(gpu, model):
    target = Target(model, DATA)
    model.net[1].bias.data[0] = torch.nan
    gpu.waits.clear()
    target.slope(
        torch.full((2, *DATA.shape), 0.5, device=GPU), torch.ones(2, dtype=torch.int64, device=GPU)
    )
    assert not gpu.waits
    for steps in (1, 7):
        with pytest.raises(Diverged, match="not finite"):
            waits(gpu, target, steps)


def test_lists_and_arrays_as_indices_keep_their_values(gpu):
    """So foolbox indexes. PyTorch makes tensors of ``meta`` of lists, with which nothing is read or
    written.
    """
    x = torch.zeros(2, 3, device=GPU)
    x[np.array([0, 1]), [2, 0]] = torch.tensor([5.0, 7.0], device=GPU)
    assert x.tolist() == [[0, 0, 5], [7, 0, 0]]
    assert x[[1, 0], np.array([0, 2])].tolist() == [7, 5]


def test_a_tensor_without_values_is_refused(gpu):
    with pytest.raises(AssertionError, match="it has no values"):
        torch.zeros(1, device=GPU) + torch.as_tensor([1.0], device=GPU)
