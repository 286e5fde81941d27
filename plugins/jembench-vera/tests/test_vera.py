"""VERA: its losses and a step of each phase in plain PyTorch, its entropy gradient and MALA in
closed form.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment import recipe as recipes
from jembench.interfaces import Batch, DataSpec, Split
from jembench.models.capabilities import capabilities
from jembench.training.loop import Trainer
from jembench_vera.generator import Generator, ImageNet
from jembench_vera.refinement import refined

SHAPE = (1, 8, 8)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4)
CPU = torch.device("cpu")


def make(options=""):
    with seeds.drawing(0, "initialisation"):
        text = f"vera:net=mlp-16,dropout=0,width=4,latent=3,particles=5{options and ',' + options}"
        return registry.resolve("models", text).make(DATA).train()


def images(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, *SHAPE, generator=generator) * 2 - 1


# --- a linear generator, for which everything is known --------------------------------------------


class Linear(nn.Module):
    """A linear generator: x has the covariance W W' + sigma^2 I."""

    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        weight = torch.randn(3, 2, generator=draw, dtype=torch.float64)
        self.weight = nn.Parameter(0.3 * weight)
        bias = torch.randn(3, generator=draw, dtype=torch.float64)
        self.bias = nn.Parameter(bias)

    def forward(self, z):
        x = z @ self.weight.T + self.bias
        return x.view(-1, 3, 1, 1)

    def covariance(self, sigma):
        identity = torch.eye(3, dtype=torch.float64)
        return self.weight @ self.weight.T + sigma**2 * identity


def linear_generator(particles, eta):
    bounds = (-1.0, 1.0)
    generator = Generator(Linear(), bounds, latent=2, particles=particles).double()
    with torch.no_grad():
        generator.log_sigma.fill_(math.log(0.3))
        generator.log_eta.fill_(math.log(eta))
    return generator


def test_the_gradient_towards_x_is_that_of_the_gaussian_density():
    generator = linear_generator(20_000, 1.0)
    torch.manual_seed(0)
    x, z = generator.draw(4)
    estimate = generator.entropy_gradient(x, z).view(4, 3)
    net = generator.net
    precision = torch.linalg.inv(net.covariance(0.3))
    exact = (x.view(4, 3) - net.bias) @ precision
    assert_close(estimate, exact.detach(), rtol=0.05, atol=0.1)


def test_the_gradient_towards_the_parameters_is_that_of_the_entropy():
    """The entropy is H = log det(2 pi e S) / 2.

    Its gradient is S^-1 W in W, sigma^2 tr S^-1 in log sigma, 0 in b.
    """
    generator = linear_generator(300, 0.8)
    torch.manual_seed(1)
    x, z = generator.draw(10_000)
    parts = zip(x.split(1000), z.split(1000), strict=True)
    towards = torch.cat([generator.entropy_gradient(*part) for part in parts])
    (towards * x).flatten(1).sum(1).mean().backward()
    covariance = generator.net.covariance(generator.log_sigma.exp())
    entropy = torch.logdet(covariance) / 2
    parameters = [generator.net.weight, generator.log_sigma]
    gradients = torch.autograd.grad(entropy, parameters)
    pairs = zip(parameters, gradients, strict=True)
    for parameter, exact in pairs:
        assert_close(parameter.grad, exact, rtol=0.05, atol=0.05)
    assert generator.net.bias.grad.abs().max() < 0.15


def test_the_posterior_s_width_is_that_of_the_best_diagonal_gaussian():
    """At fixed means eta^-2 is the diagonal of the exact precision.

    The loss is least there.
    """
    generator = linear_generator(1, 0.1)
    weight = generator.net.weight.detach()
    identity = torch.eye(2, dtype=torch.float64)
    precision = identity + weight.T @ weight / 0.09
    with torch.no_grad():
        generator.log_eta.copy_(-precision.diagonal().log() / 2)
    torch.manual_seed(2)
    x, z = generator.draw(100_000)
    x = x.detach()
    (slope,) = torch.autograd.grad(generator.posterior_loss(x, z), generator.log_eta)
    assert slope.abs().max() < 0.02
    with torch.no_grad():
        generator.log_eta.add_(0.5)
    (slope,) = torch.autograd.grad(generator.posterior_loss(x, z), generator.log_eta)
    expected = torch.full_like(slope, math.e - 1)
    assert_close(slope, expected, rtol=0.03, atol=0)


def test_the_refinement_leaves_a_gaussian_as_it_is_and_accepts_what_it_aims_at():
    draw = torch.Generator().manual_seed(0)
    scales = torch.tensor([0.5, 2.0])

    def log_density(a, b):
        of_a = (a / scales).square().sum(1)
        return -of_a / 2 - b.square().sum(1) / 2

    a = torch.randn(4000, 2, generator=draw) * 3
    b = torch.randn(4000, 1, generator=draw) - 2
    a, b = refined(log_density, (a, b), 0.5, 200, draw)
    assert_close(a.std(0), scales, rtol=0.08, atol=0)
    assert b.mean().abs() < 0.08
    assert b.std() == pytest.approx(1, rel=0.06)


# --- losses and steps -----------------------------------------------------------------------------


def energy_loss(model, x, x_labelled, y, samples, weights):
    """Return the loss of the energy, with a penalty by hand-made graphs."""
    x = x.clone().requires_grad_()
    s_data = model.net(x).logsumexp(1)
    s_samples = model.net(samples).logsumexp(1)
    (slope,) = torch.autograd.grad(s_data.sum(), x, create_graph=True)
    slope = slope.flatten(1).norm(2, 1)
    p = model.net(x).softmax(1)
    terms = {
        "p_control": (s_data**2).mean(),
        "n_control": (s_samples**2).mean(),
        "gradient": (slope**2 / 2).mean(),
        "classification": F.cross_entropy(model.net(x_labelled), y),
        "unlabelled": -(p * p.log()).sum(1).mean(),
    }
    total = -(s_data - s_samples).mean()
    for name, term in terms.items():
        total = total + weights[name] * term
    return total


@pytest.mark.parametrize("shared", [True, False])
def test_the_loss_of_the_energy_by_hand(shared):
    weights = {
        "classification": 3,
        "gradient": 0.7,
        "p_control": 0.2,
        "n_control": 0.3,
        "unlabelled": 0.4,
    }
    options = ",".join(f"{name}={value}" for name, value in weights.items())
    model = make(options)
    x = images(6)
    y = torch.tensor([0, 3, 1, 2, 2, 0])
    x_labelled = x if shared else images(6, 1)
    with seeds.drawing(1, "noise"):
        loss = model.training_loss(Batch(x, x_labelled, y), None)
    with seeds.drawing(1, "noise"), torch.no_grad():
        samples, _ = model.generator.draw(6)
    expected = energy_loss(model, x, x_labelled, y, samples, weights)
    assert_close(loss.total, expected)
    parameters = list(model.net.parameters())
    gradients = [torch.autograd.grad(total, parameters) for total in (loss.total, expected)]
    for got, wanted in zip(*gradients, strict=True):
        assert_close(got, wanted)


def make_trainer(*settings):
    plain = ["batch_size=6", "schedule.warmup_iterations=0", "data.pad=0", "data.flip=false"]
    recipe = recipes.load("vera", [*plain, *settings])
    generator = torch.Generator().manual_seed(0)
    shape = (12, *SHAPE)
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    model = make("generator_rate=0.01,posterior_rate=2e-5,entropy=0.01")
    train = Split(pixels, torch.arange(12) % 4)
    return Trainer(model, DATA, train, recipe, seed=0, device=CPU)


def log_normal(x, mean, std):
    normal = torch.distributions.Normal(mean, std)
    return normal.log_prob(x).flatten(1).sum(1)


def test_a_step_of_each_phase_by_hand():
    """Compare each phase with the code's formulas in plain PyTorch.

    The random numbers of the phases come in their order.

    The steps are those of SGD, since Adam normalises the gradients of biases before batch norm,
    which are rounding.
    """
    trainer, plain = make_trainer("optimizer.name=sgd"), make()
    model, generator = trainer.model, plain.generator
    for module in (model.generator, generator):
        # at .01 rounding decides the weights of the particles
        module.log_sigma.data.fill_(math.log(0.2))
    batch = trainer.batches.draw()
    trainer.batches.draw = lambda: batch
    weights = {
        "classification": 100,
        "gradient": 0.1,
        "p_control": 0,
        "n_control": 0,
        "unlabelled": 0,
    }
    own = [parameter for name, parameter in generator.named_parameters() if name != "log_eta"]
    energy = torch.optim.SGD(plain.net.parameters(), 3e-5)
    of_generator = torch.optim.SGD(own, 0.01)
    of_posterior = torch.optim.SGD([generator.log_eta], 2e-5)
    with seeds.drawing(0, trainer._chance("network")):
        # the turn of the energy
        with torch.no_grad():
            samples, _ = generator.draw(6)
        energy.zero_grad()
        loss = energy_loss(plain, batch.x, batch.x, batch.y_labelled, samples, weights)
        loss.backward()
        energy.step()

        # that of the generator, with particles around its latents
        z = torch.randn(6, 3)
        mean = generator.net(z)
        sigma = generator.log_sigma.exp()
        x = mean + sigma * torch.randn_like(mean)
        eta = generator.log_eta.exp().detach()
        with torch.no_grad():
            z_p = z + eta * torch.randn(5, 6, 3)
            means = generator.net(z_p.flatten(0, 1)).view(5, 6, *SHAPE)
            log_weights = []
            for mean, latent in zip(means, z_p, strict=True):
                log_joint = log_normal(x, mean, sigma) + log_normal(latent, 0.0, 1.0)
                log_weights.append(log_joint - log_normal(latent, z, eta))
            w = torch.stack(log_weights).softmax(0)
            c = (w[:, :, None, None, None] * (x - means) / sigma**2).sum(0)
        of_generator.zero_grad()
        energy = -plain.net(x).logsumexp(1).mean()
        (energy - 0.01 * (c * x).mean(0).sum()).backward()
        of_generator.step()

        # that of the posterior's width
        with torch.no_grad():
            x, z = generator.draw(6)
        posterior = torch.distributions.Normal(z, generator.log_eta.exp())
        z_p = z + generator.log_eta.exp() * torch.randn(6, 3)
        sigma = generator.log_sigma.exp()
        joint = log_normal(x, generator.net(z_p), sigma) + log_normal(z_p, 0.0, 1.0)
        of_posterior.zero_grad()
        surprise = -joint - posterior.entropy().sum(1)
        surprise.mean().backward()
        of_posterior.step()
    trainer.iterate()
    pairs = zip(model.state_dict().items(), plain.state_dict().values(), strict=True)
    for (name, value), expected in pairs:

        def named(text, name=name):
            return f"{name}: {text}"

        assert_close(value, expected, rtol=1e-5, atol=5e-6, msg=named)


def test_every_phase_has_the_optimiser_of_the_code():
    options = {}
    for name, optimizer in make_trainer().optimizers.items():
        options[name] = (optimizer.defaults["lr"], optimizer.defaults["betas"])
    assert options == {
        "": (3e-5, (0.0, 0.9)),
        "generator": (0.01, (0.0, 0.9)),
        "posterior": (2e-5, (0.9, 0.999)),
    }


def test_sigma_stays_within_its_bounds():
    model = make()
    for value, bound in ((1e-4, 0.01), (2.0, 0.3)):
        with torch.no_grad():
            model.generator.log_sigma.fill_(math.log(value))
        labels = torch.zeros(4, dtype=torch.int64)
        loss = model.generator_loss(Batch(images(4), images(4), labels), None)
        assert float(loss.parts["sigma"]) == pytest.approx(bound)


# --- networks and samples -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "blocks"), [((3, 32, 32), 3), ((1, 8, 8), 1), ((1, 28, 28), 2), ((1, 1, 2), 0)]
)
def test_the_generator_s_network(shape, blocks):
    data = DataSpec(name="toy", shape=shape, num_classes=2, bounds=(0.0, 1.0))
    net = ImageNet(data, latent=4, width=8)
    x = net(torch.randn(5, 4))
    assert len(net.blocks) == blocks
    assert x.shape == (5, *shape)
    assert x.min() >= 0
    assert x.max() <= 1
    fans = 9 * 8 + 9 * shape[0]
    bound = math.sqrt(2) * math.sqrt(6 / fans)
    largest = float(net.last.weight.detach().abs().max())
    assert 0.8 * bound < largest <= bound


def test_what_the_model_is():
    model = make().eval()
    assert capabilities(model) == {"logits", "energy", "samples"}
    assert list(model.phases()) == ["generator", "posterior"]
    with pytest.raises(SpecError, match="has no classes"):
        model.sample(2, torch.tensor([0, 1]), generator=torch.Generator().manual_seed(0))
    unlabelled = DataSpec(name="toy", shape=(1, 8, 8), num_classes=0)
    with pytest.raises(SpecError, match="unlabelled"):
        registry.resolve("models", "vera").make(unlabelled)


@torch.no_grad()
def test_refined_samples_have_lower_energies():
    plain = make().eval()
    again = make("refinement=30").eval()
    for model in (plain, again):
        model.net.class_output.weight.mul_(100)  # energies that differ by many nats
    energies = []
    for model in (plain, again):
        samples = model.sample(120, generator=torch.Generator().manual_seed(0))
        energies.append(model.energy(samples).mean())
    assert energies[1] < energies[0]
