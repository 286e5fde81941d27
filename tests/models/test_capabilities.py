import pytest
import torch

from jembench.models.capabilities import capabilities
from jembench.models.energies import LogitModel


class Chained(LogitModel):
    """Logits, and chains of some kind in training."""

    def __init__(self, chains):
        super().__init__(torch.nn.Flatten())
        self.chains = chains


class Painter(Chained):
    def sample(self, n, y=None, *, generator):
        raise NotImplementedError


class AgainstOutliers(Chained):
    generates = False


class Flow(torch.nn.Module):
    """A density and nothing else."""

    def log_prob(self, x, y=None):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (torch.nn.Flatten(), set()),
        (torch.nn.ModuleDict({"logits": torch.nn.Flatten()}), set()),  # a layer is no method
        (LogitModel(torch.nn.Flatten()), {"logits", "energy"}),
        (Chained("none"), {"logits", "energy"}),
        (Chained("marginal"), {"logits", "energy", "samples"}),
        (Chained("conditional"), {"logits", "energy", "samples"}),
        (AgainstOutliers("marginal"), {"logits", "energy"}),
        (Painter("none"), {"logits", "energy", "samples"}),
        (Flow(), {"energy", "log_prob"}),
    ],
)
def test_capabilities_are_what_the_model_has(model, expected):
    assert capabilities(model) == expected
