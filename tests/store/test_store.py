"""The store: what is written comes back, and nothing is ever torn."""

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.errors import Fallback, StoreError
from jembench.interfaces import Value
from jembench.interfaces.evaluation import Stability
from jembench.store import records
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

KEY = FitKey(
    model=Spec("jem:net=small-4"),
    dataset=Spec("digits"),
    recipe="digits+epochs=5",
    seed=3,
    id="0123456789",
)
CELL = Cell(
    id="abcdef0123",
    fit=KEY,
    metric=Spec("ece:bins=15"),
    outcome=Outcome(
        status="ok",
        protocol="ece:bins=15",
        values={"ece": Value(2.5, 1.0, None, 397, "%", "lower")},
        details={"bins": [1, 2]},
        seconds=0.5,
    ),
    provenance={"limit": None},
)
RECORD = FitRecord(
    key=KEY,
    status="done",
    reason="",
    recipe={"epochs": 5.0},
    iteration=40,
    validation_accuracy=0.5,
    seconds=1.5,
    iteration_seconds=(0.1, 0.2),
    interventions=("it was mended",),
    stability=Stability("random-starts@3", 100, 8, "loss was nan", ("seed",), "4 sampling steps"),
    provenance={"host": "here"},
)

# damage is reported
pytestmark = pytest.mark.filterwarnings("ignore::jembench.errors.Fallback")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def with_outcome(**fields):
    return dataclasses.replace(CELL, outcome=dataclasses.replace(CELL.outcome, **fields))


def contents(store):
    problems = []
    return store.cells(problems.append), problems


def test_a_cell_comes_back(store):
    assert store.read_cell(CELL) is None
    store.write_cell(CELL, {})
    assert store.read_cell(CELL) == CELL
    assert (
        store.cell_path(CELL)
        == store.root / "cells" / "ece-bins=15-jem-net=small-4-digits-s3-abcdef0123.json"
    )
    assert not (store.root / "arrays").exists()


def test_a_cell_under_another_s_name_is_refused(store):
    store.write_cell(CELL, {})
    other = dataclasses.replace(CELL, id="0123456789")
    store.cell_path(CELL).replace(store.cell_path(other))
    assert store.read_cell(other) is None
    cells, (problem,) = contents(store)
    assert cells == []
    assert "holds the cell abcdef0123, which is not the one of its name" in problem


def write_under_an_older_name(store):
    store.write_cell(CELL, {"a": np.zeros(2)})
    for path in (store.cell_path(CELL), store.arrays_path(CELL)):
        path.rename(path.with_name(f"an-older-name-{CELL.id}{path.suffix}"))


def test_a_cell_is_found_by_its_id_whatever_it_was_called(store):
    write_under_an_older_name(store)
    assert store.read_cell(CELL).outcome == CELL.outcome
    again = with_outcome(seconds=9.0)
    store.write_cell(again, {"a": np.ones(2)})
    assert [cell.outcome for cell in store.cells()] == [again.outcome]
    assert len(list((store.root / "arrays").iterdir())) == 1


def test_a_folder_is_listed_once_however_many_cells_are_missing(store, monkeypatch):
    write_under_an_older_name(store)
    listed, listdir = [], os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: (listed.append(path), listdir(path))[1])
    others = [dataclasses.replace(CELL, id=f"{number:010}") for number in range(50)]
    assert not any(map(store.is_settled, others))
    assert store.is_settled(CELL)
    cell = store.read_cell(CELL)
    assert all(len(store.read_arrays(cell)) == 1 for _ in range(50))
    assert listed == [store.root / "cells", store.root / "arrays"]
    for other in others:
        store.write_cell(other, {"a": np.zeros(2)})
    assert len(listed) == 2


def test_a_folder_is_listed_again_when_another_process_has_written(store):
    assert not store.is_settled(CELL)
    Store(store.root).write_cell(dataclasses.replace(CELL, id="other"), {})
    assert not store.is_settled(CELL)
    os.utime(store.root / "cells", (0, 0))  # however coarse the clock of the file system
    write_under_an_older_name(Store(store.root))
    assert store.is_settled(CELL)


@pytest.mark.parametrize(
    ("fields", "settled"),
    [
        ({}, True),
        ({"status": "na", "details": {"settled": True}}, True),
        ({"status": "na", "details": {}}, False),
        ({"status": "failed", "details": {}}, False),
    ],
)
def test_what_need_not_be_computed_again(store, fields, settled):
    assert not store.is_settled(CELL)
    store.write_cell(with_outcome(**fields), {})
    assert store.is_settled(CELL) is settled


def test_a_torn_file_is_as_good_as_absent_and_is_reported(store):
    store.write_cell(CELL, {})
    store.write_fit(RECORD)
    for path, read in (
        (store.cell_path(CELL), store.read_cell),
        (store.fit_folder(KEY) / "fit.json", store.read_fit),
    ):
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.warns(Fallback, match=re.escape(str(path))):
            assert read(CELL if read == store.read_cell else KEY) is None
    assert not store.is_settled(CELL)
    cells, (problem,) = contents(store)
    assert cells == []
    assert str(store.cell_path(CELL)) in problem
    store.write_cell(CELL, {})
    assert contents(store) == ([CELL], [])


def test_a_file_of_a_newer_version_is_refused(store):
    store.write_cell(CELL, {})
    store.write_fit(RECORD)
    for path in (store.cell_path(CELL), store.fit_folder(KEY) / "fit.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": records.SCHEMA + 1}))
    for read in (
        lambda: store.read_cell(CELL),
        lambda: store.is_settled(CELL),
        lambda: store.read_fit(KEY),
    ):
        with pytest.raises(StoreError, match=r"was written by a newer jembench .* Update jembench"):
            read()
    assert store.cells() == []
    assert "newer jembench" in contents(store)[1][0]


def test_a_store_that_is_not_there_is_empty(store):
    assert contents(store) == ([], [])
    assert not store.root.exists()


def test_foreign_files_are_reported_and_passed_over(store):
    store.write_cell(CELL, {})
    cells = store.root / "cells"
    (cells / "notes.txt").write_text("mine")
    (cells / "folder.json").mkdir()
    (cells / "nowhere.json").symlink_to("nothing")
    (cells / f"copy of it-{CELL.id}.json").write_bytes(store.cell_path(CELL).read_bytes())
    (cells / ".leftover.tmp").write_text("of a kill")
    found, problems = contents(store)
    assert found == [CELL]
    whole, folder, notes, nowhere = problems
    assert (
        whole
        == f"{store.cell_path(CELL)} holds the cell {CELL.id} a second time, and is passed over."
    )
    assert folder.startswith(f"Cannot read {cells / 'folder.json'}: Is a directory.")
    assert notes == f"{cells / 'notes.txt'} is not a cell, and is passed over."
    assert nowhere == f"{cells / 'nowhere.json'} is gone, or a link to nothing."


def test_a_fit_s_record_comes_back(store):
    assert store.read_fit(KEY) is None
    store.write_fit(RECORD)
    assert store.read_fit(KEY) == RECORD
    folder = store.fit_folder(KEY)
    assert folder == store.root / "fits" / "jem-net=small-4-digits-digits+epochs=5-s3-0123456789"
    assert json.loads((folder / "fit.json").read_text())["schema"] == records.SCHEMA


def test_a_record_in_the_folder_of_another_fit_is_no_trained_model(store):
    store.write_fit(RECORD)
    assert store.trained() == [RECORD]
    store.fit_folder(KEY).rename(store.root / "fits" / "jem-digits-digits-s3-9876543210")
    assert store.trained() == []
    with pytest.warns(
        Fallback, match="is the record of the fit 0123456789, in the folder of 9876543210"
    ):
        assert store.read_fit(dataclasses.replace(KEY, id="9876543210")) is None


def test_a_fit_is_found_by_its_id_whatever_its_recipe_was_called(store):
    store.write_fit(RECORD)
    same = dataclasses.replace(KEY, recipe="a-copy-of-digits")
    assert store.fit_folder(same) == store.fit_folder(KEY)
    assert store.read_fit(same) == RECORD
    assert store.read_fit(dataclasses.replace(KEY, id="9876543210")) is None


def test_a_file_in_the_place_of_the_store(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / "runs")
    assert str(caught.value) == (
        f"The store {tmp_path / 'runs'} is a file, not a folder. Choose another place with --store."
    )


def test_a_file_in_the_place_of_a_folder_of_the_store(store):
    store.root.mkdir()
    (store.root / "cells").write_text("")
    for use in (lambda: store.write_cell(CELL, {}), store.cells):
        with pytest.raises(StoreError, match=r"hoose another"):
            use()


def test_a_file_above_the_store(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "runs")
    with pytest.raises(StoreError, match=r"Not a directory\. Choose another folder with --store"):
        store.write_cell(CELL, {})
    assert store.read_cell(CELL) is None


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_keeps_what_was_there(store, monkeypatch, call):
    store.write_cell(CELL, {"a": np.zeros(3)})
    store.write_fit(RECORD)
    files = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    changes = [
        lambda: store.write_cell(with_outcome(seconds=9.0), {"a": np.ones(10_000)}),
        lambda: store.write_fit(RECORD._replace(iteration=80)),
    ]
    for write in changes:
        with monkeypatch.context() as broken:
            broken.setattr(os, call, fail)
            with pytest.raises(StoreError, match=r"No space left on device\. Free some space"):
                write()
        assert {
            path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()
        } == files
    for write in changes:
        write()


def test_the_arrays_are_there_before_the_cell(store, monkeypatch):
    order = []
    replace = os.replace
    monkeypatch.setattr(
        os, "replace", lambda source, target: (order.append(str(target)), replace(source, target))
    )
    store.write_cell(CELL, {"a": np.zeros(2)})
    assert [path.rpartition(".")[2] for path in order] == ["npz", "json"]


WRITER = """
import dataclasses, sys
from pathlib import Path
from jembench.store.store import Store
store, mark = Store(Path(sys.argv[1])), sys.argv[2]
(cell,) = store.cells()
print("ready", flush=True)
sys.stdin.readline()
for i in range(150):
    reason = mark * (1 + 997 * i % 5000)
    outcome = dataclasses.replace(cell.outcome, reason=reason)
    store.write_cell(dataclasses.replace(cell, outcome=outcome), {})
    found = store.read_cell(cell).outcome.reason
    assert found and set(found) in ({"a"}, {"b"}), found[:50]
"""


def test_two_processes_that_write_one_cell_at_once_never_tear_it(store):
    store.write_cell(CELL, {})
    command = [sys.executable, "-c", WRITER, str(store.root)]
    writers = [
        subprocess.Popen([*command, mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for mark in "ab"
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    while any(writer.poll() is None for writer in writers):
        cells, problems = contents(store)
        assert (len(cells), problems) == (1, [])
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert list(store.root.rglob(".*")) == []


def test_whoever_lost_the_lease_of_a_fit_writes_nothing_about_it(store):
    with store.lease(CELL.fit.id):
        store.write_cell(CELL, {})
        (store.root / "leases" / f"{CELL.fit.id}.json").write_text('{"token": "theirs"}')
        with pytest.raises(StoreError, match="was taken over or removed"):
            store.write_cell(with_outcome(seconds=9.0), {"a": np.zeros(2)})
    assert contents(store) == ([CELL], [])
    assert list(store.root.glob("arrays/*")) == []
