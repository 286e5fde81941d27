"""What a model can do, by what it has, and why a metric is not for it."""

import pytest
import torch

from jembench.models.capabilities import capabilities, not_applicable
from jembench.models.energies import LogitModel


class Chained(LogitModel):
    """Logits, and chains of some kind in training."""

    def __init__(self, chains):
        super().__init__(torch.nn.Flatten())
        self.chains = chains


class Painter(LogitModel):
    def __init__(self):
        super().__init__(torch.nn.Flatten())

    def sample(self, n, y=None, *, generator):
        raise NotImplementedError


class Flow(torch.nn.Module):
    """A density and nothing else."""

    def log_prob(self, x, y=None):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (torch.nn.Flatten(), set()),
        (LogitModel(torch.nn.Flatten()), {"logits", "energy"}),
        (Chained("none"), {"logits", "energy"}),
        (Chained("marginal"), {"logits", "energy", "samples"}),
        (Chained("conditional"), {"logits", "energy", "samples"}),
        (Painter(), {"logits", "energy", "samples"}),
        (Flow(), {"energy", "log_prob"}),
    ],
)
def test_capabilities_are_what_the_model_has(model, expected):
    assert capabilities(model) == expected


class Needs:
    name = "needs"

    def __init__(self, *capabilities):
        self.requires = frozenset(capabilities)


@pytest.mark.parametrize(
    ("needs", "has", "reason"),
    [
        ([], [], ""),
        (["logits"], ["logits", "energy"], ""),
        (["samples"], ["logits"], "needs samples: baseline gives logits only"),
        (
            ["samples", "log_prob"],
            ["energy", "logits"],
            "needs log_prob and samples: baseline gives logits and energy only",
        ),
        (["logits"], [], "needs logits: baseline gives nothing"),
    ],
)
def test_the_reason_why_a_metric_is_not_applicable(needs, has, reason):
    assert not_applicable(Needs(*needs), frozenset(has), "baseline") == reason
