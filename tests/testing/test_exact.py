"""The model that checks are made on is what it says it is."""

import math

import pytest
import torch
from torch import distributions

from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec
from jembench.models.capabilities import capabilities
from jembench.testing import stage
from jembench.testing.comparing import same
from jembench.testing.exact import SPREAD, Mixture, WithChains, WithMethods, drawn_images

DATA = DataSpec(name="toy", shape=(1, 3, 4), num_classes=5, bounds=(0.0, 1.0))
X = torch.rand(7, 1, 3, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(7) % 5


def reference(model):
    means = model.gaussians.mean.detach().flatten(1)
    parts = distributions.Independent(distributions.Normal(means, SPREAD / 2), 1)
    return distributions.MixtureSameFamily(distributions.Categorical(torch.ones(5)), parts), parts


def test_densities_are_those_of_torch():
    model = Mixture(DATA)
    mixture, parts = reference(model)
    flat = X.flatten(1)
    of_classes = parts.log_prob(flat[:, None])
    torch.testing.assert_close(model.log_prob(X), mixture.log_prob(flat))
    torch.testing.assert_close(model.log_prob(X, Y), of_classes[torch.arange(7), Y])
    torch.testing.assert_close(model.energy(X), -mixture.log_prob(flat))
    torch.testing.assert_close(model.energy(X, Y), math.log(5) - of_classes[torch.arange(7), Y])
    torch.testing.assert_close(model.logits(X).softmax(dim=1), of_classes.softmax(dim=1))


def test_samples_are_of_their_classes_and_within_bounds():
    model = Mixture(DATA)
    y = torch.arange(5).repeat_interleave(2000)
    x = model.sample(len(y), y, generator=torch.Generator().manual_seed(0))
    assert x.shape == (10_000, 1, 3, 4)
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
    means = x.view(5, 2000, 12).mean(dim=1)
    torch.testing.assert_close(
        means, model.gaussians.mean.detach().flatten(1), rtol=0, atol=5 * SPREAD / 2 / 2000**0.5
    )


def test_most_images_are_told_apart_and_not_all():
    images, labels = drawn_images(stage.DATA).split("test")
    x = to_float(images, stage.DATA.bounds)
    accuracy = (Mixture(stage.DATA).logits(x).argmax(dim=1) == labels).double().mean()
    assert 0.8 <= accuracy <= 0.95


@pytest.mark.parametrize("num_classes", [0, 5])
def test_images_are_the_same_each_time_and_have_labels_if_there_are_classes(num_classes):
    data = DataSpec(name="toy", shape=(1, 3, 4), num_classes=num_classes)
    first, second = (drawn_images(data).split("train") for _ in range(2))
    assert same(first, second)
    assert (first.labels is None) == (num_classes == 0)


def test_a_model_that_exposes_some_methods_can_do_that_alone():
    model = Mixture(DATA)
    assert capabilities(WithMethods(model, ["energy"])) == {"energy"}
    assert capabilities(WithMethods(model, ["logits", "sample"])) == {"logits", "samples"}
    assert capabilities(WithChains(model)) == {"logits", "energy", "log_prob", "samples"}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (torch.tensor([1.0]), torch.tensor([1.0]), True),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.zeros(2, 1), torch.zeros(1, 2), False),
        (torch.eye(3)[:, 0], torch.tensor([1.0, 0.0, 0.0]), True),  # the first has gaps in memory
        (torch.tensor(float("nan")), torch.tensor(float("nan")), True),
        (torch.tensor(0.0), 0.0, False),
        (float("nan"), float("nan"), True),
        ({"a": [1, torch.zeros(1)]}, {"a": [1, torch.zeros(1)]}, True),
        ({"a": 1}, {"b": 1}, False),
        ((1, None), (1, None), True),
        ((1, None), (1, torch.zeros(1)), False),
    ],
)
def test_what_is_the_same(a, b, expected):
    assert same(a, b) is expected
