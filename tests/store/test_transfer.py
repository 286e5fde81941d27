"""What a unit of work needs of a store that it cannot reach, and its results when they come back."""

import json
import shutil
from dataclasses import asdict

import pytest
from small_store import small_store

from jembench.store.store import Store
from jembench.store.transfer import merge_stores, work_files


@pytest.fixture
def store(tmp_path):
    return small_store(tmp_path / "store")


@pytest.fixture
def cell(store):
    return store.contents().cells[0]


def work(kind, cell):
    return json.dumps({"kind": kind, "fit": asdict(cell.fit), "cells": [{"id": cell.id, "metric": cell.metric}]})


def test_measuring_needs_the_fit_its_predictions_its_cells_and_the_features(store, cell):
    files = work_files(store.root, work("measure", cell))
    assert {path.parts[0] for path in files} == {"fits", "cells", "arrays", "readings", "features"}
    assert {path.parts[1] for path in files if path.parts[0] == "fits"} == {store.fit_folder(cell.fit).name}
    assert len(files) == len(set(files))
    assert all((store.root / path).is_file() for path in files)


def test_training_needs_no_features_and_a_new_fit_nothing(store, cell, tmp_path):
    assert "features" not in {path.parts[0] for path in work_files(store.root, work("train", cell))}
    assert work_files(tmp_path / "empty", work("train", cell)) == []


def test_what_cannot_come_into_the_store_is_told(store, cell, tmp_path):
    other = Store(shutil.copytree(store.root, tmp_path / "other"))
    shutil.rmtree(store.fit_folder(cell.fit))
    with Store(store.root).lease(cell.fit.id):
        problems = merge_stores(other.root, store.root)
    assert [problem.status for problem in problems] == ["busy"]
    assert merge_stores(other.root, store.root) == []
    assert store.is_trained(cell.fit)
