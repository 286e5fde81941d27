"""``jembench work``: carries out units of work. It is the command of every worker of a run."""

from __future__ import annotations

import functools
import json
import os
import platform
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jembench.cli import options
from jembench.errors import JembenchError, OutOfTime, ProcessLost, SpecError, StoreError, error_text, printable
from jembench.experiment import works
from jembench.interfaces import Event
from jembench.interfaces.running import Ended, Ending
from jembench.running.display import Display
from jembench.stopping import Stopped
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.running.worker import Worker

EXAMPLES = options.examples("jembench work 4fd03de22a119df7 --store runs", "jembench work unit.json --store runs")

EXIT_CODES: dict[Ending, int] = {"done": 0, "failed": 1, "refused": 2, "stopped": 3, "busy": 4}


@click.command("work", epilog=EXAMPLES)
@click.argument("units", metavar="UNIT...", nargs=-1, required=True)
@options.store
@options.device
@options.skip_missing
def work(units: tuple[str, ...], store: Path, device: str, skip_missing: bool) -> int:
    """Carry out units of work of a run.

    They are carried out one after the other. A unit is an id that `jembench status` shows, or a JSON file. With the
    one argument `-`, ids are read from stdin, a line each; at the end of stdin the work stops cleanly.

    Each unit that has ended is a line of JSON on stdout. The exit code is 0 if all are done, 1 if one failed, 2 if one
    cannot be carried out here, 3 if the work was stopped, 4 if another process works on one.
    """
    out, place, worst = sys.stdout, Store(store), 0
    with redirect_stdout(sys.stderr), Display() as shown:  # stdout is for what the driver reads
        worker = functools.cache(functools.partial(_worker, place, device, shown, skip_missing=skip_missing))
        for unit in _from_stdin() if units == ("-",) else units:
            ended = _carry_out(worker, place, unit)
            out.write(json.dumps(asdict(ended)) + "\n")
            out.flush()
            worst = max(worst, EXIT_CODES[ended.how])
            if ended.how == "stopped":
                break
    return worst


def _worker(store: Store, device: str, shown: Display, *, skip_missing: bool) -> Worker:
    from jembench.models import devices
    from jembench.running.events import Events
    from jembench.running.worker import Worker

    store.check_writable()
    return Worker(store, devices.resolve(device), Events(shown, store), skip_missing=skip_missing)


def _carry_out(worker: Callable[[], Worker], store: Store, unit: str) -> Ended:
    """Carry out one unit; what goes wrong is how it ended. The files of one that is done, for no run, are removed."""
    how: Ending = "done"
    text, found = "", None
    try:
        found = _read(store, unit)
        if found.is_late:
            raise OutOfTime("The time of its run was up before it began. The same command goes on from there.")
        ended = worker().carry_out(found)
        how, text = ended.how, ended.text
    except (OutOfTime, Stopped, KeyboardInterrupt) as error:
        how, text = "stopped", str(error)
    except (StoreError, ProcessLost) as error:
        how, text = "failed", str(error)
    except JembenchError as error:
        how, text = "refused", str(error)
    except BaseException as error:  # also of a plugin that ends the program
        traceback.print_exc()
        how, text = "failed", error_text(error)
    text = printable(" ".join(text.splitlines()))
    if text:
        click.echo(text if how == "stopped" else f"Error: {text}", err=True)
    if found and how == "done" and not store.is_claimed(found.id):
        store.works.remove(found.id)
    elif found:
        with suppress(StoreError):  # of a full disk
            _note(store, found, Event(kind="ended", values={"how": how}, text=text))
    return Ended(id=found.id if found else unit, how=how, text=text, host=platform.node())


def _read(store: Store, unit: str) -> works.Work:
    try:
        return store.works.read(unit).read(works.Work)
    except StoreError as error:
        raise SpecError(f"This is no unit of work: {error}") from error


def _note(store: Store, found: works.Work, event: Event) -> None:
    from jembench.running.events import Events

    Events(None, store).of(found.fit, found)(event)


def _from_stdin() -> Iterator[str]:
    """Yield the ids on stdin. Its end stops the unit that is being worked on: the driver has gone."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    at_work = threading.Lock()  # held while a unit is carried out

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line.strip())
        waiting.put("")
        if not at_work.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True).start()
    while unit := waiting.get():
        if not at_work.acquire(blocking=False):
            return  # stdin has ended
        try:
            yield unit
        finally:
            at_work.release()
