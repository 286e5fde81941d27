"""Experiment files of strangers: they run no shell, open no address and write nowhere but below the
current folder.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from jembench.catalog import discovery
from jembench.experiment import suite as suites
from jembench.interfaces import API

NEEDS_RAY = pytest.mark.skipif(
    not find_spec("jembench_ray"), reason="jembench-ray is not installed"
)

FILE = """
title = "Mine"
datasets = ["digits"]
metrics = ["accuracy"]
models = ["baseline"]
"""

THIRD_PARTY = '''
from typing import Annotated, Literal

from jembench.plugin import NotInFiles

class Pigeons:
    slots, here, in_process = 1, True, True
    def open(self, driver): ...
    def submit(self, jobs): ...
    def ended(self, seconds): return []
    def cancel(self): ...
    def close(self): ...
    def event(self, event): ...

def pigeons(
    *,
    flock: int = 1,
    speed: "float | None" = None,
    fed: bool = True,
    route: Literal["short", "long"] = "short",
    home: str = "",
    letter: "str | None" = None,
    away: Annotated[int, NotInFiles()] = 0,
    by: "Annotated[Literal['day', 'night'], NotInFiles()] | None" = None,
):
    """Carries units by pigeon."""
    return Pigeons()
'''


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """An installed plugin with an executor and a tracker, whose author knew nothing of files."""
    folder = tmp_path / "site-packages"
    info = folder / "jembench_pigeons-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jembench-pigeons\nVersion: 1.0\n")
    points = "\n".join(
        f"[jembench.{kind}]\npigeons = a_pigeon_loft:pigeons" for kind in ("executors", "trackers")
    )
    (info / "entry_points.txt").write_text(f"{points}\n[jembench.api]\n{API} = a_pigeon_loft\n")
    (folder / "a_pigeon_loft.py").write_text(THIRD_PARTY)
    monkeypatch.syspath_prepend(folder)
    discovery.catalogue.cache_clear()
    yield
    discovery.catalogue.cache_clear()


@pytest.fixture
def dry_run(jembench):
    """Plan an experiment's file with more lines in it."""

    def dry_run(more, *arguments):
        Path("mine.toml").write_text(FILE + more)
        return jembench("run", "mine.toml", "--dry-run", *arguments)

    return dry_run


@pytest.mark.parametrize(
    ("key", "text", "option"),
    [
        ("executor", 'slurm:gpus=0,setup="touch marked"', "setup"),
        ("executor", "slurm:partition=gpu", "partition"),
        ("executor", "jembench-slurm/slurm:gpus=1,time=1h", "time"),
        pytest.param("executor", "ray:address=10.0.0.1:6379", "address", marks=NEEDS_RAY),
        ("executor", "pigeons:home=x", "home"),
        ("executor", "pigeons:letter=x", "letter"),
        ("executor", "pigeons:flock=2,away=1", "away"),
        ("executor", "pigeons:by=night", "by"),
        ("trackers", "mlflow:uri=http://127.0.0.1:9", "uri"),
        ("trackers", "mlflow:experiment=theirs", "experiment"),
        ("trackers", "wandb:mode=online", "mode"),
        ("trackers", "wandb:project=theirs", "project"),
        ("trackers", "wandb:folder=..", "folder"),
        ("trackers", "tensorboard:folder=/tmp/x", "folder"),
        ("trackers", "pigeons:home=x", "home"),
        ("format", "latex:label=x", "label"),
    ],
)
def test_a_file_gives_no_text_to_what_is_around_the_work(dry_run, third_party, key, text, option):
    value = f"['local', '{text}']" if key == "trackers" else f"'{text}'"
    done = dry_run(f"[execution]\n{key} = {value}\n")
    assert (done.code, done.out) == (2, "")
    assert f"mine.toml sets {option} of the " in done.err
    assert "numbers and named choices only" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "slurm:gpus=0,array=2,cpus=4",
        "ray:gpus=0.5,retries=1",
        "processes:jobs=2",
        "pigeons:flock=2,route=long",
    ],
)
def test_a_file_gives_numbers_and_named_choices(jembench, third_party, text):
    Path("mine.toml").write_text(f'{FILE}[execution]\nexecutor = "{text}"\n')
    assert suites.load("mine.toml").execution.executor == text


def test_the_user_gives_any_option(dry_run, third_party, monkeypatch):
    assert dry_run("", "--executor", 'slurm:gpus=0,setup="touch marked"').code == 0
    monkeypatch.setenv("JEMBENCH_RUN_EXECUTOR", "pigeons:home=x,by=night")
    assert dry_run("").code == 0


@pytest.mark.parametrize(
    "path",
    ["/tmp/elsewhere", "../elsewhere", "a/../../b", ".ssh", "~/.ssh", "a/.git/hooks", "a\\nb"],
)
def test_a_file_names_a_store_below_the_current_folder(dry_run, path):
    done = dry_run(f'[execution]\nstore = "{path}"\n')
    assert done.code == 2
    assert "execution.store is " in done.err
    assert "it must be a path below the current folder" in done.err
