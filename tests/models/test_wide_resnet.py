"""The wide residual network against its definition, written out a second time as a function of the
state dict.
"""

import pytest
import torch
from torch.nn import functional as F

from jembench.errors import SpecError
from jembench.models.nets import small, wide
from jembench.models.wide_resnet import Block, ResidualNet


def images(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def parameters_of(net):
    return sum(p.numel() for p in net.parameters())


def functional_forward(state, x):
    """The network without a norm, from its state dict alone."""

    def conv(name, x, stride=1):
        weight = state[f"{name}.weight"]
        return F.conv2d(
            x, weight, state[f"{name}.bias"], stride=stride, padding=(weight.shape[-1] - 1) // 2
        )

    def activate(x):
        return torch.where(x > 0, x, 0.2 * x)

    x = conv("conv1", x, stride=2 if state["conv1.weight"].shape[-1] == 4 else 1)
    for group in (1, 2, 3):
        block = 0
        while f"layer{group}.{block}.conv1.weight" in state:
            name = f"layer{group}.{block}"
            stride = 2 if group > 1 and block == 0 else 1
            residual = conv(f"{name}.conv2", activate(conv(f"{name}.conv1", activate(x))), stride)
            x = residual + (
                conv(f"{name}.shortcut.0", x, stride) if f"{name}.shortcut.0.weight" in state else x
            )
            block += 1
    return activate(x).mean((2, 3)) @ state["class_output.weight"].T + state["class_output.bias"]


def test_parameter_counts_known_by_number():
    assert parameters_of(ResidualNet(1, 10, small(8))) == 19_642
    with torch.device("meta"):
        assert parameters_of(ResidualNet(3, 10, wide(28, 10))) == 36_471_338
    assert parameters_of(ResidualNet(3, 10, wide(10, 1))) == 77_706


@pytest.mark.parametrize("depth", [16, 28])
def test_names_are_those_of_the_published_weights_without_their_prefix(depth):
    with torch.device("meta"):
        names = set(ResidualNet(3, 10, wide(depth, 2)).state_dict())
    last = (depth - 4) // 6 - 1
    assert {
        "conv1.weight",
        "layer1.0.conv1.bias",
        "layer1.0.shortcut.0.weight",
        "class_output.bias",
    } <= names
    assert f"layer3.{last}.conv2.weight" in names
    assert f"layer3.{last}.shortcut.0.weight" not in names
    assert not any("norm" in name for name in names)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResidualNet(3, 10, wide(16, 2)),
        lambda: ResidualNet(1, 7, wide(10, 1)),
        lambda: ResidualNet(3, 10, small(8)),
        lambda: ResidualNet(3, 10, small(8, stride=2)),
    ],
)
def test_agrees_with_the_definition(make):
    torch.manual_seed(0)
    net = make().double()
    x = images(3, net.conv1.in_channels, 12, 10).double()
    torch.testing.assert_close(net(x), functional_forward(net.state_dict(), x))


def test_first_and_second_derivatives_agree_with_the_definition():
    """Activations in place must not reach what a backward pass reads; attacks on refined models
    need the second.
    """
    torch.manual_seed(0)
    net = ResidualNet(2, 3, wide(10, 1)).double()
    state = dict(net.named_parameters())

    def derivatives(function):
        x = images(2, 2, 8, 8).double().requires_grad_()
        energy = -function(x).logsumexp(1).sum()
        (grad,) = torch.autograd.grad(energy, x, create_graph=True)
        return grad, *torch.autograd.grad(
            grad.square().sum(), [x, *state.values()], allow_unused=True
        )

    ours = derivatives(net)
    theirs = derivatives(lambda x: functional_forward(state, x))
    for mine, expected in zip(ours, theirs, strict=True):
        assert (mine is None) == (expected is None)
        if mine is not None:
            torch.testing.assert_close(mine, expected)
    assert ours[1].abs().sum() > 0


def test_the_gradient_of_a_strided_block_keeps_the_layout_of_its_images():
    """One contiguous gradient would make all layers before it convert theirs, which takes time."""
    block = Block(4, 8, 2, lambda channels: torch.nn.Identity(), 0.0).to(
        memory_format=torch.channels_last
    )
    x = images(3, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    (grad,) = torch.autograd.grad(block(x).sum(), x)
    assert grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("norm", ["none", "batch", "instance", "layer"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 9, 7), (1, 28, 28), (5, 33, 20)])
def test_any_image_size_channels_and_classes(norm, shape):
    net = ResidualNet(shape[0], 7, small(2), norm=norm)
    assert net(images(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("norm", ["none", "instance", "layer"])
def test_rows_of_a_batch_are_independent(norm):
    torch.manual_seed(0)
    net = ResidualNet(1, 10, small(4), norm=norm).double()
    x = images(4, 1, 8, 8).double()
    other = torch.cat([x[:1], images(3, 1, 8, 8, seed=1).double()])
    torch.testing.assert_close(net(x)[0], net(other)[0])
    torch.testing.assert_close(net(x).flip(0), net(x.flip(0)))


def test_batch_norm_makes_the_rows_of_a_training_batch_dependent():
    torch.manual_seed(0)
    net = ResidualNet(1, 10, small(4), norm="batch")
    x = images(4, 1, 8, 8)
    other = torch.cat([x[:1], images(3, 1, 8, 8, seed=1)])
    assert (net(x)[0] - net(other)[0]).abs().max() > 1e-3
    net.eval()
    torch.testing.assert_close(net(x)[0], net(other)[0])


@pytest.mark.parametrize("norm", ["batch", "instance", "layer"])
def test_every_activation_has_a_norm_before_it(norm):
    net = ResidualNet(3, 10, wide(16, 1), norm=norm)
    kind = type(net.norm)
    norms = [name for name, module in net.named_modules() if isinstance(module, kind)]
    assert len(norms) == 2 * 6 + 1
    assert all(list(module.parameters()) for module in net.modules() if isinstance(module, kind))


def test_dropout_stands_before_the_second_norm():
    """As in the code of JEM: a norm sees the zeros, and gives them another value."""
    torch.manual_seed(0)
    net = ResidualNet(1, 3, small(4), norm="batch", dropout=0.5)
    seen = {}
    for name in ("norm2", "conv2"):
        module = getattr(net.layer1[0], name)
        module.register_forward_pre_hook(
            lambda _, x, name=name: seen.update({name: (x[0] == 0).float().mean()})
        )
    net(images(8, 1, 8, 8))
    assert 0.4 < seen["norm2"] < 0.6
    assert seen["conv2"] == 0
    net.eval()(images(8, 1, 8, 8))
    assert seen["norm2"] == 0


@pytest.mark.parametrize("depth", [29, 12, 4, 1, 9])
def test_depth_that_no_network_has(depth):
    with pytest.raises(SpecError, match=rf"6n \+ 4 with n >= 1, and {depth} is not\. Write 10, 16"):
        wide(depth, 2)


def test_a_network_is_followed_on_a_device_without_values():
    assert ResidualNet(3, 10, small(2)).to("meta")(
        torch.empty(2, 3, 8, 8, device="meta")
    ).shape == (2, 10)


def test_the_running_statistics_of_batch_norm_have_the_momentum_of_the_reference_implementations():
    def momenta(**options):
        modules = ResidualNet(1, 2, small(2), norm="batch", **options).modules()
        norms = [module for module in modules if isinstance(module, torch.nn.BatchNorm2d)]
        return {norm.momentum for norm in norms}

    assert momenta() == {0.9}
    assert momenta(momentum=0.1) == {0.1}


@pytest.mark.parametrize("momentum", [0, -0.1, 1.1])
def test_a_momentum_out_of_range(momentum):
    with pytest.raises(
        SpecError, match=rf"^dropout is 0\.0 and momentum {momentum}; they must be shares in"
    ):
        ResidualNet(1, 2, small(2), momentum=momentum)


def test_unknown_norm():
    with pytest.raises(SpecError, match=r"'spectral'.*none, batch, instance, layer"):
        ResidualNet(3, 10, small(2), norm="spectral")


@pytest.mark.parametrize("norm", ["none", "batch"])
@torch.no_grad()
def test_large_logits_keep_their_digits_in_bfloat16(norm):
    """bfloat16 has no number between 64 and 64.5; an energy is a difference of such logits."""
    torch.manual_seed(0)
    net = ResidualNet(3, 10, small(4), norm=norm).eval()
    net.class_output.bias.fill_(64.1)
    seen = []
    net.class_output.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(images(8, 3, 8, 8))
    assert (logits.dtype, seen[0].dtype) == (torch.float32, torch.float32)
    expected = F.linear(seen[0].double(), net.class_output.weight.double()) + 64.1
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-4)
