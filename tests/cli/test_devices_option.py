"""``--devices``: one fit in several processes, however they are started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from jembench.catalog import plugin_files
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import plan_fit
from jembench.store import checkpoint
from jembench.training.launch import Placement, joined, placement, slurm_address

COMMAND = ["-m", "jembench.cli.main", "train", "--device", "cpu"]


def folder_of(out):
    """What the command has printed: one line, a folder."""
    (line,) = out.splitlines()
    return Path(line)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# --- who has started the processes ------------------------------------------------------------------------------------

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "3", "WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}
SRUN = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "2"}


@pytest.mark.parametrize(
    ("devices", "environment", "expected"),
    [
        (None, {}, Placement(0, 1, 1, "")),
        (4, {}, Placement(0, 4, 1, "")),
        (None, TORCHRUN, Placement(3, 4, 2, "torchrun")),
        (4, TORCHRUN, Placement(3, 4, 2, "torchrun")),
        (None, SRUN, Placement(3, 4, 2, "slurm")),
        (1, SRUN, Placement(0, 1, 1, "")),  # a task each for itself
        (None, SRUN | {"SLURM_STEP_NUM_TASKS": "1"}, Placement(0, 1, 1, "")),
        (2, SRUN | {"SLURM_STEP_NUM_TASKS": "1"}, Placement(0, 2, 1, "")),
        (None, {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, Placement(0, 1, 1, "")),  # sbatch without srun
        (None, SRUN | {"SLURM_JOB_NAME": "interactive"}, Placement(0, 1, 1, "")),
        (2, {"JEMBENCH_RANK": "1"}, Placement(1, 2, 1, "jembench")),
        (None, {"JEMBENCH_RANK": "", "SLURM_STEP_NUM_TASKS": ""}, Placement(0, 1, 1, "")),
        (2, SRUN | {"JEMBENCH_RANK": "1"}, Placement(1, 2, 1, "jembench")),
    ],
)
def test_a_process_knows_its_place(devices, environment, expected):
    assert placement(devices, environment) == expected


@pytest.mark.parametrize(
    ("devices", "environment", "text"),
    [
        (2, TORCHRUN, "--devices is 2, but torchrun has started 4 processes"),
        (None, TORCHRUN | {"GROUP_WORLD_SIZE": "3"}, "4 processes on 3 machines. Start the same number on each"),
        (None, {key: SRUN[key] for key in list(SRUN)[:3]}, "srun --ntasks-per-node N"),
        (
            2,
            {"JEMBENCH_RANK": "x"},
            "The environment variable JEMBENCH_RANK is 'x'; launchers set it to a whole number",
        ),
        (None, {"SLURM_STEP_NUM_TASKS": "-1"}, "SLURM_STEP_NUM_TASKS is '-1'"),
        (None, TORCHRUN | {"WORLD_SIZE": "abc"}, "WORLD_SIZE is 'abc'"),
        (None, TORCHRUN | {"RANK": "9" * 5000}, "RANK is '9{40}'"),
        (None, TORCHRUN | {"RANK": "4"}, "torchrun has started process 4 of 4 on 2 machines"),
        (None, TORCHRUN | {"GROUP_WORLD_SIZE": "0"}, "process 3 of 4 on 0 machines, which cannot be"),
    ],
)
def test_launchers_that_do_not_fit_are_told(devices, environment, text):
    with pytest.raises(SpecError, match=text):
        placement(devices, environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("", "127.0.0.1"), ("gpu[03-05,9],big1", "gpu03"), ("big1,gpu[3-5]", "big1"), ("r[1-2]n[07,9]", "r1n07")],
)
def test_the_tasks_of_srun_meet_on_its_first_node(nodes, first):
    step = {"SLURM_STEP_NODELIST": nodes, "SLURM_JOB_ID": "1234567"} if nodes else {}
    assert slurm_address(step) == {"MASTER_ADDR": first, "MASTER_PORT": "19567" if nodes else "15000"}


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--devices", "0"], "0 is not in the range x>=1"),
        (["--devices", "2"], "batch_size of recipe tiny is 9, which cannot be shared out evenly among 2 processes"),
        (["--devices", "3", "--device", "cpu:0"], "--device is cpu:0, and --devices asks for 3 of a kind"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_done(jembench, tiny, arguments, text):
    done = jembench("train", "zoo_of_tests:jem", *tiny, *arguments)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert done.err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


def test_an_executor_that_works_elsewhere_is_refused(run):
    done = run("--devices", "3", "--executor", "processes")
    assert (done.code, done.out) == (2, "")
    assert "--devices trains here, and the executor processes elsewhere" in done.err


def test_too_few_gpus_are_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with (
        pytest.raises(Unavailable, match=r"4 processes need a GPU each, and torch .* finds 2"),
        joined(Placement(size=4), "cuda", ()),
    ):
        pass


def test_one_device_is_the_command_without_the_option(jembench, tiny):
    done = jembench("train", "zoo_of_tests:jem", *tiny, "--devices", "1")
    assert done == (0, jembench("train", "zoo_of_tests:jem", *tiny).out, done.err)


def test_the_number_of_processes_is_part_of_the_identity_and_of_no_name():
    one, two = (plan_fit("jem", "digits", settings=[f"processes={number}"]).key for number in (1, 2))
    assert one == plan_fit("jem", "digits").key
    assert one.id != two.id
    assert one.names == two.names


def test_a_model_of_several_processes_is_not_trained_by_one(jembench, tiny, run):
    text = "is trained by 3 processes together, and here there are 1"
    for done in (jembench("train", "zoo_of_tests:jem", *tiny, "--set", "processes=3"), run("--set", "processes=3")):
        assert (done.code, done.out) == (2, "")
        assert text in done.err
    assert not list(Path("runs").glob("cells/*"))


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(jembench):
    """That of a process to be started: nothing of the user's own reaches it."""
    return os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def few():
    """As little training as the recipe for digits allows, with checkpoints on the way."""
    settings = ["epochs=0.6", "log_every=2", "checkpoint_every=4", "chains.sampler=pcd:steps=2,buffer=1000"]
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture
def of_a_plugin(jembench):
    """JEM with a network that only those processes find which load the plugin."""
    Path("plugins").mkdir()
    Path("plugins/net_of_a_plugin.py").write_text(
        "from jembench.models.nets.build import build_net\ndef build(data):\n    return build_net('small-4', data)\n"
    )
    yield ["jem:net=net_of_a_plugin:build", "--plugin", "plugins/net_of_a_plugin.py"]
    plugin_files.forget()
    sys.modules.pop("net_of_a_plugin", None)


def children_of(pid):
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def test_a_killed_run_of_two_leaves_nobody_and_is_taken_up_again(jembench, environment, few, of_a_plugin):
    arguments = [*of_a_plugin, *few, "--device", "cpu"]
    process = subprocess.Popen([sys.executable, *COMMAND, *of_a_plugin, *few, "--devices", "2"], env=environment)
    while not list(Path("runs").glob("fits/*/checkpoint-0.safetensors")):
        assert process.poll() is None
        time.sleep(0.05)
    (other,) = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{other}").exists():
        assert time.monotonic() < deadline, "the other process has stayed"
        time.sleep(0.05)

    before = dict(os.environ)
    done = jembench("train", *arguments, "--devices", "2")
    assert done.code == 0, done.err
    assert dict(os.environ) == before
    assert not torch.distributed.is_initialized()
    assert children_of(os.getpid()) == []
    folder = folder_of(done.out)
    assert checkpoint.read(folder / "sampler.safetensors")["images"].shape == (1000, 1, 8, 8)

    alone = jembench("train", *arguments, "--store", "alone")
    other = folder_of(alone.out)
    assert files(other) == files(folder)
    assert other.name != folder.name  # another identity, for its chains had other noise:
    assert not torch.equal(*(checkpoint.read(one / "sampler.safetensors")["images"] for one in (folder, other)))


def test_torchrun_starts_the_processes(environment, few):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*launcher, *COMMAND, "jem:net=small-2", *few], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (folder_of(done.stdout) / "model.safetensors").exists()
    assert done.stderr.count("training on digits") == 1
