"""A study of many fits on a fake cluster that only sleeps: what planning, submitting and following cost the driver.

    python benchmarks/speed/cluster.py --models 100 --datasets 10 --seeds 20 --slots 1000

Every part of the driver is real: the plan, the units of work and their files, leases, events and the display. A worker
sleeps, appends the events of a short training, and leaves the files by which a fit counts as trained.
"""

from __future__ import annotations

import heapq
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from jembench.catalog import plugin_files
from jembench.experiment import works
from jembench.experiment.planning import make_plan
from jembench.experiment.suite import Suite
from jembench.interfaces.running import Driver, Ended, Job
from jembench.running import driver
from jembench.running.display import display
from jembench.running.events import Events
from jembench.store.layout import file_name
from jembench.store.store import Store
from jembench.store.works import Status

METRICS = ("accuracy", "ece", "nll", "brier", "stability")

ZOO = """
from jembench.data.factories import digits

def model(data_spec, *, number: int = 0):
    raise NotImplementedError("this model is never made")

def data(*, number: int = 0):
    return digits()
"""


class Sleeper:
    """The executor of the fake cluster: a number of units at a time, each of which sleeps."""

    gpus = False
    here = False

    def __init__(self, store: Store, slots: int, seconds: float) -> None:
        self.slots = slots
        self._store = store
        self._seconds = seconds
        self._queue: list[tuple[int, Job]] = []
        self._running: list[tuple[float, str, Job]] = []
        self.working = 0.0  # seconds of CPU in this process that workers would have spent elsewhere

    def open(self, driver: Driver) -> None:
        """Nothing is started."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue units."""
        for job in jobs:
            heapq.heappush(self._queue, (job.order, job))

    def ended(self, seconds: float) -> list[Ended]:
        """The units that have slept long enough."""
        while self._queue and len(self._running) < self.slots:
            _, job = heapq.heappop(self._queue)
            self._report(job, 0)
            heapq.heappush(self._running, (time.monotonic() + self._seconds, job.id, job))
        if self._running:
            time.sleep(min(seconds, max(0.0, self._running[0][0] - time.monotonic())))
        ended = []
        while self._running and self._running[0][0] <= time.monotonic():
            _, _, job = heapq.heappop(self._running)
            self._report(job, 100)
            self._leave(job)
            ended.append(Ended(id=job.id, how="done", host="nowhere"))
        return ended

    def _report(self, job: Job, done: int) -> None:
        start = time.process_time()
        status = Status(state="running", worker="nowhere:1", since=time.time(), done=done, total=100, text="loss 0.5")
        self._store.works.set_status(job.id, status)
        self.working += time.process_time() - start

    def _leave(self, job: Job) -> None:
        """What a training leaves, as far as the driver looks at it."""
        start = time.process_time()
        if json.loads(job.text)["later"]:
            read = works.read(works.Record(json.loads(job.text), "a unit"))
            fit = read.fit
            folder = (
                self._store.root / "fits" / file_name(f"{fit.model}-{fit.dataset}-{fit.recipe}-s{fit.seed}", fit.id)
            )
            folder.mkdir(parents=True)
            (folder / "fit.json").write_text(json.dumps(_record(read)))
            for name in ("model.safetensors", "sampler.safetensors"):
                (folder / name).touch()
        self.working += time.process_time() - start

    def cancel(self) -> None:
        """Nothing is cancelled."""

    def close(self) -> None:
        """Nothing is left."""


def _record(unit: works.Work) -> dict[str, object]:
    key = {name: getattr(unit.fit, name) for name in ("model", "dataset", "recipe", "seed", "id", "family")}
    return {
        "key": key,
        "status": "done",
        "reason": "",
        "recipe": {},
        "iteration": 1,
        "validation_accuracy": None,
        "seconds": 1.0,
        "iteration_seconds": [],
        "interventions": [],
        "provenance": {},
    }


@click.command()
@click.option("--models", default=100, show_default=True)
@click.option("--datasets", default=10, show_default=True)
@click.option("--seeds", default=20, show_default=True)
@click.option("--slots", default=1000, show_default=True, help="Units that run at the same time.")
@click.option("--seconds", default=1.0, show_default=True, help="How long each unit sleeps.")
def main(models: int, datasets: int, seeds: int, slots: int, seconds: float) -> None:
    """Carry out a large study on a fake cluster."""
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "zoo_that_sleeps.py").write_text(ZOO)
        plugin_files.add(folder / "zoo_that_sleeps.py")
        suite = Suite(
            name="sleep",
            title="",
            models=tuple(f"zoo_that_sleeps:model:number={number}" for number in range(models)),
            datasets=tuple(f"zoo_that_sleeps:data:number={number}" for number in range(datasets)),
            metrics=METRICS,
            seeds=tuple(range(seeds)),
        )
        start = time.perf_counter()
        plan = make_plan(suite, recipe="digits")
        _say("plan", time.perf_counter() - start, f"{len(plan.fits)} fits, {len(plan.cells)} cells")
        start = time.perf_counter()
        units = works.works(plan, lambda key: False, slots=slots)
        size = len(units[0].job(0).text)
        _say("units of work", time.perf_counter() - start, f"{len(units)}, {size / 1000:.1f} kB each")
        store = Store(folder / "store")
        sleeper = Sleeper(store, slots, seconds)
        start, used = time.perf_counter(), time.process_time()
        with display() as shown:
            driver.carry_out(plan, store, sleeper, Events(shown, store))
        wall, cpu = time.perf_counter() - start, time.process_time() - used
        _say("run", wall, f"{len(units) * seconds / slots:.0f} s if the driver cost nothing")
        _say("driver's CPU", cpu - sleeper.working, f"{1e3 * (cpu - sleeper.working) / len(units):.2f} ms a unit")
        assert not list(store.works.folder.iterdir())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        click.echo(f"{'peak memory':>16}  {peak:8.0f} MiB")
        click.echo(f"{'torch imported':>16}  {'torch' in sys.modules}")
    finally:
        shutil.rmtree(folder)


def _say(what: str, seconds: float, more: str) -> None:
    click.echo(f"{what:>16}  {seconds:8.2f} s    {more}")


if __name__ == "__main__":
    main()
