import json
import shlex
import time

import pytest

from jembench.api.status import UnitStatus
from jembench.catalog.spec import Spec
from jembench.cli import work
from jembench.experiment.works import Work
from jembench.store import records, works
from jembench.store.outcome import FitKey, encode
from jembench.store.store import Store
from jembench.store.works import WorkStatus

FIT = FitKey(
    model=Spec("jem:norm=batch"),
    dataset=Spec("digits"),
    recipe="digits+chains.sampler=pcd:steps=3,buffer=100",
    seed=3,
    id="f1",
)
WORDS = [
    *["jembench", "run", "hybrid", "--set"],
    "a=it's  'mine'",
    *["--set", "chains.sampler=pcd:steps=3"] * 3,
]


@pytest.fixture
def store(tmp_path):
    """Make a store with a training, an attack, a failure and a unit that waits."""
    store = Store(tmp_path / "runs")

    def happened(unit, kind, command="jembench run ood", **given):
        work = Work(
            kind=kind,
            model="jem",
            dataset="digits",
            fit=FIT,
            cells=(),
            command=command,
            display="JEM",
            recipe={},
            identity={},
        )
        records.write(store.works.path(unit), encode(work))
        if given:
            store.works.set_status(unit, WorkStatus(worker="node7:5", since=time.time(), **given))

    happened(
        "a1", "fit", state="running", done=20, total=100, counted="iterations", text="loss 0.500"
    )
    happened(
        "b2",
        "attack-part",
        state="running",
        done=64,
        total=1000,
        counted="images",
        text="pgd, step 7 of 40",
    )
    happened(
        "c3",
        "fit",
        shlex.join(WORDS),
        state="failed",
        log=str(store.works.folder / "c.log"),
        text="no space",
    )
    happened("d4", "fit")
    with store.lease("a1"), store.lease("b2"):
        yield tmp_path / "runs"


@pytest.mark.parametrize("columns", ["80", "100", "300"])
def test_the_table(jembench, store, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(store.parent)
    done = jembench("status", "--store", "runs")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert shlex.split(lines[0]) == WORDS
    assert max(map(len, lines[1:])) <= min(int(columns), 100)
    failed, rest = done.out.split("jembench run ood\n")
    assert " ".join(failed.split()).endswith(
        "c3 failed 1 s fit JEM on digits, recipe digits+chains.sampler=pcd:steps=3,buffer=100, "
        "seed 3 no space worker node7:5 log runs/works/c.log"
    )
    for row in (
        "a1 running 1 s fit JEM on digits",
        "20 of 100 iterations, loss 0.500",
        "b2 running 1 s attack-part JEM on digits",
        "64 of 1,000 images, pgd, step 7 of 40",
        "d4 queued fit JEM on digits",
    ):
        assert row in " ".join(rest.split())


def test_what_ended_long_ago_is_counted_and_can_be_removed(jembench, store, monkeypatch):
    monkeypatch.setattr(works, "OLD", -1.0)
    monkeypatch.setattr(UnitStatus, "is_old", property(lambda unit: unit.id == "c3"))
    out = jembench("status", "--store", store).out
    assert "c3" not in out
    assert out.endswith(
        "and 1 that ended more than a day ago; `jembench store gc` lists and removes them\n"
    )
    jembench("store", "gc", "--yes", "--store", store)
    assert Store(store).works.ids() == ["a1", "b2", "d4"]


def test_many_that_wait_are_counted(jembench, store, monkeypatch):
    monkeypatch.setattr(work, "QUEUED", 0)
    out = jembench("status", "--store", store).out
    assert "d4" not in out
    assert "and 1 more that are queued\n" in out


def test_json(jembench, store):
    shown = json.loads(jembench("status", "--store", store, "--format", "json").out)
    assert [unit["state"] for unit in shown["units"]] == ["running", "running", "failed", "queued"]
