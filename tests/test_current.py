"""Of results that go by the same names, those that were asked for last."""

import pytest

from jembench.current import ask_for, newest
from jembench.outcome import Cell, FitKey, Outcome
from jembench.store import Store


def cell(code, seed=0, metric="accuracy", *, day, model="mine", limit=None):
    """A cell of a fit by some code, measured on a day of a month."""
    fit = FitKey(model=model, dataset="d", recipe="r", seed=seed, id=f"{model}{code}{seed}", family=f"{model}{code}")
    provenance = {"time": f"2026-11-{day:02d}T12:00:00+00:00", "limit": limit}
    outcome = Outcome(status="ok")
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
        store.write_cell(one, one.metric, {})
    return store


def test_what_is_asked_for_again_is_shown_again_with_all_that_belongs_to_it(store):
    assert {family for family, *_ in shown(store.contents().cells)} == {"mineb"}
    ask_for(store, {cell("a", day=1).id})
    found = shown(store.contents().cells)
    assert found == {("minea", 0, "accuracy", None), ("minea", 0, "nll", None), ("minea", 1, "accuracy", None)}
    ask_for(store, {cell("b", day=2).id})
    assert {family for family, *_ in shown(store.contents().cells)} == {"mineb"}


def test_what_is_shown_anyway_is_left_as_it_is(store):
    before = {path: path.read_bytes() for path in (store.root / "cells").iterdir()}
    ask_for(store, {cell("b", day=2).id, "unknown"})
    assert {path: path.read_bytes() for path in (store.root / "cells").iterdir()} == before


def test_a_store_that_is_not_there_yet_stays_so(tmp_path):
    ask_for(Store(tmp_path / "none"), {"a"})
    assert not (tmp_path / "none").exists()
