import pytest
import torch
from torch import nn

from jembench.attacks.target import Target
from jembench.errors import Diverged
from jembench.models import predictions


def test_the_model_sees_its_own_bounds(linear, toy):
    seen = []

    class Looking(nn.Module):
        def logits(self, x):
            seen.append(x)
            return x.flatten(1)[:, :2]

    Target(Looking(), toy).classes(
        torch.tensor([0.0, 0.5, 1.0])[:, None, None, None].expand(3, 1, 4, 4)
    )
    assert torch.cat(seen)[:, 0, 0, 0].tolist() == [-1.0, 0.0, 1.0]


def test_the_gradient_is_towards_images_of_0_to_1(linear, toy):
    """Twice that towards images of [-1, 1]: a factor that an eps would be wrong by."""
    slope = Target(linear.model, toy).slope(linear.x, linear.y)
    x = linear.x.clone().double().requires_grad_()
    logits = (2 * x - 1).flatten(1) @ linear.model.weight.double().T
    nn.functional.cross_entropy(logits, linear.y, reduction="sum").backward()
    torch.testing.assert_close(slope.gradient.double(), x.grad, atol=1e-5, rtol=1e-4)
    assert not slope.wrong.any()
    assert Target(linear.model, toy).slope(linear.x, 1 - linear.y).wrong.all()


def test_parameters_mode_and_grad_are_left_alone(linear, toy):
    linear.model.train()
    Target(linear.model, toy).slope(linear.x, linear.y)
    assert linear.model.training
    assert linear.model.weight.requires_grad
    assert linear.model.weight.grad is None


def test_nothing_depends_on_the_size_of_a_batch(linear, toy, monkeypatch):
    target = Target(linear.model, toy)
    whole = target.slope(linear.x, linear.y)
    monkeypatch.setattr(predictions, "CPU_BATCH", 3)
    parts = target.slope(linear.x, linear.y)
    torch.testing.assert_close(whole.gradient, parts.gradient)
    assert torch.equal(whole.wrong, parts.wrong)
    assert torch.equal(target.probabilities(linear.x).argmax(dim=1), target.classes(linear.x))


class Coin(nn.Module):
    """Right so many times of ten, in turns."""

    copies = 4

    def __init__(self, right):
        super().__init__()
        self.turns = [n < right for n in range(10)]

    def logits(self, x):
        self.turns.append(right := self.turns.pop(0))
        return torch.tensor([[1.0, 0.0]] if right else [[0.0, 1.0]]).expand(len(x), 2) + 0 * x.sum()


def test_a_stochastic_model_is_deceived_where_all_of_five_predictions_are_wrong(toy):
    x, y = torch.full((1, 1, 4, 4), 0.5), torch.tensor([0])
    assert Target(Coin(7), toy).wrong_share(x, y, looks=10).item() == pytest.approx(0.3)
    target = Target(Coin(5), toy)
    target.wrong_share(x, y, looks=4)
    assert not target.deceived(x, y).item()  # right, and so not asked again
    assert target.deceived(x, y).item()
    assert not target.confirmed(torch.tensor([True]), x, y).item()


def test_one_that_does_not_is_asked_once(linear, toy):
    target, before = Target(linear.model, toy), linear.model.seen
    assert target.wrong_share(linear.x, linear.y, looks=10).eq(0).all()
    assert linear.model.seen - before == len(linear.x)


def test_logits_that_are_not_finite_are_no_class(toy):
    class Broken(nn.Module):
        def logits(self, x):
            return torch.full((len(x), 2), torch.nan)

    with pytest.raises(Diverged, match="logits of an attacked image are not finite"):
        Target(Broken(), toy).classes(torch.zeros(2, 1, 4, 4))
