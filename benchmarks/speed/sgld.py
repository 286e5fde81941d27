"""How much faster our SGLD step is than the textbook's, as a ratio taken in one run.

The textbook loop is the one that most published code has: float32, contiguous images, parameters that require
gradients, and ``autograd.grad`` with ``retain_graph=True``. Ours is the sampler that training uses, ``ShortRun`` with
``grad_energy(model, "bfloat16")``. Both move the same images through the same network, taking turns, so that a busy
moment of the machine falls on both; what is compared is each turn with the one beside it.

    python benchmarks/speed/sgld.py --depth 28 --width 2 --batch 64
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import click
import torch
from torch import Generator, Tensor

from jembench import devices
from jembench.energies import LogitModel, grad_energy
from jembench.interfaces import ChainState, DataSpec
from jembench.nets.build import build_net
from jembench.sampling import chain
from jembench.sampling.sgld import Langevin, ShortRun

DATA = DataSpec(name="noise", shape=(3, 32, 32), num_classes=10)
STEP_SIZE, NOISE = 1.0, 0.01  # Grathwohl et al. (2020)


class Turn(NamedTuple):
    """Seconds per step of both loops, one after the other."""

    textbook: float
    ours: float

    @property
    def ratio(self) -> float:
        """Above 1: ours is faster."""
        return self.textbook / self.ours


def textbook_chain(model: LogitModel, x: Tensor, steps: int, noise: float, generator: Generator) -> Tensor:
    """SGLD as it is usually written."""
    x = x.clone().requires_grad_()
    for _ in range(steps):
        grad = torch.autograd.grad(model.energy(x).sum(), [x], retain_graph=True)[0]
        x.data += -STEP_SIZE * grad + noise * torch.randn(x.shape, generator=generator, device=x.device)
    return x.detach()


def our_chain(model: LogitModel, x: Tensor, steps: int, noise: float, generator: Generator) -> Tensor:
    """SGLD as jembench runs it."""
    sampler = ShortRun(DATA, Langevin(steps=steps, step_size=STEP_SIZE, noise=noise))
    return chain.run(sampler, ChainState(x), grad_energy(model, "bfloat16"), generator).x


def seconds_per_step(run: Callable[[], Tensor], steps: int, device: torch.device) -> float:
    """Wall-clock seconds of one chain, divided by its steps."""
    _synchronise(device)
    start = time.perf_counter()
    run()
    _synchronise(device)
    return (time.perf_counter() - start) / steps


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def direction_cosine(model: LogitModel, x: Tensor, steps: int, generator: Generator) -> float:
    """The cosine between the displacements of both loops, without noise, which would hide a difference."""
    moves = [(run(model, x, steps, 0.0, generator) - x).flatten() for run in (textbook_chain, our_chain)]
    return float(torch.cosine_similarity(moves[0], moves[1], dim=0))


def hardware(device: torch.device) -> str:
    """The device's name, and for a CPU how many threads compute and how many processes want it."""
    if device.type == "cuda":
        return devices.name(device)
    return f"{devices.name(device)}, {torch.get_num_threads()} threads, load average {os.getloadavg()[0]:.1f}"


def measure(device: torch.device, net: str, batch: int, steps: int, repeats: int) -> None:
    """Time both loops in turns on one device and print what came out."""
    torch.manual_seed(0)
    generator = torch.Generator(device).manual_seed(0)
    model = LogitModel(build_net(net, DATA)).to(device)
    x = torch.rand((batch, *DATA.shape), generator=generator, device=device) * 2 - 1
    click.echo(f"{device}: {hardware(device)}; torch {torch.__version__}, Python {platform.python_version()}")
    click.echo(f"{net}, batch {batch} of 3x32x32, {repeats} turns of {steps} steps")
    cosine = direction_cosine(model, x, steps, generator)  # also warms both loops up
    turns = [
        Turn(
            seconds_per_step(lambda: textbook_chain(model, x, steps, NOISE, generator), steps, device),
            seconds_per_step(lambda: our_chain(model, x, steps, NOISE, generator), steps, device),
        )
        for _ in range(repeats)
    ]
    click.echo(f"textbook {_summary([1e3 * turn.textbook for turn in turns])} ms a step")
    click.echo(f"jembench {_summary([1e3 * turn.ours for turn in turns])} ms a step")
    click.echo(f"ratio    {_summary([turn.ratio for turn in turns])} x;  cosine of the displacements {cosine:.4f}\n")


def _summary(values: list[float]) -> str:
    return f"{statistics.median(values):8.2f} ({min(values):.2f} to {max(values):.2f})"


@click.command()
@click.option("--depth", default=28, show_default=True)
@click.option("--width", default=2, show_default=True)
@click.option("--batch", default=64, show_default=True)
@click.option("--steps", default=5, show_default=True, help="Steps of a chain in each turn.")
@click.option("--repeats", default=7, show_default=True, help="Turns of each loop.")
@click.option("--device", multiple=True, help="Repeatable; every device there is if left out.")
def main(depth: int, width: int, batch: int, steps: int, repeats: int, device: tuple[str, ...]) -> None:
    """Print the ratio of our SGLD step to a textbook loop: median (min to max)."""
    for name in device or (("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)):
        measure(torch.device(name), f"wrn-{depth}-{width}", batch, steps, repeats)


if __name__ == "__main__":
    main()
