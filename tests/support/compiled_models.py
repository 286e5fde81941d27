"""Shipped models compiled as one graph beside the plain code; differences are printed as JSON.

It is run in a process of its own: the checks of shapes that the tests add to jembench cannot be
compiled.
"""

import copy
import importlib.util
import json
import sys
import warnings

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounter

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import Fallback
from jembench.experiment import recipe as recipes
from jembench.interfaces import Batch, DataSpec, Negatives, Split
from jembench.models.energies import LogitModel, grad_energy
from jembench.models.execution import Execution
from jembench.models.objective import Weights, hybrid_loss
from jembench.training.loop import Trainer

DATA = DataSpec(name="noise", shape=(1, 8, 8), num_classes=4)
IMAGES = Split(
    torch.randint(
        256, (40, *DATA.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    ),
    torch.arange(40) % 4,
)
LIMIT = 4
"""How often PyTorch compiles a function for other networks: less than its own 8, which takes
longer.
"""

original = torch.compile


graphs = []


def backend(graph, inputs):
    """None: Dynamo is what refuses code, and the other stages take most of the time."""
    graphs.append(graph)
    return graph.forward


def compile_quickly(function, mode, **options):
    """By Dynamo alone."""
    return original(function, backend=backend, **options)


def make(spec):
    with seeds.drawing(0, "initialisation"):
        return registry.resolve("models", spec).make(DATA)


def make_trainer(model, compile, mode="eval"):
    settings = [
        f"chains.mode={mode}",
        "batch_size=4",
        "data.validation=0",
        "optimizer.name=sgd",
        "chains.sampler=pcd:steps=1,buffer=40",
    ]
    recipe = recipes.load("digits-paper", [*settings, f"compute.compile={compile}"])
    return Trainer(model, DATA, IMAGES, recipe, seed=0, device=torch.device("cpu"))


def difference(found, expected):
    """Relative to the expected values."""
    return float((found - expected).norm() / expected.norm().clamp_min(1e-12))


def iterations(model, mode="eval"):
    """Two iterations, the second of which is compiled, against two plain ones: the loss, and how
    far weights moved.
    """
    before = torch.cat([value.detach().flatten() for value in model.parameters()])
    ends, losses = [], []
    for compile, started in (("off", copy.deepcopy(model)), ("on", model)):
        trainer = make_trainer(started, compile, mode)
        losses.append([trainer.iterate()["loss"] for _ in range(2)][-1])
        ends.append(
            torch.cat([value.detach().flatten() for value in started.parameters()]) - before
        )
    return {
        "not compiled": trainer.functions.computed["not_compiled"],
        "loss": difference(losses[1], losses[0]),
        "weights": difference(ends[1], ends[0]),
    }


class Linear(LogitModel):
    """A network whose shapes differ from those of every other width."""

    chains = "none"

    def __init__(self, width):
        super().__init__(
            nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 4))
        )

    def training_loss(self, batch, negatives):
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1))


class Normed(LogitModel):
    """A network whose data pass before its chains; both write running statistics."""

    chains = "marginal"

    def __init__(self):
        super().__init__(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 4)))

    def training_loss(self, batch, negatives):
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1, marginal=1))


def data_before_chains():
    """The iterations, with the stage after Dynamo, which checks that no gradient needs what was
    overwritten.
    """
    torch.compile = lambda function, mode, **options: original(
        function, backend="aot_eager", **options
    )
    differences = iterations(Normed(), "train")
    torch.compile = compile_quickly
    return differences


def many_trainings(count):
    """Return what was not compiled of so many trainings of different networks in turn."""
    given_up = []
    for width in range(2, 2 + count):
        trainer = make_trainer(Linear(width), "on")
        trainer.iterate()
        trainer.iterate()
        given_up.append(trainer.functions.computed["not_compiled"])
    return given_up


def many_gradients(count):
    """The same of gradients without a trainer, which begins anew: what the limit does."""
    given_up, x = [], torch.rand(2, *DATA.shape)
    torch.compiler.reset()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", Fallback)
        for width in range(2, 2 + count):
            grad_energy(Linear(width), Execution(compiled=True), given_up)(x, None)
    return {"not compiled": given_up, "told": len(told)}


def traces_of_a_loss():
    """How often the loss is traced for four batches, with images of its own for the labels and
    without.
    """
    model = LogitModel(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))

    def loss(batch, negatives):
        return hybrid_loss(model, batch, negatives, Weights(cross_entropy=1, marginal=1)).total

    frames = {}
    for shared in (False, True):
        counter = CompileCounter()  # runs what was traced as it is: only the tracing is looked at
        fast = original(loss, backend=counter)
        for _ in range(4):
            x, again, samples = torch.randn(3, 5, 1, 2, 2).unbind()
            batch, negatives = (
                Batch(x, x if shared else again, torch.arange(5) % 3),
                Negatives(samples, None),
            )
            torch.testing.assert_close(fast(batch, negatives), loss(batch, negatives))
        frames["shared" if shared else "apart"] = counter.frame_count
    return frames


def check_with_the_whole_compiler(file):
    """The check of gradients in a file of tests, with code that was compiled to the end."""
    from torch._inductor import config

    spec = importlib.util.spec_from_file_location("these_tests", file)
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    torch.compile = original
    x = torch.randn(4, 3, 2, 2, generator=tests.seeded())
    torch.compiler.reset()
    # for one kernel it takes longer
    with (
        config.patch(compile_threads=1, cpp_cache_precompile_headers=False),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", Fallback)
        tests.check_gradient(tests.linear(), Execution(compiled=True), x, None)


def main():
    torch.set_num_threads(1)
    torch.compile = compile_quickly
    trained, *whole = map(json.loads, sys.argv[1:])
    torch._dynamo.config.recompile_limit = LIMIT
    results = {
        "trained": {spec: iterations(make(spec)) for spec in trained},
        "data first": data_before_chains(),
        "trainings": many_trainings(LIMIT + 1),
        "gradients": many_gradients(LIMIT + 2),
        "loss": traces_of_a_loss(),
    }
    for file in whole:
        check_with_the_whole_compiler(file)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
