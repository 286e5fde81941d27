"""Units of work in a store: their files, and how far they are."""

import pytest

from jembench.errors import DamagedError, SpecError
from jembench.store import records
from jembench.store.store import Store
from jembench.store.works import WorkStatus


@pytest.fixture
def works(tmp_path):
    return Store(tmp_path).works


def test_a_unit_is_written_and_removed_with_its_status(works):
    records.write(works.path("u1"), {"kind": "fit"})
    works.set_status("u1", WorkStatus(state="running"))
    assert works.read("u1").data["kind"] == "fit"
    assert works.ids() == ["u1"]
    works.remove("u1")
    works.remove("u1")
    assert list(works.folder.iterdir()) == []


def test_a_unit_that_is_not_there_or_not_what_was_written(works):
    with pytest.raises(
        SpecError,
        match=r"There is no unit of work .*u1.json. `jembench status` lists the units of a store",
    ):
        works.read("u1")
    records.write(works.path("u1"), {"kind": "fit"})
    path = works.path("u1")
    path.write_text(path.read_text().replace("fit", "fat"))
    with pytest.raises(DamagedError, match="is damaged or was edited"):
        works.read(str(path))


def test_a_status_is_replaced(works):
    assert works.status("u1") == WorkStatus(state="queued")
    for done in (3, 6):
        works.set_status(
            "u1",
            WorkStatus(
                state="running",
                worker="n:1",
                since=2.5,
                done=done,
                total=9,
                notes=("no", "picture"),
            ),
        )
    found = works.status("u1")
    assert (found.done, found.total, found.since, found.notes) == (6, 9, 2.5, ("no", "picture"))
    assert found.time > 1e9


def test_how_a_unit_ended_keeps_what_is_known_of_it(works):
    works.set_status("u1", WorkStatus(state="running", worker="n:1", done=3, total=9))
    for how, state in (("failed", "failed"), ("busy", "queued")):
        works.end("u1", how, "no space", "a.log")
        works.end("u1", how, "no space")
        found = works.status("u1")
        assert (found.state, found.text, found.log, found.worker, found.done) == (
            state,
            "no space",
            "a.log",
            "n:1",
            3,
        )
    works.end("u1", "done", "")
    assert list(works.folder.iterdir()) == []


def test_a_damaged_status_counts_as_none_and_no_text_moves_the_cursor(works):
    works.set_status("u1", WorkStatus(state="running", text="over\x1b[2Jthere"))
    assert works.status("u1").text == r"over\x1b[2Jthere"
    (works.folder / "u1.status.json").write_bytes(b'{"schema": 2, "state": 3}')
    assert works.status("u1") == WorkStatus(state="queued")
