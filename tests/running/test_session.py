"""The executor that ``auto`` chooses, and results that this machine sees late."""

import os
import time
from contextlib import nullcontext

import pytest

from jembench.api.runs import plan_run
from jembench.errors import WorkFailed
from jembench.experiment import suite
from jembench.running import session
from jembench.running.driver import RunOptions
from jembench.running.local import LocalExecutor
from jembench.running.processes import Processes
from jembench.store.store import Store


@pytest.fixture
def fastest(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)

    def fastest(models=("jem", "baseline"), seeds=(0,), device="auto", settings=()):
        chosen = {"models": models, "seeds": seeds, "datasets": ["digits"], "metrics": ["accuracy"]}
        plan = plan_run(suite.load("hybrid"), Store(tmp_path), settings=settings, **chosen)
        found = session._default_executor(plan, Store(tmp_path), RunOptions(device))
        jobs = f":jobs={found.jobs}" if getattr(found, "jobs", None) else ""
        return f"processes{jobs}" if isinstance(found, Processes) else "local"

    return fastest


def test_several_trainings_run_at_once(fastest):
    assert fastest() == fastest(device="cpu") == "processes:jobs=2"
    assert fastest(["jem"], seeds=range(20)) == "processes:jobs=4"


def test_as_many_as_pytorch_would_use_threads(fastest, monkeypatch):
    for threads, chosen in [(3, "processes:jobs=3"), (1, "local")]:
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        assert fastest(seeds=(0, 1)) == chosen


def test_one_training_stays_in_this_process(fastest, monkeypatch):
    assert fastest(["jem"]) == "local"
    monkeypatch.setattr(Store, "is_trained", lambda store, key: key.model.startswith("jem"))
    assert fastest() == "local"


def test_a_model_that_processes_train_together_has_them_started(fastest):
    assert fastest(["jem"], settings=["processes=2"]) == "processes"


def test_code_of_this_program_stays_in_this_process(fastest, zoo_of_tests):
    assert fastest(["zoo_of_tests:jem", "jem"]) == "local"


@pytest.mark.parametrize(
    ("gpus", "device", "chosen"),
    [
        (1, "auto", "local"),
        (2, "auto", "processes"),
        (2, "cuda:1", "local"),
        (2, "cpu", "processes:jobs=2"),
    ],
)
def test_gpus_come_first(fastest, monkeypatch, gpus, device, chosen):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert fastest(device=device) == chosen


class Client:
    """The driver's machine: an NFS client that remembers for some seconds which paths with ``part``
    did not exist.
    """

    def __init__(self, part, seconds):
        self.part, self.seconds = part, seconds
        self.absent = {}  # path -> until when
        self.is_driver = True

    def remembering(self, call):
        def cached(path, *arguments, **options):
            if not self.is_driver or self.part not in str(path):
                return call(path, *arguments, **options)
            if time.monotonic() < self.absent.get(str(path), 0):
                raise FileNotFoundError(2, "No such file", str(path))
            try:
                return call(path, *arguments, **options)
            except FileNotFoundError:
                self.absent[str(path)] = time.monotonic() + self.seconds
                raise

        return cached


class Elsewhere(LocalExecutor):
    """Carries units out in this process, as another machine that sees all files at once."""

    def __init__(self, client):
        super().__init__()
        self.client = client

    def ended(self, seconds):
        self.client.is_driver = False
        try:
            return super().ended(0.01)
        finally:
            self.client.is_driver = True


@pytest.fixture
def run_with(monkeypatch, plan, store):
    """Carry out two trainings on a machine with such a client, and give what is found."""

    def run_with(part, seconds):
        client = Client(part, seconds)
        for name in ("stat", "open"):
            monkeypatch.setattr(os, name, client.remembering(getattr(os, name)))
        monkeypatch.setattr(session, "_default_executor", lambda *_: Elsewhere(client))
        return session.run_plan(
            plan("jem classifier"), store, RunOptions(device="cpu"), nullcontext
        )

    return run_with


def test_what_waits_for_a_model_is_done_although_the_driver_does_not_see_the_model(run_with):
    found = run_with("/fits/", 1000)
    assert [cell.outcome.status for cell in found.cells] == ["ok", "ok"]
    assert found.stopped is None


def test_results_that_are_not_visible_yet_are_waited_for(run_with):
    found = run_with("/cells/", 3)
    assert [cell.outcome.status for cell in found.cells] == ["ok", "ok"]
    assert found.stopped is None


def test_a_run_without_results_is_no_success(run_with, monkeypatch):
    monkeypatch.setattr(session, "LATEST", 0.0)
    found = run_with("/cells/", 1000)
    assert isinstance(found.stopped, WorkFailed)
    assert "2 of 2 results are not in the store" in str(found.stopped)
