import torch
from torch import nn
from torch.nn import functional as F

from jembench.interfaces import Batch
from jembench.models.capabilities import capabilities
from jembench.models.objective import as_model


def test_a_network_is_a_classifier_with_an_energy(net, data):
    model = as_model(net, data, "mine")
    x = torch.rand(4, *data.shape)
    assert capabilities(model) == {"logits", "energy"}
    assert torch.equal(model.logits(x), net(x))
    assert torch.equal(model.energy(x), -net(x).logsumexp(1))


def test_it_is_trained_by_cross_entropy(net, data):
    x, y = torch.rand(4, *data.shape), torch.tensor([0, 2, 1, 1])
    loss = as_model(net, data, "mine").training_loss(Batch(torch.full_like(x, torch.nan), x, y), None)
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
    assert all(torch.equal(buffer, before[name]) for name, buffer in resnet.named_buffers())  # looking changes nothing
    assert model.eval().logits(torch.rand(2, *data.shape)).shape == (2, 3)
