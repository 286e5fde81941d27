"""The executor ``slurm``: submits units as jobs, and collects their endings."""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from jembench.interfaces.running import Driver, Ended, Job, exit_reason
from jembench.plugin import SpecError, Unavailable

if TYPE_CHECKING:
    import submitit

HELD = "launch failed requeued held"
"""The reason with which Slurm holds back a job that a node could not start, until somebody releases
the job.
"""

NEVER = re.compile(
    r"Partition(Config|TimeLimit|NodeLimit)|BadConstraints"
    r"|(Account|QOS)NotAllowed|account not known|(Assoc|QOS)(Max\w+Per(Job|Node)|Min\w+)"
    r"|[Ii]nvalid|node configuration|cannot be satisfied|can not be satisfied"
)
"""Reasons for which a job waits forever, as squeue and sbatch print them; nodes that are down give
other reasons.
"""

REMEDY = (
    "Write other options of slurm: partition, cpus, memory, gpus or time. `sinfo -o '%P %c %m %G "
    "%l'` lists the cores, memory (MB), GPUs and time limit of each partition. All nodes must see "
    "the store under the same path."
)

OVER = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "UNKNOWN",
}
"""States after which a job does not run again. UNKNOWN is a job that Slurm has forgotten."""

ABANDONED = 3600.0
"""Seconds after which an untouched folder belongs to a killed driver; a living driver touches its
folder every half second.
"""

MAX_TIMEOUTS = 1000
"""The number of times that a job may reach its time limit. A worker that saved nothing in time has
died, and counts as such.
"""

ARRAY = 1000
"""Jobs of an array at most: Slurm's own limit (MaxArraySize) is 1001 unless a cluster changes it.
"""


class JobState(NamedTuple):
    """A job as squeue describes it."""

    state: str
    host: str = ""
    reason: str = ""


class SlurmExecutor:
    """Units of work as jobs of Slurm.

    The jobs' files are in ``works/slurm`` of the store, in a folder for each driver.

    Args:
        parameters: of submitit, for all jobs.
        gpus: GPUs of each process of a unit; None: one, if the partition has any.
        cpus: cores of each process of a unit; 0: as the cluster decides.
        array: how many jobs of an array run at the same time.
        retries: how often a unit whose job died is submitted again.
    """

    here = False
    in_process = False

    def __init__(
        self,
        parameters: Mapping[str, Any],
        *,
        gpus: int | None,
        cpus: int,
        array: int,
        retries: int,
    ) -> None:
        self.slots = array
        self._parameters = parameters
        self._gpus = gpus
        self._cpus = cpus
        self._retries = retries
        self._name = ""  # of all jobs of this driver, and of the folder with their files
        # by the name of the file with the result
        self._running: dict[str, tuple[submitit.Job[Any], Job]] = {}
        self._held: list[Job] = []  # units that Slurm does not take now
        self._endings: list[Ended] = []  # not yet returned
        self._deaths: Counter[str] = Counter()  # by the id of the unit
        self._never: Counter[str] = Counter()  # answers in a row by which a job never starts
        self._reasons: dict[str, str] = {}  # why a job waits
        self._cancelled = False
        # when jobs were submitted or cancelled, and when Slurm was asked
        self._changed = self._looked = 0.0

    @cached_property
    def _gpus_each(self) -> int:
        """The number of GPUs of each process of a unit."""
        if self._gpus is not None:
            return self._gpus
        name = self._parameters["partition"]
        # a line for each partition, with a star after the default partition's name
        text = _slurm("sinfo", "--noheader", "--format=%P|%G")
        has_gpu = False
        for line in text.splitlines():
            partition, resources = line.split("|", 1)
            is_ours = partition.rstrip("*") == name if name else partition.endswith("*")
            has_gpu |= is_ours and re.search(r"\bgpu\b", resources) is not None
        return int(has_gpu)

    def open(self, driver: Driver) -> None:
        """Make the folder of this driver's jobs.

        Raises:
            SpecError: if the path of the store cannot stand in a batch script.
            Unavailable: if Slurm does not answer.
        """
        # a line break would end the comment #SBATCH of the batch script
        if not str(driver.store).isprintable():
            raise SpecError(
                f"The path of the store is {str(driver.store)!r}, and Slurm's scripts cannot hold "
                "it. Use a store whose path has only printable characters."
            )
        _ = self._gpus_each
        self._driver = driver
        self._name = f"jembench-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self._folder = driver.store / "works" / "slurm" / self._name
        self._folder.mkdir(parents=True)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit units in arrays; keep those that Slurm does not take now.

        Raises:
            Unavailable: if Slurm refuses units and has not taken any before.
        """
        from submitit.core.utils import FailedJobError

        in_order = sorted(jobs, key=lambda job: (job.gpus, job.order))
        for processes, group in itertools.groupby(in_order, key=lambda job: job.gpus):
            while array := list(itertools.islice(group, ARRAY)):
                try:
                    self._submit_array(array, processes)
                except FailedJobError as error:
                    text = _brief(str(error))
                    if not self._changed:
                        raise Unavailable(f"Slurm refuses the jobs: {text}. {REMEDY}") from error
                    if NEVER.search(text):
                        refusal = f"Slurm refuses the job: {text}."
                        self._endings += [_refused(job, refusal) for job in array]
                    else:
                        warnings.warn(
                            f"Slurm takes no jobs now, they are submitted later: {text}",
                            stacklevel=2,
                        )
                        self._held += array

    def _submit_array(self, units: Sequence[Job], processes: int) -> None:
        import submitit

        from jembench_slurm.job import UnitJob

        cpus = self._cpus * processes
        python = f"{shlex.quote(sys.executable)} -P"
        engine = submitit.SlurmExecutor(self._folder, MAX_TIMEOUTS, python=python)
        engine.update_parameters(
            **self._parameters,
            gpus_per_node=self._gpus_each * processes or None,
            cpus_per_task=cpus or None,
            # Slurm 22.05 does not pass it on from the job
            srun_args=["--cpus-per-task", str(cpus)] if cpus else None,
            job_name=self._name,
            array_parallelism=self.slots,
            stderr_to_stdout=True,
            additional_parameters={"requeue": True},
        )
        kept = {}
        for name, value in os.environ.items():
            if name.startswith(("SBATCH_", "SUBMITIT_")) or name == "SLURM_CONF":
                kept[name] = value
        environment = dict(self._driver.environment)
        workers = [UnitJob(self._driver.command([unit]), environment) for unit in units]
        # the driver may itself run in a job, and submitit also prints the errors that it raises
        with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):
            os.environ.update(kept)
            jobs = engine.submit_array(workers)
        for job, unit in zip(jobs, units, strict=True):
            self._running[job.paths.result_pickle.name] = (job, unit)
        self._changed = time.monotonic()

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Wait for an ending; return all endings so far."""
        until = time.monotonic() + seconds
        while True:
            endings = self._collect()
            left = until - time.monotonic()
            if endings or left <= 0:
                return endings
            time.sleep(min(left, 0.5))

    def _collect(self) -> list[Ended]:
        """Return the endings of units whose job has a result or is gone.

        Results are found by one listing of the folder. Slurm is asked about all jobs at once, the
        more rarely the longer nothing has changed.
        """
        from submitit.core.utils import pickle_load

        # jobs that Slurm was asked about: its answer lacks jobs that are submitted later
        asked: list[str] = []
        states: Mapping[str, JobState] = {}
        now = time.monotonic()
        # the longer nothing has changed, the rarer
        pause = min(60, max(2, (now - self._changed) / 2))
        if now - self._looked > pause:
            with suppress(Unavailable):  # Slurm may be restarting
                states = self._states()
                asked = list(self._running)
            self._looked = time.monotonic()
            held, self._held = self._held, []
            self.submit(held)
        self._folder.chmod(self._folder.stat().st_mode)  # a network file system then lists it anew
        written = {file.name for file in self._folder.iterdir()}
        for name in self._running.keys() & written:
            outcome, result = pickle_load(self._folder / name)
            if outcome == "success" and isinstance(result, dict):
                self._settle(name, Ended(**result))
            else:
                why = exit_reason(result) if outcome == "success" else "state FAILED"
                self._died(name, why)
        for name in asked:
            if name in self._running:
                job, _ = self._running[name]
                self._judge(name, *states.get(job.job_id, JobState("UNKNOWN")))
        self._cancel_waiting(states)
        endings, self._endings = self._endings, []
        return endings

    def _cancel_waiting(self, states: Mapping[str, JobState]) -> None:
        """Cancel waiting jobs whose unit has ended."""
        running = {job.job_id for job, _ in self._running.values()}
        waiting = [job for job, seen in states.items() if seen.state == "PENDING"]
        if stuck := [job for job in waiting if job not in running]:
            with suppress(Unavailable):
                _slurm("scancel", *stuck)

    def _states(self) -> dict[str, JobState]:
        """Return state, host and reason of this driver's jobs, by their ids.

        Jobs that Slurm has forgotten are left out.
        """
        options = ("--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%N|%r")
        text = _slurm("squeue", f"--name={self._name}", *options)
        states = {}
        for line in text.splitlines():
            job, *described = line.split("|", 3)
            states[job] = JobState(*described)
        return states

    def _judge(self, name: str, state: str, host: str, reason: str) -> None:
        """Act on Slurm's state of a job that has no result."""
        job, unit = self._running[name]
        never = state == "PENDING" and NEVER.search(reason)
        self._never[name] = self._never[name] + 1 if never else 0
        if self._never[name] > 1:  # the first reason of a job is provisional
            self._settle(name, _refused(unit, f"Slurm never starts job {job.job_id}: {reason}."))
        elif state == "CANCELLED":
            self._settle(name, Ended(id=unit.id, how="stopped", host=host))
        elif state in OVER or reason == HELD:
            detail = "" if reason in ("", "None") else f" ({reason})"
            self._died(name, f"state {state}{detail}", host)
        elif state == "PENDING" and reason not in ("None", self._reasons.get(name)):
            self._reasons[name] = reason
            self._driver.waits(unit.id, f"Slurm says {reason}")

    def _died(self, name: str, why: str, host: str = "") -> None:
        """Submit a dead job's unit again, unless it died too often."""
        job, unit = self._running[name]
        self._deaths[unit.id] += 1
        if self._cancelled:
            self._settle(name, Ended(id=unit.id, how="stopped", host=host))
        elif self._deaths[unit.id] > self._retries:
            text = (
                f"Its worker died {self._deaths[unit.id]} times, at last in job {job.job_id} with "
                f"{why}. {REMEDY}"
            )
            ended = Ended(id=unit.id, how="lost", text=text, host=host)
            self._settle(name, ended)
        else:
            self._forget(name)
            self._driver.waits(unit.id, f"submitted again after job {job.job_id} with {why}")
            self.submit([unit])

    def _settle(self, name: str, ended: Ended) -> None:
        """Note how a job's unit ended; keep the log of a problem."""
        log = self._running[name][0].paths.stdout
        is_kept = ended.how in ("refused", "failed", "lost") and log.exists()
        self._forget(name, keep_log=is_kept)
        path = str(log) if is_kept else ""
        self._endings.append(dataclasses.replace(ended, log=path))

    def _forget(self, name: str, *, keep_log: bool = False) -> None:
        job, _ = self._running.pop(name)
        files = [job.paths.submitted_pickle, job.paths.result_pickle]
        if not keep_log:
            files.append(job.paths.stdout)
        for file in files:
            file.unlink(missing_ok=True)

    def cancel(self) -> None:
        """Drop the jobs that wait, and ask those that run to stop."""
        self._cancelled = True
        with suppress(Unavailable):
            _slurm("scancel", f"--name={self._name}", "--state=PENDING")
            _slurm("scancel", f"--name={self._name}", "--state=RUNNING", "--signal=TERM")
        self._endings += [Ended(id=job.id, how="stopped") for job in self._held]
        self._held.clear()
        self._changed = time.monotonic()
        self._looked = 0.0

    def close(self) -> None:
        """End all jobs, and remove their files.

        Logs of problems stay. Files of drivers that were killed are removed too.
        """
        if not self._name:
            return
        # Slurm kills jobs that do not end by themselves, usually after 30 s
        until = time.monotonic() + 60
        with suppress(Unavailable):
            _slurm("scancel", f"--name={self._name}")
            while time.monotonic() < until and self._any_runs():
                time.sleep(0.5)
        for name in list(self._running):
            self._forget(name)
        for file in self._folder.iterdir():
            if file.suffix != ".out":
                file.unlink()
        with suppress(OSError):  # the folder stays if it holds logs of failed units
            self._folder.rmdir()
        with suppress(Unavailable, OSError):  # the next run removes what stays
            self._sweep()
        self._name = ""

    def _any_runs(self) -> bool:
        return any(seen.state not in OVER for seen in self._states().values())

    def _sweep(self) -> None:
        """Remove the folders of drivers and jobs that have ended.

        Folders stay if a unit's status names a log in them.
        """
        units = list(self._folder.parents[1].glob("*.json"))
        living = _slurm("squeue", "--me", "--noheader", "--format=%j").split()
        over = []
        for folder in self._folder.parent.iterdir():
            is_old = time.time() - folder.stat().st_ctime > ABANDONED
            if folder.name not in living and (is_old or not units):
                over.append(folder)
        statuses = [path for path in units if over and path.match("*.status.json")]
        named = "".join(path.read_text() for path in statuses)
        for folder in over:
            if folder.name not in named:
                shutil.rmtree(folder, ignore_errors=True)


def _refused(job: Job, text: str) -> Ended:
    return Ended(id=job.id, how="refused", text=f"{text} {REMEDY}")


def _brief(text: str) -> str:
    """Return the first and the last line of a message.

    Between them Slurm counts its attempts.
    """
    lines = text.strip().splitlines() or ["no reason given"]
    ends = (lines[0].strip(), lines[-1].strip())
    return "; ".join(dict.fromkeys(ends))


def _slurm(*command: str) -> str:
    """Return what one of Slurm's commands prints.

    Raises:
        Unavailable: if there is no such command, or Slurm does not answer.
    """
    try:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=90
        ).stdout
    except FileNotFoundError:
        raise Unavailable(
            f"Slurm's command {command[0]} is not installed here. Use the executor slurm on a "
            "login node of a cluster."
        ) from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        if isinstance(error, subprocess.CalledProcessError):
            reason = _brief(error.stderr)
        else:
            reason = "90 s have passed"
        raise Unavailable(f"Slurm does not answer to {command[0]}: {reason}.") from error
