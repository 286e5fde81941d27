"""Every shipped model's iteration on a GPU that is not there: no device is mixed up, and the host never waits."""

import pytest
import torch
from fake_gpu import GPU, fake_gpu, move_trainer
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorDeviceMismatchError

from jembench import registry, seeds
from jembench.interfaces import DataSpec, Split
from jembench.training import recipe as recipes
from jembench.training.loop import Trainer

DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=4)
SETTINGS = ("batch_size=4", "data.validation=0", "data.pad=1", "data.flip=true", "compute.layout=contiguous")
PCD = "chains.sampler=pcd:steps=2,buffer=40"


def make_trainer(spec, *settings):
    images = torch.randint(256, (40, *DATA.shape), dtype=torch.uint8)
    with seeds.initialising(0):
        model = registry.resolve("models", spec).make(DATA)
    recipe = recipes.load("digits-paper", [*SETTINGS, *settings])
    trainer = Trainer(model, DATA, Split(images, torch.arange(40) % 4), recipe, seed=0, device=torch.device("cpu"))
    trainer.iterate()  # sets what is set by the first batch, and fills the buffer
    return trainer


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("jem:net=small-1,dropout=0.1", [PCD]),
        ("jem:net=small-1,norm=batch", [PCD, "chains.mode=train"]),
        ("jem:net=small-1", ["chains.sampler=pcd:steps=2,buffer=40,start=class-gaussian", "data.shared=true"]),
        ("jem:net=small-1", ["chains.sampler=proximal:outer=2,buffer=40", "optimizer.sharpness=0.1"]),
        ("jem:net=small-1", ["chains.sampler=sgld:steps=2"]),
        ("jem-factored:net=small-1", [PCD]),
        ("baseline:net=small-1", []),
        ("adversarial:net=small-1,steps=2", []),
        ("adversarial:net=small-1,steps=2,threat=l2@0.5", []),
        ("igebm:width=2", ["chains.sampler=igebm-langevin:steps=2,buffer=40"]),
        ("igebm:width=2,conditional=false", [PCD]),
        ("glow:hidden=4,levels=1,steps=1", []),
        ("glow:hidden=4,levels=1,steps=1,conditional=false", []),
    ],
)
def test_an_iteration_mixes_up_no_device_and_never_waits(monkeypatch, spec, settings):
    trainer = make_trainer(spec, *settings)
    with fake_gpu(monkeypatch) as waits:
        move_trainer(trainer)
        waits.seen.clear()
        values = trainer.iterate()
        assert waits.seen == []
        assert {value.device for value in values.values()} == {GPU}
        assert {weight.grad.device for weight in trainer.model.parameters()} == {GPU}


@pytest.mark.parametrize(
    ("planted", "error"),
    [
        (lambda loss: loss.total + torch.zeros(()).expand(1), FakeTensorDeviceMismatchError),
        (lambda loss: loss.total * loss.total.item(), DataDependentOutputException),
        (lambda loss: loss.total + float(bool(loss.total > 0)), DataDependentOutputException),
    ],
    ids=["a tensor of the CPU", "item", "a comparison"],
)
def test_what_is_planted_is_found(monkeypatch, planted, error):
    trainer = make_trainer("baseline:net=small-1")
    plain = trainer.model.training_loss
    trainer.model.training_loss = lambda *both: (lambda loss: loss._replace(total=planted(loss)))(plain(*both))
    trainer._loss = trainer.model.training_loss
    with fake_gpu(monkeypatch):
        move_trainer(trainer)
        with pytest.raises(error):
            trainer.iterate()


@pytest.mark.parametrize("planted", [lambda x: x.cpu(), lambda x: torch.ones(3).to(x.device)], ids=["to", "fro"])
def test_copies_that_wait_are_noted(monkeypatch, planted):
    with fake_gpu(monkeypatch) as waits:
        x = torch.empty(3, device=GPU)
        planted(x)
        assert len(waits.seen) == 1
        torch.ones(3).to(GPU, non_blocking=True)
        assert len(waits.seen) == 1
