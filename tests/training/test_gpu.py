"""Training on a GPU. Skipped where there is none."""

import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from scripts import importing

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import Fallback
from jembench.experiment import recipe as recipes
from jembench.sampling.graph import WARM_UP
from jembench.training.loop import Trainer

QUICK = ("epochs=1", "data.pad=1", "data.flip=true", "chains.sampler=pcd:steps=3,buffer=100")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def _same_arithmetic(monkeypatch):
    """Convolve in float32 and by the same algorithm in each call, so that two trainers compute the
    same numbers.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


@contextmanager
def no_waits():
    """Raise an error wherever the host waits for the device."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def trainer(*overrides, model="jem:net=small-4"):
    digits = registry.resolve("datasets", "digits").make()
    with seeds.drawing(0, "initialisation"):
        model = registry.resolve("models", model).make(digits.spec)
    recipe = recipes.load("digits-paper", [*QUICK, *overrides])
    return Trainer(
        model, digits.spec, digits.split("train"), recipe, seed=0, device=torch.device("cuda")
    )


@pytest.mark.parametrize("compile", ["off", "auto"])
@pytest.mark.parametrize("dropout", [0, 0.3])
def test_the_host_never_waits_within_an_iteration(dropout, compile):
    running = trainer(f"compute.compile={compile}", model=f"jem:net=small-4,dropout={dropout}")
    for _ in range(WARM_UP + 1):  # fills the buffer, chooses algorithms, captures the chain
        running.iterate()
    assert running.functions.computed["captured"] == (compile == "auto")
    with no_waits():
        running.iterate()


def compare(found, expected):
    """Two trainers after the same iterations: the same chains, bit for bit, and generators that
    have come as far.
    """
    assert torch.equal(found.chains.generator.get_state(), expected.chains.generator.get_state())
    assert torch.equal(found.chains.sampler.images, expected.chains.sampler.images)


@pytest.mark.parametrize(
    ("model", "overrides"),
    [
        ("jem:net=small-4", []),
        ("jem:net=small-4,dropout=0.3", ["chains.mode=train"]),
        ("jem:net=small-4,norm=batch", ["chains.mode=train"]),
        ("jem:net=small-4", ["chains.sampler=pcd:steps=3,buffer=100,start=class-gaussian"]),
        ("jem-factored:net=small-4", ["chains.sampler=pcd:steps=3,buffer=1000"]),
    ],
)
def test_iterations_with_a_captured_chain_are_those_without_and_so_after_a_resume(model, overrides):
    """Images of digits are so small that nothing is compiled: a capture alone changes no bit."""
    plain, fast, resumed = (
        trainer("compute.precision=float32", f"compute.compile={compile}", *overrides, model=model)
        for compile in ("off", "auto", "auto")
    )
    for part in ([fast], [fast, resumed]):
        for _ in range(WARM_UP + 3):
            expected = float(plain.iterate()["loss"])
            assert [float(one.iterate()["loss"]) for one in part] == [expected] * len(part)
        for one in part:
            compare(one, plain)
            assert one.functions.computed["captured"], one.functions.computed["not_captured"]
        resumed.load_state_dict(fast.state_dict())


@pytest.mark.parametrize("when", ["always", "while a graph is captured"])
def test_a_sampler_that_waits_for_the_device_goes_step_by_step(when):
    plain, fast = (
        trainer("compute.precision=float32", f"compute.compile={compile}")
        for compile in ("off", "auto")
    )
    step = fast.chains.sampler.step

    def waiting(state, *rest):
        if when == "always" or torch.cuda.is_current_stream_capturing():
            state.x.sum().item()
        return step(state, *rest)

    fast.chains.sampler.step = waiting
    with pytest.warns(Fallback, match="Chains run step by step"):
        assert len([(plain.iterate(), fast.iterate()) for _ in range(WARM_UP + 1)]) == WARM_UP + 1
    for _ in range(3):
        assert float(fast.iterate()["loss"]) == float(plain.iterate()["loss"])
    compare(fast, plain)
    assert len(fast.functions.computed["not_captured"]) == 1


def test_a_graph_gives_its_memory_back():
    running = trainer()
    for _ in range(WARM_UP + 1):
        running.iterate()
    torch.cuda.empty_cache()
    with_graph = torch.cuda.memory_reserved()
    running.functions.graph.forget()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < with_graph
    running.iterate()


def test_compiled_and_plain_iterations_agree():
    fast, plain = (
        trainer("compute.precision=float32", f"compute.compile={compile}")
        for compile in ("on", "off")
    )
    for _ in range(WARM_UP + 2):
        compiled, expected = fast.iterate(), plain.iterate()
    assert float(compiled["loss"]) == pytest.approx(float(expected["loss"]), abs=1e-2)


@pytest.mark.parametrize("compiled", ["on", "off"])
def test_dropout_depends_on_the_iteration_and_not_on_what_was_drawn_before(compiled):
    """In a captured graph, too: each replay takes the seed of its iteration."""
    plain, other = (
        trainer(f"compute.compile={compiled}", model="jem:net=small-4,dropout=0.5")
        for _ in range(2)
    )
    for number in range(6):  # the first ones warm up and capture
        expected = plain.iterate()
        torch.rand(number, device="cuda")
        found = other.iterate()
        assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-2), number


def test_cudnns_search_is_recorded(monkeypatch):
    assert not trainer().functions.computed["cudnn_benchmark"]
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert trainer().functions.computed["cudnn_benchmark"]


@pytest.mark.parametrize("model", ["jem:net=small-4", "jem:net=small-4,dropout=0.3,norm=batch"])
def test_an_iteration_as_one_graph_is_the_plain_one(model):
    """The learning rate is exact in float32, in which a fused optimiser reads it from a tensor."""
    exact = (
        "compute.precision=float32",
        "compute.compile=off",
        "optimizer.learning_rate=0.0009765625",
    )
    plain, captured = (trainer(*exact, "optimizer.average=0.9", model=model) for _ in range(2))
    with importing(Path(__file__).parents[2] / "benchmarks" / "gpu") as imported:
        graph = imported("whole").WholeIteration(captured)
    for _ in range(WARM_UP + 3):
        expected = float(plain.iterate()["loss"])
        assert float(graph.iterate()["loss"]) == expected
    compare(captured, plain)
    with no_waits():
        graph.iterate()
