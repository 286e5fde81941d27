"""Carrying out plans from beginning to end, and what need not be done again."""

import contextlib
import hashlib
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from jembench.api.status import status
from jembench.errors import Fallback, PluginError, StoreError
from jembench.running import driver, fits
from jembench.running.check import look_ahead
from jembench.running.events import Events
from jembench.running.local import LocalExecutor
from jembench.store import checkpoint
from jembench.store.store import Store

WEIGHTS = "model.safetensors"


def test_a_plan_is_carried_out(plan, store, carry_out, outcomes, values):
    whole = plan("jem classifier", "score brightness", seeds=(0, 1))
    events = carry_out(whole, store)
    assert events == [
        *("train jem 0", "measure score", "measure brightness", "done jem 0"),
        *("train jem 1", "measure score", "measure brightness", "done jem 1"),
        *("train classifier 0", "measure score", "done classifier 0"),
        *("train classifier 1", "measure score", "done classifier 1"),
    ]
    found = outcomes(whole, store)
    assert [outcome.status for outcome in found.values()] == ["ok"] * 4 + ["ok", "na"] * 2
    assert found["jem", 0, "brightness"].details == {"source": "buffer"}
    assert len(set(map(tuple, values(whole, store).values()))) == 6
    assert list((store.root / "leases").iterdir()) == []


def test_the_reason_for_which_a_unit_has_not_started_is_in_its_status(plan, store):
    class Queue(LocalExecutor):
        def submit(self, jobs):
            super().submit(jobs)
            self._driver.waits(jobs[0].id, "Resources")
            shown.extend(unit.text for unit in status(store.root))

    shown = []
    driver.run_units(plan("classifier"), store, Queue(), Events(None, store))
    assert shown == ["Resources"]


def test_what_the_store_says_of_a_fit_and_its_cells(plan, store, carry_out, folder):
    whole = plan("jem", limit=7)
    carry_out(whole, store)
    (fit,), (cell,) = whole.fits, whole.cells
    record = store.read_fit(fit.key)
    assert (record.key, record.status, record.reason) == (fit.key, "done", "")
    assert record.recipe["optimizer"]["learning_rate"] == 0.01
    assert 0 < record.iteration <= 36
    assert 0 <= record.validation_accuracy <= 1
    assert len(record.iteration_seconds) == 11  # 36 iterations, 3 a window, the first left out
    assert record.seconds > 0
    written = store.read_cell(cell)
    assert (written.id, written.fit, written.metric) == (cell.id, fit.key, "zoo_of_tests:score")
    assert written.provenance["limit"] == 7
    plain = {"precision": "float32"}
    trained = plain | {"layout": "channels_last", "compiled": False, "not_compiled": []}
    trained |= {"captured": False, "not_captured": [], "cudnn_benchmark": False}
    assert record.provenance["execution"] == trained
    assert written.provenance["execution"] == {"training": trained, "evaluation": plain}
    plugins = written.provenance["plugins"]
    file = sys.modules["zoo_of_tests"].__file__
    of_file = (
        f"(zoo_of_tests.py, sha256:{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]})"
    )
    assert {f"zoo_of_tests:{name} {of_file}" for name in ("jem", "score", "data")} < set(plugins)
    assert any("pcd = " in plugin for plugin in plugins)
    with np.load(store.arrays_path(cell)) as arrays:
        assert arrays["file"].shape == (7, 3)
    assert (folder(whole, store) / "samples.png").exists()


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_text('{"schema": 1')]
)
def test_only_the_cell_that_is_missing_or_torn_is_computed_again(
    plan, store, damage, carry_out, values
):
    whole = plan("jem classifier", "score energy")
    carry_out(whole, store)
    before = values(whole, store)
    damage(path := store.cell_path(whole.cells[1]))
    told = pytest.warns(Fallback, match=str(path)) if path.exists() else contextlib.nullcontext()
    with told:
        assert carry_out(whole, store) == ["measure energy", "done jem 0"]
    assert values(whole, store) == before


def test_a_torn_record_of_a_fit_is_written_again_without_training(
    plan, store, carry_out, values, folder
):
    whole = plan("jem", "score energy")
    carry_out(whole, store)
    record = store.read_fit(whole.fits[0].key)
    before = values(whole, store)
    (folder(whole, store) / "fit.json").write_text("{")
    store.cell_path(whole.cells[0]).unlink()
    with pytest.warns(Fallback, match="fit.json is not valid JSON"):
        carry_out(whole, store)
    again = store.read_fit(whole.fits[0].key)
    assert again._replace(provenance={}) == record._replace(provenance={})
    assert values(whole, store) == before


def test_a_fit_whose_record_cannot_be_written_is_not_trained(plan, store, carry_out, monkeypatch):
    whole = plan("jem", "score")
    (store.fit_folder(whole.fits[0].key) / "fit.json").mkdir(parents=True)
    monkeypatch.setattr(fits, "train", None)
    with pytest.raises(
        StoreError, match=r"fit.json: Not a regular file\. Choose another folder with --store"
    ):
        carry_out(whole, store)


def test_looking_ahead_tells_the_iterations_and_the_impossible(zoo, plan, monkeypatch):
    made = []
    monkeypatch.setattr(zoo, "data", lambda: made.append(1) or zoo.Shades())
    whole = plan("jem classifier", "score brightness", seeds=(0, 1))
    outlook = look_ahead(whole)
    ready = [outlook.fits[fit.key.id] for fit in whole.fits]
    assert [item.iterations for item in ready] == [36] * 4
    assert [len(item.reasons) for item in ready] == [0, 0, 1, 1]
    assert len(made) == 1  # the dataset, once for all fits


def test_looking_ahead_builds_one_model_for_all_seeds_and_metrics_and_keeps_none(
    zoo, plan, monkeypatch
):
    alive, most, jem = [], [], zoo.jem

    def build(data_spec, *, unused: int = 0):
        model = jem(data_spec)
        alive.append(weakref.ref(model))
        most.append(sum(one() is not None for one in alive))
        return model

    monkeypatch.setattr(zoo, "jem", build)
    outlook = look_ahead(
        plan("jem jem:unused=1 jem:unused=2", "score energy brightness", seeds=range(20))
    )
    assert len(outlook.fits) == 60
    assert len(alive) == 2 * 3  # each is made on the meta device first
    assert max(most) <= 2  # the next is built before the last is dropped
    assert [one() for one in alive] == [None] * 6


def test_looking_ahead_makes_no_optimiser(plan, monkeypatch):
    """The first one imports PyTorch's compiler, which takes longer than a whole plan."""
    monkeypatch.setattr("jembench.training.state.make_optimizer", pytest.fail)
    look_ahead(plan("jem classifier"))


def test_parameters_that_no_optimiser_takes_are_refused_before_training(zoo, plan, monkeypatch):
    def build(data_spec):
        model = zoo.jem(data_spec)
        model.phase = torch.nn.Parameter(torch.zeros(1, dtype=torch.complex64))
        return model

    monkeypatch.setattr(zoo, "classifier", build)
    with pytest.raises(PluginError, match="some of its parameters are not floating-point numbers"):
        look_ahead(plan("classifier"))


def test_another_model_or_metric_changes_no_number(plan, store, tmp_path, carry_out, values):
    alone = plan("jem", "score", seeds=(2,))
    carry_out(alone, Store(tmp_path / "alone"))
    crowd = plan("factored painter jem", "energy brightness score raises", seeds=(1, 2))
    torch.manual_seed(99)
    carry_out(crowd, store)
    assert (
        values(crowd, store)["jem", 2, "score"]
        == values(alone, Store(tmp_path / "alone"))["jem", 2, "score"]
    )


@pytest.mark.parametrize("model", ["tied", "lazy"])
def test_a_network_of_any_make_is_the_same_each_time_and_comes_back(
    plan, tmp_path, carry_out, model
):
    chosen, (first, second) = plan(model), [Store(tmp_path / name) for name in ("first", "second")]
    for store in (first, second):
        carry_out(chosen, store)
    (key,) = (fit.key for fit in chosen.fits)
    states = [
        checkpoint.read(store.fit_folder(key) / "model.safetensors") for store in (first, second)
    ]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    (cell,) = chosen.cells
    before = first.read_cell(cell).outcome.values
    first.cell_path(cell).unlink()
    carry_out(chosen, first)  # by the weights that were kept
    assert first.read_cell(cell).outcome.values == before
