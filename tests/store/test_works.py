"""Units of work in a store: their files, what happened to them, and the runs that wait for them."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest
from small_store import small_store

from jembench.errors import DamagedError, SpecError
from jembench.interfaces import Event
from jembench.store import records
from jembench.store.store import Store
from jembench.store.works import RunRecord, work_files

APPEND = """
import sys
from pathlib import Path
from jembench.interfaces import Event
from jembench.store.works import WorkFiles

files = WorkFiles(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    files.append(Event(kind="window", work="u1", worker=sys.argv[2], done=number + 1))
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def works(store):
    return store.works


def window(done, **given):
    return Event(kind="window", work="u1", done=done, values={"loss": 0.5}, **given)


def queued(run):
    return Event(kind="queued", work="u1", text=run)


# --- units ------------------------------------------------------------------------------------------------------------


def test_a_unit_is_written_and_removed_with_what_happened_to_it(works):
    works.write("u1", records.text({"kind": "train"}))
    works.append(window(3))
    works.write_run(RunRecord(id="run-1-1", command="jembench run", host="here", pid=1, time=1.0, units=1))
    assert works.read("u1").data["kind"] == "train"
    assert works.ids() == ["u1"]
    works.remove("u1")
    works.remove("u1")
    assert [path.name for path in works.folder.iterdir()] == ["run-1-1.json"]


def test_a_unit_that_is_not_there_or_not_what_was_written(works):
    with pytest.raises(
        SpecError, match=r"There is no unit of work .*u1.json. `jembench status` lists those of a store"
    ):
        works.read("u1")
    works.write("u1", records.text({"kind": "train"}))
    path = works.path("u1")
    path.write_text(path.read_text().replace("train", "measure"))
    with pytest.raises(DamagedError, match="is damaged or was edited"):
        works.read(str(path))


# --- events -----------------------------------------------------------------------------------------------------------


def test_events_are_followed_from_where_they_were_read_to(works):
    assert works.events("u1") == ([], 0)
    first = window(3, fit={"model": "jem", "seed": 0}, worker="node:1", time=5.0)
    works.append(first)
    found, offset = works.events("u1")
    assert found == [first]
    assert works.events("u1", offset) == ([], offset)
    works.append(window(6))
    works.append(window(9))
    assert [event.done for event in works.events("u1", offset)[0]] == [6, 9]
    assert [event.done for event in works.events("u1")[0]] == [3, 6, 9]


def test_a_line_that_is_not_whole_is_read_when_it_is(works):
    works.append(window(3))
    with works.path("u1", ".events").open("ab") as stream:
        stream.write(b'\n{"kind": "window", "do')
        stream.flush()
        found, offset = works.events("u1")
        assert [event.done for event in found] == [3]
        stream.write(b'ne": 6}')
        stream.flush()
        assert [event.done for event in works.events("u1", offset)[0]] == [6]


def test_no_text_of_an_event_moves_the_cursor(works):
    works.append(window(1, text="over\x1b[2Jthere"))
    ((event,), _) = works.events("u1")
    assert event.text == r"over\x1b[2Jthere"


def test_a_line_that_a_killed_worker_left_torn_is_passed_over(works):
    works.append(window(3))
    with works.path("u1", ".events").open("ab") as stream:
        stream.write(b'\n{"kind": "window", "do')
    _, offset = works.events("u1")
    works.append(window(6))
    assert [event.done for event in works.events("u1", offset)[0]] == [6]
    assert [event.done for event in works.events("u1")[0]] == [3, 6]


@pytest.mark.parametrize(
    "line",
    [b"\xff", b"[]", b"{}", b'{"kind": "dance"}', b'{"kind": "window", "done": "many"}', b"[" * 100_000, b"nan"],
)
def test_a_line_that_is_no_event_is_passed_over(works, line):
    works.append(window(3))
    with works.path("u1", ".events").open("ab") as stream:
        stream.write(b"\n" + line)
    works.append(window(6))
    assert [event.done for event in works.events("u1")[0]] == [3, 6]
    assert works.latest("u1").last.done == 6


def test_a_pipe_in_the_place_of_the_events_is_none(works):
    works.folder.mkdir()
    os.mkfifo(works.path("u1", ".events"))
    assert works.events("u1") == ([], 0)
    assert works.latest("u1").last is None


def test_the_lines_of_two_writers_do_not_mix(works):
    arguments = [sys.executable, "-c", APPEND, works.folder]
    writers = [subprocess.Popen([*arguments, name, "300"]) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    events, _ = works.events("u1")
    for name in ("a", "b"):
        assert [event.done for event in events if event.worker == name] == list(range(1, 301))
    assert len(events) == 600


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_unit_is_claimed_by_the_last_living_run_that_submitted_it(store, works):
    assert not store.is_claimed("u1")
    works.append(queued("run-1-1"))
    works.append(window(3))
    assert not store.is_claimed("u1")  # nobody lives
    with store.lease("run-1-1"):
        assert store.is_claimed("u1")
        assert not store.is_claimed("u1", but_by="run-1-1")
        works.append(queued("run-2-2"))
        assert not store.is_claimed("u1")
        with store.lease("run-2-2"):
            assert store.is_claimed("u1", but_by="run-1-1")
            works.append(Event(kind="ended", work="u1", values={"how": "busy"}))
            assert not store.is_claimed("u1")


@pytest.mark.parametrize("text", ["../secret", "*", "run-1-1/../../secret", "run-1", ""])
def test_a_claim_that_names_no_run_is_none(store, works, tmp_path, text):
    (tmp_path / "secret.json").write_text("{}")
    works.append(queued(text))
    with store.lease("run-1-1"):
        assert not store.is_claimed("u1")
    assert (tmp_path / "secret.json").read_text() == "{}"


def test_the_next_run_removes_the_records_of_those_that_were_killed(store, works):
    for number in (2, 1):
        run = RunRecord(id=f"run-{number}-1", command="", host="here", pid=1, time=float(number), units=1)
        works.write_run(run)
    (works.folder / "run-3-3.json").write_bytes((works.folder / "run-1-1.json").read_bytes())
    assert [run.id for run in works.runs()] == ["run-1-1", "run-2-1"]
    with store.lease("run-2-1"):
        store.sweep()
    assert [run.id for run in works.runs()] == ["run-2-1"]


# --- where the store is out of reach ----------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path):
    return small_store(tmp_path / "whole")


def files_of(kind, root, cell):
    cells = [{"id": cell.id, "metric": cell.metric}]
    return work_files(root, json.dumps({"kind": kind, "fit": asdict(cell.fit), "cells": cells}))


def test_measuring_needs_the_fit_its_predictions_its_cells_and_the_features(whole):
    cell = whole.contents().cells[0]
    files = files_of("measure", whole.root, cell)
    assert {path.parts[0] for path in files} == {"fits", "cells", "arrays", "readings", "features"}
    assert {path.parts[1] for path in files if path.parts[0] == "fits"} == {whole.fit_folder(cell.fit).name}
    assert len(files) == len(set(files))
    assert all((whole.root / path).is_file() for path in files)


def test_training_needs_no_features_and_a_new_fit_nothing(whole, tmp_path):
    cell = whole.contents().cells[0]
    assert "features" not in {path.parts[0] for path in files_of("train", whole.root, cell)}
    assert files_of("train", tmp_path / "empty", cell) == []
