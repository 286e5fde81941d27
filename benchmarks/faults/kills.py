"""Random kills of a run's processes, with a check that the store equals that of an undisturbed run.

    python benchmarks/faults/kills.py processes --victims worker,driver --kills 50
    python benchmarks/faults/kills.py slurm --victims worker,job,slurmd,driver --kills 50
    python benchmarks/faults/kills.py ray --victims worker,raylet,driver --kills 50

Each round starts a small study on digits in a new store, kills random processes of it at random
moments, and repeats the command until it ends with exit code 0. Only processes that carry this
script's mark in their environment are killed.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from jembench.store.store import Store

ROOT = Path(__file__).parents[2]
MARK = "JEMBENCH_KILLS"

ROLES = {
    "worker": re.compile(r"-m jembench work "),
    "driver": re.compile(r"-m jembench run "),
    "job": re.compile(r"submitit\.core\._submit"),
    "slurmd": re.compile(r"^\S*slurmd "),
    "task": re.compile(r"^ray::carry_out"),
    "raylet": re.compile(r"raylet/raylet "),
}
"""Processes that kills can hit, by the command line."""

PASSING = ("worker", "driver", "job")
"""Processes of which none may be left when a run has ended."""

COMMON = "--dataset digits --limit 128 --set epochs=2 --set log_every=5 --set checkpoint_every=10"
STUDIES = (
    f"--models jem,baseline --seeds 0,1 --metrics accuracy,ece,fid:resamples=20 {COMMON}",
    "--models jem,baseline --seeds 0 --metrics "
    f"accuracy,ece,pgd:budget=quick,images=100,resamples=50 {COMMON}",
)
"""A study with a feature network, and one whose attacks are spread over workers."""

ENGINES = {
    "processes": "processes:jobs=3",
    "slurm": "slurm:gpus=0,cpus=1,array=4,time=10m",
    "ray": "ray:address={address}",
}

TIMINGS = {
    "seconds",
    "iteration_seconds",
    "time",
    "other_load",
    "command",
    "commit",
    "digest",
    "history.csv",
}
"""Fields and files that may differ between two runs; digests are of files that contain them."""

GRACE, LONGEST = 60.0, 900.0
"""Seconds after the end of a run until no process of it may live; the most seconds of a round."""


def run(study: str, store: Path, engine: str) -> subprocess.Popen[bytes]:
    """Start a study, with its output in a file beside the store."""
    command = [
        sys.executable,
        "-m",
        "jembench",
        "run",
        "hybrid",
        *study.split(),
        "--executor",
        engine,
    ]
    with store.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [*command, "--store", str(store)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def processes() -> dict[str, list[int]]:
    """Return the living processes with this script's mark, by role."""
    found = defaultdict(list)
    mark = f"{MARK}={os.environ[MARK]}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            for role, pattern in ROLES.items():
                if pattern.search(command):
                    found[role].append(int(folder.name))
    return found


# --- what two stores have in common ---------------------------------------------------------------


def content(store: Path) -> dict[str, str]:
    """Return the content of a store, timings aside: a text or a digest for each file."""
    found = {}
    for part in ("fits", "cells", "arrays", "features", "readings"):
        for path in sorted((store / part).rglob("*")):
            if path.is_file() and not path.name.startswith((".", "checkpoint-")):
                found[str(path.relative_to(store))] = _content(path)
    return found


def _content(path: Path) -> str:
    if path.suffix == ".json":
        return json.dumps(_timeless(json.loads(path.read_text())), sort_keys=True)
    if path.name == "history.csv":
        return json.dumps([_timeless(row) for row in csv.DictReader(path.open())])
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in TIMINGS}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


class Watch(threading.Thread):
    """A thread that counts repeated work in a store.

    ``versions`` are the different files under the name of a result; ``workers`` the processes that
    worked on each unit; ``begun`` the ids of all of them.
    """

    def __init__(self, store: Path) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._ended = threading.Event()
        self.versions: dict[Path, set[tuple[int, int]]] = defaultdict(set)
        self.workers: dict[str, set[str]] = defaultdict(set)
        self.begun: set[int] = set()

    def run(self) -> None:
        """Read the store many times a second."""
        while not self._ended.wait(0.05):
            for pattern in ("fits/*/fit.json", "cells/*.json", "features/*/record.json"):
                for path in self._store.glob(pattern):
                    with suppress(FileNotFoundError):
                        status = path.stat()
                        self.versions[path].add((status.st_ino, status.st_mtime_ns))
            for path in self._store.glob("works/*.status.json"):
                with suppress(OSError, ValueError):
                    status = json.loads(path.read_bytes())
                    if status["worker"]:
                        self.workers[path.name.partition(".")[0]].add(status["worker"])
                        self.begun.add(int(status["worker"].rpartition(":")[2]))

    def end(self) -> dict[str, int]:
        """Stop, and return the counts of repeated work."""
        self._ended.set()
        self.join()
        return {
            "tried_again": sum(len(workers) - 1 for workers in self.workers.values()),
            "trained_twice": self._replaced("fit.json", "record.json"),
            "measured_twice": sum(map(len, self.versions.values()))
            - len(self.versions)
            - self._replaced("fit.json"),
        }

    def _replaced(self, *names: str) -> int:
        return sum(
            len(versions) - 1 for path, versions in self.versions.items() if path.name in names
        )


# --- engines --------------------------------------------------------------------------------------


@contextmanager
def ray_cluster(folder: Path) -> Iterator[Any]:
    """Start a Ray of a head without room for work and two nodes, on loopback, which notices a dead
    node within 2 s.
    """
    os.environ |= {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise Ray replaces 127.0.0.1
    from ray.cluster_utils import Cluster

    quick = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 4,
    }
    node = {
        "node_ip_address": "127.0.0.1",
        "object_store_memory": 80 * 2**20,
        "include_dashboard": False,
    }
    cluster = Cluster()
    cluster.new_node = lambda **more: cluster.add_node(**node, **more)
    try:
        cluster.new_node(num_cpus=0, _system_config=quick)
        for _ in range(2):
            cluster.new_node(num_cpus=2)
        yield cluster
    finally:
        cluster.shutdown()


def replace(role: str, command: list[bytes], cluster: Any) -> None:
    """Restart a killed process that nothing else restarts."""
    if role == "slurmd":
        subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stderr=subprocess.DEVNULL)
    if role == "raylet":
        cluster.new_node(num_cpus=2)


# --- rounds ---------------------------------------------------------------------------------------


def undisturbed(study: str, store: Path) -> dict[str, str]:
    """Return the content of the store of a serial run, which is only run once."""
    if run(study, store, "local").wait():
        raise click.ClickException(store.with_suffix(".log").read_text())
    return content(store)


def one_round(
    study: str,
    store: Path,
    engine: str,
    victims: list[str],
    kills: int,
    pause: float,
    rng: random.Random,
    cluster: Any,
) -> Counter[str]:
    """Carry out a study under kills; return the counts of what happened."""
    counts: Counter[str] = Counter()
    watch = Watch(store)
    watch.start()
    start = time.monotonic()
    driver, due = run(study, store, engine), start + rng.expovariate(1 / pause)
    while (code := driver.poll()) != 0:
        if code is not None:
            counts["restarts"] += 1
            counts["gave_up"] += code != -signal.SIGKILL
            driver = run(study, store, engine)
        if time.monotonic() > start + LONGEST:
            driver.kill()
            raise click.ClickException(f"{store} was not done after {LONGEST:g} s")
        if sum(counts[f"kill {role}"] for role in ROLES) < kills and time.monotonic() > due:
            role = rng.choice(victims)
            found = processes()
            found["worker"] = [worker for worker in found["worker"] if worker in watch.begun]
            if found["worker"] and (living := found[role]):  # before, there is nothing to be lost
                victim = rng.choice(living)
                with suppress(FileNotFoundError, ProcessLookupError):
                    command = Path(f"/proc/{victim}/cmdline").read_bytes().split(b"\0")[:-1]
                    os.kill(victim, signal.SIGKILL)
                    counts[f"kill {role}"] += 1
                    replace(role, command, cluster)
                due = time.monotonic() + rng.expovariate(1 / pause)
        time.sleep(0.02)
    counts["seconds"] = round(time.monotonic() - start)
    while (left := _left()) and time.monotonic() < start + counts["seconds"] + GRACE:
        time.sleep(0.5)
    counts["orphans"] = len(left)
    counts.update(watch.end())
    return counts


def _left() -> list[int]:
    living = processes()
    return [process for role in PASSING for process in living[role]]


def faults(reference: dict[str, str], store: Path) -> dict[str, list[str]]:
    """Return the faults of a store after a round, by kind."""
    found = content(store)
    log = store.with_suffix(".log").read_text()
    return {
        "differences": [
            name for name in sorted(reference | found) if reference.get(name) != found.get(name)
        ],
        "leases": [path.name for path in (store / "leases").iterdir()],
        "works": [
            str(path.relative_to(store)) for path in (store / "works").rglob("*") if path.is_file()
        ],
        "temporary": [str(path) for path in Store(store).root.rglob(".*")],
        "tracebacks": re.findall(r"Traceback.*", log),
    }


FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("engine", type=click.Choice(list(ENGINES)))
@click.option(
    "--victims",
    default="worker,driver",
    show_default=True,
    help=f"Of {', '.join(ROLES)}; may be repeated.",
)
@click.option("--kills", default=20, show_default=True)
@click.option("--per-round", default=8, show_default=True, help="The most kills of a round.")
@click.option("--pause", default=5.0, show_default=True, help="Mean seconds between two kills.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--keep",
    type=FOLDER,
    help="For stores that are not as they should be, and the undisturbed ones.",
)
def main(
    engine: str,
    victims: str,
    kills: int,
    per_round: int,
    pause: float,
    seed: int,
    keep: Path | None,
) -> None:
    """Kill processes of runs on ENGINE, and compare what they leave with an undisturbed run."""
    os.environ.setdefault(MARK, uuid.uuid4().hex)
    os.environ["OMP_NUM_THREADS"] = "1"
    # the cluster, too, gets the mark
    if engine == "slurm" and "JEMBENCH_TESTS_SLURM" not in os.environ:
        os.execv(ROOT / "tests" / "slurm" / "cluster.sh", ["cluster.sh", sys.executable, *sys.argv])
    # so that nothing is left then either
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    rng, total, rounds = random.Random(seed), Counter[str](), 0
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    try:
        references = [
            undisturbed(study, (keep or folder) / f"undisturbed-{n}")
            for n, study in enumerate(STUDIES)
        ]
        with ray_cluster(folder) if engine == "ray" else nullcontext() as cluster:
            spec = ENGINES[engine].format(address=getattr(cluster, "address", ""))
            while (done := sum(total[f"kill {role}"] for role in ROLES)) < kills:
                store = folder / f"round-{rounds}"
                which = rounds % len(STUDIES)
                args = victims.split(","), min(per_round, kills - done), pause, rng, cluster
                counts = one_round(STUDIES[which], store, spec, *args)
                wrong = faults(references[which], store)
                counts.update({name: len(found) for name, found in wrong.items()})
                total.update(counts)
                rounds += 1
                click.echo(json.dumps(dict(sorted(counts.items()))))
                if any(wrong.values()) or any(
                    counts[name] for name in ("orphans", "trained_twice", "measured_twice")
                ):
                    click.echo(json.dumps(wrong, indent=1))
                    if keep:
                        shutil.copytree(store, keep / f"{folder.name}-{store.name}")
                        shutil.copy(
                            store.with_suffix(".log"), keep / f"{folder.name}-{store.name}.log"
                        )
                shutil.rmtree(store)
        click.echo(f"{engine}, {rounds} rounds, in all: {json.dumps(dict(sorted(total.items())))}")
    finally:
        for process in _left():
            os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
