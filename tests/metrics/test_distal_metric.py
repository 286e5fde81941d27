"""Distal adversarials of linear models, whose energies and gradients can be worked out beside the
code.
"""

import numpy as np
import pytest
import torch
from torch import nn

from jembench.attacks.distal import ascend
from jembench.attacks.target import Target
from jembench.data.pixels import to_float
from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.metrics.distal import Distal
from jembench.models.energies import LogitModel
from jembench.stats.intervals import wilson

M = 30


def linear(scale: float = 1.0, bias: float = 0.0) -> LogitModel:
    net = nn.Linear(16, 3)
    net.weight.data = scale * torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    net.bias.data = torch.full((3,), bias)
    return LogitModel(nn.Sequential(nn.Flatten(), net)).requires_grad_(False)


@pytest.fixture
def evaluation(fake):
    """Test images that are likelier than noise: they lie where one logit is high."""
    model = linear()
    weight = model.net[1].weight.detach()
    images = (128 + 60 * weight[torch.arange(40) % 3].sign().reshape(40, 1, 4, 4)).byte()
    with torch.no_grad():
        energies = model.energy(to_float(images, (-1.0, 1.0)))
    return fake.Evaluation(model=model, sets={"test": images}, test_energies=energies)


def measured(evaluation, **options):
    return Distal(**{"images": M, "steps": 40, "resamples": 50, **options}).compute(evaluation)


def test_the_share_and_the_steps_are_those_of_the_ascents(evaluation):
    result = measured(evaluation, steps=14)
    arrays = result.arrays
    x, y = to_float(torch.from_numpy(arrays["noise"]), (0.0, 1.0)), torch.arange(M) % 3
    ends = ascend(Target(evaluation.model, evaluation.spec), x, y, steps=14, threshold=0.9)
    reached = ends.reached.numpy()
    assert 0 < reached.sum() < M
    assert np.array_equal(arrays["reached"], reached)
    assert np.array_equal(arrays["target"], y.numpy())
    assert np.array_equal(arrays["images"], (ends.images * 255).round().byte().numpy())
    interval = [100 * end for end in wilson(int(reached.sum()), M)]
    assert result.values["distal"][:4] == pytest.approx((100 * reached.mean(), *interval, M))
    steps = result.values["distal-steps"]
    assert steps.value == np.median(ends.steps.numpy()[reached])
    assert steps.n == reached.sum()
    assert steps.low <= steps.value <= steps.high
    p = evaluation.model.logits(2 * ends.images - 1).softmax(1).gather(1, y[:, None]).squeeze(1)
    assert arrays["confidence"] == pytest.approx(p.detach().double().numpy())
    assert np.array_equal(arrays["confidence"] > 0.9, reached)
    assert not arrays["unverified"].any()


def log_px(model, images):
    with torch.no_grad():
        return -model.energy(to_float(torch.as_tensor(images), (-1.0, 1.0))).double().numpy()


def test_log_px_is_the_way_from_noise_to_test_images(evaluation):
    result = measured(evaluation, steps=14)
    reached = result.arrays["reached"]
    ends, noise = (
        log_px(evaluation.model, result.arrays[name][reached]).mean()
        for name in ("images", "noise")
    )
    test = log_px(evaluation.model, evaluation.sets["test"]).mean()
    way = result.values["distal-log-px"]
    assert way.value == pytest.approx(100 * (ends - noise) / (test - noise), rel=1e-5)
    assert 5 < way.value < 95
    assert way.low <= way.value <= way.high
    assert way.unit == "%"


def test_the_way_does_not_depend_on_the_constant_of_log_px(evaluation):
    before = measured(evaluation).values["distal-log-px"].value
    evaluation.model = linear(bias=50.0)
    evaluation.test_energies = evaluation.test_energies - 50
    evaluation.memory.clear()
    assert measured(evaluation).values["distal-log-px"].value == pytest.approx(before, rel=1e-3)


def test_models_without_an_energy_or_with_likely_noise_have_no_way(evaluation):
    evaluation.test_energies = evaluation.test_energies + 1000
    assert set(measured(evaluation).values) == {"distal", "distal-steps"}

    class Classifier(nn.Module):
        def logits(self, x):
            return linear().logits(x)

    evaluation.model = Classifier()
    result = measured(evaluation)
    assert set(result.values) == {"distal", "distal-steps"}
    assert "log-px" not in result.arrays


def test_a_model_that_is_never_sure_has_a_share_of_nought_alone(evaluation):
    evaluation.model = linear(scale=1e-3)
    result = measured(evaluation)
    assert set(result.values) == {"distal"}
    assert result.values["distal"].value == 0


def test_one_class_can_be_the_target_of_all(evaluation):
    result = measured(evaluation, target="2")
    assert (result.arrays["target"] == 2).all()
    assert "target=2" in result.protocol
    evaluation.spec = DataSpec(
        name="toy", shape=(1, 4, 4), num_classes=3, class_names=("cat", "car", "dog")
    )
    assert (measured(evaluation, target="car").arrays["target"] == 1).all()
    with pytest.raises(
        SpecError, match="toy has no class 'truck'; target must be all or one of cat, car, dog"
    ):
        measured(evaluation, target="truck")


def test_all_models_start_from_the_same_noise_and_fewer_images_are_the_first(evaluation):
    first = measured(evaluation).arrays["noise"]
    evaluation.seed, evaluation.model = 7, linear(scale=2.0)
    evaluation.memory.clear()
    assert np.array_equal(measured(evaluation, target="0", images=10).arrays["noise"], first[:10])
    assert first.std() == pytest.approx(255 / 12**0.5, rel=0.1)
    assert len(np.unique(first.reshape(M, -1), axis=0)) == M
