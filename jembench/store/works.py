"""Units of work in a store: what is to be done, and how far it is.

    works/<id>.json    the unit
    works/<id>.events  what happened, a line of JSON each: any process can show it
    works/run-*.json   the runs that submitted units

The files of a unit are removed once its results are in the store. Imports no torch.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from jembench.errors import DamagedError, SpecError
from jembench.files import append_line, open_regular, read_bytes, write_bytes
from jembench.interfaces import Event
from jembench.store import fits, outcome, records
from jembench.store.layout import Layout, file_name
from jembench.store.outcome import FitKey
from jembench.store.records import Record

RUN = "run-"
"""What the names of runs begin with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """A run that submits units of work: its driver. It lives as long as it holds the lease of its id."""

    id: str
    command: str
    host: str
    pid: int
    time: float  # of its start, UTC, seconds since 1970
    units: int
    done: int = 0
    failed: int = 0


class Latest(NamedTuple):
    """The last events of a unit."""

    started: Event | None = None  # that a worker began with it, or what else is the first one
    queued: Event | None = None  # that a run submitted it, or what else is the first one
    progress: Event | None = None  # the last window, or metric that was begun
    last: Event | None = None
    doing: Event | None = None  # the last one that says what is being done, if it came after ``progress``


_TAIL = 2**14  # bytes


class WorkFiles:
    """The folder of units of work and of their events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, work: str, ending: str = ".json") -> Path:
        """A file of a unit."""
        return self.folder / f"{work}{ending}"

    def write(self, work: str, text: str) -> None:
        """Write a unit, a record as text.

        Raises:
            StoreError: if it cannot be written.
        """
        write_bytes(self.path(work), text.encode(), durable=False)  # a run that finds none writes it again

    def read(self, work: str) -> Record:
        """A unit, or one in a file.

        Raises:
            SpecError: if there is none.
            DamagedError: if it is not what was written.
        """
        path = Path(work) if work.endswith(".json") else self.path(work)
        try:
            return records.read(path)
        except FileNotFoundError:
            raise SpecError(
                f"There is no unit of work {path}. `jembench status` lists those of a store; units that are done are "
                "removed."
            ) from None

    def ids(self) -> list[str]:
        """The units that are there, without runs."""
        return sorted(path.stem for path in self.folder.glob("*.json") if not path.name.startswith(RUN))

    def append(self, event: Event) -> None:
        """Add an event to those of its unit.

        Raises:
            StoreError: if it cannot be written.
        """
        fields = {name: value for name, value in asdict(event).items() if value or name == "kind"}
        self.folder.mkdir(parents=True, exist_ok=True)
        append_line(self.path(event.work, ".events"), json.dumps(outcome.encode(fields)))

    def events(self, work: str, offset: int = 0) -> tuple[list[Event], int]:
        """The events from a place in the file on, and the place where the next ones will be.

        A line that is not whole yet, or was torn by a crash, is left out.
        """
        try:
            with open_regular(self.path(work, ".events")) as stream:
                stream.seek(offset)
                text = stream.read()
        except OSError:
            return [], offset
        lines = text.split(b"\n")
        found = [_event(line) for line in lines]
        torn = 0 if found[-1] else len(lines[-1])  # each line begins with its line break: the last one may be whole
        return [event for event in found if event], offset + len(text) - torn

    def latest(self, work: str) -> Latest:
        """Return what the end of a unit's events says. Of a long training's events few are parsed."""
        try:
            text = read_bytes(self.path(work, ".events"))
        except OSError:
            return Latest()
        started, queued = (_last_of(text, kind) for kind in ("started", "queued"))
        last = doing = None
        for event in filter(None, map(_event, reversed(text[-_TAIL:].split(b"\n")))):
            last = last or event
            if event.kind == "progress":
                doing = doing or event
            elif event.done or event.metric or event.kind in ("started", "queued"):
                return Latest(started, queued, event, last, doing)
        return Latest(started, queued, None, last, doing)

    def claimed_by(self, work: str) -> str:
        """The id of the run that was the last one to submit a unit; "" if the unit has ended since."""
        latest = self.latest(work)
        queued, last = latest.queued, latest.last
        is_open = queued and last and last.kind != "ended" and re.fullmatch(rf"{RUN}[0-9a-f]+-[0-9]+", queued.text)
        return queued.text if queued and is_open else ""

    def remove(self, work: str) -> None:
        """Remove the files of a unit."""
        for ending in (".json", ".events"):
            with suppress(OSError):
                self.path(work, ending).unlink()

    # --- runs ---------------------------------------------------------------------------------------------------------

    def write_run(self, run: RunRecord) -> None:
        """Write how far a run is.

        Raises:
            StoreError: if it cannot be written.
        """
        records.write(self.path(run.id), asdict(run), durable=False)

    def runs(self) -> list[RunRecord]:
        """The runs that are there, the first one first."""
        found = []
        for path in self.folder.glob(f"{RUN}*.json"):
            with suppress(FileNotFoundError, DamagedError):
                found += [run for run in [records.read(path).read(RunRecord)] if run.id == path.stem]
        return sorted(found, key=lambda run: run.time)


def work_files(root: Path, text: str) -> list[Path]:
    """The files of a store that a unit of work reads: of its fit, its cells, and those that all fits share.

    Args:
        root: of the store.
        text: the unit as JSON.

    Returns:
        Paths relative to the store.
    """
    work, layout = json.loads(text), Layout(root)
    key = FitKey(**work["fit"])
    folders = [home := layout.fit_folder(key)]
    if (home / fits.WEIGHTS[0]).exists():
        folders.append(layout.readings_of(key.id, fits.weights_digest(home)))
    if work["kind"] != "train":
        folders.append(layout.features)
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    for cell in work["cells"]:
        name = file_name(cell["metric"], cell["id"])
        files = (layout.place("cells", f"{name}.json"), layout.place("arrays", f"{name}.npz"))
        found += filter(Path.exists, files)
    return [path.relative_to(root) for path in found if not path.name.startswith(".")]


def _last_of(text: bytes, kind: str) -> Event | None:
    """Return the last event of a kind; the first one if there is none of the kind."""
    place = max(text.rfind(b'\n{"kind": "%b"' % kind.encode()), 0)
    lines = text[place : place + _TAIL].split(b"\n", 2)
    return _event(lines[1]) if len(lines) > 1 else None


def _event(line: bytes) -> Event | None:
    """The event in a line, if it is one."""
    return records.read_text(line, Event, "an event")
