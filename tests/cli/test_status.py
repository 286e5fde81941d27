"""``jembench status``."""

import json
import time

import pytest

from jembench.cli import status
from jembench.store import records
from jembench.store.store import Store
from jembench.store.works import WorkStatus

FIT = {"model": "jem", "dataset": "digits", "recipe": "digits", "seed": 3, "id": "f1"}


@pytest.fixture
def store(tmp_path):
    """Make a store with a training, an attack, a failure and a unit that waits."""
    store = Store(tmp_path / "runs")

    def happened(unit, kind, **given):
        records.write(store.works.path(unit), {"kind": kind, "fit": FIT})
        if given:
            store.works.set_status(unit, WorkStatus(worker="node7:5", since=time.time(), **given))

    happened("a1", "fit", state="running", done=20, total=100, counted="iterations", text="loss 0.500")
    happened("b2", "attack-part", state="running", done=64, total=1000, counted="images", text="pgd, step 7 of 40")
    happened("c3", "fit", state="failed", log="c.log", text="no space")
    happened("d4", "fit")
    with store.lease("a1"), store.lease("b2"):
        yield tmp_path / "runs"


def test_the_table(jembench, store):
    done = jembench("status", "--store", store)
    assert (done.code, done.err) == (0, "")
    rows = [" ".join(line.split()) for line in done.out.splitlines()]
    fit = "jem on digits, recipe digits, seed 3"
    for row in (
        f"a1 fit {fit} running node7:5 1 s 20 of 100 iterations, loss 0.500",
        f"b2 attack-part {fit} running node7:5 1 s 64 of 1,000 images, pgd, step 7 of 40",
        f"c3 fit {fit} failed node7:5 1 s no space",
        "log: c.log",
        f"by hand: jembench work c3 --store {store}",
        f"d4 fit {fit} queued",
    ):
        assert row in rows


def test_many_that_wait_are_counted(jembench, store, monkeypatch):
    monkeypatch.setattr(status, "QUEUED", 0)
    out = jembench("status", "--store", store).out
    assert "d4" not in out
    assert "and 1 more that are queued\n" in out


def test_json(jembench, store):
    found = json.loads(jembench("status", "--store", store, "--format", "json").out)
    assert [unit["state"] for unit in found["units"]] == ["running", "running", "failed", "queued"]
