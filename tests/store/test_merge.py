"""The results of one store come into another, whole or not at all."""

import dataclasses
import shutil

import pytest
from small_store import flip

from jembench.errors import SpecError, StoreError
from jembench.store import checkpoint, merge, records, tensors, upkeep
from jembench.store.store import Store, read_cell
from jembench.store.walk import verify


@pytest.fixture
def source(whole, tmp_path):
    return Store(shutil.copytree(whole, tmp_path / "source"))


@pytest.fixture
def target(tmp_path):
    return Store(tmp_path / "target")


@pytest.fixture
def both(whole, target):
    """The target, with the same content as the source."""
    shutil.copytree(whole, target.root)
    return target


def content(store):
    """The files of a store by their names, but for what nothing needs or is computed again."""
    files = {
        str(path.relative_to(store.root)): path for path in store.root.rglob("*") if path.is_file()
    }
    garbage = {each.file for each in upkeep.garbage(store)}
    parts = ("readings", "features")
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if name not in garbage and not name.startswith(parts)
    }


def found(source, target):
    return {
        (finding.status, finding.file): finding.reason for finding in merge.merge(source, target)
    }


def statuses(source, target):
    return [finding.status for finding in merge.merge(source, target)]


def changed(store, pattern, **fields):
    """Write a cell anew with other fields of its outcome, measured at another time."""
    cell = read_cell(next(store.root.glob(pattern)))
    time = fields.pop("time", "2027-01-01T00:00:00+00:00")
    outcome = dataclasses.replace(cell.outcome, **fields)
    new = dataclasses.replace(cell, outcome=outcome, provenance={**cell.provenance, "time": time})
    store.write_cell(new, store.read_arrays(cell))
    return store.cell_path(cell)


def test_an_empty_store_becomes_the_same(source, target):
    (source.root / "cells" / "notes.txt").write_text("mine")
    assert set(statuses(source, target)) == {"copied"}
    (source.root / "cells" / "notes.txt").unlink()
    assert content(target) == content(source)
    # are computed again
    assert not list(target.root.glob("readings")) + list(target.root.glob("features"))
    assert merge.merge(source, target) == []
    assert {finding.status for finding in verify(target)} == {"ok"}


def test_pictures_are_copied_and_foreign_files_are_not(source, target):
    folder = next(source.root.glob("fits/jem*s0*"))
    for name in ("notes.txt", "notes.json"):
        (folder / name).write_text("mine")
    merge.merge(source, target)
    copied = {path.name for path in target.root.rglob("*")}
    assert copied & {"samples.png", "notes.txt", "notes.json"} == {"samples.png"}


def test_two_halves_become_one(source, target, whole):
    other = Store(shutil.copytree(source.root, source.root.with_name("other")))
    for path in source.root.glob("*/*jem*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in other.root.glob("*/*baseline*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for half in (source, other):
        assert set(statuses(half, target)) == {"copied"}
    assert content(target) == content(Store(whole))


def test_a_merge_that_was_interrupted_anywhere_is_completed_by_the_next(
    source, target, monkeypatch
):
    copy, copies = merge.copy, []
    monkeypatch.setattr(merge, "copy", lambda *arguments: (copies.append(1), copy(*arguments)))
    merge.merge(source, Store(target.root / "undisturbed"))
    for allowed in range(0, len(copies), 9):
        left = iter(range(allowed))

        def dies(*arguments, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            copy(*arguments)

        place = Store(target.root / str(allowed))
        monkeypatch.setattr(merge, "copy", dies)
        with pytest.raises(KeyboardInterrupt):
            merge.merge(source, place)
        assert all(
            finding.status in ("ok", "stray") or "/fit" not in finding.file
            for finding in verify(place)
        )
        monkeypatch.setattr(merge, "copy", copy)
        assert set(statuses(source, place)) == {"copied"}
        assert content(place) == content(source)


@pytest.mark.parametrize(
    ("damaged", "refused", "absent"),
    [
        ("fits/jem*s0*/model.safetensors", "fits/jem-digits-digits-s0-jem000", "fits/jem*s0*"),
        ("fits/jem*s0*/fit.json", "fits/jem-digits-digits-s0-jem000", "fits/jem*s0*"),
        ("cells/ece-jem*s0*", "cells/ece-jem-digits-s0-ecejem000.json", "*/ece-jem*s0*"),
        ("arrays/ece-jem*s0*", "cells/ece-jem-digits-s0-ecejem000.json", "*/ece-jem*s0*"),
    ],
)
def test_what_is_damaged_is_refused_by_name_and_the_rest_copied(
    source, target, damaged, refused, absent
):
    flip(next(source.root.glob(damaged)))
    findings = merge.merge(source, target)
    assert [finding.file for finding in findings if finding.status != "copied"] == [refused]
    assert [finding.status for finding in findings if finding.file == refused] == ["damaged"]
    assert list(target.root.glob(absent)) == []
    assert {finding.status for finding in verify(target)} <= {"ok", "stray"}


def test_a_damaged_file_of_the_target_is_replaced(source, both):
    for pattern in ("fits/jem*s0*/fit.json", "cells/ece-jem*s0*"):
        flip(next(both.root.glob(pattern)))
    assert set(statuses(source, both)) == {"copied"}
    assert content(both) == content(source)


def test_a_cell_that_the_source_holds_twice_is_copied_once(source, target):
    path = next(source.root.glob("cells/ece-jem*s0*"))
    shutil.copy(path, path.with_name(f"a-copy-{path.name.rpartition('-')[2]}"))
    assert set(statuses(source, target)) == {"copied"}
    assert len(list(target.root.glob("cells/*ecejem000.json"))) == 1


def test_a_result_that_differs_is_kept(source, both):
    values = {"accuracy": read_cell(next(source.root.glob("cells/ece-*"))).outcome.values["ece"]}
    path = changed(source, "cells/accuracy-jem*s0*", values=values)
    before = content(both)
    assert found(source, both) == {
        ("kept", str(path.relative_to(source.root))): "the target has another result"
    }
    assert content(both) == before


def test_the_same_result_measured_again_is_no_difference(source, both):
    changed(source, "cells/accuracy-jem*s0*", seconds=99.0)
    before = content(both)
    assert merge.merge(source, both) == []
    assert content(both) == before


@pytest.mark.parametrize(
    ("mine", "theirs", "copied"),
    [
        ({}, {"status": "failed", "values": {}}, True),
        ({"status": "failed", "values": {}}, {}, False),
        (
            {"status": "failed", "values": {}},
            {"status": "failed", "values": {}, "time": "2026-01-01"},
            True,
        ),
        (
            {"status": "failed", "values": {}, "time": "2026-01-01"},
            {"status": "failed", "values": {}},
            False,
        ),
    ],
)
def test_a_result_that_would_be_computed_again_gives_way(source, both, mine, theirs, copied):
    path = changed(source, "cells/ece-jem*s0*", **mine)
    there = changed(both, "cells/ece-jem*s0*", **theirs)
    statuses(source, both)
    assert (there.read_bytes() == path.read_bytes()) == copied


def test_results_measured_on_other_weights_are_not_mixed_with_those_of_the_target(source, both):
    folder = next(source.root.glob("fits/jem*s0*"))
    checkpoint.write(
        folder / "model.safetensors",
        {"weight": checkpoint.read(folder / "model.safetensors")["bias"]},
    )
    record = records.read(folder / "fit.json").data
    record["files"]["model.safetensors"] = tensors.read_seal(folder / "model.safetensors").digest
    records.write(
        folder / "fit.json", {key: value for key, value in record.items() if key != "digest"}
    )
    lost = next(both.root.glob("cells/ece-jem*s0*"))
    lost.unlink()
    before = content(both)
    findings = found(source, both)
    assert {status for status, _ in findings} == {"kept"}
    assert "measured on other weights" in findings["kept", f"cells/{lost.name}"]
    assert content(both) == before


def test_a_fit_that_somebody_works_on_is_left_alone(source, target):
    with target.lease("jem000"):
        busy = [file for status, file in found(source, target) if status == "busy"]
        assert len(busy) == 1 + 4
        assert list(target.root.glob("*/*jem*s0*")) == []
    assert set(statuses(source, target)) == {"copied"}
    assert content(target) == content(source)
    target.cell_path(next(cell for cell in target.cells() if cell.id == "ecejem000")).unlink()
    with target.lease("ecejem000"):
        assert statuses(source, target) == ["busy"]


def test_of_two_unfinished_trainings_the_longer_one_goes_on(source, both):
    for store, age in ((source, 30), (both, 20)):
        folder = next(store.root.glob("fits/jem*s0*"))
        (folder / "fit.json").unlink()
        checkpoint.write(
            folder / "checkpoint-1.safetensors", {"trainer": age}, age=age, placed=True
        )
    with source.lease("jem000"):
        assert statuses(source, both) == ["busy"]
    assert merge.merge(both, source) == []
    assert statuses(source, both) == ["copied"]
    assert content(both) == content(source)


def test_a_source_that_is_not_there_and_a_target_that_cannot_be_written(source, tmp_path):
    with pytest.raises(SpecError, match=r"There is no store .*none\."):
        merge.merge(Store(tmp_path / "none"), source)
    (tmp_path / "file").mkdir()
    store = Store(tmp_path / "file")
    (tmp_path / "file").rmdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        merge.merge(source, store)
