"""The executor slurm without Slurm: commands that stand for Slurm's record what they are asked and
answer from files.

``tests/slurm`` has the tests on a real Slurm.
"""

import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_worker
import pytest
from executor_sessions import Session

from jembench.errors import SpecError, Unavailable
from jembench.interfaces.running import Driver, Job
from jembench.plugin import resolve
from jembench_slurm.job import UnitJob

SBATCH = """
n=$(($(cat jobs 2>/dev/null || echo 0) + 1))
echo $n >jobs
cp "$1" $n.sh
env >$n.env
echo "Submitted batch job $n"
"""


class Slurm:
    """A folder of commands, with their output and input."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.command("sinfo", "echo 'cpu*|(null)'; echo 'gpu|gpu:a100:4(S:0-1)'; echo 'gpu|(null)'")
        self.command("sbatch", SBATCH)
        self.command("srun", "exit 1")
        self.command("squeue", 'echo "$@" >>squeue.calls; cat states 2>/dev/null')
        self.command("scancel", 'echo "$@" >>scancel.calls')

    def command(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\ncd {self.folder}\n{script}\n")
        path.chmod(0o755)

    def script(self, number):
        return (self.folder / f"{number}.sh").read_text()

    def lines(self, name):
        path = self.folder / name
        if path.exists():
            return path.read_text().splitlines()
        return []

    def states(self, *lines):
        (self.folder / "states").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    commands = Slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{commands.folder}{os.pathsep}{os.environ['PATH']}")
    return commands


def opened(folder, **options):
    spec = "slurm:" + ",".join(f"{key}={value}" for key, value in options.items())
    executor = resolve("executors", spec.rstrip(":")).make()
    driver = Driver(store=folder, options=(), environment={"A": "b"}, carry_out=None)
    executor.open(driver)
    return executor


def endings(executor):
    return [(ended.id, ended.how) for ended in executor.ended(0)]


def unit(name, gpus=1, order=0):
    return Job(id=name, name=name, kind="fit", order=order, gpus=gpus, text="{}")


def ends(store, job, result="Traceback", outcome="success"):
    """Write what a job leaves behind."""
    (folder,) = (store / "works" / "slurm").iterdir()
    (folder / f"{job}_0_result.pkl").write_bytes(pickle.dumps((outcome, result)))
    (folder / f"{job}_0_log.out").write_text("printed")


def files(store, pattern="*"):
    return list((store / "works" / "slurm").glob(f"*/{pattern}"))


def look_again(executor):
    """Ask Slurm now, which is otherwise done every two seconds at most."""
    executor._looked = 0
    return executor.ended(0)


def record(name, how="done"):
    return {"id": name, "how": how, "text": "", "host": "node1", "log": ""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("gpus=-1", "gpus of slurm is -1; it must be at least 0"),
        ('partition="gpu\\n#SBATCH --uid=0"', "the value of partition holds a control character"),
        ('partition="gpu --uid=0"', "partition of slurm is 'gpu --uid=0'; it must be the name of"),
        ("array=0", "array of slurm is 0; it must be at least 1"),
        ("retries=-1", "retries of slurm is -1"),
        (
            "memory=lots",
            "memory of slurm is 'lots'; it must be a whole number with a unit, such as 32G",
        ),
        ("memory=32", "with a unit"),
        ("time=soon", "time of slurm is 'soon'; it must be a minute or more, such as 8h"),
        ("time=0h", "a minute or more"),
        ('time=""', "a minute or more"),
        ("time=30:00", "a minute or more"),  # half an hour to Slurm, 30 hours to many
    ],
)
def test_options_that_are_wrong_are_refused(options, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        resolve("executors", f"slurm:{options}").make()


@pytest.mark.parametrize(("time", "minutes"), [("8h", 480), ("90m", 90), ("1d12h", 2160)])
def test_time_limits(slurm, tmp_path, time, minutes):
    opened(tmp_path, time=time).submit([unit("a")])
    assert f"#SBATCH --time={minutes}\n" in slurm.script(1)


@pytest.mark.parametrize("name", ["a\nrm -r b", "a\rb", "a\u2028b"])
def test_a_store_whose_path_would_add_lines_to_a_script_is_refused(slurm, tmp_path, name):
    with pytest.raises(
        SpecError, match=r"The path of the store is .*, and Slurm's scripts cannot hold it"
    ):
        opened(tmp_path / name)


def test_no_slurm_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unavailable,
        match=r"Slurm's command sinfo is not installed here\. Use the executor slurm on a",
    ):
        opened(tmp_path)


def test_a_slurm_that_does_not_answer_is_unavailable(slurm, tmp_path):
    slurm.command(
        "sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1"
    )
    with pytest.raises(
        Unavailable,
        match="Slurm does not answer to sinfo: slurm_load_partitions: Unable to contact",
    ):
        opened(tmp_path)


def test_of_slurm_s_attempts_the_first_and_the_last_are_said(slurm, tmp_path):
    slurm.command(
        "sinfo", "for n in -1 0 1; do echo attempt $n >&2; done; echo no controller >&2; exit 1"
    )
    with pytest.raises(Unavailable, match=r"sinfo: attempt -1; no controller\.$"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("options", "gpus"),
    [({}, 0), ({"partition": "gpu"}, 1), ({"partition": "gpu", "gpus": 0}, 0), ({"gpus": 2}, 2)],
)
def test_a_network_gets_a_gpu_where_the_partition_has_any(slurm, tmp_path, options, gpus):
    opened(tmp_path, **options).submit([unit("a")])
    asked = re.findall(r"gpus-per-node=(.*)", slurm.script(1))
    assert asked == ([str(gpus)] if gpus else [])


def test_units_of_several_processes_are_an_array_of_their_own(slurm, tmp_path):
    options = {"time": "20m", "gpus": 2, "cpus": 4, "memory": "8G", "array": 3}
    executor = opened(tmp_path, partition="gpu", **options)
    assert executor.slots == 3
    assert executor.here is False
    units = [unit(f"a{n}", gpus=n % 2 + 1) for n in range(4)]
    executor.submit(units)
    alone = slurm.script(1)
    together = slurm.script(2)
    for script, gpus, cpus in ((alone, 2, 4), (together, 4, 8)):
        lines = ("array=0-1%2", "time=20", "mem=8G", "requeue", "signal=USR2@120", "partition=gpu")
        for line in (*lines, f"cpus-per-task={cpus}", f"gpus-per-node={gpus}"):
            assert f"#SBATCH --{line}\n" in script
        assert f"--cpus-per-task {cpus}" in script.splitlines()[-1]
        assert " -P -u -m submitit" in script.splitlines()[-1]


def test_setup_comes_before_the_command_and_the_signal_within_a_short_limit(slurm, tmp_path):
    executor = opened(tmp_path, time="4m", setup="module load cuda")
    executor.submit([unit("a")])
    script = slurm.script(1)
    assert script.index("\nmodule load cuda\n") < script.index("srun")
    assert "#SBATCH --signal=USR2@60\n" in script


def test_a_driver_in_a_job_gives_its_jobs_none_of_its_own_variables(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", __file__)
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    opened(tmp_path).submit([unit("a")])
    variables = slurm.lines("1.env")
    assert {f"SLURM_CONF={__file__}", "SBATCH_ACCOUNT=mine"} <= {*variables}
    assert "SLURM_JOB_ID=7" not in variables
    assert os.environ["SLURM_JOB_ID"] == "7"


def test_what_sbatch_says_is_the_error(slurm, tmp_path):
    slurm.command("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    with pytest.raises(
        Unavailable, match=r"Slurm refuses the jobs: sbatch: error: Invalid account"
    ):
        opened(tmp_path).submit([unit("a")])


def test_the_message_of_sbatch_is_said_once(slurm, tmp_path, capfd):
    slurm.command("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    with pytest.raises(Unavailable):
        opened(tmp_path).submit([unit("a")])
    assert capfd.readouterr() == ("", "")


def test_what_slurm_will_never_take_is_refused(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit("a")])
    slurm.states("1|RUNNING|node1|None")
    slurm.command(
        "sbatch", "echo 'sbatch: error: Requested node configuration is not available' >&2; exit 1"
    )
    executor.submit([unit("b")])
    (ended,) = executor.ended(0)
    assert ended.id == "b"
    assert ended.how == "refused"
    assert (
        "Requested node configuration is not available. Write other options of slurm" in ended.text
    )


def test_jobs_that_slurm_does_not_take_are_submitted_later(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit("a")])
    slurm.states("1|RUNNING|node1|None", "2|RUNNING|node1|None")
    slurm.command("sbatch", "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1")
    with pytest.warns(
        UserWarning,
        match="Slurm takes no jobs now, they are submitted later: sbatch: error: QOSMax",
    ):
        executor.submit([unit("b")])
    slurm.command("sbatch", SBATCH)
    assert not look_again(executor)
    ends(tmp_path, 2, record("b"))
    assert [ended.id for ended in executor.ended(0)] == ["b"]


def test_jobs_that_slurm_has_not_taken_are_dropped_at_a_cancellation(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit("a")])
    slurm.states("1|RUNNING|node1|None")
    slurm.command("sbatch", "exit 1")
    with pytest.warns(UserWarning, match="Slurm takes no jobs now"):
        executor.submit([unit("b")])
    executor.cancel()
    assert endings(executor) == [("b", "stopped")]


def test_more_units_than_an_array_can_have_are_several_arrays(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr("jembench_slurm.executor.ARRAY", 10)
    units = [unit(str(n)) for n in range(25)]
    opened(tmp_path, array=4).submit(units)
    pattern = re.compile(r"--array='?([^'\n]*)")
    arrays = [pattern.search(slurm.script(n))[1] for n in (1, 2, 3)]
    assert arrays == ["0-9%4", "0-9%4", "0-4%4"]


def test_slurm_is_asked_once_about_a_thousand_jobs(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit(str(n)) for n in range(1000)])
    slurm.states(*(f"1_{n}|RUNNING|node1|None" for n in range(1000)))
    ends(tmp_path, "1_3", record("3"))
    (ended,) = executor.ended(0)
    assert ended.id == "3"
    assert ended.how == "done"
    assert ended.host == "node1"
    assert ended.log == ""
    assert not files(tmp_path, "1_3_*")
    assert not executor.ended(0)
    assert len(slurm.lines("squeue.calls")) == 1


def test_the_log_of_a_problem_is_kept_and_all_else_removed(slurm, tmp_path):
    (tmp_path / "works").mkdir()
    (tmp_path / "works" / "b.json").touch()
    executor = opened(tmp_path)
    executor.submit([unit("a"), unit("b")])
    ends(tmp_path, "1_0", record("a"))
    ends(tmp_path, "1_1", record("b", "refused"))
    logs = {ended.id: ended.log for ended in executor.ended(0)}
    assert logs["a"] == ""
    assert Path(logs["b"]).read_text() == "printed"
    executor.close()
    assert [str(path) for path in files(tmp_path)] == [logs["b"]]


def test_what_killed_drivers_left_goes_when_no_unit_and_no_job_of_theirs_is_left(slurm, tmp_path):
    for name in ("over", "waits"):
        (tmp_path / "works" / "slurm" / name).mkdir(parents=True)
        (tmp_path / "works" / "slurm" / name / "1_submitted.pkl").touch()
    executor = opened(tmp_path)
    slurm.command("squeue", "case $* in *%j*) echo waits;; esac")
    executor.close()
    (folder,) = (tmp_path / "works" / "slurm").iterdir()
    assert folder.name == "waits"


def test_what_killed_drivers_left_goes_after_an_hour_though_units_are_left(
    slurm, tmp_path, monkeypatch
):
    works = tmp_path / "works"
    folders = {name: works / "slurm" / name for name in ("over", "waits", "named")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    (tmp_path / "works" / "a.json").write_text("{}")
    status = {"log": str(folders["named"] / "1_0_log.out")}
    (works / "a.status.json").write_text(json.dumps(status))
    slurm.command("squeue", "case $* in *%j*) echo waits;; esac")
    for age, left in [(3600.0, ["named", "over", "waits"]), (-1.0, ["named", "waits"])]:
        monkeypatch.setattr("jembench_slurm.executor.ABANDONED", age)
        opened(tmp_path).close()
        kept = [folder.name for folder in (works / "slurm").iterdir()]
        assert sorted(kept) == left


def test_a_dead_job_is_submitted_again_and_then_lost(slurm, tmp_path):
    executor = opened(tmp_path, retries=1)
    executor.submit([unit("a"), unit("b")])
    slurm.states("1_0|NODE_FAIL|node1|None", "1_1|RUNNING|node1|None")
    assert not executor.ended(0)
    slurm.states("1_1|RUNNING|node2|None")  # Slurm has forgotten job 2
    (lost,) = look_again(executor)
    assert lost.id == "a"
    assert lost.how == "lost"
    assert lost.text.startswith(
        "Its worker died 2 times, at last in job 2 with state UNKNOWN. Write other options"
    )
    ends(tmp_path, "1_1", record("b"))
    assert [ended.id for ended in executor.ended(0)] == ["b"]


def test_a_job_that_is_submitted_after_slurm_answered_is_not_dead(slurm, tmp_path):
    executor = opened(tmp_path, retries=1)
    executor.submit([unit("a")])
    slurm.states("1|COMPLETED|node1|None")  # its worker died, and Slurm has not heard of job 2 yet
    ends(tmp_path, "1", 1)
    assert not look_again(executor)
    assert slurm.script(2)
    ends(tmp_path, "2", record("a"))
    assert endings(executor) == [("a", "done")]


def test_a_job_that_no_node_could_start_is_taken_back_and_submitted_again(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit("a")])
    slurm.states("1|PENDING||launch failed requeued held")
    assert not executor.ended(0)
    assert slurm.lines("scancel.calls") == ["1"]
    assert slurm.script(2)
    slurm.states("1|CANCELLED||None", "2|PENDING||JobHeldUser")
    assert not look_again(executor)


def test_a_job_that_can_never_start_is_refused_and_cancelled_once_two_answers_say_so(
    slurm, tmp_path
):
    executor = opened(tmp_path)
    executor.submit([unit("a"), unit("b")])
    for second in ("Priority", "PartitionConfig"):
        slurm.states("1_0|PENDING||PartitionConfig", "1_1|PENDING||PartitionConfig")
        assert not look_again(executor)
        slurm.states("1_0|PENDING||PartitionConfig", f"1_1|PENDING||{second}")
        (ended,) = look_again(executor)
        assert ended.id == ("a" if second == "Priority" else "b")
        assert ended.how == "refused"
        assert "Slurm never starts job 1_" in ended.text
    assert slurm.lines("scancel.calls")[0] == "1_0"
    assert slurm.lines("scancel.calls")[-1] == "1_0 1_1"


def test_a_job_that_could_not_be_launched_has_died_if_others_could(slurm, tmp_path):
    executor = opened(tmp_path, retries=0)
    executor.submit([unit("a"), unit("b")])
    ends(tmp_path, "1_0", record("a"))
    slurm.states("1_1|FAILED|node1|JobLaunchFailure")
    assert endings(executor) == [("a", "done"), ("b", "lost")]


def test_a_job_that_raised_is_dead(slurm, tmp_path):
    executor = opened(tmp_path, retries=0)
    executor.submit([unit("a")])
    slurm.states("1|RUNNING|node1|None")
    ends(tmp_path, 1, outcome="error")
    (lost,) = executor.ended(0)
    assert lost.text.startswith(
        "Its worker died 1 times, at last in job 1 with state FAILED. Write other options"
    )
    assert Path(lost.log).read_text() == "printed"


def test_no_job_is_taken_for_dead_while_slurm_does_not_answer(slurm, tmp_path):
    executor = opened(tmp_path, retries=0)
    executor.submit([unit("a")])
    slurm.command("squeue", "exit 1")
    assert not executor.ended(0)
    slurm.states("1|RUNNING|node1|None")
    assert not look_again(executor)
    ends(tmp_path, 1, record("a"))
    assert [ended.how for ended in executor.ended(0)] == ["done"]


def test_jobs_that_were_cancelled_are_stopped(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit("a"), unit("b")])
    slurm.states("1_0|CANCELLED||None", "1_1|RUNNING|node1|None")
    ends(tmp_path, "1_1", record("b", "stopped"))
    assert sorted(endings(executor)) == [("a", "stopped"), ("b", "stopped")]


def test_cancel_drops_what_is_queued_and_signals_what_runs(slurm, tmp_path):
    executor = opened(tmp_path)
    executor.submit([unit("a"), unit("b")])
    slurm.states("1_0|CANCELLED||None", "1_1|RUNNING|node1|None")
    executor.cancel()
    assert endings(executor) == [("a", "stopped")]
    (folder,) = (tmp_path / "works" / "slurm").iterdir()
    name = folder.name
    assert slurm.lines("scancel.calls") == [
        f"--name={name} --state=PENDING",
        f"--name={name} --state=RUNNING --signal=TERM",
    ]


def job_of(folder, what):
    """Return a job for a unit that becomes ``what`` in a fake worker."""
    driver = Session(None, folder).driver
    (folder / "a").write_text(what)
    environment = dict(driver.environment)
    return UnitJob(driver.command([unit("a", gpus=1)]), environment)


def test_a_job_returns_the_ending_of_its_unit(tmp_path):
    ended = job_of(tmp_path, "refused by it")()
    assert ended["id"] == "a"
    assert ended["how"] == "refused"


def test_a_job_whose_worker_dies_returns_the_exit_code(tmp_path):
    assert job_of(tmp_path, "dies")() == -9


def test_at_the_time_limit_the_worker_is_stopped_and_the_unit_is_queued_again(tmp_path):
    job = job_of(tmp_path, "sleeps")
    results = []
    thread = threading.Thread(target=lambda: results.append(job()))
    thread.start()
    while not fake_worker.begun(tmp_path):
        time.sleep(0.02)
    again = job.checkpoint().function
    thread.join()
    endings_ = [(result["id"], result["how"]) for result in results]
    assert endings_ == [("a", "stopped")]
    assert again == job


def test_a_time_limit_before_the_worker_has_started_leaves_the_unit(tmp_path):
    job = job_of(tmp_path, "done")
    assert job.checkpoint().function == job


def test_what_is_pickled_is_small_and_loads_without_torch(tmp_path):
    data = pickle.dumps(job_of(tmp_path, "done"))
    assert len(data) < 1000
    code = "import pickle, sys; pickle.load(sys.stdin.buffer); sys.exit('torch' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], input=data, check=False)
    assert loaded.returncode == 0


def test_listing_executors_imports_no_submitit():
    code = (
        "import sys, jembench_slurm; jembench_slurm.slurm(); sys.exit({'submitit', 'torch'} & "
        "{*sys.modules} != set())"
    )
    listed = subprocess.run([sys.executable, "-c", code], check=False)
    assert listed.returncode == 0
