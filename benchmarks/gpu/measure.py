"""One item of the list in a process of its own; ``run.py`` starts it and reads what it leaves in ``values.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "benchmarks" / "speed")]


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of everything."""

    large: str  # nets
    small: str
    batch: int
    steps: int  # of chains
    repeats: int
    iterations: int  # that are timed one by one
    subjects: tuple[str, ...]  # of the benchmark of speed; the first three are for the large net as well
    product: int  # rows of a matrix
    copied: int  # bytes
    dataset: str  # spec; its images are not read
    recipes: tuple[str, ...]  # of jem beside its default; none: all that fit
    settings: tuple[str, ...]  # changes of every recipe
    models: tuple[str, ...]
    networks: tuple[str, ...]  # that are compiled in one process
    backend: str  # of the compiler
    images: int  # of each split of a folder of noise
    killed: tuple[tuple[str, str, tuple[str, ...]], ...]  # dataset, recipe and its changes of trainings that are killed
    attacked: int  # images whose gradients are computed at once
    chains: tuple[int, ...]  # steps of refinement
    fit: tuple[str, ...]  # changes of the recipe of the last item


FULL = Size(
    large="wrn-28-10",
    small="wrn-28-2",
    batch=64,
    steps=20,
    repeats=5,
    iterations=50,
    subjects=("sampling", "jem", "rate", "classifier", "evaluation", "gradient-norm", "scores", "guard"),
    product=8192,
    copied=2**31,
    dataset="cifar10",
    recipes=(),
    settings=(),
    models=("jem", "jem-factored", "baseline", "adversarial", "igebm", "glow", "residual-flow"),
    networks=(
        *("jem:net=wrn-28-2", "jem:net=wrn-28-2,norm=batch", "jem:net=wrn-16-4", "jem-factored:net=wrn-28-2"),
        *("baseline:net=wrn-28-2", "baseline:net=wrn-28-10", "igebm", "igebm:conditional=false", "glow:steps=4"),
    ),
    backend="inductor",
    images=1000,
    killed=(
        ("digits", "digits", ("epochs=6", "log_every=20", "checkpoint_every=40")),
        (
            "noise",
            "fast",
            ("model.net=wrn-28-2", "epochs=24", "log_every=10", "checkpoint_every=20", "data.validation=0"),
        ),
    ),
    attacked=2000,
    chains=(0, 1, 10),
    fit=("model.net=wrn-28-2", "epochs=60"),
)

_SHORT = ("log_every=2", "checkpoint_every=4", "model.net=small-1")

TINY = Size(
    large="small-1",
    small="small-1",
    batch=4,
    steps=2,
    repeats=1,
    iterations=2,
    subjects=("sampling",),
    product=64,
    copied=2**12,
    dataset="digits",
    recipes=("paper",),
    settings=("batch_size=4", "data.validation=0", "chains.sampler=pcd:steps=2,buffer=40"),
    models=("jem:net=small-1", "baseline:net=small-1", "glow:hidden=4,levels=1,steps=1"),
    networks=("jem:net=small-1", "baseline:net=small-1"),
    backend="eager",
    images=40,
    killed=(("digits", "digits", (*_SHORT, "epochs=0.5", "chains.sampler=pcd:steps=2,buffer=100")),),
    attacked=8,
    chains=(0, 1),
    fit=(
        *_SHORT,
        "epochs=3",
        "data.validation=8",
        "batch_size=8",
        "data.labelled_batch=8",
        "chains.sampler=pcd:steps=2,buffer=100",
    ),
)


@dataclass
class Findings:
    """What an item found so far: it is on disk at once, since the item may be killed at any moment."""

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, value: Any) -> None:
        """Keep a single value."""
        self.values.setdefault("notes", {})[name] = value
        self._keep(f"{name}: {value}")

    def row(self, table: str, **cells: Any) -> None:
        """Keep a row of a table."""
        self.values.setdefault("tables", {}).setdefault(table, []).append(cells)
        self._keep(f"{table}: {cells}")

    def aim(self, text: str, value: float, reached: bool) -> None:
        """Keep whether an aim was reached."""
        self.values.setdefault("aims", []).append({"aim": text, "value": value, "reached": bool(reached)})
        self._keep(f"{text}: {value:.4g}, {'reached' if reached else 'not reached'}")

    def done(self) -> None:
        """Say that a lasting item is done."""
        self.values["done"] = True
        self._keep("done")

    def _keep(self, line: str) -> None:
        partial = self.folder / ".values.partial"
        partial.write_text(json.dumps(self.values, indent=1))
        partial.replace(self.folder / "values.json")
        print(line, flush=True)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an item works, on what, and for how long."""

    device: torch.device
    size: Size
    folder: Path  # its own, which may be lost
    seconds: float  # after which it is killed
    kept: Path  # the state file; what lies beside it is brought back
    data: Path | None


def items() -> Mapping[str, Callable[[Place, Findings], None]]:
    """The functions, imported when one is needed."""
    import commands
    import hardware
    import iterations

    return {
        "machine": hardware.machine,
        "tests": hardware.tests,
        "recipes": iterations.recipes,
        "speed-large": iterations.speed_large,
        "speed-small": iterations.speed_small,
        "switches": iterations.switches,
        "profile": iterations.profiled,
        "compiler": iterations.compiler,
        "estimate": iterations.estimate,
        "kill": commands.kill,
        "attacks": iterations.attacks,
        "cifar10": commands.cifar10,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one item."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("item")
    parser.add_argument("--device", type=torch.device, required=True)
    parser.add_argument("--size", choices=["full", "tiny"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    given = vars(parser.parse_args(arguments))
    function = items()[given.pop("item")]
    given["size"] = {"full": FULL, "tiny": TINY}[given["size"]]
    function(Place(**given), Findings(given["folder"]))


if __name__ == "__main__":
    main()
