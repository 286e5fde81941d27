"""Executors under test, whose workers are fake and do as their units say."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fake_worker

import jembench
from jembench.interfaces.running import Driver, Ended, Ending, Executor, Job
from jembench.testing.checks import DoesNotApply, Subject, require

LIMIT = 60.0
"""Seconds in which all units of a check must have ended: engines need some to start a worker."""

CALM = 0.5
"""Seconds in which nothing may happen any more."""

MOST = 4
"""The most units that run at the same time in a check."""

ENDINGS: tuple[Ending, ...] = ("done", "busy", "stopped", "refused", "failed")
"""Endings that a worker may print."""

PACKAGE = """__path__.append({real!r})
with open({real!r} + "/__init__.py") as stream:
    exec(stream.read())
"""
"""A package jembench whose command is the fake worker. All else of it is the real one."""


class Session:
    """An executor that is open, and the units that it was given.

    Args:
        executor: under test.
        folder: of the fake worker.
    """

    def __init__(self, executor: Executor, folder: Path) -> None:
        self.executor = executor
        self.folder = folder
        self._number = 0

    @property
    def driver(self) -> Driver:
        """The driver, whose workers are fake."""
        package = self.folder / "path" / "jembench"
        package.mkdir(parents=True)
        real = str(Path(jembench.__file__).parent)
        (package / "__init__.py").write_text(PACKAGE.format(real=real), encoding="utf-8")
        (package / "__main__.py").write_bytes(Path(fake_worker.__file__).read_bytes())
        (self.folder / "store" / "works").mkdir(parents=True)
        path = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
        return Driver(
            store=self.folder / "store",
            options=[str(self.folder)],
            environment={"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            carry_out=self._carry_out,
        )

    def jobs(self, *whats: str) -> list[Job]:
        """Return units that do what these words say: see ``fake_worker.carry_out``."""
        return list(map(self._job, whats))

    def submit(self, *whats: str) -> list[Job]:
        """Submit new units."""
        jobs = self.jobs(*whats)
        self.executor.submit(jobs)
        return jobs

    def run(self, *whats: str) -> list[Ended]:
        """Submit new units, and return their endings."""
        jobs = self.submit(*whats)
        endings = self.endings(jobs)
        return [endings[job.id] for job in jobs]

    def endings(self, jobs: Sequence[Job]) -> dict[str, Ended]:
        """Return the endings of these units, by their ids.

        Raises:
            CheckFailed: if one does not, or another one or one twice.
        """
        endings: dict[str, Ended] = {}
        expected, end = {job.id for job in jobs}, time.monotonic() + LIMIT
        while missing := expected - endings.keys():
            require(
                time.monotonic() < end,
                f"{len(missing)} of {len(jobs)} units have not ended after {LIMIT:g} s.",
            )
            self._take(self.executor.ended(0.2), endings)
        self._take(self.executor.ended(0.1), endings)
        require(endings.keys() == expected, "A unit has ended that was not submitted.")
        return endings

    def settle(self) -> dict[str, Ended]:
        """Return the endings after a cancellation, until all that has begun has ended and nothing
        else begins.

        Raises:
            CheckFailed: if that does not happen soon.
        """
        endings: dict[str, Ended] = {}
        end, calm = time.monotonic() + LIMIT, time.monotonic() + CALM
        seen = len(self.begun)
        while time.monotonic() < calm or not endings.keys() >= set(self.begun):
            require(time.monotonic() < end, f"What ran has not ended {LIMIT:g} s after cancel.")
            self._take(self.executor.ended(0.1), endings)
            if len(self.begun) > seen:
                seen, calm = len(self.begun), time.monotonic() + CALM
        return endings

    def wait_for(self, count: int) -> None:
        """Wait until ``count`` units have begun.

        Raises:
            CheckFailed: if they do not.
        """
        end = time.monotonic() + LIMIT
        while len(self.begun) < count:
            require(
                time.monotonic() < end,
                f"{len(self.begun)} of {count} units have begun after {LIMIT:g} s.",
            )
            require(not self.executor.ended(0.05), "A unit has ended that sleeps.")

    @property
    def begun(self) -> list[str]:
        """The ids of the units that have begun, as often as they have."""
        return fake_worker.begun(self.folder)

    @property
    def at_once(self) -> int:
        """The number of units that run at the same time in a check."""
        return min(self.executor.slots, MOST)

    def _take(self, endings: Sequence[Ended], found: dict[str, Ended]) -> None:
        for ended in endings:
            require(ended.id not in found, "A unit has ended twice.")
            found[ended.id] = ended

    def _job(self, what: str) -> Job:
        self._number += 1
        unit = f"unit-{self._number}"
        (self.folder / unit).write_text(what, encoding="utf-8")
        (self.folder / "store" / "works" / f"{unit}.json").write_text("{}", encoding="utf-8")
        return Job(
            id=unit, name=f"{what}, {unit}", kind="fit", order=self._number, gpus=1, text="{}"
        )

    def _carry_out(self, job: Job) -> Ended:
        """Do in this process what a fake worker does."""
        what, _, text = (self.folder / job.id).read_text(encoding="utf-8").partition(" ")
        how = next((each for each in ENDINGS if each == what), None)
        if how is None:
            raise DoesNotApply("It carries units out in this process.")
        fake_worker.note(self.folder, job.id)
        return Ended(id=job.id, how=how, text=text, host=platform.node())


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@dataclass(frozen=True)
class ExecutorSubject(Subject):
    """An executor under test."""

    kind = "executors"
    parts = ("slots", "here", "open", "submit", "ended", "cancel", "close")

    def make(self) -> Executor:
        """Return a new executor, whose slots are known only once it is open."""
        return self.resolved.make()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a new executor within the context."""
        with tempfile.TemporaryDirectory(
            prefix="jembench-executor-", ignore_cleanup_errors=True
        ) as folder:
            session = Session(self.make(), Path(folder))
            session.executor.open(session.driver)
            try:
                yield session
            finally:
                session.executor.close()
