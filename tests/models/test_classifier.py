from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from jembench.errors import PluginError
from jembench.interfaces import Batch
from jembench.models.capabilities import capabilities
from jembench.models.objective import as_model


def test_a_network_is_a_classifier_with_an_energy(net, data):
    model = as_model(net, data, "mine")
    x = torch.rand(4, *data.shape)
    assert capabilities(model) == {"logits", "energy"}
    assert torch.equal(model.logits(x), net(x))
    assert torch.equal(model.energy(x), -net(x).logsumexp(1))


class Wrapped(nn.Module):
    """A network whose logits lie in a container."""

    def __init__(self, net, wrap):
        super().__init__()
        self.inner, self.wrap = net, wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


# as torchvision's in training
WithAuxiliary = namedtuple("WithAuxiliary", ["logits", "aux_logits"])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: {"features": -logits, "logits": logits},
        lambda logits: WithAuxiliary(logits, -logits),
        lambda logits: SimpleNamespace(logits=logits, hidden_states=None),
    ],
)
def test_logits_are_found_in_a_container(wrap, net, data):
    x = torch.rand(4, *data.shape)
    assert torch.equal(as_model(Wrapped(net, wrap), data, "mine").logits(x), net(x))


@pytest.mark.parametrize("wrap", [lambda logits: (logits, -logits), lambda logits: {"out": logits}])
def test_a_container_without_the_name_is_refused(wrap, net, data):
    with pytest.raises(
        PluginError, match=r"gives (tuple|dict) for two images .* must give logits of"
    ):
        as_model(Wrapped(net, wrap), data, "mine")


def test_it_is_trained_by_cross_entropy(net, data):
    x, y = torch.rand(4, *data.shape), torch.tensor([0, 2, 1, 1])
    loss = as_model(net, data, "mine").training_loss(
        Batch(torch.full_like(x, torch.nan), x, y), None
    )
    torch.testing.assert_close(loss.total, F.cross_entropy(net(x), y))


def test_resnet18_of_torchvision_is_a_model(data):
    from torchvision.models import resnet18

    torch.manual_seed(0)
    resnet = resnet18(num_classes=data.num_classes)
    resnet.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)
    resnet.maxpool = nn.Identity()
    before = {name: buffer.clone() for name, buffer in resnet.named_buffers()}
    model = as_model(resnet, data, "resnet")
    assert model.training
    # looking changes nothing
    assert all(torch.equal(buffer, before[name]) for name, buffer in resnet.named_buffers())
    assert model.eval().logits(torch.rand(2, *data.shape)).shape == (2, 3)
