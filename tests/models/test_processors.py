"""Weight gradients on a processor that has AVX2 alone, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from jembench.interfaces import DataSpec
from jembench.models.energies import LogitModel
from jembench.models.execution import to_channels_last
from jembench.models.nets import small
from jembench.models.wide_resnet import ResidualNet

DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=4)
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
ERRORS = "import json, test_processors; print(json.dumps(test_processors.errors()))"


class Strided(nn.Module):
    """A user's network whose strided 1x1 convolution has few channels."""

    def __init__(self, channels, kernel=1, groups=1):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, 8, kernel, stride=2, padding=kernel // 2, groups=groups)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(F.leaky_relu(self.shortcut(self.stem(x)), 0.2).mean((2, 3)))


def error(net):
    """Return the largest relative error of the weight gradients of ``net`` against float64."""
    model, exact = LogitModel(net), LogitModel(net)
    x = torch.randn(16, *DATA.shape, generator=torch.Generator().manual_seed(0))
    exact.double().logits(x.double()).square().sum().backward()
    expected = [p.grad.clone() for p in exact.parameters()]
    model.float().zero_grad()
    to_channels_last(model, DATA)
    for _ in range(5):  # memory that was written by mistake is read later
        model.zero_grad()
        model.logits(x).square().sum().backward()
    pairs = zip(model.parameters(), expected, strict=True)
    return max(((p.grad.double() - e).norm() / e.norm()).item() for p, e in pairs)


def errors():
    """Return the errors of our networks and of a user's, by channels."""
    torch.manual_seed(0)
    found = {f"small-{width}": error(ResidualNet(3, 4, small(width))) for width in range(1, 9)}
    return found | {f"strided {channels}": error(Strided(channels)) for channels in range(1, 9)}


def test_weight_gradients_are_right_with_avx2_alone():
    here = Path(__file__).parent
    command = [sys.executable, "-c", ERRORS]
    done = subprocess.run(
        command, cwd=here, env=os.environ | AVX2, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 16
    assert {name: value for name, value in found.items() if value > 1e-5} == {}


@pytest.mark.parametrize(
    ("net", "laid_out"),
    [
        (Strided(3), False),
        (Strided(15), False),
        (Strided(32, groups=8), False),
        (Strided(16), True),
        (Strided(3, kernel=3), True),
    ],
    ids=["3-channels", "15-channels", "4-channels-a-group", "16-channels", "3x3"],
)
def test_a_network_with_a_strided_projection_of_few_channels_stays_contiguous_on_the_cpu(
    net, laid_out
):
    assert to_channels_last(LogitModel(net), DATA) == laid_out
    weight = net.stem.weight
    assert weight.is_contiguous(
        memory_format=torch.channels_last if laid_out else torch.contiguous_format
    )
