"""Every shipped model's iteration on a GPU that is not there: no device is mixed up, and the host
never waits.
"""

import pytest
import torch
from fake_gpu import GPU, MixedDevices, fake_gpu
from fake_graph import fake_graphs

from jembench import seeds
from jembench.catalog import registry
from jembench.experiment import recipe as recipes
from jembench.interfaces import DataSpec, Split
from jembench.sampling.graph import WARM_UP
from jembench.sampling.starts import ClassGaussianStart
from jembench.training.loop import Trainer

DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=4)
SETTINGS = (
    "batch_size=4",
    "data.validation=0",
    "data.pad=1",
    "data.flip=true",
    "compute.layout=contiguous",
)
PCD = "chains.sampler=pcd:steps=2,buffer=40"


CHAINS = [
    ("jem:net=small-1,norm=batch,dropout=0.1", [PCD, "chains.mode=train"]),
    (
        "jem:net=small-1",
        ["chains.sampler=pcd:steps=2,buffer=40,start=class-gaussian", "data.shared=true"],
    ),
    ("jem:net=small-1", ["chains.sampler=proximal:outer=2,buffer=40", "optimizer.sharpness=0.1"]),
    ("igebm:width=2", ["chains.sampler=igebm-langevin:steps=2,buffer=40"]),
]


@pytest.fixture
def gpu():
    with fake_gpu() as device:
        yield device


def starts_of_classes(trainer):
    """Such chains begin by other operations for each class: the host must know which restart."""
    return isinstance(getattr(trainer.chains.sampler, "starts", None), ClassGaussianStart)


def make_trainer(spec, *settings):
    """It has made one iteration: that sets what is set by the first batch, and fills the buffer."""
    images = torch.randint(
        256, (40, *DATA.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    with seeds.drawing(0, "initialisation"):
        model = registry.resolve("models", spec).make(DATA)
    recipe = recipes.load("digits-paper", [*SETTINGS, "optimizer.name=sgd", *settings])
    trainer = Trainer(model, DATA, Split(images, torch.arange(40) % 4), recipe, seed=0, device=GPU)
    trainer.iterate()
    return trainer


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        *CHAINS,
        ("jem:net=small-1", ["chains.sampler=sgld:steps=2"]),
        ("jem-factored:net=small-1", [PCD]),
        ("igebm:width=2,conditional=false", [PCD]),
        ("baseline:net=small-1", []),
        ("adversarial:net=small-1,steps=2", []),
        ("adversarial:net=small-1,steps=2,threat=l2@0.5", []),
        ("glow:hidden=4,levels=1,steps=1", []),
        ("glow:hidden=4,levels=1,steps=1,conditional=false", []),
    ],
)
def test_an_iteration_mixes_up_no_device_and_never_waits(gpu, spec, settings):
    trainer = make_trainer(spec, *settings)
    gpu.waits.clear()
    values = trainer.iterate()
    assert gpu.waits == [] or starts_of_classes(trainer)
    assert {value.device for value in values.values()} == {GPU}
    assert {weight.grad.device for weight in trainer.model.parameters()} == {GPU}


def compare(found, expected):
    for name, value in expected.items():
        assert found[name].tolist() == value.tolist(), name


@pytest.mark.parametrize(("spec", "settings"), CHAINS)
def test_iterations_with_a_captured_chain_are_those_without_and_so_after_a_resume(
    gpu, spec, settings
):
    plain = make_trainer(spec, *settings)
    with fake_graphs(gpu) as graphs:
        trainer, resumed = (make_trainer(spec, *settings) for _ in range(2))
        for _ in range(WARM_UP + 1):  # what is kept moves to the device with the first chains
            gpu.waits.clear()
            gpu.launches.clear()
            found = trainer.iterate()
            assert gpu.waits == [] or starts_of_classes(trainer)
            compare(found, plain.iterate())
        assert gpu.launches.count("graph") == 1
        resumed.load_state_dict(trainer.state_dict())
        for iteration in range(WARM_UP + 1):
            expected = plain.iterate()
            if iteration < 3:
                compare(trainer.iterate(), expected)
            compare(resumed.iterate(), expected)
        assert [graph.log[:3] for graph in graphs] == [["register", "capture", "replay"]] * 2
    computed = trainer.functions.computed
    assert (computed["captured"], computed["not_captured"]) == (True, [])
    compare(resumed.model.state_dict(), plain.model.state_dict())


@pytest.mark.parametrize(
    ("planted", "wait"),
    [
        (lambda loss: loss.total * loss.total.item(), "_local_scalar_dense"),
        (lambda loss: loss.total + float(bool(loss.total > 0)), "_local_scalar_dense"),
        (lambda loss: loss.total.cpu().to(GPU), "a copy to the CPU"),
    ],
    ids=["item", "a comparison", "a copy"],
)
def test_a_planted_wait_is_noted(gpu, planted, wait):
    trainer = make_trainer("baseline:net=small-1")
    plain = trainer.functions.losses[""]
    trainer.functions.losses[""] = lambda *both: (lambda loss: loss._replace(total=planted(loss)))(
        plain(*both)
    )
    gpu.waits.clear()
    trainer.iterate()
    assert gpu.waits[:1] == [wait]


def test_a_planted_tensor_of_the_cpu_is_refused(gpu):
    trainer = make_trainer("baseline:net=small-1")
    plain = trainer.functions.losses[""]
    trainer.functions.losses[""] = lambda *both: (
        lambda loss: loss._replace(total=loss.total + torch.zeros(1))
    )(plain(*both))
    with pytest.raises(MixedDevices):
        trainer.iterate()
