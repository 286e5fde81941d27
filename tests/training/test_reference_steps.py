"""Training steps of WRN-10-1 with batch norm, against what the code of JEM, JEM++ and SADA-JEM does
in an iteration.

The network, the chains and the optimiser are written out a second time, in float64 and on plain
tensors. Ours is given the same weights; the oracle is given its batches, the starts of its chains
and their noise. Ours draws images and moves chains in float32, so both agree to about 1e-7.

One iteration of each: rate i / W of a warm-up of W iterations; a pass of the data (JEM++,
SADA-JEM); chains, in evaluation mode (JEM) or in training mode (JEM++, SADA-JEM); a pass of the
data (JEM), of the samples, of the labelled images; SGD. SADA-JEM takes the gradient at the sharpest
point near the weights, by a second set of passes that leave the running statistics alone.
"""

import pytest
import torch
from torch.nn import functional as F

from jembench import seeds
from jembench.experiment.plan import plan_fit
from jembench.interfaces import DataSpec, Split
from jembench.training.loop import Trainer

DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=3)
STEPS = 8
WARM_UP = 4
MOMENTUM = 0.9  # of batch norm: the share of the latest batch
RATE = 0.1
EPS = 1e-5

COMMON = [
    "batch_size=6",
    "log_every=8",
    "checkpoint_every=8",
    f"schedule.warmup_iterations={WARM_UP}",
]
COMMON += ["data.validation=0", "data.flip=true", "compute.precision=float32"]
SGD = [
    "optimizer.name=sgd",
    "optimizer.learning_rate=0.1",
    "optimizer.momentum=0.9",
    "optimizer.weight_decay=4e-4",
]
RECIPES = {
    "jem": (
        "paper",
        ["epochs=1", "model.norm=batch", *SGD, "chains.sampler=pcd:steps=2,buffer=30"],
    ),
    "jem++": ("jem++", ["epochs=1", "chains.sampler=proximal:outer=2,buffer=30"]),
    "sada": (
        "sada",
        [
            "epochs=2",
            "data.labelled_batch=12",
            "chains.sampler=pcd:steps=2,noise=0,clip=1,bounded=true,buffer=30,start=class-gaussian",
        ],
    ),
}
WEIGHT_DECAY = {"jem": 4e-4, "jem++": 4e-4, "sada": 5e-4}


def images():
    generator = torch.Generator().manual_seed(0)
    return Split(
        torch.randint(256, (48, 3, 8, 8), generator=generator).to(torch.uint8), torch.arange(48) % 3
    )


class Recorded:
    """A trainer in float64 that writes down what chance gave each iteration."""

    def __init__(self, name):
        recipe, settings = RECIPES[name]
        fit = plan_fit("jem:net=wrn-10-1", "digits", recipe, [*COMMON, *settings])
        with seeds.drawing(0, "initialisation"):
            model = fit.model.make(DATA).double()
        model.net.register_forward_pre_hook(lambda net, inputs: inputs[0].double())
        self.trainer = Trainer(
            model, DATA, images(), fit.recipe, seed=0, device=torch.device("cpu")
        )
        assert self.trainer.iterations == STEPS
        sampler = self.trainer.chains.sampler
        init, step = sampler.init, sampler.step
        sampler.init = lambda *arguments, **named: self._started(init(*arguments, **named))
        sampler.step = lambda state, gradient, generator: self._moved(
            step, state, gradient, generator
        )

    def _started(self, state):
        self.start, self.noise = state.x.clone(), []
        return state

    def _moved(self, step, state, gradient, generator):
        copy = torch.Generator()
        copy.set_state(generator.get_state())
        self.noise.append(torch.randn(state.x.shape, generator=copy).double())
        return step(state, gradient, generator)

    def iterate(self):
        """The loss of one iteration; its batch is in ``batch``."""
        draw = self.trainer.batches.draw

        def drawn():
            self.batch = draw()
            return self.batch

        self.trainer.batches.draw = drawn
        loss = float(self.trainer.iterate()["loss"])
        self.trainer.batches.draw = draw
        return loss


class Oracle:
    """The network and its training, from a state dict."""

    def __init__(self, name, state):
        self.name = name
        state = {key.removeprefix("net."): value.detach().clone() for key, value in state.items()}
        self.running = {key: value for key, value in state.items() if "running" in key}
        self.weights = {
            key: value.requires_grad_()
            for key, value in state.items()
            if "running" not in key and "num_batches" not in key
        }
        self.velocity = {key: torch.zeros_like(value) for key, value in self.weights.items()}
        self.training = self.updating = True

    def norm(self, name, x):
        if self.training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            if self.updating:
                n = x.numel() // x.shape[1]
                for key, value in (("mean", mean), ("var", var * n / (n - 1))):
                    before = self.running[f"{name}.running_{key}"]
                    self.running[f"{name}.running_{key}"] = (
                        1 - MOMENTUM
                    ) * before + MOMENTUM * value.detach()
        else:
            mean, var = self.running[f"{name}.running_mean"], self.running[f"{name}.running_var"]
        x = (x - mean[:, None, None]) / (var[:, None, None] + EPS).sqrt()
        return (
            x * self.weights[f"{name}.weight"][:, None, None]
            + self.weights[f"{name}.bias"][:, None, None]
        )

    def conv(self, name, x, stride=1):
        weight = self.weights[f"{name}.weight"]
        return F.conv2d(
            x, weight, self.weights[f"{name}.bias"], stride=stride, padding=weight.shape[-1] // 2
        )

    def logits(self, x):
        return self.rest(self.conv("conv1", x))

    def rest(self, x):
        """From what the first layer gives to the logits."""

        def activated(x):
            return torch.where(x > 0, x, 0.2 * x)

        for layer, stride in (("layer1.0", 1), ("layer2.0", 2), ("layer3.0", 2)):
            hidden = self.conv(f"{layer}.conv1", activated(self.norm(f"{layer}.norm1", x)))
            hidden = self.conv(
                f"{layer}.conv2", activated(self.norm(f"{layer}.norm2", hidden)), stride
            )
            has_shortcut = f"{layer}.shortcut.0.weight" in self.weights
            x = hidden + (self.conv(f"{layer}.shortcut.0", x, stride) if has_shortcut else x)
        x = activated(self.norm("norm", x)).mean((2, 3))
        return x @ self.weights["class_output.weight"].T + self.weights["class_output.bias"]

    def log_density(self, x):
        """Log p(x) up to a constant, a row an image."""
        return self.logits(x).exp().sum(1).log()

    def moved(self, x, noise):
        """One step of a chain uphill log p(x)."""
        if self.name == "jem++":
            return self.moved_by_the_first_layer(x)
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.log_density(x).sum(), x)
        if self.name == "sada":
            return (x + slope.clamp(-1, 1)).clamp(-1, 1).detach()
        return (x + slope + 0.01 * noise).detach()

    def moved_by_the_first_layer(self, x):
        """JEM++'s: the slope at the first layer's output is held fixed for five steps through that
        layer alone.
        """
        hidden = self.conv("conv1", x).detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.rest(hidden).exp().sum(1).log().sum(), hidden)
        for _ in range(5):
            x = x.detach().requires_grad_()
            (towards,) = torch.autograd.grad((self.conv("conv1", x) * slope).sum(), x)
            x = (x + 0.2 * towards.clamp(-1, 1)).clamp(-1, 1)
        return x.detach()

    def chains(self, x, noise):
        self.training = self.name != "jem"
        for drawn in noise:
            x = self.moved(x, drawn)
        self.training = True
        return x

    def loss(self, log_density_of_data, samples, batch):
        likelihood = log_density_of_data.mean() - self.log_density(samples).mean()
        return -likelihood + F.nll_loss(
            self.logits(batch.x_labelled.double()).log_softmax(1), batch.y_labelled
        )

    def gradients(self, loss):
        return dict(
            zip(self.weights, torch.autograd.grad(loss, list(self.weights.values())), strict=True)
        )

    def iterate(self, number, batch, start, noise):
        x = batch.x.double()
        if self.name == "jem":
            samples = self.chains(start.double(), noise)
            data = self.log_density(x)
        else:
            data = self.log_density(x)
            samples = self.chains(start.double(), noise)
        loss = self.loss(data, samples, batch)
        gradients = self.gradients(loss)
        if self.name == "sada":
            gradients = self.sam_perturbation(
                gradients, lambda: self.loss(self.log_density(x), samples, batch)
            )
        rate = RATE * min(1, number / WARM_UP)
        for key, weight in self.weights.items():
            step = gradients[key] + WEIGHT_DECAY[self.name] * weight.detach()
            self.velocity[key] = 0.9 * self.velocity[key] + step
            self.weights[key] = (weight.detach() - rate * self.velocity[key]).requires_grad_()
        return float(loss.detach())

    def sam_perturbation(self, gradients, loss):
        """The gradients at w + 2 w^2 g / |w g|, with the running statistics as they are."""
        before = self.weights
        length = torch.cat([(before[key] * g).flatten() for key, g in gradients.items()]).norm()
        self.weights = {
            key: (w + 2 * w.square() * gradients[key] / length).detach().requires_grad_()
            for key, w in before.items()
        }
        self.updating = False
        gradients = self.gradients(loss())
        self.updating, self.weights = True, before
        return gradients


@pytest.mark.parametrize("name", RECIPES)
def test_steps_are_those_of_the_reference_implementations(name):
    ours = Recorded(name)
    oracle = Oracle(name, ours.trainer.model.state_dict())
    for number in range(STEPS):
        loss = ours.iterate()
        assert loss == pytest.approx(
            oracle.iterate(number, ours.batch, ours.start, ours.noise), abs=1e-6
        )
    state = {
        key.removeprefix("net."): value for key, value in ours.trainer.model.state_dict().items()
    }
    for key, weight in oracle.weights.items():
        torch.testing.assert_close(state[key], weight.detach(), rtol=1e-6, atol=1e-7)
    for key, value in oracle.running.items():
        assert float((state[key] - value).abs().max()) < 1e-6 * float(value.abs().max()), key
