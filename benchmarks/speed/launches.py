"""What a GPU is asked for: operations, and how often the host waits, counted on a GPU that is not there.

    python benchmarks/speed/launches.py
    python benchmarks/speed/launches.py --net wrn-16-1

An operation is one kernel or a few; views and empty tensors are none, and a CUDA graph is one. The fake GPU of the
tests computes in float32 without a compiler.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from contests import DATA
from rich import box
from rich.console import Console
from rich.table import Table

from jembench import seeds
from jembench.attacks.pgd import PGD
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Target
from jembench.catalog import registry
from jembench.experiment import recipe_files as recipe
from jembench.interfaces import ChainState, Split
from jembench.sampling import chain
from jembench.sampling.graph import WARM_UP
from jembench.sampling.sgld import Langevin, ShortRun
from jembench.training.loop import Trainer

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from fake_gpu import GPU, FakeGPU, fake_gpu
from fake_graph import fake_graphs

BATCH = 4  # counts do not depend on it, nor on the number of images
IMAGES = 2000
RECIPES = ("paper", "fast")


class Count(NamedTuple):
    """Of one step or iteration."""

    operations: float
    waits: float


def counted(device: FakeGPU, work: Callable[[], object]) -> Count:
    """What a call asks of the device."""
    device.launches.clear()
    device.waits.clear()
    work()
    return Count(len(device.launches), len(device.waits))


def a_step(device: FakeGPU, steps: Callable[[int], object]) -> Count:
    """What a step more asks of the device, as the mean of ten: what comes every few steps is among it."""
    few, many = (counted(device, lambda n=n: steps(n)) for n in (10, 20))  # type: ignore[misc]
    return Count((many.operations - few.operations) / 10, (many.waits - few.waits) / 10)


def sampling(net: str, device: FakeGPU) -> Count:
    """A step of SGLD."""
    trainer = make_trainer("paper", net)
    start = ChainState(torch.zeros(BATCH, *DATA.shape, device=GPU))
    generator = seeds.generator(0, "chains", GPU)
    sampler = ShortRun(DATA, Langevin(steps=1, step_size=1.0, noise=0.01))
    trainer.model.eval()
    return a_step(device, lambda n: chain.run(sampler, start, trainer.grad_energy, generator, n))


def iteration(name: str, net: str, device: FakeGPU, *settings: str, captured: bool = False) -> Count:
    """An iteration of training by a recipe, when the buffer is filled and the chain, if it is to be, captured."""
    with fake_graphs(device) if captured else nullcontext():
        trainer = make_trainer(name, net, *settings)
        for _ in range(WARM_UP + 1 if captured else 1):
            trainer.iterate()
        return counted(device, trainer.iterate)


def attack(net: str, device: FakeGPU, refine: int) -> Count:
    """A step of PGD on two images from two restarts each, none of which succeeds."""
    model = make_model(net).to(GPU).eval()
    model.net.load_state_dict({name: torch.zeros_like(value) for name, value in model.net.state_dict().items()})
    generator = seeds.generator(0, "attack", GPU)
    if refine:
        sampler = ShortRun(DATA, Langevin(steps=1, step_size=1.0, noise=0.01))
        model = Refined(model, sampler, steps=refine, chains=2, grad="through", generator=generator)
    x, y = torch.full((2, *DATA.shape), 0.5, device=GPU), torch.zeros(2, dtype=torch.int64, device=GPU)
    starts, eps = torch.zeros(2, 2, *DATA.shape, device=GPU), torch.full((2,), 0.1, device=GPU)
    return a_step(device, lambda n: PGD(norm="linf", steps=n).at(Target(model, DATA), x, y, eps, starts))


def make_model(net: str, **options: Any) -> Any:
    """The same weights each time."""
    spec = ",".join([f"jem:net={net}", *(f"{name}={value}" for name, value in options.items())])
    with seeds.initialising(0):
        return registry.resolve("models", spec).make(DATA)


def make_trainer(name: str, net: str, *settings: str, device: torch.device = GPU) -> Trainer:
    """By the recipe and with its options of the model, but for the network."""
    sampler = re.sub(r"buffer=\d+", "buffer=100", recipe.load(name).chains.sampler)  # to be filled sooner
    settings = (f"batch_size={BATCH}", "compute.layout=contiguous", f"chains.sampler={sampler}", *settings)
    chosen = recipe.load(name, list(settings))
    model = make_model(net, **{key: value for key, value in chosen.model.items() if key != "net"})
    images = torch.zeros((IMAGES, *DATA.shape), dtype=torch.uint8)
    train = Split(images, torch.arange(IMAGES) % DATA.num_classes)
    return Trainer(model, DATA, train, chosen, seed=0, device=device)


@click.command()
@click.option("--net", default="wrn-28-1", show_default=True, help="Its width changes the numbers of weights alone.")
def main(net: str) -> None:
    """Print the counts of a step of SGLD, of an iteration by two recipes, and of an attack's step."""
    with fake_gpu() as device:
        counts = {
            "SGLD step": sampling(net, device),
            **{f"iteration of {name}, by steps": iteration(name, net, device) for name in RECIPES},
            **{f"iteration of {name}": iteration(name, net, device, captured=True) for name in RECIPES},
            **{f"PGD step, refined by {n}" if n else "PGD step": attack(net, device, n) for n in (0, 1)},
        }
    table = Table(title=f"{net} on a GPU that is not there", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("of one", "operations", "waits of the host"):
        table.add_column(name, justify="left" if name == "of one" else "right")
    for name, count in counts.items():
        table.add_row(name, *(f"{number:,g}" for number in count))
    Console().print(table)


if __name__ == "__main__":
    main()
