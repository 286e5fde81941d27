"""Of results that go by the same names, those that were asked for last."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from jembench.errors import Fallback
from jembench.interfaces import Value
from jembench.store import latest
from jembench.store.latest import asked, mark_latest, newest
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store


def cell(code, seed=0, metric="accuracy", *, day, model="mine", limit=None):
    """A cell of a fit by some code, measured on a day of a month."""
    fit = FitKey(model=model, dataset="d", recipe="r", seed=seed, id=f"{model}{code}{seed}", family=f"{model}{code}")
    provenance = {"time": f"2026-11-{day:02d}T12:00:00+00:00", "limit": limit}
    outcome = Outcome(status="ok", values={"x": Value(1.0, None, None, 1)})
    name = f"{fit.id}{metric}{limit}{day}"
    return Cell(id=name, fit=fit, metric=metric, outcome=outcome, provenance=provenance)


def shown(cells):
    return {(found.fit.family, found.fit.seed, found.metric, found.provenance["limit"]) for found in newest(cells)}


def test_what_has_names_of_its_own_is_shown():
    cells = [
        cell("a", day=1),
        cell("a", seed=1, day=2),
        cell("a", metric="nll", day=3),
        cell("b", model="other", day=4),
    ]
    assert newest(cells) == cells


def test_a_fit_whose_data_were_moved_has_the_name_that_it_was_last_measured_by():
    def at(place, one):
        return dataclasses.replace(one, fit=dataclasses.replace(one.fit, dataset=f"imagefolder:root={place}"))

    cells = [at("/new", cell("a", metric="nll", day=2)), at("/old", cell("a", day=1)), at("/old", cell("b", day=3))]
    found = {one.metric: one.fit.dataset for one in newest(cells) if one.fit.family == "minea"}
    assert found == {"nll": "imagefolder:root=/new", "accuracy": "imagefolder:root=/new"}


def test_one_dataset_in_two_places_is_one_under_the_name_that_was_last_measured():
    def at(place, one, dataset):
        fit = dataclasses.replace(one.fit, dataset=f"imagefolder:root={place}")
        return replaced(dataclasses.replace(one, fit=fit), dataset_id=dataset)

    cells = [
        at("/old", cell("a", day=1), "same"),
        at("/new", cell("b", model="other", day=2), "same"),
        at("/elsewhere", cell("c", model="third", day=3), "another"),
    ]
    found = {one.fit.model: one.fit.dataset for one in newest(cells)}
    assert found == {
        "mine": "imagefolder:root=/new",
        "other": "imagefolder:root=/new",
        "third": "imagefolder:root=/elsewhere",
    }


def test_of_one_metric_measured_twice_the_later_is_shown():
    early, late = cell("a", day=1), cell("a", day=2)
    assert newest([late, early]) == [late]


def test_seeds_and_metrics_of_former_code_are_not_shown_beside_new_ones():
    cells = [cell("a", seed, metric, day=1) for seed in (0, 1, 2) for metric in ("accuracy", "nll")]
    cells += [cell("b", 0, "accuracy", day=2), cell("b", 0, "nll", day=2, limit=20)]
    assert shown(cells) == {("mineb", 0, "accuracy", None), ("mineb", 0, "nll", 20)}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "runs")
    for one in [cell("a", day=1), cell("a", metric="nll", day=1), cell("a", seed=1, day=1), cell("b", day=2)]:
        store.write_cell(one, {})
    os.utime(store.root / "cells", (0, 0))  # long before anything was asked for
    return store


def shown_of(store):
    return {
        (found.fit.family, found.fit.seed, found.metric, found.provenance["limit"])
        for found in newest(store.contents().cells, asked(store))
    }


def log(store):
    return (store.root / "asked.jsonl").read_text()


def test_what_is_asked_for_again_is_shown_again_with_all_that_belongs_to_it(store):
    assert {family for family, *_ in shown_of(store)} == {"mineb"}
    before = contents(store)
    mark_latest(store, {"minea"}, {"any"})
    assert shown_of(store) == {
        ("minea", 0, "accuracy", None),
        ("minea", 0, "nll", None),
        ("minea", 1, "accuracy", None),
    }
    mark_latest(store, {"mineb"}, {"any"})
    assert {family for family, *_ in shown_of(store)} == {"mineb"}
    assert contents(store) == before


def contents(store):
    return {path: path.read_bytes() for path in (store.root / "cells").iterdir()}


def test_what_was_measured_after_it_was_asked_for_is_later_still(store):
    mark_latest(store, {"minea"}, {"any"})
    store.write_cell(replaced(cell("b", day=3), time="9999-01-01T00:00:00+00:00"), {})
    assert {family for family, *_ in shown_of(store)} == {"mineb"}


def replaced(one, **provenance):
    return dataclasses.replace(one, provenance={**one.provenance, **provenance})


def test_of_two_codes_of_a_metric_the_one_that_was_asked_for_last_is_shown(store):
    old, new = (replaced(cell("b", metric="mine", day=day), metric_id=name) for day, name in ((3, "old"), (4, "new")))
    for one in (old, new):
        store.write_cell(one, {})
    for name in ("old", "new", "old", "unknown"):
        mark_latest(store, {"mineb"}, {name, "others"})
        (found,) = [one for one in newest(store.contents().cells, asked(store)) if one.metric == "mine"]
        assert found == (new if name == "new" else old)


def test_the_same_command_again_adds_nothing(store):
    for _ in range(1000):
        mark_latest(store, ["minea", "mineb"], ["accuracy", "nll"])
    assert len(asked(store)) == log(store).count("\n") == 1
    mark_latest(store, ["minea"], ["accuracy", "nll"])
    mark_latest(store, ["minea", "mineb"], ["accuracy", "nll"])
    assert len(asked(store)) == 3


def test_a_command_asks_again_once_others_have_measured(store):
    """One of other code that was asked before it may have been finished after it."""
    mark_latest(store, ["minea"], ["any"])
    os.utime(store.root / "asked.jsonl", (0, 0))
    store.write_cell(cell("b", seed=7, day=9), {})
    mark_latest(store, ["minea"], ["any"])
    os.utime(store.root / "cells", (0, 0))
    mark_latest(store, ["minea"], ["any"])
    assert len(asked(store)) == 2


def test_the_log_does_not_grow_with_seeds_and_its_lines_are_one_write(store, monkeypatch):
    writes, write_line = [], latest.append_line
    monkeypatch.setattr(latest, "append_line", lambda path, line: (writes.append(line), write_line(path, line)))
    mark_latest(store, {f"{number:010}" for number in range(100)}, {f"{number:010}" for number in range(28)})
    assert len(writes) == 1
    assert len(log(store)) < 2500


ASKER = """
import sys
from pathlib import Path
from jembench.store.latest import mark_latest
from jembench.store.store import Store
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    mark_latest(Store(Path(sys.argv[1])), {f"{sys.argv[2]}-{number}-{n}" for n in range(100)}, {"metric"})
"""


def test_lines_of_processes_that_ask_at_once_do_not_mix(store):
    command = [sys.executable, "-c", ASKER, str(store.root)]
    askers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "abc"
    ]
    for asker in askers:
        assert asker.stdout.readline() == "ready\n"
    for asker in askers:
        asker.communicate("go\n")
        assert asker.returncode == 0
    found = asked(store)
    assert len(found) == 300
    assert all(len(line.families) == 100 for line in found)


TORN = ['{"time": "2030-01-01', "[]", "3", "null", '{"time": 5}', "[" * 100_000, "9" * 5000, "\udcff", "{}"]
ALIEN = [
    {"time": "2030-01-01T00:00:00+00:00", "families": "minea", "metrics": []},
    {"time": "2030-01-01T00:00:00+00:00", "families": [["minea"]], "metrics": []},
    {"time": "tomorrow", "families": ["minea"], "metrics": []},
    {"time": "2030-01-01T00:00:00+00:00", "families": ["minea"]},
]


@pytest.mark.parametrize("line", [*TORN, *map(json.dumps, ALIEN)])
def test_torn_and_alien_lines_are_passed_over(store, line):
    (store.root / "asked.jsonl").write_bytes(line.encode(errors="surrogateescape"))
    assert asked(store) == []
    assert {family for family, *_ in shown_of(store)} == {"mineb"}
    mark_latest(store, {"minea"}, {"any"})
    assert {family for family, *_ in shown_of(store)} == {"minea"}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_log(store, make):
    make(store.root / "asked.jsonl")
    assert asked(store) == []
    with pytest.warns(Fallback, match=r"asked\.jsonl: File exists"):
        mark_latest(store, {"minea"}, {"any"})


def test_a_store_that_is_not_there_yet_stays_so(tmp_path):
    mark_latest(Store(tmp_path / "none"), {"a"}, {"b"})
    assert not (tmp_path / "none").exists()
