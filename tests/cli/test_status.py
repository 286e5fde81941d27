"""``jembench status``."""

import json
import time
from pathlib import Path

import pytest

from jembench.cli import status
from jembench.interfaces import Event
from jembench.store import records
from jembench.store.store import Store
from jembench.store.works import RunRecord

FIT = {"model": "jem", "dataset": "digits", "recipe": "digits", "seed": 3, "id": "f1"}


@pytest.fixture
def store(tmp_path):
    """A store with a training, an attack, a failure and a unit that waits, of a run that is gone."""
    works = Store(tmp_path / "runs").works

    def happened(unit, unit_kind, *kinds):
        works.write(unit, records.text({}))
        for kind, fields in kinds:
            worker = "" if kind == "queued" else "node7:5"
            works.append(
                Event(kind=kind, fit=FIT, work=unit, unit=unit_kind, worker=worker, time=time.time(), **fields)
            )

    start = [("queued", {}), ("started", {})]
    happened("a1", "train", *start, ("window", {"done": 20, "total": 100, "values": {"loss": 0.5}}))
    beat = {"metric": "pgd", "done": 64, "total": 1000, "values": {"unit": "images"}, "text": "step 7 of 40"}
    happened("b2", "attack-shard", *start, ("measuring", {"metric": "pgd"}), ("progress", beat))
    happened("c3", "measure", *start, ("ended", {"values": {"how": "failed", "log": "c.log"}, "text": "no space"}))
    happened("d4", "measure", ("queued", {}))
    run = RunRecord(
        id="run-1", command="jembench run x", host="login", pid=7, time=time.time(), units=9, done=5, failed=1
    )
    works.write_run(run)
    return tmp_path / "runs"


def test_an_empty_store(jembench):
    Path("runs").mkdir()
    done = jembench("status")
    assert (done.code, done.out, done.err) == (0, "Nothing runs in runs.\n", "")


def test_the_table(jembench, store):
    done = jembench("status", "--store", store)
    assert (done.code, done.err) == (0, "")
    rows = [" ".join(line.split()) for line in done.out.splitlines()]
    fit = "jem on digits, recipe digits, seed 3"
    for row in (
        f"a1 train {fit} running node7:5 1 s 20 of 100 iterations, loss 0.500",
        f"b2 attack-shard {fit} running node7:5 1 s 64 of 1,000 images, pgd, step 7 of 40",
        f"c3 measure {fit} failed node7:5 1 s no space",
        "log: c.log",
        f"by hand: jembench work c3 --store {store}",
        f"d4 measure {fit} queued",
        "login:7 gone 1 s 5 of 9 done, 1 failed jembench run x",
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
    assert found["runs"][0]["alive"] is False
