"""A task small enough to train in a second."""

from pathlib import Path

import pytest
import torch

from jembench import seeds
from jembench.experiment import recipe as recipes
from jembench.interfaces import DataSpec, Loss, Phase, Split
from jembench.models.energies import LogitModel
from jembench.models.objective import Weights, hybrid_loss
from jembench.training.loop import Trainer

TINY = Path(__file__).parents[1] / "zoo" / "tiny.toml"
DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)


class Toy(LogitModel):
    """A linear classifier, trained as JEM."""

    chains = "marginal"
    weights = Weights(cross_entropy=1, marginal=1)
    watch = None
    """A function of (batch, negatives, loss) by which a test sees the loss, and returns one."""

    def training_loss(self, batch, negatives):
        loss = hybrid_loss(self, batch, negatives, self.weights)
        return self.watch(batch, negatives, loss) if self.watch else loss


class ToyFactored(Toy):
    chains = "conditional"
    weights = Weights(conditional=1)


class ToyClassifier(Toy):
    chains = "none"
    weights = Weights(cross_entropy=1)


class ToyOutliers(ToyClassifier):
    """A classifier whose loss also raises the energies of outliers."""

    needs_outliers = True

    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        outside = self.energy(batch.outliers).mean()
        return loss._replace(
            total=loss.total - 0.1 * outside, parts={**loss.parts, "outside": outside.detach()}
        )


class ToyPhased(ToyClassifier):
    """A classifier, and a mean of images with an optimiser of its own."""

    def __init__(self, net):
        super().__init__(net)
        self.mean = torch.nn.Linear(1, 16, bias=False)

    def mean_loss(self, batch, negatives):
        distance = self.mean(torch.ones(len(batch.x), 1)) - batch.x.flatten(1)
        surprise = self.logits(batch.x).logsumexp(1).mean()  # whose gradients nothing follows
        return Loss(distance.square().mean() + surprise, {"surprise": surprise.detach()})

    def phases(self):
        settings = {"name": "sgd", "learning_rate": 0.5}
        return {"mean": Phase(list(self.mean.parameters()), self.mean_loss, settings)}


def linear():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))


def toy_images(n=90):
    """Three classes that differ in the brightness of the image."""
    labels = torch.arange(n) % 3
    noise = torch.randint(0, 40, (n, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    return Split((noise + 100 * labels[:, None, None, None]).clamp(max=255).to(torch.uint8), labels)


def toy_recipe(**overrides):
    settings = {
        "epochs": 4,
        "batch_size": 9,
        "log_every": 4,
        "checkpoint_every": 8,
        "data.validation": 9,
        "chains.sampler": '"pcd:steps=3,buffer=30,step_size=0.1"',
        "optimizer.learning_rate": 0.01,
        **overrides,
    }
    return recipes.load(str(TINY), [f"{key}={value}" for key, value in settings.items()])


@pytest.fixture
def make_trainer():
    """Trainers of the same seed begin alike."""

    def make(model=Toy, *, seed=0, images=None, net=linear, **overrides):
        with seeds.drawing(seed, "initialisation"):
            net = model(net())
        device = torch.device("cpu")
        return Trainer(
            net, DATA, images or toy_images(), toy_recipe(**overrides), seed=seed, device=device
        )

    return make


@pytest.fixture(name="toy_recipe")
def _toy_recipe():
    return toy_recipe


@pytest.fixture
def toy_split():
    return toy_images()


@pytest.fixture
def toy_models():
    return {
        "jem": Toy,
        "factored": ToyFactored,
        "classifier": ToyClassifier,
        "outliers": ToyOutliers,
        "phased": ToyPhased,
    }
