"""The network: sigma, the effect of classes, its maps, and independent images."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from jembench.interfaces import DataSpec
from jembench_igebm.network import ARCHITECTURES, EnergyNet, ResBlock, architecture, to_unit
from jembench_igebm.spectral import SpectralConv2d

SHAPE = (3, 12, 10)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4)
CIFAR = DataSpec(name="cifar10", shape=(3, 32, 32), num_classes=10)


def conv(scale=1.0, *, at_most=False):
    torch.manual_seed(0)
    module = SpectralConv2d(3, 5, at_most=at_most)
    with torch.no_grad():
        kernel = torch.randn(5, 3, 3, 3)
        module.weight.copy_(kernel * scale)
    return module


def largest(kernel):
    return torch.linalg.svdvals(kernel.flatten(1))[0]


def settle(module, passes=200):
    for _ in range(passes):
        module.kernel()
    return module.eval()


@torch.no_grad()
@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_the_largest_singular_value_of_the_kernel_as_a_matrix_becomes_1(scale):
    module = settle(conv(scale))
    norm = largest(module.kernel())
    assert_close(norm, torch.tensor(1.0), rtol=1e-4, atol=0)
    measured = module.kernel() * largest(module.weight)
    assert_close(measured, module.weight, rtol=1e-4, atol=0)


@torch.no_grad()
def test_the_second_convolution_is_only_bounded_by_1():
    small = settle(conv(0.01, at_most=True))
    assert largest(small.weight) < 1
    assert torch.equal(small.kernel(), small.weight)
    measured = largest(settle(conv(at_most=True)).kernel())
    assert_close(measured, torch.tensor(1.0), rtol=1e-4, atol=0)


@torch.no_grad()
def test_one_step_of_power_iteration_by_hand():
    module = conv().eval()
    matrix = module.weight.flatten(1)
    v = matrix.T @ module.u
    v /= v.norm()
    u = matrix @ v
    u /= u.norm()
    expected = module.weight / (u @ matrix @ v)
    assert_close(module.kernel(), expected)
    assert u @ matrix @ v <= largest(module.weight)


def test_only_training_moves_the_iteration_on():
    module = conv()
    before = module.u.clone()
    module.eval().kernel()
    assert torch.equal(module.u, before)
    module.train().kernel()
    assert not torch.equal(module.u, before)


@torch.no_grad()
def test_sigma_is_not_computed_in_half_precision():
    module = conv().eval()
    exact = module.kernel()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module.kernel(), exact)
        energies = module(torch.ones(1, 3, 4, 4))
        assert energies.dtype == torch.bfloat16


def test_the_gradient_goes_through_sigma():
    module = settle(conv())
    module.kernel().square().sum().backward()
    # w / sigma does not change with the scale of w
    along = (module.weight.grad * module.weight).sum()
    assert along.abs() < 1e-5
    assert module.weight.grad.norm() > 1e-3


@torch.no_grad()
def test_a_block_by_hand():
    torch.manual_seed(0)
    block = ResBlock(2, 3, rows=4, pool=True).eval()
    for parameter in block.parameters():
        parameter.copy_(torch.randn(parameter.shape))
    x = torch.randn(2, 2, 6, 6)
    y = torch.tensor([3, 1])
    rows = []
    for image, label in zip(x, y, strict=True):
        bias_1, bias_2 = (bias[label][:, None, None] for bias in (block.bias_1, block.bias_2))
        inner = F.conv2d(image + bias_1, block.conv_1.kernel(), padding=1)
        inner = torch.where(inner > 0, inner, 0.2 * inner) + bias_2
        gain = block.gain_2[label][:, None, None]
        inner = F.conv2d(inner, block.conv_2.kernel(), padding=1) * gain
        maps = F.conv2d(image, block.shortcut.kernel(), padding=1) + inner
        maps = maps.view(3, 3, 2, 3, 2).mean((2, 4))
        rows.append(torch.where(maps > 0, maps, 0.2 * maps))
    expected = torch.stack(rows)
    assert_close(block(x, y), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("name", "end"), [("small", 0.0), ("large", 0.2)])
def test_the_end_sums_the_rectified_maps(name, end):
    layers = architecture(name, DATA, conditional=True, width=4)
    net = EnergyNet(DATA, layers, conditional=True).eval()
    x = torch.rand(2, *SHAPE)
    y = torch.tensor([0, 3])
    maps = F.leaky_relu(net.stem((x + 1) / 2), 0.2)
    for block in net.blocks.values():
        maps = block(maps, y)
    rectified = torch.where(maps > 0, maps, end * maps)
    weight, bias = net.head.weight[0], net.head.bias[0]
    expected = rectified.sum((2, 3)) @ weight + bias
    assert_close(net(x, y), expected)


def test_images_are_seen_between_0_and_1():
    x = torch.tensor([-1.0, 0.0, 1.0])
    x = x.view(3, 1, 1, 1)
    unit = to_unit(x, (-1.0, 1.0)).flatten()
    assert unit.tolist() == [0, 0.5, 1]


def test_a_width_of_ones_own():
    layers = architecture("base", DATA, conditional=True, width=4)
    base = EnergyNet(DATA, layers, conditional=True)
    assert base.stem.weight.shape == (4, 3, 3, 3)
    assert base.blocks["res_5"].conv_1.weight.shape == (8, 8, 3, 3)
    layers = architecture("wider", DATA, conditional=True, width=4)
    wider = EnergyNet(DATA, layers, conditional=True)
    assert wider.stem.weight.shape == (128, 3, 3, 3)  # published: 128 maps whatever the width
    assert wider.blocks["res_optim"].shortcut.weight.shape == (4, 128, 3, 3)


def test_auto_takes_what_was_published_for_cifar_and_a_small_one_below():
    assert architecture("auto", CIFAR, conditional=True) == ARCHITECTURES["base"]
    assert architecture("auto", CIFAR, conditional=False) == ARCHITECTURES["large"]
    assert architecture("auto", DATA, conditional=True) == ARCHITECTURES["small"]


@torch.no_grad()
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 9), (2, 1, 1)])
@pytest.mark.parametrize("name", ["small", "large"])
def test_any_size_and_number_of_channels(shape, name):
    data = DataSpec(name="any", shape=shape, num_classes=2)
    layers = architecture(name, data, conditional=False, width=4)
    net = EnergyNet(data, layers, conditional=False)
    assert net(torch.zeros(3, *shape)).shape == (3,)


@torch.no_grad()
def test_large_energies_keep_their_digits_in_bfloat16():
    """bfloat16 has no number between 64 and 64.5."""
    torch.manual_seed(0)
    layers = architecture("small", DATA, conditional=True, width=4)
    net = EnergyNet(DATA, layers, conditional=True).eval()
    net.head.bias.fill_(64.1)
    seen = []
    net.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.rand(8, *SHAPE) * 2 - 1
        energies = net(x, torch.arange(8) % 4)
    weight = net.head.weight.double()
    expected = (seen[0].double() @ weight.T).squeeze(1) + 64.1
    assert_close(energies.double(), expected, rtol=0, atol=1e-4)
