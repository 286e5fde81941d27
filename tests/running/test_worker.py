"""Units of work in a worker: attacks in parts, and predictions for statistics on the CPU."""

import shutil

import numpy as np
import pytest
import torch

from jembench.catalog import trust
from jembench.catalog.options import pretrained
from jembench.errors import StoreError
from jembench.experiment.planning import make_plan
from jembench.experiment.suite import Suite
from jembench.experiment.works import code_of, works
from jembench.metrics import features
from jembench.models import predictions
from jembench.running.events import Events
from jembench.running.worker import Worker, _Unit
from jembench.store.store import Store

CPU = torch.device("cpu")
SMALL = "budget=quick,images=5,steps=4,restarts=1"
ATTACKS = (
    f"pgd:{SMALL}",
    f"pgd:{SMALL},refine=1,eot=1,eps=8/255",
    "boundary:budget=quick,images=5,queries=20,resamples=0",
    "distal:images=3,steps=3,resamples=0",
    f"gradient-checks:{SMALL},queries=20,resamples=0",
    f"transfer:{SMALL},refine=1",
)


@pytest.fixture
def make(zoo_of_tests, monkeypatch):
    """Make a plan of one model, whose metrics attack two images at a time."""
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 2)
    monkeypatch.setattr("jembench.metrics.attacks.SHARD_REFINED", 2)

    def make(*metrics, model="jem", limit=None):
        chosen = Suite(
            name="zoo", title="", models=(f"zoo_of_tests:{model}",), metrics=metrics, datasets=("zoo_of_tests:data",)
        )
        return make_plan(chosen, recipe=str(zoo_of_tests / "tiny.toml"), limit=limit)

    return make


@pytest.fixture
def worker(monkeypatch):
    """Make a worker for units of a run."""

    def worker(store, units):
        monkeypatch.setenv(trust.VARIABLE, ",".join(code_of(units)))
        return Worker(store, CPU, Events())

    return worker


def found(plan, store):
    """The outcome and the arrays of every cell."""
    cells = [store.read_cell(cell) for cell in plan.cells]
    return {cell.metric: (cell.outcome.status, cell.outcome.values, cell.outcome.details) for cell in cells}, {
        (cell.metric, name): array for cell in cells for name, array in store.read_arrays(cell).items()
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_parts_gives_the_same_bit_for_bit(make, worker, store, carry_out, tmp_path, attack):
    """With three test images there are fewer shards than parts."""
    plan = make(attack, limit=3)
    other = Store(tmp_path / "other")
    (training,) = [unit for unit in works(plan, store.is_trained) if unit.kind == "train"]
    worker(store, [training]).carry_out(training)
    shutil.copytree(store.root, other.root)
    carry_out(plan, store)

    units = works(plan, other.is_trained, slots=9)
    parts = [unit for unit in units if unit.kind == "attack-shard"]
    assert len(parts) == (2 if attack.startswith("distal") else 3)
    workers = [worker(other, units) for _ in range(2)]
    for number, unit in enumerate(reversed(parts)):
        assert workers[number % 2].carry_out(unit).how == "done"
    assert other.contents().cells == []
    for unit in units:
        if unit.kind == "measure":
            assert workers[0].carry_out(unit).how == "done"

    (outcomes, arrays), (expected, expected_arrays) = found(plan, other), found(plan, store)
    assert {status for status, *_ in outcomes.values()} == {"ok"}
    assert outcomes == expected
    assert arrays.keys() == expected_arrays.keys()
    assert all(np.array_equal(array, expected_arrays[key], equal_nan=True) for key, array in arrays.items())


def test_nothing_is_left_to_be_attacked_where_the_parts_are_put_together(make, worker, store, monkeypatch):
    plan = make(f"pgd:{SMALL}")
    units = works(plan, store.is_trained, slots=4)
    for unit in units[:-1]:
        assert worker(store, units).carry_out(unit).how == "done"
    monkeypatch.setattr("jembench.attacks.pgd.PGD.minimal", None)
    assert worker(store, units).carry_out(units[-1]).how == "done"
    (outcomes, _) = found(plan, store)
    assert [status for status, *_ in outcomes.values()] == ["ok"]


def test_what_goes_wrong_in_a_part_is_the_outcome_of_the_cell(make, worker, store, monkeypatch):
    """As it is where one unit attacks all images."""
    plan = make(f"pgd:{SMALL}")
    units = works(plan, store.is_trained, slots=4)

    def fails(*_):
        raise ZeroDivisionError("a bug of the attack")

    monkeypatch.setattr("jembench.attacks.pgd.PGD.minimal", fails)
    for unit in units:
        assert worker(store, units).carry_out(unit).how == "done"
    (cell,) = (store.read_cell(cell) for cell in plan.cells)
    assert (cell.outcome.status, cell.outcome.reason) == ("failed", "ZeroDivisionError: a bug of the attack")


def test_what_another_process_works_on_is_busy(make, worker, store):
    """A training by its fit, a part by itself, a measurement by its cell."""
    units = works(make(f"pgd:{SMALL}"), store.is_trained, slots=4)
    training, part, *_, last = units
    for unit, lease in ((training, training.fit.id), (part, training.fit.id), (last, training.fit.id)):
        with store.lease(lease):
            assert worker(store, units).carry_out(unit).how == "busy"
    assert worker(store, units).carry_out(training).how == "done"
    for unit, lease in ((part, part.id), (last, last.cells[0].id)):
        with store.lease(lease):
            assert worker(store, units).carry_out(unit).how == "busy"
        assert worker(store, units).carry_out(unit).how == "done"


def test_a_model_that_was_trained_elsewhere_is_kept_by_one_of_the_parts(zoo, make, worker, store, monkeypatch):
    @pretrained
    def elsewhere(data_spec):
        return zoo.classifier(data_spec)

    monkeypatch.setattr(zoo, "elsewhere", elsewhere, raising=False)
    plan = make("distal:images=7,steps=3", model="elsewhere")
    units = works(plan, store.is_trained, slots=4)
    assert [unit.kind for unit in units] == ["attack-shard"] * 4 + ["measure"]
    with store.lease(plan.fits[0].key.id):
        assert worker(store, units).carry_out(units[0]).how == "busy"
    assert not store.is_trained(plan.fits[0].key)
    assert worker(store, units).carry_out(units[0]).how == "done"
    assert store.is_trained(plan.fits[0].key)


def test_a_store_that_cannot_be_written_is_no_outcome(make, worker, store, monkeypatch):
    plan = make(f"pgd:{SMALL}")
    units = works(plan, store.is_trained, slots=4)
    assert worker(store, units).carry_out(units[0]).how == "done"

    def full(*_):
        raise StoreError("The disk is full.")

    monkeypatch.setattr("jembench.running.caches.TensorCache.keep", full)
    with pytest.raises(StoreError, match="The disk is full"):
        worker(store, units).carry_out(units[1])


def test_statistics_on_the_cpu_find_the_predictions_of_the_training(make, worker, store, monkeypatch):
    """Whichever images they are of; on a GPU the unit that trains leaves them."""
    plan = make("accuracy", "ece", "ood:set=uniform", "log-density")
    units = works(plan, store.is_trained, slots=2, gpus=True)
    training, last = units
    assert (training.gpus, last.gpus) == (1, 0)

    trained = _Unit.train

    def train(unit):
        mine = trained(unit)
        unit._predict(unit._trained(unit.cells), unit.cells)
        return mine

    monkeypatch.setattr(_Unit, "train", train)
    assert worker(store, units).carry_out(training).how == "done"
    assert store.contents().cells == []
    passes = []
    read = predictions.read
    monkeypatch.setattr(predictions, "read", lambda *given: passes.append(given[-1]) or read(*given))
    assert worker(store, units).carry_out(last).how == "done"
    assert passes == []
    (outcomes, _) = found(plan, store)
    assert {status for status, *_ in outcomes.values()} == {"ok"}


# --- feature networks -------------------------------------------------------------------------------------------------


def test_what_goes_wrong_in_a_feature_network_is_the_outcome_of_the_cell(make, worker, store, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("a bug of the network")

    monkeypatch.setattr(features, "_train", fails)
    plan = make("is:resamples=0")
    units = works(plan, store.is_trained, slots=2)
    for unit in units:
        assert worker(store, units).carry_out(unit).how == "done"
    (cell,) = (store.read_cell(cell) for cell in plan.cells)
    assert (cell.outcome.status, cell.outcome.reason) == ("failed", "ZeroDivisionError: a bug of the network")
