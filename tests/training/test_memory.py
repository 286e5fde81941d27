"""The memory of a training, against closed forms; nothing is allocated."""

import pytest
import torch

from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Loss, Split
from jembench.training.loop import Trainer
from jembench.training.memory import check, of_training

CPU = torch.device("cpu")
DATA = DataSpec(name="large", shape=(3, 32, 32), num_classes=3)
PIXELS, WIDTH = 3 * 32 * 32, 500
SMALL = DataSpec(name="small", shape=(1, 8, 8), num_classes=3)
SHARED = {"data.shared": "true", "chains.sampler": '"pcd:steps=3,buffer=300"'}
WEIGHTS = 4 * (PIXELS * WIDTH + WIDTH + WIDTH * 3 + 3)  # bytes


@pytest.fixture
def make(toy_models, toy_recipe):
    def trainer(kind="classifier", data=DATA, **settings):
        pixels = data.dimensions
        layers = torch.nn.Linear(pixels, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 3)
        net = torch.nn.Sequential(torch.nn.Flatten(), *layers)
        split = Split(torch.zeros((900, *data.shape), dtype=torch.uint8), torch.arange(900) % 3)
        recipe = toy_recipe(**{"optimizer.name": '"sgd"', **settings})
        return Trainer(toy_models[kind](net), data, split, recipe, seed=0, device=CPU)

    return trainer


def test_weights_and_batches_have_their_closed_forms(make):
    one, two = (of_training(make(batch_size=size), CPU) for size in (100, 200))
    assert one.weights == two.weights == 2 * WEIGHTS  # and the momentum
    assert of_training(make(**{"optimizer.name": '"adam"'}), CPU).weights == 3 * WEIGHTS
    assert of_training(make(**{"optimizer.average": 0.9}), CPU).weights == 3 * WEIGHTS
    # images of both terms, the joined images of the loss, and a hidden map with its gradient
    activations = 4 * (3 * PIXELS + WIDTH)
    growth = (two.batch - one.batch) / 100
    assert growth == pytest.approx(activations, rel=0.01)
    assert one.batch == pytest.approx(WEIGHTS + 100 * activations, rel=0.01)
    assert (one.images, two.images, one.precision) == (200, 400, "float32")


def test_samples_count_and_processes_share(make):
    memory = of_training(make("jem", batch_size=100, **SHARED), CPU)
    assert memory.images == 200
    assert of_training(make(batch_size=100, processes=2), CPU).images == 100


def test_frozen_weights_have_no_gradients_and_no_moments(make):
    trainer = make(batch_size=100)
    whole = of_training(trainer, CPU)
    trainer.model.net[1].requires_grad_(False)
    head = of_training(trainer, CPU)
    first = 4 * (PIXELS * WIDTH + WIDTH)
    assert whole.weights - head.weights == first
    assert head.batch < whole.batch


def test_what_does_not_fit_is_refused_with_batches_that_fit(make, monkeypatch):
    trainer = make(batch_size=100, **{"data.labelled_batch": 50})
    memory = of_training(trainer, CPU)
    monkeypatch.setattr("jembench.training.memory.room", lambda _: ("the GPU", memory.total))
    check(memory, trainer.recipe, "jem", CPU)
    least = memory.weights + memory.batch // 2
    monkeypatch.setattr("jembench.training.memory.room", lambda _: ("the GPU", least))
    text = r"training of jem takes about .* 150 images .*--set batch_size=50 --set data.labelled_ba"
    with pytest.raises(SpecError, match=text):
        check(memory, trainer.recipe, "jem", CPU)
    monkeypatch.setattr("jembench.training.memory.room", lambda _: ("the GPU", memory.weights))
    with pytest.raises(SpecError, match=r"What fits: a smaller network, or smaller images\."):
        check(memory, trainer.recipe, "jem", CPU)


def test_small_images_and_losses_that_need_values_are_not_counted(make):
    assert of_training(make(data=SMALL), CPU) is None
    trainer = make()
    trainer.model.training_loss = lambda batch, _: Loss(batch.x.sum().item(), {})
    assert of_training(trainer, CPU) is None
    check(None, trainer.recipe, "jem", CPU)
