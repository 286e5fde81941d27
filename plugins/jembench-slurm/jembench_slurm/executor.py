"""The executor: submits units of work as jobs of Slurm, and finds out how they have ended."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import shlex
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jembench.interfaces.running import Driver, Ended, Ending, Job
from jembench.plugin import SpecError, Unavailable
from jembench.store.store import lost_units

if TYPE_CHECKING:
    import submitit

_Item = TypeVar("_Item")

HELD = "launch failed requeued held"
"""The reason for which Slurm holds a job back that a node could not start: until somebody releases it."""

NEVER = re.compile(
    r"Partition(Config|TimeLimit|NodeLimit)|BadConstraints|(Account|QOS)NotAllowed|account not known"
    r"|(Assoc|QOS)(Max\w+Per(Job|Node)|Min\w+)|Invalid|node configuration|cannot be satisfied|can not be satisfied"
)
"""Reasons for which a job waits for ever, as squeue and sbatch say them. Nodes that are down have other reasons."""

REMEDY = (
    "Write other options of slurm: partition, cpu_partition, cpus, memory, gpus or time. "
    "`sinfo -o '%P %c %m %G %l'` lists the cores, memory (MB), GPUs and time limit of each partition."
)

SHARE = "Keep it in a folder that the nodes see under the same path (--store)."

OVER = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
"""States of Slurm with which a job does not run again."""

MAX_TIMEOUTS = 1000
"""How often a job may reach its time limit. A worker that saved nothing in time has died, and counts as such."""

ARRAY = 1000
"""Jobs of an array at most: Slurm's own limit (MaxArraySize) is 1001 unless a cluster changes it."""

PROBLEMS = {"refused", "failed", "lost"}
"""Endings whose log is kept."""


class SlurmExecutor:
    """Units of work as jobs of Slurm, whose files are in ``works/slurm`` of the store, in a folder for each driver.

    Args:
        networks: submitit's parameters of jobs for units that run a network, without GPUs.
        others: those of all other jobs.
        gpus: GPUs of a unit that runs a network, or "auto".
        array: how many jobs of an array run at the same time.
        pack: how many units share a job at most.
        retries: how often a unit whose job died is submitted again.
    """

    here = False

    def __init__(
        self, networks: Mapping[str, Any], others: Mapping[str, Any], *, gpus: str, array: int, pack: int, retries: int
    ) -> None:
        self.slots, self._gpus = array, gpus
        self._parameters = {True: networks, False: others}
        self._pack, self._retries = pack, retries
        self._name = ""  # of all jobs of this driver, and of the folder with their files
        self._running: dict[
            str, tuple[submitit.Job[Any], Sequence[Job]]
        ] = {}  # by the name of the file with the result
        self._held: list[Sequence[Job]] = []  # packs that Slurm did not take yet
        self._refused: list[Ended] = []  # units that it never takes
        self._deaths: Counter[str] = Counter()  # by the id of the unit that was being carried out
        self._hopeless: Counter[str] = Counter()  # by the id of a job: looks in a row that found it so
        self._reasons: dict[str, str] = {}  # why a job waits, by its id
        self._shared = self._cancelled = False  # shared: a node has written into the folder
        self._changed = self._looked = 0.0  # when jobs were submitted or cancelled, and when Slurm was asked

    @cached_property
    def _partitions(self) -> dict[str, int]:
        """The partitions of the cluster, and the default one as "": 1 if it has GPUs, else 0."""
        found: dict[str, int] = {}
        for line in _slurm("sinfo", "--noheader", "--format=%P|%G").splitlines():
            name, resources = line.split("|", 1)
            for each in {name.rstrip("*"), name.rstrip("*") if name[-1] != "*" else ""}:
                found[each] = max(found.get(each, 0), int(re.search(r"\bgpu\b", resources) is not None))
        return found

    @property
    def gpus(self) -> bool:
        """Return whether units that run a network get GPUs."""
        return self._gpus_each > 0

    @property
    def _gpus_each(self) -> int:
        partition = self._parameters[True]["partition"] or ""
        return self._partitions.get(partition, 0) if self._gpus == "auto" else int(self._gpus)

    def open(self, driver: Driver) -> None:
        """Check the partitions.

        Raises:
            SpecError: if there is no such partition.
            Unavailable: if Slurm does not answer.
        """
        for parameters in self._parameters.values():
            if (name := parameters["partition"] or "") not in self._partitions:
                wrong = f"no partition named {name!r}" if name else "no default partition"
                there = ", ".join(filter(None, self._partitions))
                raise SpecError(f"This cluster has {wrong}. Write slurm:partition= with one of {there}.")
        self._parameters[True] = {**self._parameters[True], "gpus_per_node": self._gpus_each or None}
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
            while time.monotonic() < until and any(
                state not in OVER and self._hopeless[job] < 2 for job, (state, _, _) in self._states().items()
            ):
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
        """Submit a job for each pack of units, in arrays. What Slurm does not take now is submitted later.

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
                    text = _brief(str(error))
                    if not self._changed:
                        raise Unavailable(f"Slurm refuses the jobs: {text}. {REMEDY}") from error
                    if NEVER.search(text):
                        self._refused += _refused(array, f"Slurm refuses its job: {text}. {REMEDY}")
                        continue
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
        # The driver itself may run in a job, and submitit prints the message that it raises.
        with submitit.helpers.clean_env(), redirect_stderr(io.StringIO()):
            os.environ.update(kept)
            submitted = engine.submit_array(units)
        self._running |= {job.paths.result_pickle.name: (job, pack) for job, pack in zip(submitted, packs, strict=True)}
        self._changed = time.monotonic()

    def _collect(self) -> list[Ended]:
        """Return the endings of units whose job has a result, or has none and does not run any more.

        Results are found by one listing of the folder. Slurm is asked about all jobs at once, more and more rarely.
        """
        from submitit.core.utils import pickle_load

        asked: list[str] = []  # about which Slurm was asked: a job that is submitted after that is not in its answer
        states: Mapping[str, tuple[str, str, str]] = {}
        if self._cancelled:
            self._refused += _refused(self._held, "", "stopped")
            self._held = []
        if time.monotonic() - self._looked > min(60, max(2, (time.monotonic() - self._changed) / 2)):
            with suppress(Unavailable):  # it may be starting again
                asked, states = list(self._running), self._states()
            self._looked = time.monotonic()
            held, self._held = self._held, []
            self._submit(held)
        found, self._refused = self._refused, []
        self._folder.chmod(self._folder.stat().st_mode)  # a network file system then lists it anew
        for name in self._running.keys() & {file.name for file in self._folder.iterdir()}:
            outcome, result = pickle_load(self._folder / name)
            self._shared = True
            found += self._settle(name, result if outcome == "success" else {})
        found += self._judge([name for name in asked if name in self._running], states)
        return found

    def _judge(self, names: Sequence[str], states: Mapping[str, tuple[str, str, str]]) -> list[Ended]:
        """Return the endings of units whose job does not go on by itself, and cancel it. Note why others wait."""
        found: list[Ended] = []
        cancelled = []
        running = [name for name in names if states.get(self._running[name][0].job_id, ("",))[0] == "RUNNING"]
        working = [unit.id for name in running for unit in self._running[name][1]]
        dead = lost_units(self._driver.store, working) if working else set()
        for name in names:
            job, units = self._running[name]
            state, host, reason = states.get(job.job_id, ("UNKNOWN", "", ""))
            is_dead = any(unit.id in dead for unit in units)
            never = state == "PENDING" and NEVER.search(reason)
            # The next look confirms it: a job has a provisional reason at first, and its worker may just be starting.
            self._hopeless[job.job_id] = self._hopeless[job.job_id] + 1 if is_dead or never else 0
            if never and self._hopeless[job.job_id] > 1:
                del self._running[name]
                found += _refused([units], f"Slurm never starts job {job.job_id}: {reason}. {REMEDY}")
            elif reason == "JobLaunchFailure" and not self._shared and not any(self._folder.glob("*.out")):
                del self._running[name]
                found += _refused([units], f"The node {host} does not see the store {self._driver.store}. {SHARE}")
            elif state in {*OVER, "UNKNOWN"} or reason == HELD or self._hopeless[job.job_id] > 1:
                found += self._settle(name, {}, "NODE_FAIL" if is_dead else state, host)
            else:
                if state == "PENDING" and reason not in ("None", self._reasons.get(name)):
                    self._reasons[name] = reason
                    self._note(units, f"Slurm says {reason}")
                continue
            if state in ("PENDING", "RUNNING", "NODE_FAIL"):
                cancelled.append(job.job_id)
        if cancelled:
            with suppress(Unavailable):
                _slurm("scancel", *cancelled)
        return found

    def _note(self, units: Sequence[Job], reason: str) -> None:
        for unit in units:
            self._driver.waits(unit.id, reason)

    def _states(self) -> dict[str, tuple[str, str, str]]:
        """Return state, host and reason of this driver's jobs, by their ids, as far as Slurm has not forgotten them."""
        options = ("--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%N|%r")
        rows = (line.split("|", 3) for line in _slurm("squeue", f"--name={self._name}", *options).splitlines())
        return {job: (state, host, reason) for job, state, host, reason in rows}

    def _settle(self, name: str, result: Mapping[str, Any], state: str = "FAILED", host: str = "") -> list[Ended]:
        """Return the endings of the units of a job that is over. What its death has left is submitted again."""
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
        self._note(left, f"submitted again after {why}")
        self._submit([left] if is_known and left else [[unit] for unit in left])
        return lost


def _cut(items: Sequence[_Item], size: int) -> list[Sequence[_Item]]:
    """Cut a sequence into pieces of ``size`` items at most."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def _refused(packs: Iterable[Sequence[Job]], text: str, how: Ending = "refused") -> list[Ended]:
    return [Ended(id=unit.id, how=how, text=text) for pack in packs for unit in pack]


def _brief(text: str) -> str:
    """Return the first and the last line of a message: between them Slurm counts its attempts."""
    lines = text.strip().splitlines() or ["no reason given"]
    return "; ".join(dict.fromkeys([lines[0].strip(), lines[-1].strip()]))


def _slurm(*command: str) -> str:
    """Return what one of Slurm's commands prints.

    Raises:
        Unavailable: if there is no such command, or Slurm does not answer.
    """
    configured = os.environ.get("SLURM_CONF")
    if configured and not Path(configured).is_file():  # for which Slurm would wait a minute
        raise Unavailable(f"SLURM_CONF names the file {configured}, and there is none. Correct or unset it.")
    whose = f" SLURM_CONF is {configured}." * bool(configured)
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    except FileNotFoundError:
        raise Unavailable(
            f"Slurm's command {command[0]} is not installed here. Use the executor slurm on a login node of a cluster."
        ) from None
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"Slurm does not answer to {command[0]}: {_brief(error.stderr)}.{whose}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"Slurm did not answer to {command[0]} within {error.timeout:g} s.{whose} Try again later."
        ) from error
