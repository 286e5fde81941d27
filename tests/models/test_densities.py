import math

import torch
from torch import nn
from torch.distributions import MixtureSameFamily, Normal

from jembench.interfaces import DataSpec
from jembench.models.densities import ByBayes

MEANS = torch.tensor([-1.0, 2.0])


class TwoGaussians(ByBayes, nn.Module):
    """Images of one pixel."""

    data = DataSpec(name="pixels", shape=(1, 1, 1), num_classes=2)

    def logits(self, x):
        return Normal(MEANS, 1.0).log_prob(x.flatten(1))

    def draw(self, y, generator):
        return (MEANS[y] + torch.randn(len(y), generator=generator)).view(-1, 1, 1, 1)


def test_the_mixture_is_that_of_torch():
    x = torch.linspace(-3, 4, 9)
    expected = MixtureSameFamily(
        torch.distributions.Categorical(torch.ones(2)), Normal(MEANS, 1.0)
    ).log_prob(x)
    torch.testing.assert_close(TwoGaussians().log_prob(x.view(-1, 1, 1, 1)), expected)


def test_with_labels_it_is_the_density_of_the_class():
    x, y = torch.zeros(2, 1, 1, 1), torch.tensor([0, 1])
    expected = torch.tensor([-0.5, -2.0]) - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(TwoGaussians().log_prob(x, y), expected)


def test_samples_are_of_the_classes_asked_for_or_of_all():
    model, generator = TwoGaussians(), torch.Generator().manual_seed(0)
    of_one = model.sample(2000, torch.ones(2000, dtype=torch.int64), generator=generator)
    assert abs(float(of_one.mean()) - 2) < 4 / math.sqrt(2000)
    of_all = model.sample(2000, generator=generator)
    assert abs(float(of_all.mean()) - 0.5) < 4 * math.sqrt(1 + 1.5**2) / math.sqrt(2000)
