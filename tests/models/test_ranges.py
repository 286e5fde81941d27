"""Remarks on another range name the right one, and right networks get none."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from jembench import seeds
from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.models import ranges
from jembench.models.adapted import adapt
from jembench.models.objective import PlainClassifier
from jembench.models.preparation import Preparation, preparation

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    return registry.resolve("datasets", "digits").make()


def trained(digits, form):
    """A small network that is trained on images of a range, and its adapted form."""
    train = digits.split("train")
    with seeds.drawing(0, "initialisation"):
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
        )
        model = adapt(net, digits.spec, form)
        x = to_float(train.images, digits.spec.bounds)
        optimiser = torch.optim.Adam(net.parameters(), 2e-3)
        for rows in torch.randint(len(x), (150, 64)):
            loss = F.cross_entropy(model.logits(x[rows]), train.labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net, model


def remark(model, digits):
    images = ranges.judged(digits.split("train"))
    assert len(images.images) == ranges.IMAGES
    return ranges.remark(ranges.correct(model, images, digits.spec, CPU))


@pytest.mark.parametrize("bounds", [(-1, 1), (0, 1), (0, 255)])
def test_right_networks_get_no_remark_and_wrong_ones_the_right_range(digits, bounds):
    net, model = trained(digits, preparation(bounds, 0, 1, None))
    assert remark(model, digits) == ""
    inverted = adapt(net, digits.spec, Preparation(bounds=bounds[::-1]))
    low, high = bounds
    text = remark(inverted, digits)
    assert f"adapted:model=...,bounds={low}..{high}" in text
    assert "% of 256 training images are classified correctly" in text
    if bounds == (0, 255):
        assert f"bounds={low}..{high}" in remark(PlainClassifier(net), digits)


def test_a_range_is_better_by_mcnemars_test():
    places = torch.arange(256)
    every = places >= 0
    # without losses the p value is 2 / 2^gains
    for gains, is_said in ((10, False), (11, True)):
        stated = places >= gains
        assert bool(ranges.remark({"stated": stated, "bounds=0..1": every})) == is_said
        assert ranges.remark({"stated": every, "bounds=0..1": stated}) == ""
    assert ranges.remark({"stated": every}) == ""
    right = {"stated": places < 128, "bounds=0..1": every}
    assert ranges.remark(right).endswith("adapted:model=...,bounds=0..1")
    assert ranges.remark(right, ranges.IMPORTED).endswith("--set-input bounds=0..1")
