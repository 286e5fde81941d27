"""The place where items run and note results, their trainers, and timing."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(1, str(ROOT / "benchmarks" / "speed"))

TINY = ("batch_size=4", "data.validation=100", "data.flip=false", "model.net=small-1")
"""The settings of every training at the tiny size, in place of an item's own."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device, the amount of work, the time that an item has, and the folder of results."""

    device: torch.device
    tiny: bool
    out: Path
    data: Path | None
    seconds: float

    @property
    def nets(self) -> tuple[str, ...]:
        """The networks that are measured."""
        return ("small-1",) if self.tiny else ("wrn-28-2", "wrn-28-10")

    @property
    def images(self) -> str:
        """The dataset of trainings on real images.

        Raises:
            UsageError: if no folder of images was given.
        """
        if self.tiny:
            return "digits"
        if self.data is None:
            raise click.UsageError("This item needs --data: a folder with train/ and test/.")
        return f"imagefolder:root={self.data},name=cifar10-jpeg,size=32"

    def note(self, item: str, **values: Any) -> None:
        """Append a measurement to the results, and print it."""
        line = json.dumps({"item": item, **values}, default=str)
        with (self.out / "results.jsonl").open("a") as results:
            results.write(f"{line}\n")
        click.echo(line)

    def peak(self) -> float:
        """Return the largest memory of the device's tensors in GiB, and start anew."""
        if self.device.type != "cuda":
            return 0.0
        peak = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak

    def fit(self, model: str, recipe: str | None, *settings: str, images: str = "cifar10") -> Any:
        """Return the plan of a training; at the tiny size on digits, with ``TINY``."""
        from jembench.experiment.plan import plan_fit

        smaller = TINY if self.tiny else ()
        chosen = {setting.partition("=")[0]: setting for setting in (*settings, *smaller)}
        return plan_fit(model, "digits" if self.tiny else images, recipe, list(chosen.values()))

    @contextmanager
    def trainer(self, *fit: str | None, images: str = "") -> Iterator[Any]:
        """Make a trainer, on blank images unless some are named; its memory is freed afterwards."""
        from jembench.data.datasets import blank, make
        from jembench.models.execution import forget_compiled
        from jembench.running.building import make_model
        from jembench.training.loop import Trainer

        plan = self.fit(*fit, images=images or "cifar10")
        data = make(plan.dataset, download=True)
        model = make_model(plan, data)
        split = ((None if images else blank(data)) or data).split("train")
        yield Trainer(model, data.spec, split, plan.recipe, seed=0, device=self.device)
        gc.collect()
        forget_compiled()

    def warm_up(self, iterate: Callable[[], object]) -> float:
        """Run iterations until all is compiled, captured and allocated, and return the seconds."""
        from turns import seconds

        count = 1 if self.tiny else 5
        return sum(seconds(iterate, self.device) for _ in range(count))

    def pace(self, iterate: Callable[[], object], count: int) -> float:
        """Return the seconds of an iteration, of ``count`` that follow each other."""
        from turns import seconds

        count = 1 if self.tiny else count
        return seconds(lambda: [iterate() for _ in range(count)], self.device) / count


def run(command: list[str], *, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository, and keep what it prints."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=check, cwd=ROOT)


def jembench(*arguments: str) -> str:
    """Run the command line, and return what it prints."""
    return run([sys.executable, "-m", "jembench", *arguments], check=True).stdout
