import os
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from jembench import progress
from jembench.errors import StoreError
from jembench.running import caches, fits, session
from jembench.running.caches import FeatureBank
from jembench.running.driver import RunOptions
from jembench.store.lease import in_work
from jembench.store.store import Store

CPU = torch.device("cpu")

PROCESS = """
import os, sys
from pathlib import Path
import torch
from jembench.running import driver
from jembench.running.events import Events
from jembench.running.local import LocalExecutor
from jembench.experiment.crossing import make_plan
from jembench.store.store import Store
from jembench.experiment.suite import Run, Suite

torch.set_num_threads(1)
store, recipe, models, log, twice = sys.argv[1:6]

class Watch:
    def event(self, event):
        lines = {"window": f"train {event.done} ", "measured": f"measure {event.metric} "}
        line = lines.get(event.kind)
        if line and (event.kind == "window" or event.values["seconds"]):
            with open(log, "a") as file:
                file.write(f"{line}{event.fit['model']} {event.fit['seed']}\\n")

metrics = ("zoo_of_tests:score", "zoo_of_tests:brightness")
block = Run(models=tuple(models.split()), metrics=metrics, seeds=(0, 1))
chosen = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
plan = make_plan(chosen, recipe=recipe)
other = os.fork() if twice == "True" else 0  # two begin at once, and import torch once
store = Store(Path(store))
driver.run_units(plan, store, LocalExecutor(), Events(Watch(), store))
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


@pytest.fixture
def start(zoo_of_tests, programs, tmp_path, monkeypatch):
    """Start a process, or two at once, that carry out a plan of two models and two seeds."""
    monkeypatch.setenv("PYTHONPATH", str(zoo_of_tests), prepend=os.pathsep)
    running = []

    def start(root, models="zoo_of_tests:jem", twice=False):
        recipe, log = zoo_of_tests / "tiny.toml", tmp_path / "log"
        arguments = [str(each) for each in (root, recipe, models, log, twice)]
        running.append(
            subprocess.Popen(
                [programs / "python", "-c", PROCESS, *arguments], stderr=subprocess.PIPE, text=True
            )
        )
        return running[-1]

    yield start
    for process in running:
        with process:
            process.kill()


def test_two_processes_on_one_store_do_every_piece_of_work_once(
    plan, store, start, tmp_path, carry_out, values
):
    models = "zoo_of_tests:jem zoo_of_tests:classifier"
    both = start(store.root, models, twice=True)
    _, errors = both.communicate()
    assert both.returncode == 0, errors
    done = (tmp_path / "log").read_text().splitlines()
    expected = [
        f"train {n} {model} {seed}"
        for n in range(3, 37, 3)
        for model in models.split()
        for seed in (0, 1)
    ]
    expected += [
        f"measure zoo_of_tests:score {model} {seed}" for model in models.split() for seed in (0, 1)
    ]
    expected += [f"measure zoo_of_tests:brightness zoo_of_tests:jem {seed}" for seed in (0, 1)]
    assert sorted(done) == sorted(expected)
    whole = plan("jem classifier", "score brightness", seeds=(0, 1))
    assert carry_out(whole, store) == []
    straight = Store(tmp_path / "straight")
    carry_out(whole, straight)
    assert values(whole, store) == values(whole, straight)


def test_a_training_waits_for_another_process_and_says_so(plan, store, monkeypatch, recorder):
    (fit,) = plan("jem").fits
    others, said = store.lease(fit.key.id), []

    def sleep(seconds):
        said.append(progress.now().text)
        others.__exit__(None, None, None)

    monkeypatch.setattr(caches, "time", SimpleNamespace(sleep=sleep))  # other threads sleep as well
    others.__enter__()
    with session.open_fit(fit, store, RunOptions("cpu"), lambda: nullcontext(recorder)):
        pass
    assert said == ["waiting for another process"]
    assert recorder.events == ["train jem 0"]
    assert not in_work(store.leases)


def test_a_training_that_lost_its_lease_writes_no_record(plan, store, monkeypatch, recorder):
    (fit,) = plan("jem").fits

    def train(*arguments, check, **options):
        check()
        (lease,) = (store.root / "leases").glob("*.json")
        lease.write_text('{"token": "theirs"}')
        check()

    monkeypatch.setattr(fits, "train", train)
    bank = FeatureBank(fit.dataset.make(), store, CPU)
    unit = fits.FitWork(fit=fit, bank=bank, store=store, report=recorder.event)
    with store.lease(fit.key.id), pytest.raises(StoreError, match="was taken over or removed"):
        unit.load_or_train()
    assert store.read_fit(fit.key) is None
