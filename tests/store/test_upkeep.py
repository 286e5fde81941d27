import os
import shutil

import pytest

from jembench.errors import SpecError
from jembench.store import checkpoint, records, works
from jembench.store.layout import PARTS
from jembench.store.store import Store
from jembench.store.upkeep import garbage, inventory, remove
from jembench.store.walk import verify
from jembench.store.works import WorkStatus


@pytest.fixture
def store(whole, tmp_path):
    return Store(shutil.copytree(whole, tmp_path / "runs"))


def files(store):
    return {str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.is_file()}


def found(store):
    return {each.file: each.reason for each in garbage(store)}


def test_the_models_and_the_space_they_take(store):
    shutil.rmtree(next(store.root.glob("fits/jem*s1*")))
    next(store.root.glob("fits/baseline*s1*/fit.json")).unlink()
    next(store.root.glob("cells/ece-jem*s0*")).unlink()
    listed = inventory(store)
    rows = [
        (one.record.key.id, one.record.status, one.record.iteration, one.cells)
        for one in listed.fits
    ]
    assert rows == [("baseline000", "done", 20, 4), ("jem000", "done", 20, 3)]
    folder = next(store.root.glob("fits/jem*"))
    assert listed.fits[1].size == sum(path.stat().st_size for path in folder.iterdir())
    assert listed.unfinished == ["baseline-digits-digits-s1-baseline001"]
    assert listed.sizes == {
        part: sum(
            path.stat().st_size for path in (store.root / part).rglob("*.*") if path.is_file()
        )
        for part in PARTS
    }


def test_a_store_that_is_not_there(tmp_path):
    for look in (inventory, garbage):
        with pytest.raises(SpecError, match="There is no store"):
            look(Store(tmp_path / "none"))


def test_of_a_whole_store_only_the_checkpoints_go(store):
    folder = next(store.root.glob("fits/jem*s0*"))
    folder.rename(folder.with_name("jem-digits-digits+chains.steps=5-s0-jem000"))
    assert len(inventory(store).fits) == 4
    before = files(store)
    checkpoints = {
        str(path.relative_to(store.root)) for path in store.root.glob("fits/*/checkpoint-*")
    }
    assert found(store) == dict.fromkeys(checkpoints, "the training has ended")
    assert files(store) == before
    assert remove(store, garbage(store)) == []
    assert files(store) == before - checkpoints
    assert garbage(store) == []
    assert {finding.status for finding in verify(store)} == {"ok"}
    assert list((store.root / "leases").iterdir()) == []


@pytest.mark.parametrize("gone", ["fit.json", "model.safetensors"])
def test_the_checkpoints_of_a_training_that_goes_on_stay(store, gone):
    next(store.root.glob(f"fits/jem*s0*/{gone}")).unlink()
    assert not any("jem000/checkpoint" in file for file in found(store))


def test_what_nothing_refers_to_is_found(store):
    lost = next(store.root.glob("cells/ece-jem*s0*"))
    lost.unlink()
    model = next(store.root.glob("fits/jem*s1*/model.safetensors"))
    readings = store.readings_of("jem001", checkpoint.read_with_digest(model)[1])
    checkpoint.write(model, {"other": checkpoint.read(model)["bias"]})
    left = store.root / "cells" / ".jembench-elsewhere.x.tmp"
    left.touch()
    os.utime(left, (0, 0))
    for name in (".jembench-elsewhere.x.tmp", "leases/run-1-1.json"):
        (store.root / name).parent.mkdir(exist_ok=True)
        (store.root / name).write_text("{}")
        os.utime(store.root / name, (0, 0))
    others = {
        "arrays/notes.txt",
        f"readings/{readings.name}/notes.txt",
        "fits/notes.txt",
        "notes.txt",
    }
    for name in others:
        (store.root / name).write_text("mine")
    expected = {
        f"arrays/{lost.stem}.npz": "no cell has these arrays",
        f"readings/{readings.name}/images.safetensors": "no model in the store has these weights",
    }
    killed = {"cells/.jembench-elsewhere.x.tmp", ".jembench-elsewhere.x.tmp", "leases/run-1-1.json"}
    assert {file: why for file, why in found(store).items() if "checkpoint" not in file} == expected
    remove(store, garbage(store))
    assert not (expected.keys() | killed) & files(store)
    assert others <= files(store)


def test_what_a_living_process_may_need_stays(store):
    next(store.root.glob("cells/ece-jem*s0*")).unlink()
    shutil.rmtree(next(store.root.glob("fits/jem*s1*")))
    everything = garbage(store)
    with store.lease("jem000"):
        assert {each.file.split("-s")[0] for each in garbage(store)} == {
            "fits/baseline-digits-digits"
        }
        left = remove(store, [each for each in everything if "checkpoint" in each.file])
        assert [each.file.split("-")[-2] for each in left] == ["jem000/checkpoint"]
        assert (store.root / left[0].file).exists()


def test_readings_stay_while_a_model_cannot_be_read(store):
    shutil.rmtree(next(store.root.glob("fits/jem*s1*")))
    next(store.root.glob("fits/jem*s0*/model.safetensors")).write_bytes(b"")
    assert not any(file.startswith("readings") for file in found(store))


def test_units_of_work_stay_for_they_may_wait_in_a_queue_when_their_driver_has_died(store):
    records.write(store.works.path("0123456789abcdef"), {})
    store.works.set_status("0123456789abcdef", WorkStatus(state="queued"))
    log = store.root / "works" / "slurm" / "jembench-1" / "1_0_log.out"
    log.parent.mkdir(parents=True)
    log.touch()
    before = files(store)
    assert not any(file.startswith("works") for file in found(store))
    remove(store, garbage(store))
    assert {name for name in before if name.startswith("works")} <= files(store)


def test_units_that_ended_long_ago_go(store, monkeypatch):
    for unit, state in {"a1": "stopped", "b2": "running", "c3": "running", "d4": "queued"}.items():
        records.write(store.works.path(unit), {})
        store.works.set_status(unit, WorkStatus(state=state))
    assert not any(file.startswith("works") for file in found(store))
    monkeypatch.setattr(works, "OLD", -1.0)
    with store.lease("c3"):
        gone = {file for file in found(store) if file.startswith("works")}
    assert gone == {f"works/{unit}{end}.json" for unit in ("a1", "b2") for end in ("", ".status")}
    remove(store, garbage(store))
    assert store.works.ids() == ["d4"]


def test_a_lease_that_a_process_holds_is_not_removed(store):
    lease = store.root / "leases" / "fit.json"
    lease.parent.mkdir(exist_ok=True)
    lease.touch()
    os.utime(lease, (0, 0))
    with store.lease("fit"):
        remove(store, [])
        assert lease.exists()
    assert not lease.exists()
