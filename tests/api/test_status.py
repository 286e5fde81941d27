import subprocess
import sys

import pytest

from jembench.api.status import status
from jembench.catalog.spec import Spec
from jembench.experiment.works import Work, WorkCell
from jembench.store import records
from jembench.store.outcome import Cell, FitKey, Outcome, encode
from jembench.store.store import Store
from jembench.store.works import OLD, WorkStatus

FIT = FitKey(model=Spec("jem"), dataset=Spec("digits"), recipe="digits", seed=3, id="f1")
WORK = Work(
    kind="fit",
    model="jem",
    dataset="digits",
    recipe={},
    fit=FIT,
    identity={},
    cells=(WorkCell("accuracy", "c1"),),
    command="jembench run hybrid",
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def unit(store):
    """Write a unit and its status; gives what is shown of it."""

    def write(unit="u1", **given):
        records.write(store.works.path(unit), encode(WORK))
        if given:
            store.works.set_status(unit, WorkStatus(**given))
        return next((shown for shown in status(store.root) if shown.id == unit), None)

    return write


def test_a_unit_is_known_before_anything_happened_to_it(unit):
    shown = unit()
    assert (shown.state, shown.worker, shown.since) == ("queued", "", None)
    assert (shown.kind, shown.model, shown.dataset, shown.recipe, shown.seed) == (
        "fit",
        "jem",
        *["digits"] * 2,
        3,
    )


def test_a_unit_that_runs(unit, store):
    with store.lease("u1"):
        shown = unit(
            state="running",
            worker="n:1",
            since=5.5,
            done=40,
            total=100,
            counted="iterations",
            text="loss 0.5",
        )
    assert (shown.state, shown.worker, shown.since) == ("running", "n:1", 5.5)
    assert (shown.done, shown.total, shown.counted, shown.text) == (
        40,
        100,
        "iterations",
        "loss 0.5",
    )
    assert shown.command == "jembench run hybrid"


@pytest.mark.parametrize("state", ["queued", "stopped", "failed", "refused", "lost"])
def test_other_states(unit, state):
    shown = unit(state=state, text="no space", log="a.log")
    assert (shown.state, shown.text, shown.log, shown.is_old) == (state, "no space", "a.log", False)
    assert shown._replace(since=shown.since - OLD).is_old == (state != "queued")


def test_a_unit_whose_results_another_run_has_written_is_left_out(unit, store):
    store.write_cell(
        Cell(
            id="c1",
            fit=FIT,
            metric=Spec("accuracy"),
            outcome=Outcome(status="failed"),
            provenance={},
        ),
        {},
    )
    assert unit(state="stopped")
    outcome = Outcome(status="na", reason="no labels", details={"settled": True})
    store.write_cell(
        Cell(id="c1", fit=FIT, metric=Spec("accuracy"), outcome=outcome, provenance={}), {}
    )
    assert unit(state="stopped") is None


def test_a_worker_that_was_killed_is_lost_at_once(unit, store):
    script = (
        f"import os, sys; from pathlib import Path; from jembench.store.lease import lease\n"
        f"with lease(Path({str(store.root / 'leases' / 'u1.json')!r})): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    shown = unit(state="running", text="training")
    assert (shown.state, shown.text.partition("SIGKILL")[1:2], shown.text[-8:]) == (
        "lost",
        ("SIGKILL",),
        "training",
    )
    with store.lease("u1"):
        assert unit().state == "running"
    assert unit(state="queued").state == "queued"


def test_a_damaged_unit_is_left_out(unit, store):
    unit(state="queued")
    store.works.path("u1").write_text("{")
    assert status(store.root) == []
