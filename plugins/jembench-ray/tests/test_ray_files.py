"""The files that go with a unit of work where the store is out of reach."""

import json
from dataclasses import asdict

import pytest
from small_store import small_store

executor = pytest.importorskip(
    "jembench_ray.executor", reason="jembench-ray is not installed: tox -e plugins"
)


def test_a_unit_reads_its_fit_its_predictions_its_cells_and_the_features(tmp_path):
    whole = small_store(tmp_path / "whole")
    cell = whole.cells()[0]
    work = {"fit": asdict(cell.fit), "cells": [{"id": cell.id, "metric": cell.metric}]}
    unit = json.dumps(work)
    paths = executor.files_of(whole, unit)
    files = [path.relative_to(whole.root) for path in paths]
    kinds = {path.parts[0] for path in files}
    assert kinds == {"fits", "cells", "arrays", "readings", "features"}
    fits = {path.parts[1] for path in files if path.parts[0] == "fits"}
    assert fits == {whole.fit_folder(cell.fit).name}
    assert len(files) == len(set(files))
    for path in files:
        assert (whole.root / path).is_file()
    assert executor.files_of(type(whole)(tmp_path / "empty"), unit) == []


def test_what_other_units_read_is_copied_where_it_is_not_yet(tmp_path):
    left = small_store(tmp_path / "left").root
    root = tmp_path / "root"
    caches = (*left.glob("readings/*/*"), *left.glob("features/*/*"))
    files = [path.relative_to(left) for path in caches]
    (root / files[0]).parent.mkdir(parents=True)
    (root / files[0]).write_bytes(b"is there")
    executor.copy_caches(left, root)
    assert len(files) == 4 + 3
    assert (root / files[0]).read_bytes() == b"is there"
    for name in files[1:]:
        assert (root / name).read_bytes() == (left / name).read_bytes()
    copied = [path for path in root.rglob("*") if path.is_file()]
    assert len(copied) == 7
