import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from jembench.models.energies import LogitModel, grad_energy
from jembench.models.execution import Execution
from jembench.models.nets import small
from jembench.models.wide_resnet import ResidualNet

PRECISIONS = ("float32", "bfloat16")
BFLOAT16 = Execution(precision="bfloat16")


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1, torch.tensor(labels)


@pytest.fixture(scope="module")
def trained(digits):
    """A net after a few epochs on digits: its gradients have structure, unlike those of a random
    one.
    """
    torch.manual_seed(0)
    model = LogitModel(ResidualNet(1, 10, small(8)))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for x, y in list(zip(*(part.split(64) for part in digits), strict=True)) * 5:
        optimizer.zero_grad()
        F.cross_entropy(model.logits(x), y).backward()
        optimizer.step()
    assert (model.logits(digits[0]).argmax(1) == digits[1]).float().mean() > 0.8
    optimizer.zero_grad()
    return model


@pytest.fixture(params=["E(x)", "E(x, y)"])
def batch(request, digits):
    x, y = (part[:64] for part in digits)
    return x, (y if request.param == "E(x, y)" else None)


def plain(model, x, y):
    x = x.clone().requires_grad_()
    energy = model.energy(x, y)
    return energy.detach(), torch.autograd.grad(energy.sum(), x)[0]


def cosine(a, b):
    return torch.cosine_similarity(a.flatten(), b.flatten(), dim=0)


def test_float32_is_plain_autograd(trained, batch):
    for ours, expected in zip(grad_energy(trained)(*batch), plain(trained, *batch), strict=True):
        assert torch.equal(ours, expected)


def test_bfloat16_points_in_the_direction_of_float32(trained, batch):
    energy, grad = grad_energy(trained, BFLOAT16)(*batch)
    expected_energy, expected = grad_energy(trained)(*batch)
    assert not torch.equal(grad, expected)  # it did compute in another precision
    assert cosine(grad, expected) > 0.99
    assert abs(grad.norm() / expected.norm() - 1) < 0.02
    # bfloat16 keeps 8 bits of a logit: its error is a share of the largest one.
    assert (energy - expected_energy).abs().max() < 0.02 * trained.logits(batch[0]).abs().max()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_energies_gradients_and_parameters_are_float32(trained, batch, precision):
    energy, grad = grad_energy(trained, Execution(precision=precision))(*batch)
    assert energy.dtype == grad.dtype == torch.float32
    assert energy.shape == (64,)
    assert grad.shape == batch[0].shape
    assert {p.dtype for p in trained.parameters()} == {torch.float32}
    assert not energy.requires_grad
    assert not grad.requires_grad


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_energy_that_is_not_read_off_logits_is_float32_too(precision):
    class Bilinear(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def energy(self, x, y=None):
            return self.linear(x.flatten(1)).square().sum(1).to(torch.bfloat16)

    energy, grad = grad_energy(Bilinear(), Execution(precision=precision))(
        torch.ones(2, 1, 4, 4), None
    )
    assert energy.dtype == grad.dtype == torch.float32


@pytest.mark.parametrize("precision", PRECISIONS)
def test_leaves_no_trace(trained, batch, precision):
    computed = []
    handles = [p.register_hook(lambda grad: computed.append(grad)) for p in trained.parameters()]
    marks = [torch.full_like(p, 7.0) for p in trained.parameters()]
    for parameter, mark in zip(trained.parameters(), marks, strict=True):
        parameter.grad = mark.clone()
    weights = [p.detach().clone() for p in trained.parameters()]
    x = batch[0].clone()
    trained.net.layer1.eval()
    try:
        grad_energy(trained, Execution(precision=precision))(x, batch[1])
        assert computed == []
        assert all(
            torch.equal(p.grad, mark) for p, mark in zip(trained.parameters(), marks, strict=True)
        )
        assert all(
            torch.equal(p, before) for p, before in zip(trained.parameters(), weights, strict=True)
        )
        assert all(p.requires_grad for p in trained.parameters())
        assert trained.training
        assert not trained.net.layer1.training
        assert torch.equal(x, batch[0])
        assert not x.requires_grad
    finally:
        trained.train()
        for handle in handles:
            handle.remove()
        trained.zero_grad()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_works_where_gradients_are_off(trained, batch, precision):
    expected = grad_energy(trained, Execution(precision=precision))(*batch)[1]
    with torch.no_grad():
        assert torch.equal(
            grad_energy(trained, Execution(precision=precision))(*batch)[1], expected
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_cuda_points_in_the_direction_of_the_cpu(trained, batch, precision):
    expected = grad_energy(trained)(*batch)[1]
    model = LogitModel(ResidualNet(1, 10, small(8))).cuda()
    model.load_state_dict(trained.state_dict())
    x, y = batch
    grad = grad_energy(model, Execution(precision=precision))(
        x.cuda(), None if y is None else y.cuda()
    )[1]
    assert cosine(grad.cpu(), expected) > 0.99
