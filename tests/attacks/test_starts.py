import torch
from torch import nn

from jembench.attacks.starts import of_runner_up
from jembench.attacks.target import Target
from jembench.interfaces import DataSpec

DATA = DataSpec(name="toy", shape=(1, 1, 3), num_classes=3)


class Argmax(nn.Module):
    """The class is that of the brightest of three pixels."""

    def logits(self, x):
        return x.flatten(1)


def images(*pixels):
    return torch.tensor(pixels)[:, None, None, :]


POOL = images([0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0], [0.0, 0.1, 0.9])


def test_it_is_the_first_right_image_of_the_class_ranked_second():
    target = Target(Argmax(), DATA)
    x = images([0.8, 0.5, 0.1], [0.5, 0.8, 0.1], [0.8, 0.1, 0.5])
    found = of_runner_up(target, x, POOL, torch.tensor([0, 1, 1, 2]))
    assert found.found.all()
    assert torch.equal(found.x, POOL[[1, 0, 3]])


def test_a_misclassified_image_of_that_class_is_passed_over():
    target = Target(Argmax(), DATA)
    found = of_runner_up(target, images([0.8, 0.5, 0.1]), POOL[[3, 2, 1]], torch.tensor([1, 1, 1]))
    assert torch.equal(found.x[0], POOL[2])


def test_where_there_is_none_the_next_class_follows_and_at_last_there_is_no_start():
    target = Target(Argmax(), DATA)
    x = images([0.8, 0.5, 0.1])
    third = of_runner_up(target, x, POOL[[0, 3]], torch.tensor([0, 2]))
    assert torch.equal(third.x[0], POOL[3])
    none = of_runner_up(target, x, POOL[[0, 1]], torch.tensor([0, 2]))
    assert not none.found.any()
    assert torch.equal(none.x, x)
