"""An iteration as one graph is the plain one: on a CPU, and replayed on a GPU that is not there."""

from pathlib import Path

import pytest
import torch
from fake_gpu import GPU, fake_gpu
from fake_graph import fake_graphs
from scripts import importing

from jembench import seeds
from jembench.catalog import registry
from jembench.experiment import recipe as recipes
from jembench.interfaces import DataSpec, Split
from jembench.sampling.graph import WARM_UP
from jembench.training.loop import Trainer

DATA = DataSpec(name="noise", shape=(3, 8, 8), num_classes=4)
PCD = "chains.sampler=pcd:steps=2,buffer=40"
SETTINGS = (
    "batch_size=4",
    "data.validation=0",
    "data.pad=1",
    "data.flip=true",
    "compute.layout=contiguous",
    "schedule.warmup_iterations=5",
)
CASES = [
    (
        "jem:net=small-1,norm=batch,dropout=0.1",
        [
            "optimizer.name=sgd",
            "optimizer.momentum=0.9",
            "optimizer.average=0.99",
            PCD,
            "chains.mode=train",
        ],
    ),
    ("jem:net=small-1,ramp=7", [f"{PCD},start=class-gaussian", "data.shared=true"]),
    ("jem-factored:net=small-1", [PCD]),
    (
        "jem:net=small-1,norm=batch,passes=joint,outliers=0.1,attacked=0.25,radius=0.2,scaled=true",
        [PCD, 'data.outliers=mixture:starts="uniform,permuted,shapes"', "optimizer.clip=0.5"],
    ),
]


@pytest.fixture(scope="module")
def whole():
    with importing(Path(__file__).parent.parent / "benchmarks" / "gpu") as imported:
        yield imported("whole")


def make_trainer(device, spec, settings):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (40, *DATA.shape), dtype=torch.uint8, generator=generator)
    with seeds.drawing(0, "initialisation"):
        model = registry.resolve("models", spec).make(DATA)
    recipe = recipes.load("digits-paper", [*SETTINGS, *settings])
    split = Split(images, torch.arange(40) % 4)
    return Trainer(model, DATA, split, recipe, seed=0, device=device)


def compare(found, expected):
    for name, value in expected.items():
        assert found[name].tolist() == value.tolist(), name


@pytest.mark.parametrize(("spec", "settings"), CASES)
def test_on_a_cpu_its_values_weights_and_chains_are_those_of_the_plain_loop(whole, spec, settings):
    plain, trainer = (make_trainer(torch.device("cpu"), spec, settings) for _ in range(2))
    graph = whole.WholeIteration(trainer)
    for _ in range(WARM_UP + 2):
        expected = plain.iterate()
        compare(graph.iterate(), expected)
    compare(trainer.weights(), plain.weights())
    compare(trainer.chains.state_dict(), plain.chains.state_dict())


@pytest.mark.parametrize(("spec", "settings"), CASES)
def test_a_replay_is_an_iteration_that_the_host_launches_at_once(whole, spec, settings):
    with fake_gpu() as gpu:
        plain = make_trainer(GPU, spec, settings)
        with fake_graphs(gpu) as graphs:
            graph = whole.WholeIteration(make_trainer(GPU, spec, settings))
            for _ in range(WARM_UP + 4):
                expected = plain.iterate()
                gpu.launches.clear()
                gpu.waits.clear()
                replayed = graph.iterate()
                launches, waits = gpu.launches[:], gpu.waits[:]
                compare(replayed, expected)
        compare(graph.trainer.weights(), plain.weights())
        compare(graph.trainer.chains.state_dict(), plain.chains.state_dict())
        (made,) = graphs
        assert made.log.count("capture") == 1
        assert launches.count("graph") == 1
        if graph.starts_before:  # the host must know which chains restart
            assert len(launches) < 20
        else:
            assert set(launches) == {"fill_", "copy_", "graph", "clone"}
            assert waits == []


def test_values_stay_when_the_next_iteration_is_run(whole):
    with fake_gpu() as gpu, fake_graphs(gpu):
        graph = whole.WholeIteration(make_trainer(GPU, *CASES[2]))
        values = [graph.iterate()["loss"] for _ in range(WARM_UP + 2)]
        before = [value.tolist() for value in values]
        graph.iterate()
        assert [value.tolist() for value in values] == before


def test_classes_of_chains_that_are_drawn_before_the_graph_are_refused(whole):
    settings = [f"{PCD},start=class-gaussian", "chains.conditional=true"]
    with pytest.raises(ValueError, match="classes"):
        whole.WholeIteration(make_trainer(torch.device("cpu"), "jem:net=small-1", settings))
