"""The executor slurm on a real Slurm, which ``tests/slurm/cluster.sh`` starts."""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jembench.errors import SpecError, Unavailable
from jembench.plugin import resolve
from jembench.testing import check_executor, parametrize
from jembench.testing.executors import Session

pytestmark = pytest.mark.skipif(
    "JEMBENCH_TESTS_SLURM" not in os.environ, reason="needs a Slurm cluster: tox -e plugins starts one"
)

README = Path(__file__).parents[2] / "plugins" / "jembench-slurm" / "README.md"


def slurm(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def folder_of(store):
    """The folder of the only driver, which has the name of its jobs."""
    (found,) = (store / "works" / "slurm").iterdir()
    return found


@pytest.fixture
def session(tmp_path):
    """Opens an executor with options, for fake workers."""
    opened = []

    def open_session(**options):
        spec = ",".join(f"{key}={value}" for key, value in options.items())
        new = Session(resolve("executors", f"slurm:{spec}").make(), tmp_path)
        new.executor.open(new.driver)
        opened.append(new)
        return new

    yield open_session
    for each in opened:
        each.executor.close()


@parametrize(check_executor("slurm:gpus=0,array=2"))
def test_the_executor_keeps_what_every_executor_promises(check):
    check()


def test_units_go_to_the_nodes_that_they_need_and_only_the_log_of_a_problem_is_left(session, tmp_path):
    one = session(partition="gpu", cpu_partition="cpu")
    network, refused = one.jobs("done", "refused by it")
    one.executor.submit([network, dataclasses.replace(refused, gpus=0)])
    found = one.endings([network, refused])
    folder = folder_of(tmp_path / "store")
    jobs = slurm("squeue", "--noheader", "--states=all", f"--name={folder.name}", "--format=%P %b").split()
    assert sorted(jobs) == ["N/A", "cpu", "gpu", "gres:gpu:1"]
    one.executor.close()
    assert found[network.id].log == ""
    assert [str(path) for path in folder.iterdir()] == [found[refused.id].log]
    assert f"{refused.id} begins" in Path(found[refused.id].log).read_text()


def test_after_the_death_of_a_shared_job_each_unit_gets_its_own(session, tmp_path):
    one = session(gpus=0, array=2, pack=2)
    jobs = one.submit("meets 60 unit-2", "done", "meets 60 unit-2")  # the first two share a job
    one.wait_for(2)
    worker = dict(line.split() for line in (tmp_path / "trace").read_text().splitlines())["unit-1"]
    os.kill(int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    assert {each.how for each in one.endings(jobs).values()} == {"done"}
    assert sorted(one.begun) == ["unit-1", "unit-1", "unit-2", "unit-3"]
    assert not Path("/proc", worker).exists()


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
        ({"partition": "gpux"}, r"no partition named 'gpux'\. Write slurm:partition= with one of cpu, gpu"),
        ({"cpu_partition": "cpux"}, "no partition named 'cpux'"),
        ({"time": "11h"}, "time of slurm is 660 minutes, and jobs in the partition cpu end after 10:00:00"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(session, options, message):
    with pytest.raises(SpecError, match=message):
        session(**options)


def test_what_slurm_refuses_is_an_error_with_its_words(session):
    one = session(memory="999T")
    with pytest.raises(Unavailable, match="Slurm refuses the jobs: sbatch: error: Memory specification can not be"):
        one.submit("done")


def test_a_training_that_reaches_its_time_limit_ends_as_if_it_had_not(tmp_path):
    command = re.search(r"^jembench (run .*)$", README.read_text(), re.MULTILINE)[1]
    less = {"JEMBENCH_RUN_MODELS": "baseline", "JEMBENCH_RUN_METRICS": "accuracy", "JEMBENCH_SET": "epochs=10"}
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
    while not any('"window"' in path.read_text() for path in store.glob("works/*.events")):
        assert runs["cluster"].poll() is None
        time.sleep(0.1)
    name = folder_of(store).name
    slurm("scancel", f"--name={name}", "--signal=USR2")  # as Slurm sends it before the limit
    tables = [json.loads(run.communicate()[0])["rows"] for run in runs.values()]
    assert tables[0] == tables[1]
    models = [next(tmp_path.glob(f"{place}/runs/fits/*/model.safetensors")).read_bytes() for place in runs]
    assert models[0] == models[1]
    options = ("--noheader", "--states=all", f"--name={name}", "--Format=RestartCnt")
    assert sorted(slurm("squeue", *options).split()) == ["0", "1"]  # measuring, training
    assert not list(store.glob("works/slurm/*"))
