"""``jembench run``: what it prints, and what it does not do twice."""

import os
import shlex
import signal
import subprocess
import sysconfig
import time
from pathlib import Path

import click
import pytest
from safetensors.numpy import load_file

from jembench.cli import main as entry

SCRIPT = Path(sysconfig.get_path("scripts")) / "jembench"
DIGITS = ["--set", "epochs=0.2", "--set", "chains.sampler=pcd:steps=1,buffer=400", "--limit", "50"]


INSTRUCTIONS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""Variables that limit the instructions of the processor; other instructions round otherwise."""


def start(arguments, folder, **options):
    """The installed command, in a process of its own."""
    instructions = {name: os.environ[name] for name in INSTRUCTIONS if name in os.environ}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        **instructions,
        **options,
    }
    return subprocess.Popen(
        [SCRIPT, *map(str, arguments)],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def weights(store):
    """Every tensor of the trained models and of their chains, as bytes."""
    return {
        (path.relative_to(store), name): tensor.tobytes()
        for path in Path(store).glob("fits/*/[ms]*.safetensors")
        for name, tensor in load_file(path).items()
    }


def test_the_table_the_published_numbers_and_what_comes_next(run, table):
    done = run()
    assert done.code == 0
    rows = table(done.out)
    assert [row[0] for row in rows] == ["zoo_of_tests:jem", "zoo_of_tests:classifier"]
    assert rows[1][-1] == "N/A¹"
    assert "¹ needs samples, which the model does not give" in done.out
    assert "not comparable with these: --reference jem-iclr2020/table1 shows them." in done.out
    picture = next(
        line.split()[1] for line in done.out.splitlines() if line.startswith(" samples ")
    )
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    assert " results  runs/cells: 6 outcomes with provenance" in done.out


def test_the_commands_that_it_suggests_can_be_pasted(run, jembench):
    done = run("--set", "epochs=2", "--limit", "20", "--store", "my runs")
    suggested = [
        line.split(maxsplit=1)[1] for line in done.out.splitlines() if line.startswith("    next  ")
    ]
    assert [line.split()[1] for line in suggested] == ["run", "sample", "report"]
    again, sample, report = [jembench(*shlex.split(line)[1:]) for line in suggested]
    assert again.code == 0
    assert "seeds 0, 1, 2" in again.out
    assert again.err.count("done in ") == 4  # of the three seeds of two models, two are there
    assert sample.code == 0
    assert "training" not in sample.err  # it found the model that the run has trained
    assert Path("samples.png").exists()
    assert report.code == 0
    assert report.out.startswith("### Results · ")
    assert "recipe tiny+epochs=2 · seeds 0, 1, 2" in report.out


def test_a_dry_run_tells_what_is_to_be_done_and_does_nothing(run, table):
    done = run("--dry-run")
    assert (done.code, done.err) == (0, "")
    assert [" ".join(row) for row in table(done.out)] == [
        "zoo_of_tests:jem zoo_of_tests:data tiny 0 36 iterations to do: accuracy, ece, "
        "zoo_of_tests:brightness",
        "zoo_of_tests:classifier zoo_of_tests:data tiny 0 36 iterations to do: accuracy, ece",
        "N/A: zoo_of_tests:brightness (needs samples, which the model does not give)",
    ]
    assert "2 of 2 models are still to be trained, and 5 metrics to be computed." in done.out
    assert list(Path.cwd().iterdir()) == []


def test_the_same_command_again_prints_the_same_and_touches_nothing(run, contents):
    before = run()
    whole = contents("runs")
    after = run()
    assert after == (0, before.out, "")
    assert contents("runs") == whole


AT_EXIT = """
import atexit, os, sys
from pathlib import Path

def write():
    Path(f"modules-{os.getpid()}").write_text(" ".join(sys.modules))

atexit.register(write)
"""
"""Code that leaves a file with the modules of each process."""


def test_a_run_imports_no_torch_beside_its_workers_and_these_no_compiler(tmp_path, table):
    (tmp_path / "sitecustomize.py").write_text(AT_EXIT)
    models = [
        "--models",
        "jem,baseline",
        *DIGITS,
        "--metrics",
        "accuracy,is,fid",
        "--set",
        "is.splits=1",
    ]
    arguments = ["run", "hybrid", *models, "-j", "1"]

    def run():
        process = start(arguments, tmp_path, PYTHONPATH=str(tmp_path))
        out, err = process.communicate()
        assert process.returncode == 0, err
        files = list(tmp_path.glob("modules-*"))
        modules = {
            int(file.name.partition("-")[2]): set(file.read_text().split()) for file in files
        }
        driver = modules.pop(process.pid)
        assert not driver & {"torch", "torchvision", "scipy", "sklearn", "matplotlib"}
        for file in files:
            file.unlink()
        return out, list(modules.values())

    before, (worker,) = run()  # one for both models and their checks
    assert "torch" in worker
    assert not worker & {"torch._dynamo", "torchvision"}
    after, nobody = run()
    assert nobody == []
    assert table(after) == table(before)


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_numbers(jembench, tmp_path, values):
    arguments = ["run", "hybrid", "--models", "jem:net=small-2,baseline:net=small-2"]
    arguments += ["--metrics", "accuracy,nll,energy-gap"]
    for setting in (
        "epochs=0.5",
        "log_every=2",
        "checkpoint_every=4",
        "chains.sampler=pcd:steps=2,buffer=100",
    ):
        arguments += ["--set", setting]
    process = start([*arguments, "--store", tmp_path / "killed"], tmp_path)
    while not list((tmp_path / "killed").glob("fits/*/checkpoint-[01].safetensors")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list((tmp_path / "killed").glob("fits/*/fit.json"))

    assert jembench(*arguments, "--store", tmp_path / "killed").code == 0
    assert jembench(*arguments, "--store", tmp_path / "whole").code == 0
    assert len(values(tmp_path / "whole")) == 6
    assert values(tmp_path / "killed") == values(tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


@pytest.mark.parametrize("command", ["run", "train", "sample", "report"])
def test_every_option_has_an_environment_variable_of_its_name(command):
    described = entry.cli.get_command(click.Context(entry.cli), command)
    for option in described.params:
        if isinstance(option, click.Option):
            name = option.opts[0].removeprefix("--").replace("-", "_")
            assert option.name == name or option.envvar == f"JEMBENCH_{name.upper()}"
