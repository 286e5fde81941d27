"""Stores of many cells: what commands take on them, each in a process of its own, as a user starts it.

Nothing is trained. The cells are written with made-up values, by the store itself, under the identities of a real plan.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

METRICS = ("accuracy", "ece", "nll", "is", "fid", "energy-gap", "iteration-time")
SCORES = ("log-px", "max-py", "max-logit")
OUTLIERS = ("interp", "flipped", "rotated", "permuted", "uniform", "constant")


class Size(NamedTuple):
    """How much a plan crosses."""

    models: int
    variants: int  # of the recipe
    seeds: int

    @property
    def fits(self) -> int:
        """Trained models."""
        return self.models * self.variants * self.seeds

    @property
    def cells(self) -> int:
        """Of 28 metrics."""
        return self.fits * (len(METRICS) + len(SCORES) * len(OUTLIERS))


PROVENANCE: Mapping[str, Any] = {
    "command": "jembench run many",
    "commit": "0123456789ab",
    "python": "3.11.7",
    "packages": {f"package-{number}": "1.2.3" for number in range(20)},
    "hardware": {"device": "cpu", "processor": "a processor of some name", "cores": 2},
    "host": "here",
    "threads": 1,
    "time": "2026-11-21T12:00:00.000000+00:00",
    "limit": None,
    "interventions": [],
}
"""As long as that of a real outcome."""

SMALL, LARGE = Size(10, 6, 3), Size(10, 10, 10)


class Took(NamedTuple):
    """Of one command."""

    seconds: float  # by the clock
    cpu: float  # seconds of all processors, user and system


def suite(size: Size) -> str:
    """The suite as TOML."""
    models = [f"{name}:net=small-{width}" for width in range(4, 4 + size.models // 2) for name in ("jem", "baseline")]
    variants = (f'[[variant]]\nname = "v{n}"\nsettings = ["epochs={n}"]\n' for n in range(1, size.variants + 1))
    grid = f'[[grid]]\ntitle = "ood"\nmetric = "ood"\nrows = {{ score = {json.dumps(SCORES)} }}\n'
    return "\n".join(
        (
            'title = "Many cells"',
            f"models = {json.dumps(models)}",
            'datasets = ["digits"]',
            f"seeds = {list(range(size.seeds))}",
            f"metrics = {json.dumps(METRICS)}",
            f"{grid}columns = {{ set = {json.dumps(OUTLIERS)} }}",
            *variants,
        )
    )


def install(folder: Path, size: Size) -> None:
    """Write a suite package, ``many``, that is installed where ``folder`` is on the path."""
    package, metadata = folder / "many_cells", folder / "many_cells-1.0.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text("")
    (package / "many.toml").write_text(suite(size))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: many-cells\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[jembench.suites]\nmany = many_cells\n[jembench.api]\n2 = many_cells\n")


class Prepared(NamedTuple):
    """A folder in which the suite ``many`` is installed, with a store of all its cells or with none."""

    folder: Path
    size: Size

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "runs"

    def python(self, *words: str) -> Took:
        """What a Python command takes here, in a process of its own."""
        places = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), "JEMBENCH_STORE": str(self.store)}
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], env=known, check=True, stdout=subprocess.DEVNULL)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        return Took(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    def jembench(self, *words: str) -> Took:
        """What a command of jembench takes."""
        return self.python("-m", "jembench.cli.main", *words)

    def bare(self) -> float:
        """Seconds to read and decode every outcome once, in this process, and make nothing of it."""
        start = time.perf_counter()
        for path in self.store.glob("cells/*.json"):
            json.loads(path.read_bytes())
        return time.perf_counter() - start


@contextmanager
def prepared(size: Size) -> Iterator[Prepared]:
    """A store of that size, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        found = Prepared(Path(name), size)
        install(found.folder, size)
        yield found


def measure(repeats: int) -> Iterator[tuple[str, Size, list[float], list[Took]]]:
    """Each command, on how much, what the bare reading took beside it, and what it took."""
    for size, commands in ((LARGE, PLANS), (SMALL, REPORTS)):
        with prepared(size) as store:
            for words in commands:
                if "--dry-run" not in words and not store.store.exists():
                    store.python(__file__, str(store.store))
                turns = [(store.bare(), store.jembench(*words)) for _ in range(repeats)]
                yield " ".join(words), size, [bare for bare, _ in turns], [took for _, took in turns]


PLANS = (("run", "many", "--dry-run"), ("run", "many"))
REPORTS = (("report",), ("report", "hybrid"))


def write(root: Path) -> None:
    """Write the store that ``jembench run many`` would leave."""
    import numpy as np

    from jembench.experiment import suite_files as suite
    from jembench.experiment.planning import make_plan
    from jembench.interfaces import Value
    from jembench.store.fits import FitRecord
    from jembench.store.outcome import Cell, Outcome
    from jembench.store.store import Store

    os.fsync = lambda _: None  # a store that is made to be measured need not outlive a crash
    store, plan = Store(root), make_plan(suite.load("many"))
    made_with = PROVENANCE | {"plugins": sorted(map(str, plan.fits[0].components(sampled=True)))}
    blank: dict[str, Any] = {"status": "done", "reason": "", "recipe": {}, "iteration": 1, "validation_accuracy": None}
    blank |= {"seconds": 1.0, "iteration_seconds": [0.1], "interventions": [], "provenance": made_with}
    for fit in plan.fits:
        store.write_fit(FitRecord(key=fit.key, **blank))
        for name in ("model.safetensors", "sampler.safetensors", "history.csv", "samples.png"):
            (store.fit_folder(fit.key) / name).touch()
    rng = np.random.default_rng(0)
    for cell in plan.cells:
        label, value = str(cell.metric), float(rng.random())
        values = {label: Value(value, value - 0.1, value + 0.1, 397, "%", "higher")}
        outcome = Outcome(status="ok", protocol=f"{label.partition(':')[0]}:data=digits", values=values, seconds=0.1)
        record = Cell(id=cell.id, fit=cell.fit.key, metric=label, outcome=outcome, provenance=made_with)
        store.write_cell(record, {"value": rng.random(100)})


if __name__ == "__main__":
    write(Path(sys.argv[1]))
