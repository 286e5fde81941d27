"""The executor slurm on a real Slurm, which ``tests/slurm/cluster.sh`` starts, with workers that only count."""

import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jembench.errors import SpecError, Unavailable
from jembench.interfaces import Driver, Executor, Job
from jembench.plugin import resolve
from jembench.testing import check_executor, parametrize

pytestmark = pytest.mark.skipif(
    "JEMBENCH_TESTS_SLURM" not in os.environ, reason="needs a Slurm cluster: tox -e slurm starts one"
)

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "support" / "fake_worker"


def unit(name, gpus=0):
    return Job(id=name, name=name, kind="train", order=0, gpus=gpus, text="{}")


class Cluster:
    """An executor, and what the workers leave in the folder of their store."""

    def __init__(self, folder, **options):
        spec = ",".join(f"{key}={value}" for key, value in options.items())
        self.folder = folder
        self.executor = resolve("executors", f"slurm:{spec}" if spec else "slurm").make()
        self.executor.open(
            Driver(
                store=folder,
                arguments=lambda ids: [str(folder), *ids],
                environment={"PYTHONPATH": str(FAKE)},
                carry_out=None,
            )
        )

        (self.name,) = [path.name for path in (folder / "works" / "slurm").iterdir()]

    def submit(self, *names, gpus=0):
        self.executor.submit([unit(name, gpus) for name in names])

    def ended(self, number):
        """The first endings, by their ids."""
        found, until = {}, time.monotonic() + 30
        while len(found) < number and time.monotonic() < until:
            found |= {one.id: one for one in self.executor.ended(1)}
        assert len(found) == number, (found, subprocess.run(["squeue"], capture_output=True, text=True).stdout)
        return found

    def starts(self, name):
        """Process, job and partition of each start of a unit."""
        path = self.folder / f"{name}.starts"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def started(self, *names, times=1):
        """Wait until units have started."""
        until = time.monotonic() + 30
        while any(len(self.starts(name)) < times for name in names) and time.monotonic() < until:
            time.sleep(0.1)
        assert all(len(self.starts(name)) == times for name in names)

    def checkpoint(self, name):
        return json.loads((self.folder / f"{name}.json").read_text())

    def files(self):
        return [path for path in (self.folder / "works" / "slurm").rglob("*") if path.is_file()]


def hashed(name):
    number, value = int(name.split("-")[1]), name
    for _ in range(number):
        value = hashlib.sha256(value.encode()).hexdigest()
    return [number, value]


@pytest.fixture
def cluster(tmp_path):
    """Makes executors with options, and closes them."""
    made = []

    def make(**options):
        made.append(Cluster(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.executor.close()
        assert not subprocess.check_output(["squeue", "--noheader", f"--name={each.name}"])


def test_an_array_ends_and_leaves_no_file(cluster):
    one = cluster(array=2)
    assert isinstance(one.executor, Executor)
    names = [f"count-2-{letter}" for letter in "abcd"]
    one.submit(*names)
    ended = one.ended(4)
    assert {(each.how, each.host, each.log) for each in ended.values()} == {("done", socket.gethostname(), "")}
    assert [one.checkpoint(name) for name in names] == [hashed(name) for name in names]
    assert len({job for name in names for _, job, _ in one.starts(name)}) == 4
    one.executor.close()
    assert not list((one.folder / "works" / "slurm").iterdir())


def test_at_the_signal_of_the_time_limit_a_unit_is_saved_and_goes_on_in_the_same_job(cluster):
    one = cluster(array=1, pack=3)
    one.submit("count-2-first", "count-60-long", "count-2-last")
    one.started("count-60-long")
    time.sleep(0.5)
    (job,) = {start[1] for start in one.starts("count-60-long")}
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    ended = one.ended(3)
    assert {each.how for each in ended.values()} == {"done"}
    assert one.checkpoint("count-60-long") == hashed("count-60-long")
    assert [start[1] for start in one.starts("count-60-long")] == [job, job]
    assert len(one.starts("count-2-first")) == len(one.starts("count-2-last")) == 1
    assert {start[1] for start in one.starts("count-2-last")} == {job}


def test_a_job_whose_step_was_killed_is_tried_again_with_each_unit_on_its_own(cluster):
    one = cluster(array=1, pack=2)
    one.submit("count-40-a", "count-2-b")
    one.started("count-40-a")
    worker = one.starts("count-40-a")[0][0]
    parent = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    ended = one.ended(2)
    assert {each.how for each in ended.values()} == {"done"}
    assert one.checkpoint("count-40-a") == hashed("count-40-a")
    jobs = {start[1] for name in ("count-40-a", "count-2-b") for start in one.starts(name)}
    assert len(jobs) == 3
    assert not Path("/proc", worker).exists()


def test_scancel_stops_cleanly_too(cluster):
    one = cluster(array=1)
    one.submit("count-200-a", "count-200-b")
    one.started("count-200-a")
    subprocess.run(["scancel", f"--name={one.name}"], check=True)
    ended = one.ended(2)
    assert {each.how for each in ended.values()} == {"stopped"}
    assert 0 < one.checkpoint("count-200-a")[0] < 200


def test_units_go_to_the_nodes_that_they_need(cluster):
    one = cluster(partition="gpu", cpu_partition="cpu")
    assert one.executor.gpus
    one.executor.submit([unit("count-1-net", gpus=1), unit("refused-0-stat")])
    ended = one.ended(2)
    assert one.starts("count-1-net")[0][2] == "gpu"
    assert one.starts("refused-0-stat")[0][2] == "cpu"
    refused = ended["refused-0-stat"]
    assert (refused.how, refused.text) == ("refused", "This worker has other code.")
    assert Path(refused.log).is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "gpux"}, r"no partition named 'gpux'. Write slurm:partition= with one of cpu, gpu"),
        ({"cpu_partition": "cpux"}, "no partition named 'cpux'"),
        (
            {"time": "11h"},
            "time of slurm is 660 minutes, and jobs in the partition cpu end after 10:00:00 at the latest",
        ),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(cluster, options, message):
    with pytest.raises(SpecError, match=message):
        cluster(**options)


def test_what_slurm_refuses_is_an_error_with_its_words(cluster):
    one = cluster(memory="999T")
    with pytest.raises(Unavailable, match="Slurm refuses the jobs: sbatch: error: Memory specification can not be"):
        one.submit("count-1-a")


@parametrize(check_executor("slurm:gpus=0,array=2"))
def test_the_executor_keeps_what_every_executor_promises(check):
    check()


def test_the_command_of_the_readme(tmp_path):
    text = (ROOT / "plugins" / "jembench-slurm" / "README.md").read_text()
    command = re.search(r"^jembench (run .*)$", text, re.MULTILINE)[1]
    less = {"JEMBENCH_RUN_MODELS": "baseline", "JEMBENCH_RUN_METRICS": "accuracy", "JEMBENCH_SET": "epochs=1"}
    run = subprocess.run(
        [sys.executable, "-m", "jembench", *shlex.split(command), "--format", "json"],
        env=os.environ | less,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(json.loads(run.stdout)["rows"]) == 1
    assert not list((tmp_path / "runs" / "works" / "slurm").iterdir())
