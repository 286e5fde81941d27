"""The losses against the formula, worked out by hand on a network whose logits are known."""

import math

import pytest
import torch

from jembench.interfaces import Batch, Negatives
from jembench.models import nets
from jembench.models.energies import LogitModel
from jembench.models.objective import Weights, hybrid_loss, logits_of_each
from jembench.models.wide_resnet import ResidualNet


class Table(torch.nn.Module):
    """Images of one pixel; its value v gives the logits (v, 2 v, 0) times a parameter of 1."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        v = x.flatten(1)
        return self.scale * torch.cat([v, 2 * v, 0 * v], 1)


def images(*values):
    return torch.tensor(values).view(-1, 1, 1, 1)


def logsumexp(v):
    return math.log(math.exp(v) + math.exp(2 * v) + 1)


BATCH = Batch(images(0.5, -1.0), images(1.0, 2.0), torch.tensor([0, 1]))
NEGATIVES = Negatives(images(0.25, 3.0), torch.tensor([1, 2]))

CROSS_ENTROPY = ((logsumexp(1) - 1) + (logsumexp(2) - 4)) / 2
DATA = -(logsumexp(0.5) + logsumexp(-1)) / 2
SAMPLES = -(logsumexp(0.25) + logsumexp(3)) / 2
JOINT_DATA = -(1.0 + 4.0) / 2  # E(1, class 0) = -1, E(2, class 1) = -4
JOINT_SAMPLES = -(0.5 + 0.0) / 2  # E(1/4, class 1) = -1/2, E(3, class 2) = 0


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (Weights(cross_entropy=1), CROSS_ENTROPY),
        (Weights(cross_entropy=1, marginal=1), CROSS_ENTROPY + DATA - SAMPLES),
        (Weights(conditional=1), JOINT_DATA - JOINT_SAMPLES),
        (
            Weights(cross_entropy=0.5, marginal=2, conditional=3),
            0.5 * CROSS_ENTROPY + 2 * (DATA - SAMPLES) + 3 * (JOINT_DATA - JOINT_SAMPLES),
        ),
    ],
)
def test_the_loss_is_the_formula(weights, expected):
    loss = hybrid_loss(LogitModel(Table()), BATCH, NEGATIVES, weights)
    assert loss.total.item() == pytest.approx(expected, rel=1e-6)


def test_the_parts_are_the_terms():
    parts = hybrid_loss(
        LogitModel(Table()), BATCH, NEGATIVES, Weights(cross_entropy=1, marginal=1)
    ).parts
    expected = {"cross_entropy": CROSS_ENTROPY, "energy_data": DATA, "energy_samples": SAMPLES}
    assert {name: float(part) for name, part in parts.items()} == pytest.approx(expected, rel=1e-6)
    assert not any(part.requires_grad for part in parts.values())


@pytest.mark.parametrize(
    ("weights", "data", "samples"),
    [
        (
            Weights(cross_entropy=1, marginal=1),
            [-logsumexp(0.5), -logsumexp(-1)],
            [-logsumexp(0.25), -logsumexp(3)],
        ),
        (Weights(conditional=1), [-1.0, -4.0], [-0.5, 0.0]),
    ],
)
def test_the_energies_are_those_of_each_image(weights, data, samples):
    energies = hybrid_loss(LogitModel(Table()), BATCH, NEGATIVES, weights).energies
    assert energies.data.tolist() == pytest.approx(data, rel=1e-6)
    assert energies.samples.tolist() == pytest.approx(samples, rel=1e-6)


def test_energies_of_the_chains_are_those_of_pairs_if_these_have_a_weight():
    model = LogitModel(Table())
    both = hybrid_loss(model, BATCH, NEGATIVES, Weights(marginal=1, conditional=1))
    of_pairs = hybrid_loss(model, BATCH, NEGATIVES, Weights(conditional=1)).energies
    of_images = hybrid_loss(model, BATCH, NEGATIVES, Weights(marginal=1))
    assert of_images.of_chains is None
    for name in ("data", "samples"):
        assert torch.equal(getattr(both.of_chains, name), getattr(of_pairs, name))
        assert torch.equal(getattr(both.energies, name), getattr(of_images.energies, name))


def test_a_classifier_has_no_energies():
    assert hybrid_loss(LogitModel(Table()), BATCH, None, Weights(cross_entropy=1)).energies is None


def small(norm, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LogitModel(ResidualNet(2, 3, nets.small(4), norm=norm)).to(dtype).train()


def three(dtype=torch.float64):
    """Batches of different sizes whose statistics differ widely."""
    generator = torch.Generator().manual_seed(0)
    return [
        scale * torch.randn(n, 2, 8, 8, generator=generator, dtype=dtype) + shift
        for n, scale, shift in ((4, 1.0, 0.0), (6, 0.3, 1.0), (5, 2.0, -1.0))
    ]


def passes(model, calls):
    model.net.register_forward_pre_hook(lambda module, inputs: calls.append(len(inputs[0])))


@pytest.mark.parametrize("norm", ["none", "layer", "instance"])
def test_one_pass_gives_what_three_passes_do(norm):
    model, calls = small(norm), []
    expected = [model.logits(x) for x in three()]
    passes(model, calls)
    found = logits_of_each(model, three())
    assert calls == [15]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_with_batch_norm_each_batch_has_its_own_statistics():
    model, other, calls = small("batch"), small("batch"), []
    expected = [other.logits(x) for x in three()]
    passes(model, calls)
    found = logits_of_each(model, three())
    assert calls == [4, 6, 5]
    together = small("batch").logits(torch.cat(three())).split([4, 6, 5])
    for ours, theirs, mixed in zip(found, expected, together, strict=True):
        assert torch.equal(ours, theirs)
        assert (ours - mixed).abs().max() > 0.01
    for name, value in model.state_dict().items():  # running statistics, in the same order
        assert torch.equal(value, other.state_dict()[name])


@pytest.mark.parametrize(
    ("weights", "shared", "order"),
    [
        (Weights(cross_entropy=1, marginal=1), False, ["data", "samples", "labelled"]),
        (Weights(cross_entropy=1, marginal=1), True, ["samples", "labelled"]),
        (Weights(conditional=1), False, ["samples", "labelled"]),
    ],
)
def test_the_labelled_images_pass_last(weights, shared, order):
    """The running statistics of the first norm, by the recursion r <- .1 r + .9 (mean of the
    batch).
    """
    labelled, data, samples = three()
    model = small("batch")
    first = model.net.conv1
    batch = Batch(labelled if shared else data, labelled, torch.tensor([0, 1, 2, 1]))
    hybrid_loss(model, batch, Negatives(samples, torch.arange(5) % 3), weights)
    expected = torch.zeros(4, dtype=torch.float64)
    for name in order:
        x = {"data": data, "samples": samples, "labelled": labelled}[name]
        expected = 0.1 * expected + 0.9 * first(x).mean((0, 2, 3))
    torch.testing.assert_close(model.net.layer1[0].norm1.running_mean, expected.detach())
