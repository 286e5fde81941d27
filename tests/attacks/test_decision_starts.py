import torch
from torch import nn

from jembench.attacks.decision import choose_starts
from jembench.attacks.target import Target
from jembench.interfaces import DataSpec

DATA = DataSpec(name="toy", shape=(1, 1, 3), num_classes=3)


class Argmax(nn.Module):
    """The class is that of the brightest of three pixels."""

    seen = 0

    def logits(self, x):
        self.seen += len(x)
        return x.flatten(1)


def images(*pixels):
    return torch.tensor(pixels)[:, None, None, :]


OWN = torch.tensor([0])
POOL = images([0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0], [0.0, 0.1, 0.9])


def test_it_is_the_first_right_image_of_the_class_ranked_second():
    target = Target(Argmax(), DATA)
    x = images([0.8, 0.5, 0.1], [0.5, 0.8, 0.1], [0.8, 0.1, 0.5])
    start = choose_starts(target, x, torch.tensor([0, 1, 0]), POOL, torch.tensor([0, 1, 1, 2]))
    assert start.exists.all()
    assert torch.equal(start.x, POOL[[1, 0, 3]])


def test_a_misclassified_image_of_that_class_is_passed_over():
    target = Target(Argmax(), DATA)
    start = choose_starts(
        target, images([0.8, 0.5, 0.1]), OWN, POOL[[3, 2, 1]], torch.tensor([1, 1, 1])
    )
    assert torch.equal(start.x[0], POOL[2])


def test_where_there_is_none_the_next_class_follows_and_at_last_there_is_no_start():
    target = Target(Argmax(), DATA)
    x = images([0.8, 0.5, 0.1])
    third = choose_starts(target, x, OWN, POOL[[0, 3]], torch.tensor([0, 2]))
    assert torch.equal(third.x[0], POOL[3])
    none = choose_starts(target, x, OWN, POOL[[0, 1]], torch.tensor([0, 2]))
    assert not none.exists.any()
    assert torch.equal(none.x, x)


def test_its_own_class_is_no_start_wherever_it_is_ranked():
    target = Target(Argmax(), DATA)
    start = choose_starts(target, images([0.5, 0.8, 0.1]), OWN, POOL, torch.tensor([0, 1, 1, 2]))
    assert torch.equal(start.x[0], POOL[1])


def test_classes_whose_probabilities_round_to_0_are_ranked_by_their_logits():
    target = Target(Argmax(), DATA)
    x = images([1000.0, 0.0, 500.0])
    assert target.probabilities(x).tolist() == [[1.0, 0.0, 0.0]]
    start = choose_starts(target, x, OWN, POOL, torch.tensor([0, 1, 1, 2]))
    assert torch.equal(start.x[0], POOL[3])


def test_no_more_of_the_pool_is_looked_at_than_it_takes():
    target = Target(Argmax(), DATA)
    pool = POOL[[1]].repeat(1000, 1, 1, 1)
    choose_starts(
        target,
        images([0.8, 0.5, 0.1]).repeat(9, 1, 1, 1),
        OWN.repeat(9),
        pool,
        torch.ones(1000).long(),
    )
    assert target.model.seen < 9 + 50
