import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from jembench.experiment.plan import plan_fit
from jembench.store import checkpoint
from jembench.training.processes import Group, launched

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, Group()), (TORCHRUN, Group(3, 4, 1)), ({"RANK": "3", "WORLD_SIZE": "4"}, Group())],
)
def test_a_process_knows_its_rank_from_torchrun_alone(environment, expected):
    assert launched(environment) == expected


def test_what_does_not_fit_is_told_before_anything_is_done(jembench, tiny, run, monkeypatch):
    done = run("--set", "processes=2")
    assert (
        "batch_size of recipe tiny is 9, which cannot be shared out evenly among 2 processes"
        in done.err
    )
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    within = jembench("train", "zoo_of_tests:jem", *tiny)
    assert "torchrun starts no runs, only workers of them" in within.err
    assert (done.code, done.out) == (within.code, within.out) == (2, "")
    assert list(Path.cwd().iterdir()) == []


def test_the_number_of_processes_is_part_of_the_identity_and_of_no_name():
    alone, together = (
        plan_fit("jem", "digits", settings=[f"processes={number}"]).key for number in (1, 2)
    )
    assert alone == plan_fit("jem", "digits").key
    assert alone.id != together.id
    assert alone.names == together.names


def test_a_model_of_several_processes_is_not_trained_by_one(jembench, tiny):
    text = "is trained by 3 processes together, and here there are 1"
    done = jembench("train", "zoo_of_tests:jem", *tiny, "--set", "processes=3")
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert not list(Path("runs").glob("cells/*"))


SETTINGS = [
    "epochs=2.6",
    "log_every=2",
    "checkpoint_every=4",
    "chains.sampler=pcd:steps=2,buffer=100,start=class-gaussian",
]
SETTINGS += ["processes=2"]


RUN = ["run", "hybrid", "--models", "jem:net=small-2", "--metrics", "accuracy", "--device", "cpu"]
RUN += ["--dataset", "imagefolder:root=photos", "--recipe", "digits-quick"]
RUN += [word for setting in SETTINGS for word in ("--set", setting)]


def write_photos(root, count):
    """Write the first of the digits as files, in a folder per class."""
    digits = load_digits()
    for number in range(count):
        folder = root / f"digit-{digits.target[number]}"
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((15 * digits.images[number]).astype("uint8"))
        picture.save(folder / f"{number}.png")


def test_two_processes_that_stop_or_read_in_parts_train_the_same(jembench, monkeypatch, programs):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_photos(Path("photos"), 400)
    command = [sys.executable, "-m", "jembench", *RUN]
    stopped = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(Path("runs").glob("fits/*/checkpoint-0.safetensors")):
        assert stopped.poll() is None, stopped.communicate()
        time.sleep(0.05)
    stopped.send_signal(signal.SIGTERM)
    assert "Stopping 1 units of work" in stopped.communicate()[1]
    assert stopped.returncode == 3
    assert list(Path("runs/leases").iterdir()) == []
    # PyTorch is imported once for all that is started from here on
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PYTHON_EXEC", str(programs / "python"))  # of torchrun
    for store in ("runs", "straight"):
        if store == "straight":  # images stay in the folder; above they lay in memory
            monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
        done = jembench(*RUN, "--store", store)
        assert done.code == 0, done.err
        assert done.err.count("iterations done") == (store == "runs")
    (resumed,), (straight,) = (
        list(Path(store, "fits").iterdir()) for store in ("runs", "straight")
    )
    for name in ("model", "sampler"):
        first, second = (
            checkpoint.read(folder / f"{name}.safetensors") for folder in (resumed, straight)
        )
        assert all(torch.equal(value, second[key]) for key, value in first.items())
