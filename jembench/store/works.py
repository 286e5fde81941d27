"""Units of work in a store, and their statuses.

    works/<id>.json         the unit
    works/<id>.status.json  its status, which any process can show

Both are removed once the results of the unit are in the store. Imports no torch.
"""

import dataclasses
import time
from collections.abc import Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from jembench.errors import DamagedError, SpecError
from jembench.interfaces.running import Ending
from jembench.store import outcome, records
from jembench.store.records import Record

LOGS = "worker-*.log"
"""The names of files with the output of workers on this machine; files of failed workers are kept.
"""


OLD = 86_400.0
"""Seconds after which a unit that has ended without its results is no longer listed, and may be
removed.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkStatus:
    """The status of a unit, replaced about once a second."""

    state: str  # "queued", "running", or how it ended
    worker: str = ""  # host:pid
    since: float = 0.0  # when the worker began, UTC in seconds since 1970
    time: float = 0.0  # when this status was written
    done: int = 0  # of ``total``
    total: int = 0  # 0: nothing is counted
    counted: str = ""  # "iterations", "images"
    text: str = ""  # the present work, or why the unit has ended or not started
    notes: tuple[str, ...] = ()  # divergences and warnings so far
    log: str = ""  # the file with what the worker printed


@dataclass(frozen=True)
class WorkFiles:
    """The folder of units of work and of their statuses."""

    folder: Path

    def path(self, work: str, kind: str = "") -> Path:
        """Return the file of a unit or of its status.

        ``kind`` is "" for the unit, and ".status" for its status.
        """
        return self.folder / f"{work}{kind}.json"

    def files(self, work: str) -> tuple[Path, Path]:
        """Return the paths of a unit's file and of its status file."""
        return self.path(work), self.path(work, ".status")

    def read(self, work: str) -> Record:
        """Read a unit, by its id or from a file.

        Raises:
            SpecError: if there is no such unit.
            DamagedError: if the file was changed.
        """
        path = Path(work) if work.endswith(".json") else self.path(work)
        try:
            return records.read(path)
        except FileNotFoundError:
            raise SpecError(
                f"There is no unit of work {path}. `jembench status` lists the units of a store; "
                "units that are done are removed."
            ) from None

    def ids(self) -> list[str]:
        """Return the ids of all units."""
        return sorted(path.stem for path in self.folder.glob("*.json") if "." not in path.stem)

    def set_status(self, work: str, status: WorkStatus) -> None:
        """Replace the status of a unit.

        Raises:
            StoreError: if the status cannot be written.
        """
        fields = asdict(dataclasses.replace(status, time=time.time()))
        records.write(self.path(work, ".status"), outcome.encode(fields), durable=False)

    def status(self, work: str) -> WorkStatus:
        """Return the status of a unit; "queued" without a readable status."""
        with suppress(FileNotFoundError, DamagedError):
            return records.read(self.path(work, ".status")).read(WorkStatus)
        return WorkStatus(state="queued")

    def end(self, work: str, how: Ending, text: str, log: str = "") -> None:
        """Note how a unit ended, or remove a unit that is done.

        Raises:
            StoreError: if the ending cannot be written.
        """
        if how == "done":
            self.remove(work)
            return
        state = "queued" if how == "busy" else how
        before = self.status(work)
        log = log or before.log
        self.set_status(work, dataclasses.replace(before, state=state, text=text, log=log))

    def old(self, busy: Set[str]) -> list[str]:
        """Return the ids of units that ended before ``OLD``, except ``busy`` ones."""
        old = []
        for work in self.ids():
            status = self.status(work)
            is_old = time.time() - status.time > OLD
            if is_old and status.state != "queued" and work not in busy:
                old.append(work)
        return old

    def remove(self, work: str) -> None:
        """Remove the files of a unit."""
        for path in self.files(work):
            with suppress(OSError):
                path.unlink()
