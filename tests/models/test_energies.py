import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import NotApplicable, PluginError
from jembench.interfaces import DataSpec
from jembench.models.energies import (
    LogitModel,
    energy_function,
    grad_energy,
    joint_energy,
    marginal_energy,
)
from jembench.models.objective import as_model


def logits(seed=0, n=6, k=4):
    return torch.randn(
        n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).float()


def net(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(12, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)
        )


@given(seed=st.integers(0, 1000), shift=st.floats(-50, 50))
def test_a_constant_shifts_log_px_and_leaves_p_y_given_x(seed, shift):
    f = logits(seed)
    assert torch.allclose(-marginal_energy(f + shift), -marginal_energy(f) + shift, atol=1e-4)
    assert torch.allclose((f + shift).log_softmax(1), f.log_softmax(1), atol=1e-4)


@given(seed=st.integers(0, 1000))
def test_the_joint_sums_up_to_the_marginal(seed):
    """Exp(-E(x)) = sum over y of exp(-E(x, y)), and p(y|x) is their ratio."""
    f = logits(seed)
    joint = torch.stack([joint_energy(f, torch.full((6,), y)) for y in range(4)], 1)
    assert torch.allclose((-joint).logsumexp(1), -marginal_energy(f), atol=1e-5)
    assert torch.allclose(marginal_energy(f)[:, None] - joint, f.log_softmax(1), atol=1e-5)


def test_a_larger_logit_makes_an_image_likelier():
    low, high = torch.zeros(1, 3), torch.tensor([[0.0, 2.0, 0.0]])
    assert marginal_energy(high) < marginal_energy(low)
    assert joint_energy(high, torch.tensor([1])) < joint_energy(high, torch.tensor([0]))


def test_energies_of_low_precision_are_float32_and_those_of_float64_stay():
    y = torch.arange(6) % 4
    for given_, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        f = logits().to(given_)
        assert marginal_energy(f).dtype == joint_energy(f, y).dtype == expected
    # a difference that float32 does not know
    f = torch.tensor([[64.0, 64.0 + 1e-9]], dtype=torch.float64)
    higher, lower = (float(joint_energy(f, torch.tensor([y]))) for y in (0, 1))
    assert higher - lower == pytest.approx(1e-9, rel=1e-4)


def test_the_gradient_is_that_of_finite_differences():
    model, x = LogitModel(net()).double(), torch.randn(2, 3, 2, 2, dtype=torch.float64)
    for y in (None, torch.tensor([3, 1])):
        energy, grad = grad_energy(model)(x, y)
        assert energy.dtype == grad.dtype == torch.float64
        direction = torch.randn_like(x)
        change = (
            model.energy(x + 1e-3 * direction, y) - model.energy(x - 1e-3 * direction, y)
        ) / 2e-3
        assert torch.allclose((grad * direction).flatten(1).sum(1), change, atol=1e-5)


@pytest.mark.parametrize("labels", [torch.zeros(3), torch.zeros(2, dtype=torch.int64)])
def test_shapes_and_types_in_signatures_are_checked_while_tests_run(labels):
    with pytest.raises(jaxtyping.TypeCheckError):
        joint_energy(torch.zeros(3, 4), labels)


class Marginal(torch.nn.Module):
    def energy(self, x):
        return x.square().flatten(1).sum(1)


class NormalDensity(torch.nn.Module):
    def log_prob(self, x):
        return -x.square().flatten(1).sum(1) / 2


class Joint(torch.nn.Module):
    """E(x, y) = y |x|^2."""

    def energy(self, x, y):
        return y * x.square().flatten(1).sum(1)


class Column(Marginal):
    def energy(self, x):
        return super().energy(x)[:, None]


def test_an_energy_or_a_density_need_not_take_labels():
    x = torch.randn(3, 1, 2, 2)
    energy, grad = grad_energy(Marginal())(x, None)
    assert torch.equal(energy, Marginal().energy(x))
    torch.testing.assert_close(grad, 2 * x)
    torch.testing.assert_close(grad_energy(NormalDensity())(x, None)[1], x)
    for model, call in (
        (Marginal(), r"Marginal\.energy"),
        (NormalDensity(), r"NormalDensity\.log_prob"),
    ):
        with pytest.raises(
            NotApplicable, match=rf"{call}\(x\) takes no labels, so that E\(x, y\) is not defined"
        ):
            energy_function(model)(x, torch.zeros(3, dtype=torch.int64))


def test_a_joint_energy_alone_gives_logits_and_the_marginal():
    x, y = torch.randn(3, 1, 2, 2), torch.tensor([0, 3, 1])
    model = as_model(Joint(), DataSpec(name="tiny", shape=(1, 2, 2), num_classes=4), "joint")
    squares = x.square().flatten(1).sum(1)
    torch.testing.assert_close(model.logits(x), -squares[:, None] * torch.arange(4.0))
    torch.testing.assert_close(model.energy(x, y), y * squares)
    torch.testing.assert_close(
        model.energy(x).exp(), 1 / sum((-k * squares).exp() for k in range(4))
    )


def test_an_energy_of_another_shape_is_refused():
    with pytest.raises(
        PluginError, match=r"Column\.energy returns \(3, 1\) for 3 images; .* by squeeze\(1\)"
    ):
        energy_function(Column())(torch.zeros(3, 1, 2, 2))


@pytest.mark.parametrize(
    "detached", [torch.no_grad()(Marginal().energy), lambda x: Marginal().energy(x.detach())]
)
def test_energies_without_a_gradient_are_refused(detached):
    model = Marginal()
    model.energy = detached
    with pytest.raises(PluginError, match="no gradient with respect to the images"):
        grad_energy(model)(torch.ones(2, 1, 2, 2), None)
