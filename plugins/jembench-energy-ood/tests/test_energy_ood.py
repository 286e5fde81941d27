"""Energy fine-tuning: its loss and one step against PyTorch written out, its margins, and what it
is not.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Generator
from torch.nn import functional as F
from torch.testing import assert_close

from jembench.catalog import registry
from jembench.experiment import recipe as recipes
from jembench.interfaces import Batch, DataSpec, Negatives, Split
from jembench.interfaces.models import Prepared
from jembench.models.capabilities import capabilities
from jembench.testing import check_model, parametrize
from jembench.training.loop import Trainer

SHAPE = (1, 8, 8)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=4)
CPU = torch.device("cpu")


def make(options="", seed=0):
    torch.manual_seed(seed)
    return registry.resolve(
        "models", f"energy-finetuned:net=small-4{options and ',' + options}"
    ).make(DATA)


def images(n, seed=0):
    generator = Generator().manual_seed(seed)
    return torch.rand(n, *SHAPE, generator=generator) * 2 - 1


@parametrize(check_model("energy-finetuned:net=small-4"))
def test_what_every_model_promises(check):
    check()


def test_outliers_are_not_samples():
    model = make()
    assert isinstance(model, Prepared)
    assert capabilities(model) == {"logits", "energy"}


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_loss_and_a_step_by_hand(norm):
    """With batch norm the images and the outliers share its statistics."""
    model = make(f"norm={norm},m_in=-1.5,m_out=1,weight=0.1")
    model.prepare([images(3)])
    again = make(f"norm={norm}")
    again.load_state_dict(model.state_dict())
    x = images(4)
    y = torch.tensor([0, 3, 1, 1])
    outliers = images(6, 1)
    batch = Batch(x, x, y)
    loss = model.train().training_loss(batch, Negatives(outliers, None))

    logits = again.train().net(torch.cat([x, outliers]))
    energy = -torch.logsumexp(logits, 1)
    inside = F.relu(energy[:4] + 1.5) ** 2
    outside = F.relu(1 - energy[4:]) ** 2
    hinges = inside.mean() + outside.mean()
    total = F.cross_entropy(logits[:4], y) + 0.1 * hinges
    assert_close(loss.total, total)
    assert loss.energies is None
    assert float(loss.parts["hinge"]) > 0
    for trained, value in ((model, loss.total), (again, total)):
        optimizer = torch.optim.SGD(trained.parameters(), 0.01, momentum=0.9, nesterov=True)
        value.backward()
        optimizer.step()
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    for trained, same in pairs:
        assert_close(trained, same)


@pytest.mark.parametrize(
    ("given", "expected"), [("", (0.25, 0.75)), ("m_in=-25", (-25, 0.75)), ("m_out=-7", (0.25, -7))]
)
def test_margins_are_given_or_quantiles_of_the_energies_when_training_starts(given, expected):
    levels = (images(20) * 127 + 128).to(torch.uint8)
    train = Split(levels, torch.arange(20) % 4)
    options = [
        "data.validation=4",
        "optimizer.average=0.5",
        "least_iterations=0",
        "batch_size=8",
        "data.labelled_batch=4",
    ]
    recipe = recipes.load("energy-finetuned-digits", options)
    model = make(",".join(filter(None, [given, "quantile_in=0.25,quantile_out=0.75"])))
    trainer = Trainer(model, DATA, train, recipe, seed=0, device=CPU)
    trainer.prepare()
    seen, _ = trainer.batches.sources["marginal"]
    with torch.no_grad():
        x = seen.float() / 127.5 - 1
        energies = -model.net(x).logsumexp(1).numpy()
    quantiles = [np.quantile(energies, at) if 0 < at < 1 else at for at in expected]
    assert len(seen) == 16  # without the validation images
    assert_allclose(model.margins.numpy(), quantiles, rtol=1e-5)
    assert_close(trainer.weights()["margins"], model.margins)
    before = model.margins.clone()
    trainer.window(2)
    assert torch.equal(model.margins, before)


def test_the_published_constants():
    recipe = recipes.load("energy-finetuned")
    sizes = recipe.data.labelled_batch, recipe.batch_size, recipe.epochs
    assert sizes == (128, 256, 10)
    optimizer = recipe.optimizer
    assert optimizer.name == "sgd:nesterov=true"
    assert optimizer.learning_rate == 1e-3
    assert optimizer.momentum == 0.9
    assert registry.resolve("models", "energy-finetuned").arguments["weight"] == 0.1
