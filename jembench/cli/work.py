"""``jembench work`` and ``status``: the command of workers, and their units."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import operator
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.api import status as api
from jembench.api.status import UnitStatus
from jembench.cli import options
from jembench.cli.output import narrow_width, print_json, print_table, say
from jembench.errors import JembenchError, OutOfTime, SpecError, StoreError
from jembench.experiment import works
from jembench.interfaces.running import Ended, Ending
from jembench.progress import duration
from jembench.running.display import Display
from jembench.running.processes import DRIVER
from jembench.store.store import Store
from jembench.training.processes import joined, launched

if TYPE_CHECKING:
    import torch

    from jembench.experiment.plan import FitPlan
    from jembench.running.events import Events
    from jembench.running.worker import Worker

EXAMPLES = options.examples(
    "jembench work 4fd03de22a119df7 --store runs", "jembench work unit.json --store runs"
)

EXIT_CODES: dict[Ending, int] = {"done": 0, "failed": 1, "refused": 2, "stopped": 3, "busy": 4}


@click.command("work", epilog=EXAMPLES)
@click.argument("units", metavar="UNIT...", nargs=-1, required=True)
@options.store
@options.device
@options.skip_missing
def work(units: tuple[str, ...], store: Path, device: str, skip_missing: bool) -> int:
    """Carry out units of work of a run.

    They are carried out one after the other. A unit is an id that `jembench status` shows, or a
    JSON file; - stands for those on stdin, until it ends. A model that several processes train
    together needs torchrun: `torchrun --nproc-per-node 4 -m jembench work ID`.

    Each unit that has ended is a line of JSON on stdout. The exit code is 0 if all are done, 1 if
    one failed, 2 if one cannot be carried out here, 3 if the work was stopped, 4 if another process
    works on one.
    """
    from jembench.running.events import Events, chosen_trackers

    if driver := os.environ.get(DRIVER):
        threading.Thread(target=_end_with, args=(int(driver),), daemon=True).start()
    out, place, own = sys.stdout, Store(store.absolute()), launched()
    group = joined(own, device) if own.size > 1 else nullcontext(device)
    with redirect_stdout(sys.stderr), group as here:  # stdout is for what the driver reads
        if own.rank:
            _serve(place, units, here)
            return 0
        worst = 0
        with Display(live=False) as shown, Events(shown, place, chosen_trackers()) as events:
            worker = functools.cache(
                functools.partial(_worker, place, here, events, skip_missing=skip_missing)
            )
            for unit in _listed(units):
                ended = _work_on(worker, place, unit)
                out.write(json.dumps(dataclasses.asdict(ended)) + "\n")
                out.flush()
                worst = max(worst, EXIT_CODES[ended.how])
                if ended.how == "stopped":
                    break
    return worst


def _end_with(driver: int) -> None:
    """Stop this process cleanly once its parent has ended."""
    while os.getppid() == driver:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _listed(units: Iterable[str]) -> Iterator[str]:
    """Yield units, and for ``-`` the units on stdin.

    A unit on stdin is yielded as soon as its line is complete.
    """
    for unit in units:
        if unit != "-":
            yield unit
            continue
        for line in sys.stdin:
            yield from line.split()


def _worker(
    store: Store, device: torch.device | str, events: Events, *, skip_missing: bool
) -> Worker:
    from jembench.models import devices
    from jembench.running.worker import Worker

    return Worker(store, devices.resolve(str(device)), events, skip_missing=skip_missing)


def _work_on(worker: Callable[[], Worker], store: Store, unit: str) -> Ended:
    """Carry out a unit, and return its ending and the reason."""
    from jembench.running.events import ending_of

    ended = Ended(id=unit, how="done")
    try:
        work = _read(store, unit)
        ended = Ended(id=work.id, how="done")
        if work.is_late:
            raise OutOfTime(
                "The run's time was up before the unit began. The same command goes on from there."
            )
        ended = worker().carry_out(work)
    except BaseException as error:  # also SystemExit, from a plugin
        how, text = ending_of(error)
        if how == "failed" and not isinstance(error, JembenchError):
            traceback.print_exc()
        ended = dataclasses.replace(ended, how=how, text=text, error=type(error).__name__)
    if ended.text:
        prefix = "" if ended.how == "stopped" else "Error: "
        say(f"{prefix}{ended.text}", err=True)
    return dataclasses.replace(ended, host=platform.node())


def _read(store: Store, unit: str) -> works.Work:
    try:
        return store.works.read(unit).read(works.Work)
    except StoreError as error:
        raise SpecError(f"This is no unit of work: {error}") from error


def _serve(store: Store, units: tuple[str, ...], device: torch.device | str) -> None:
    """Help to train the models of units, on a rank above 0."""
    import torch

    from jembench.running.worker import serve_fits

    fits: list[FitPlan] = []
    for unit in units:
        fits += works.planned(_read(store, unit), f"the unit of work {unit}").fits
    serve_fits(fits, torch.device(device))


# --- status ---------------------------------------------------------------------------------------

QUEUED = 20
"""The largest number of waiting units that are listed one by one."""


@click.command(
    "status", epilog=options.examples("jembench status", "jembench status --store /shared/runs")
)
@options.store
@options.listing_format
def status(store: Path, format: str) -> None:
    """Show the units of work of a store, with host, start and progress.

    Lists each unit of work that is not done under the command that it belongs to, from any machine
    that sees the store. A unit is lost if its worker has died; the same command takes it over.
    `jembench work UNIT` carries one out by hand. Units that ended more than a day ago are only
    counted.
    """
    units = api.status(store)
    if format == "json":
        print_json({"units": [unit._asdict() for unit in units]})
        return
    shown, queued, old = list[UnitStatus](), list[UnitStatus](), list[UnitStatus]()
    for unit in units:
        if unit.state == "queued":
            queued.append(unit)
        elif unit.is_old:
            old.append(unit)
        else:
            shown.append(unit)
    shown += queued[:QUEUED]
    width = narrow_width()
    shown.sort(key=operator.attrgetter("command"))
    for command, group in itertools.groupby(shown, operator.attrgetter("command")):
        say(command)
        rows = []
        for unit in group:
            lines = "\n".join(_progress(unit, store))
            rows.append((unit.id, unit.state, _ago(unit.since), lines))
        print_table(("unit", "state", "for", "work"), rows, width)
    if not shown:
        say(f"Nothing runs in {store}.")
    if queued[QUEUED:]:
        say(f"and {len(queued) - QUEUED} more that are queued")
    if old:
        say(
            f"and {len(old)} that ended more than a day ago; `jembench store gc` lists and "
            "removes them"
        )


def _progress(unit: UnitStatus, store: Path) -> Iterator[str]:
    """Yield lines about a unit: its progress, its worker and its log."""
    yield f"{unit.kind} {unit.name} on {unit.dataset}, recipe {unit.recipe}, seed {unit.seed}"
    parts = [unit.text]
    if unit.total and unit.state == "running":
        parts = [f"{unit.done:,} of {unit.total:,} {unit.counted}", unit.text]
    if any(parts):
        yield ", ".join(filter(None, parts))
    if unit.worker:
        yield f"worker {unit.worker}"
    if unit.log:
        path = unit.log
        if Path(path).is_relative_to(store.absolute()):
            path = os.path.relpath(path)
        yield f"log {path}"


def _ago(since: float | None) -> str:
    """Return the time since a moment in words; "" for None."""
    return "" if since is None else duration(time.time() - since)
