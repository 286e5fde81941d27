"""Counted statistics are those of the images; where stored ones cost accuracy, a remark says so."""

import pytest
import torch
from torch import nn

from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec, Split
from jembench.models.energies import LogitModel
from jembench.models.running_statistics import (
    COUNTED,
    JUDGED,
    OF_CHAINS,
    correct,
    counted_anew,
    followed_layers,
    parts,
    remark,
)

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=2)
CPU = torch.device("cpu")


def images(n=400, seed=0):
    """Dark images of class 0 and bright ones of class 1."""
    labels = torch.arange(n) % 2
    noise = torch.randint(0, 60, (n, *DATA.shape), generator=torch.Generator().manual_seed(seed))
    return Split((noise + 100 * labels[:, None, None, None]).to(torch.uint8), labels)


class Model(LogitModel):
    """Doubled, normalised pixels whose mean decides; dropout in training."""

    def __init__(self):
        norms = [nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4)]
        super().__init__(nn.Sequential(nn.Flatten(), *norms, nn.Linear(4, 2), nn.Dropout(0.1)))
        with torch.no_grad():
            self.net[2].weight.copy_(2 * torch.eye(4))
            self.net[4].weight.copy_(torch.tensor([[-1.0], [1.0]]).expand(2, 4))
            self.net[4].bias.zero_()
        self.passes = 0

    def logits(self, x):
        self.passes += 1
        return super().logits(x)


@pytest.fixture
def spoiled():
    """A network whose statistics are those of much brighter images."""
    model = Model().eval()
    model.net[1].running_mean.fill_(5.0)
    return model


@pytest.fixture
def healthy(spoiled):
    with counted_anew(spoiled, images().images, DATA, CPU):
        state = {name: value.clone() for name, value in spoiled.state_dict().items()}
    model = Model().eval()
    model.load_state_dict(state)
    return model


def snapshot(model):
    modes = [module.training for module in model.modules()]
    momenta = model.net[1].momentum, model.net[3].momentum
    return {name: value.clone() for name, value in model.state_dict().items()}, modes, momenta


def test_counted_statistics_are_the_mean_of_those_of_all_passes(spoiled, monkeypatch):
    monkeypatch.setenv("JEMBENCH_BATCH", "100")
    train = images(470).images
    # the rest makes no whole pass
    passes = to_float(train[:400], DATA.bounds).flatten(1).split(100)
    mean = torch.stack([x.mean(0) for x in passes]).mean(0)
    variance = torch.stack([x.var(0) for x in passes]).mean(0)
    with counted_anew(spoiled, train, DATA, CPU):
        first, second = spoiled.net[1], spoiled.net[3]
        torch.testing.assert_close(first.running_mean, mean)
        torch.testing.assert_close(first.running_var, variance)
        # the second norm sees what the first gives in training: normalised pixels, doubled
        expected = torch.full((4,), 4 * 100 / 99)
        torch.testing.assert_close(second.running_mean, torch.zeros(4), atol=1e-5, rtol=0)
        torch.testing.assert_close(second.running_var, expected, atol=1e-3, rtol=0)


def test_spoiled_statistics_have_a_remark_with_both_accuracies(spoiled, healthy):
    right = correct(spoiled, images(seed=1).images, images(seed=2), DATA, CPU)
    assert right["stored"].double().mean() == 0.5
    assert right["counted"].all()
    text = remark(right["stored"], right["counted"], 400, "validation images", OF_CHAINS)
    assert "50.0 % of 400 validation images are classified correctly with the stored ones" in text
    assert "and 100.0 % with those counted over 400 training images (50.0 [44.5, 55.0]" in text
    assert "model.momentum=0.9" in text
    right = correct(healthy, images(seed=1).images, images(seed=2), DATA, CPU)
    assert remark(right["stored"], right["counted"], 400, "validation images", OF_CHAINS) == ""


def test_nothing_changes_but_the_random_numbers_of_training(spoiled):
    before = snapshot(spoiled)
    correct(spoiled, images().images, images(), DATA, CPU)
    for then, now in zip(before, snapshot(spoiled), strict=True):
        assert str(then) == str(now)


def test_statistics_are_restored_after_a_failure(spoiled):
    before = snapshot(spoiled)
    spoiled.net[5].register_forward_hook(lambda *call: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        correct(spoiled, images().images, images(), DATA, CPU)
    with pytest.raises(ZeroDivisionError), counted_anew(spoiled, images().images, DATA, CPU):
        pass
    assert str(before) == str(snapshot(spoiled))


FLAGS = torch.arange(1000)


@pytest.mark.parametrize(
    ("stored", "counted", "said"),
    [
        (FLAGS < 700, FLAGS < 700, False),
        (FLAGS < 700, FLAGS < 712, True),  # each image that changes is won
        (FLAGS < 700, FLAGS < 702, False),  # no more than by chance
        (FLAGS < 700, (FLAGS < 640) | (FLAGS >= 928), False),  # 60 lost and 72 won
        (FLAGS < 740, FLAGS < 700, False),  # those of a mixture, as trained
        (FLAGS[:1] < 0, FLAGS[:1] < 1, False),
    ],
)
def test_a_remark_needs_a_gain_beyond_its_paired_interval(stored, counted, said):
    assert bool(remark(stored, counted, 2000, "validation images", OF_CHAINS)) is said


class Frozen(Model):
    def train(self, mode=True):
        super().train(mode)
        for layer in (self.net[1], self.net[3]):
            layer.eval()
        return self


def test_layers_are_those_that_training_updates():
    model = Model()
    assert followed_layers(model) == [model.net[1], model.net[3]]
    model.generator = nn.BatchNorm1d(4)  # beside the classifier
    assert len(followed_layers(model)) == 2
    model.joint_pass = True
    assert followed_layers(model) == []
    assert followed_layers(Frozen().eval()) == []
    assert followed_layers(LogitModel(nn.BatchNorm1d(4, track_running_stats=False))) == []
    assert followed_layers(LogitModel(nn.GroupNorm(1, 4))) == []
    assert followed_layers(nn.BatchNorm1d(4)) == []  # no logits


@pytest.mark.parametrize("held", [None, 7, 3000])
def test_images_that_judge_are_not_those_of_the_statistics(held):
    train = images(5000)
    train.images[:, 0, 0, 0] = torch.arange(5000) % 256
    train.images[:, 0, 0, 1] = torch.arange(5000) // 256
    validation = None if held is None else images(held)
    counted, judged = parts(train, validation)
    again = parts(train, validation)
    assert torch.equal(counted.images, again[0].images)
    assert len(counted.images) == COUNTED
    assert len(judged.images) == min(held or JUDGED, JUDGED)
    if held is None:
        seen = {tuple(image.flatten()[:2].tolist()) for image in counted.images}
        assert seen.isdisjoint(tuple(image.flatten()[:2].tolist()) for image in judged.images)
        few = parts(Split(train.images[:9], train.labels[:9]), None)
        assert [len(split.images) for split in few] == [4, 5]
