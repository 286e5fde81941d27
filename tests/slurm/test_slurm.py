"""The executor slurm on a real Slurm, which ``tests/slurm/cluster.sh`` starts."""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fake_worker
import pytest
from executor_checks import check_executor
from executor_sessions import Session, is_alive

from jembench.plugin import Unavailable, resolve
from jembench.testing import parametrize

pytestmark = pytest.mark.skipif(
    "JEMBENCH_TESTS_SLURM" not in os.environ,
    reason="needs a Slurm cluster: tox -e plugins starts one",
)

README = Path(__file__).parents[2] / "plugins" / "jembench-slurm" / "README.md"


def slurm(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def folder_of(store):
    """Return the folder of the only driver, which has the name of its jobs."""
    (found,) = (store / "works" / "slurm").iterdir()
    return found


@pytest.fixture
def session(tmp_path):
    """Return a function that opens an executor with options, for fake workers; ``waits`` gets
    reasons of waiting.
    """
    opened = []

    def open_session(folder=tmp_path, **options):
        spec = ",".join(f"{key}={value}" for key, value in options.items())
        new = Session(resolve("executors", f"slurm:{spec}").make(), folder)
        new.waits = {}
        new.executor.open(dataclasses.replace(new.driver, waits=new.waits.__setitem__))
        opened.append(new)
        return new

    yield open_session
    for each in opened:
        each.executor.close()


def until(one, condition):
    """Wait for something before which no unit ends."""
    end = time.monotonic() + 60
    while not condition():
        assert not one.executor.ended(0.1)
        assert time.monotonic() < end, "it never came"


@parametrize(check_executor("slurm:gpus=0,array=2"))
def test_the_executor_keeps_what_every_executor_promises(check):
    check()


def test_a_unit_of_two_processes_gets_two_gpus_and_only_the_log_of_a_problem_is_left(
    session, tmp_path
):
    one = session(partition="gpu")
    alone, together = one.jobs("done", "refused by it")
    one.executor.submit([alone, dataclasses.replace(together, gpus=2)])
    found = one.endings([alone, together])
    folder = folder_of(tmp_path / "store")
    jobs = slurm(
        "squeue", "--noheader", "--states=all", f"--name={folder.name}", "--format=%P %b"
    ).split()
    assert sorted(jobs) == ["gpu", "gpu", "gres:gpu:1", "gres:gpu:2"]
    assert one.begun.count(together.id) == 2  # by torchrun
    one.executor.close()
    assert found[alone.id].log == ""
    assert [str(path) for path in folder.iterdir()] == [found[together.id].log]
    assert f"{together.id} begins" in Path(found[together.id].log).read_text()


def test_a_job_whose_process_is_killed_is_submitted_again_and_leaves_no_worker(session, tmp_path):
    one = session(gpus=0)
    jobs = one.submit("meets 60 go")
    one.wait_for(1)
    (worker,) = fake_worker.pids(tmp_path)
    os.kill(
        int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL
    )
    until(one, lambda: len(one.begun) > 1 and not is_alive(worker))
    fake_worker.note(tmp_path, "go")
    assert one.endings(jobs)[jobs[0].id].how == "done"


def test_scancel_stops_cleanly(session, tmp_path):
    one = session(gpus=0, array=1)
    jobs = one.submit("sleeps", "sleeps")
    one.wait_for(1)
    slurm("scancel", f"--name={folder_of(tmp_path / 'store').name}")
    assert {each.how for each in one.endings(jobs).values()} == {"stopped"}
    assert one.begun == ["unit-1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "999T"}, "Memory specification can not be"),
        (
            {"partition": "gpux"},
            "invalid partition specified: gpux.*Write other options of slurm: partition",
        ),
    ],
)
def test_what_slurm_refuses_is_an_error_with_its_words(session, options, message):
    one = session(**options)
    with pytest.raises(Unavailable, match=f"Slurm refuses the jobs: sbatch: error: {message}"):
        one.submit("done")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"cpus": 64}, "PartitionConfig"), ({"time": "11h"}, "PartitionTimeLimit")],
)
def test_a_job_that_can_never_start_is_refused_with_slurm_s_reason(session, options, reason):
    one = session(gpus=0, **options)
    jobs = one.submit("done", "done")
    found = one.endings(jobs).values()
    assert [(each.how, each.text.split(". ")[0].partition(": ")[2]) for each in found] == [
        ("refused", reason)
    ] * 2
    assert not slurm("squeue", "--me", "--noheader", "--states=PENDING,RUNNING")


def test_the_reason_for_which_a_job_waits_is_told(session):
    one = session(gpus=0, partition="apart")
    slurm("scontrol", "update", "PartitionName=apart", "State=DOWN")
    try:
        jobs = one.submit("done")
        until(one, lambda: one.waits)
    finally:
        slurm("scontrol", "update", "PartitionName=apart", "State=UP")
    assert one.waits == {jobs[0].id: "Slurm says PartitionDown"}
    assert {each.how for each in one.endings(jobs).values()} == {"done"}


def test_a_store_that_the_nodes_do_not_share_is_named(session):
    folder = Path(tempfile.mkdtemp(dir=Path(os.environ["JEMBENCH_TESTS_SLURM"], "apart")))
    one = session(folder, gpus=0, partition="apart", retries=0)
    jobs = one.submit("done")
    ended = one.endings(jobs)[jobs[0].id]
    assert (ended.how, ended.host, ended.log) == ("lost", "apart", "")
    assert re.search(
        r"\(JobLaunchFailure\)\. .* All nodes must see the store under the same path", ended.text
    )


def test_slurm_starts_the_job_of_a_lost_node_elsewhere(session):
    one = session(gpus=0, partition="lost", retries=0)
    jobs = one.submit("meets 60 go")
    one.wait_for(1)
    kill_node(
        "lost", slurm("squeue", "--me", "--noheader", "--states=RUNNING", "--format=%A").strip()
    )
    # as Slurm does after SlurmdTimeout
    slurm("scontrol", "update", "NodeName=lost", "State=DOWN", "Reason=lost")
    until(one, lambda: len(one.begun) > 1)
    fake_worker.note(one.folder, "go")
    assert one.endings(jobs)[jobs[0].id].how == "done"


def kill_node(name, job):
    """Kill the daemon of a node and all of a job, at once, as a loss of power does."""
    daemon = int(Path(os.environ["JEMBENCH_TESTS_SLURM"], f"{name}.pid").read_text())
    steps = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().startswith(f"slurmstepd: [{job}.".encode())
    ]
    tasks = [
        int(line.split()[1])
        for line in slurm("ps", "-eo", "ppid,pid").splitlines()[1:]
        if int(line.split()[0]) in steps
    ]
    for process in (daemon, *steps, *tasks):
        os.kill(process, signal.SIGKILL)


def test_a_training_by_two_processes_that_reaches_its_time_limit_ends_as_if_it_had_not(tmp_path):
    command = re.search(r"^jembench (run .*)$", README.read_text(), re.MULTILINE)[1]
    less = {
        "JEMBENCH_RUN_MODELS": "baseline",
        "JEMBENCH_RUN_METRICS": "accuracy",
        "JEMBENCH_SET": "epochs=10 processes=2",
    }
    arguments = {"cluster": shlex.split(command), "here": ["run", "hybrid"]}
    runs = {}
    for place, words in arguments.items():
        (tmp_path / place).mkdir()
        runs[place] = subprocess.Popen(
            [sys.executable, "-m", "jembench", *words, "--format", "json"],
            env=os.environ | less,
            cwd=tmp_path / place,
            stdout=subprocess.PIPE,
        )
    store = tmp_path / "cluster" / "runs"
    while not any("loss" in path.read_text() for path in store.glob("works/*.status.json")):
        assert runs["cluster"].poll() is None
        time.sleep(0.1)
    name = folder_of(store).name
    slurm("scancel", f"--name={name}", "--signal=USR2")  # as Slurm sends it before the limit
    tables = [json.loads(run.communicate()[0])["rows"] for run in runs.values()]
    assert tables[0] == tables[1]
    models = [
        next(tmp_path.glob(f"{place}/runs/fits/*/model.safetensors")).read_bytes() for place in runs
    ]
    assert models[0] == models[1]
    options = ("--noheader", "--states=all", f"--name={name}", "--Format=RestartCnt")
    assert slurm("squeue", *options).split() == ["1"]
    assert not list(store.glob("works/slurm/*"))
