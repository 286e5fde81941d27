import pytest
import torch
from torch import nn

from jembench import seeds
from jembench.testing.comparing import same
from jembench.training.guard import Adjustment
from jembench.training.loop import Trainer
from jembench.training.processes import Group


class Noisy(nn.Module):
    """As in networks written elsewhere: noise of nobody's generator, while it is trained."""

    def forward(self, x):
        return x + 0.1 * torch.randn_like(x) if self.training else x


class Masked(nn.Dropout):
    """Remembers its masks, and whether they were for training."""

    def __init__(self):
        super().__init__(0.5)
        self.masks = []

    def forward(self, x):
        if self.training:
            self.masks.append(super().forward(torch.ones_like(x)) != 0)
            return x * self.masks[-1]
        return x


class Second(Group):
    """The second of two processes that never speak; here it sees the images of both."""

    def cut(self, values):
        return values

    def average_(self, tensors):
        pass

    def broadcast(self, value):
        return value


def net(layer):
    return lambda: nn.Sequential(nn.Flatten(), layer(), nn.Linear(16, 3))


def losses(trainer, n):
    return [{name: float(value) for name, value in trainer.iterate().items()} for _ in range(n)]


def masks(trainer, n=1):
    layer = trainer.model.net[1]
    for _ in range(n):
        trainer.iterate()
    found = torch.stack(layer.masks)
    layer.masks.clear()
    return found


@pytest.mark.parametrize("layer", [nn.Dropout, Noisy])
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", ["jem", "factored", "classifier"])
def test_a_loaded_state_goes_on_bit_for_bit_whatever_was_drawn_meanwhile(
    layer, mode, name, make_trainer, toy_models
):
    def make():
        return make_trainer(toy_models[name], net=net(layer), **{"chains.mode": mode})

    straight, stopped, resumed = make(), make(), make()
    expected = losses(straight, 6)
    assert losses(stopped, 3) == expected[:3]
    state = stopped.state_dict()
    torch.rand(7)  # the process that resumes has drawn other numbers
    resumed.load_state_dict(state)
    assert losses(resumed, 3) == expected[3:]
    for key, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[key])


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_global_generator_is_left_where_it_was(mode, make_trainer):
    trainer = make_trainer(net=net(nn.Dropout), **{"chains.mode": mode})
    before = torch.get_rng_state()
    trainer.window(2)
    assert torch.equal(before, torch.get_rng_state())


def test_each_iteration_seed_and_remedy_has_other_masks_and_the_same_ones_again(
    make_trainer, toy_models
):
    def found(*, seed=0, seeds=0):
        trainer = make_trainer(toy_models["classifier"], net=net(Masked), seed=seed)
        trainer.adjust(Adjustment(seeds=seeds))
        return list(masks(trainer, 3))

    assert all(torch.equal(a, b) for a, b in zip(found(), found(), strict=True))
    drawn = [*found(), *found(seed=1), *found(seeds=1), *found(seeds=2)]
    assert not any(torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_each_process_of_a_team_has_other_masks(make_trainer, toy_models):
    trainers = [make_trainer(toy_models["classifier"], net=net(Masked)) for _ in range(2)]
    trainers[1].group = Second(1, 2)
    found = []
    for trainer in trainers:
        with seeds.drawing(0, "initialisation"):  # processes begin alike
            found.append(masks(trainer))
    first, second = found
    assert first.shape == second.shape
    assert 0.3 < (first == second).double().mean() < 0.7  # half of two independent masks agree


def random_starts(trainer):
    return trainer.chains.random_starts(trainer.iteration, "float32")


@pytest.mark.parametrize("look", [random_starts, Trainer.validate])
def test_a_look_at_the_model_is_the_same_every_time_and_changes_nothing(look, make_trainer):
    plain, looked_at = (
        make_trainer(net=net(nn.Dropout), **{"chains.mode": "train"}) for _ in range(2)
    )
    losses(plain, 2)
    losses(looked_at, 2)
    first = look(looked_at)
    torch.rand(7)
    assert same(look(looked_at), first)
    assert losses(looked_at, 1) == losses(plain, 1)
