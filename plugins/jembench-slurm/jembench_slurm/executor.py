"""The executor: submits units of work as jobs of Slurm, and finds out how they have ended."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from jembench.interfaces import Driver, Ended, Job
from jembench.plugin import SpecError, Unavailable
from jembench_slurm import minutes

if TYPE_CHECKING:
    import submitit

_Item = TypeVar("_Item")

HELD = "launch failed requeued held"
"""The reason for which Slurm holds a job back that a node could not start: until somebody releases it."""

OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", HELD}
"""States of Slurm, and that reason, with which a job does not run again."""

MAX_TIMEOUTS = 1000
"""How often a job may reach its time limit. A worker that saved nothing in time has died, and counts as such."""

ARRAY = 1000
"""Jobs of an array at most: Slurm's own limit (MaxArraySize) is 1001 unless a cluster changes it."""

PROBLEMS = {"refused", "failed", "lost"}
"""Endings whose log is kept."""


class SlurmExecutor:
    """Units of work as jobs of Slurm, whose files are in ``works/slurm`` of the store, in a folder for each driver.

    Args:
        networks: submitit's parameters of jobs for units that run a network.
        others: those of all other jobs.
        array: how many jobs of an array run at the same time.
        pack: how many units share a job at most.
        retries: how often a unit whose job died is submitted again.
    """

    here = False

    def __init__(
        self, networks: Mapping[str, Any], others: Mapping[str, Any], *, array: int, pack: int, retries: int
    ) -> None:
        self.slots, self.gpus = array, bool(networks["gpus_per_node"])
        self._parameters = {True: networks, False: others}
        self._pack, self._retries = pack, retries
        self._name = ""  # of all jobs of this driver, and of the folder with their files
        self._running: dict[
            str, tuple[submitit.Job[Any], Sequence[Job]]
        ] = {}  # by the name of the file with the result
        self._held: list[Sequence[Job]] = []  # packs that Slurm did not take yet
        self._deaths: Counter[str] = Counter()  # by the id of the unit that was being carried out
        self._cancelled = False
        self._changed = self._looked = 0.0  # when jobs were submitted or cancelled, and when Slurm was asked

    def open(self, driver: Driver) -> None:
        for parameters in self._parameters.values():
            _check_partition(parameters["partition"] or "", parameters["time"])
        self._driver = driver
        self._name = f"jembench-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self._folder = driver.store / "works" / "slurm" / self._name
        self._folder.mkdir(parents=True)

    def submit(self, jobs: Sequence[Job]) -> None:
        for network in self._parameters:
            units = sorted((job for job in jobs if bool(job.gpus) == network), key=lambda job: job.order)
            size = max(1, min(self._pack, -(-len(units) // self.slots)))  # sharing a job leaves no slot empty
            self._submit(_cut(units, size))

    def ended(self, seconds: float) -> Sequence[Ended]:
        until = time.monotonic() + seconds
        while not (found := self._collect()) and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
        return found

    def cancel(self) -> None:
        self._cancelled = True
        with suppress(Unavailable):
            _slurm("scancel", f"--name={self._name}", "--state=PENDING")
            _slurm("scancel", f"--name={self._name}", "--state=RUNNING", "--signal=TERM")
        self._changed, self._looked = time.monotonic(), 0.0

    def close(self) -> None:
        if not self._name:
            return
        until = time.monotonic() + 60  # what does not end by itself is killed by Slurm, usually after 30 s
        with suppress(Unavailable):
            _slurm("scancel", f"--name={self._name}")
            while time.monotonic() < until and {state for state, _ in self._states().values()} - OVER:
                time.sleep(0.5)
        for job, _ in self._running.values():
            job.paths.stdout.unlink(missing_ok=True)
        for file in self._folder.iterdir():
            if file.suffix != ".out":
                file.unlink()
        with suppress(OSError):  # it holds logs of units that failed
            self._folder.rmdir()
        self._name = ""

    def _submit(self, packs: Sequence[Sequence[Job]]) -> None:
        """Submit a job for each pack of units, in arrays. What Slurm does not take is submitted later.

        Raises:
            Unavailable: if it has not taken anything yet.
        """
        from submitit.core.utils import FailedJobError

        for network, parameters in self._parameters.items():
            arrays = _cut([pack for pack in packs if bool(pack[0].gpus) == network], ARRAY)
            for array in arrays:
                try:
                    self._submit_array(array, parameters, -(-self.slots // len(arrays)))
                except FailedJobError as error:
                    text = " ".join(str(error).split())
                    if not self._changed:
                        raise Unavailable(
                            f"Slurm refuses the jobs: {text} The options of slurm say what is asked for."
                        ) from error
                    warnings.warn(f"Slurm takes no jobs now, they are submitted later: {text}", stacklevel=2)
                    self._held += array

    def _submit_array(self, packs: Sequence[Sequence[Job]], parameters: Mapping[str, Any], parallel: int) -> None:
        import submitit

        from jembench_slurm.job import Units

        arguments, environment = list(self._driver.arguments(["-"])), dict(self._driver.environment)
        units = [Units(arguments, environment, [unit.id for unit in pack]) for pack in packs]
        engine = submitit.SlurmExecutor(self._folder, MAX_TIMEOUTS, python=f"{shlex.quote(sys.executable)} -P")
        engine.update_parameters(
            **parameters,
            job_name=self._name,
            array_parallelism=parallel,
            stderr_to_stdout=True,
            additional_parameters={"requeue": True},
        )
        kept = {name: value for name, value in os.environ.items() if name.startswith(("SBATCH_", "SUBMITIT_"))}
        if "SLURM_CONF" in os.environ:
            kept["SLURM_CONF"] = os.environ["SLURM_CONF"]
        with submitit.helpers.clean_env():  # the driver itself may run in a job
            os.environ.update(kept)
            submitted = engine.submit_array(units)
        self._running |= {job.paths.result_pickle.name: (job, pack) for job, pack in zip(submitted, packs, strict=True)}
        self._changed = time.monotonic()

    def _collect(self) -> list[Ended]:
        """The units of all jobs that have a result, and of those that have none and do not run any more.

        Results are found by one listing of the folder. Slurm is asked about all jobs at once, more and more rarely.
        """
        from submitit.core.utils import pickle_load

        asked: list[str] = []  # about which Slurm was asked: a job that is submitted after that is not in its answer
        states: Mapping[str, tuple[str, str]] = {}
        found: list[Ended] = []
        if self._cancelled:
            found = [Ended(id=unit.id, how="stopped") for pack in self._held for unit in pack]
            self._held = []
        if time.monotonic() - self._looked > min(60, max(2, (time.monotonic() - self._changed) / 2)):
            with suppress(Unavailable):  # it may be starting again
                asked, states = list(self._running), self._states()
            self._looked = time.monotonic()
            held, self._held = self._held, []
            self._submit(held)
        self._folder.chmod(self._folder.stat().st_mode)  # a network file system then lists it anew
        for name in self._running.keys() & {file.name for file in self._folder.iterdir()}:
            outcome, result = pickle_load(self._folder / name)
            found += self._settle(name, result if outcome == "success" else {})
        for name in filter(self._running.__contains__, asked):
            job, _ = self._running[name]
            state, host = states.get(job.job_id, ("UNKNOWN", ""))
            if state == HELD:
                with suppress(Unavailable):
                    _slurm("scancel", job.job_id)
            if state in {*OVER, "UNKNOWN"}:
                found += self._settle(name, {}, state, host)
        return found

    def _states(self) -> dict[str, tuple[str, str]]:
        """From the ids of this driver's jobs to state and host, of all that Slurm has not forgotten."""
        options = ("--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%N|%r")
        rows = (line.split("|", 3) for line in _slurm("squeue", f"--name={self._name}", *options).splitlines())
        return {job: (HELD if reason == HELD else state, host) for job, state, host, reason in rows}

    def _settle(self, name: str, result: Mapping[str, Any], state: str = "FAILED", host: str = "") -> list[Ended]:
        """How the units of a job that is over have ended. What its death has left is submitted again."""
        job, units = self._running.pop(name)
        ended = [Ended(**record) for record in result.get("ended", ())]
        left = [unit for unit in units if unit.id not in {one.id for one in ended}]
        if self._cancelled or state == "CANCELLED" or any(one.how == "stopped" for one in ended):
            ended += [Ended(id=unit.id, how="stopped") for unit in left]
            left = []
        elif left:
            why = f"exit code {result['code']}" if result else f"state {state}"
            ended += self._died(left, f"job {job.job_id} with {why}", is_known=bool(result))
        log = str(job.paths.stdout) if left or any(one.how in PROBLEMS for one in ended) else ""
        for file in (job.paths.submitted_pickle, job.paths.result_pickle, *([] if log else [job.paths.stdout])):
            file.unlink(missing_ok=True)
        host = result.get("host", host)
        return [dataclasses.replace(one, host=one.host or host, log=one.log or log) for one in ended]

    def _died(self, left: list[Job], why: str, *, is_known: bool) -> list[Ended]:
        """Submit the units again that a dead job has left; the first was being carried out if that ``is_known``.

        Otherwise each gets a job of its own, so that the next death says which one it is. What has died too often is
        lost.
        """
        lost = []
        if is_known or len(left) == 1:
            first = left[0].id
            self._deaths[first] += 1
            if self._deaths[first] > self._retries:
                text = f"Its worker died {self._deaths[first]} times, at last in {why}."
                lost, left = [Ended(id=first, how="lost", text=text)], left[1:]
        self._submit([left] if is_known and left else [[unit] for unit in left])
        return lost


def _cut(items: Sequence[_Item], size: int) -> list[Sequence[_Item]]:
    """Pieces of a sequence, each of ``size`` items at most."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def _slurm(*command: str) -> str:
    """What one of Slurm's commands prints.

    Raises:
        Unavailable: if there is no such command, or Slurm does not answer.
    """
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    except FileNotFoundError:
        raise Unavailable(
            f"Slurm's command {command[0]} is not installed here. Use the executor slurm on a login node of a cluster."
        ) from None
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"Slurm does not answer to {command[0]}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Slurm did not answer to {command[0]} within {error.timeout} s. Try again later.") from error


def _check_partition(partition: str, limit: int) -> None:
    """Whether a partition (or the default one, '') exists and allows jobs of ``limit`` minutes, which else never start.

    Raises:
        SpecError: if not.
        Unavailable: if Slurm does not answer.
    """
    rows = [line.split("|") for line in _slurm("sinfo", "--noheader", "--format=%P|%l").splitlines()]
    limits = {name.rstrip("*"): longest for name, longest in rows}
    default = next((name for name, _ in rows if name.endswith("*")), "").rstrip("*")
    if (name := partition or default) not in limits:
        wrong = f"no partition named {name!r}" if name else "no default partition"
        raise SpecError(f"This cluster has {wrong}. Write slurm:partition= with one of {', '.join(limits)}.")
    longest = limits[name] if limits[name].count(":") == 2 else f"0:{limits[name]}"  # 30:00 is half an hour
    if limits[name] != "infinite" and limit > minutes(longest):
        raise SpecError(
            f"time of slurm is {limit} minutes, and jobs in the partition {name} end after {limits[name]} at the "
            "latest. Write a shorter time: what is not done by then is queued again."
        )
