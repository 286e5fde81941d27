"""Units of work in a worker: attacks in parts, and what another process works on."""

import shutil
import time
import warnings

import numpy as np
import pytest
import torch

from jembench.catalog import trust
from jembench.catalog.options import pretrained
from jembench.errors import OutOfTime, Remark, SpecError, StoreError
from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.experiment.works import code_of, works
from jembench.files import write_atomically
from jembench.running.check import look_ahead
from jembench.running.events import Events
from jembench.running.fits import FitWork
from jembench.running.worker import Worker
from jembench.store.lease import in_work
from jembench.store.store import Store

CPU = torch.device("cpu")
SMALL = "budget=quick,images=5,steps=4,restarts=1"
ATTACKS = (
    f"pgd:{SMALL},refine=1,eot=1,eps=8/255",
    "boundary:budget=quick,images=5,queries=5,resamples=0",
    "distal:images=3,steps=3,resamples=0",
    f"gradient-checks:{SMALL},queries=1,resamples=0",
    f"transfer:{SMALL},refine=1",
)


@pytest.fixture
def make(zoo_of_tests, monkeypatch):
    """Make a plan of one model, whose metrics attack two images at a time."""
    monkeypatch.setattr("jembench.metrics.attacks.SHARD", 2)
    monkeypatch.setattr("jembench.metrics.attacks.SHARD_REFINED", 2)

    def make(*metrics, model="jem", limit=None):
        block = Run(models=(f"zoo_of_tests:{model}",), metrics=metrics)
        chosen = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
        return make_plan(chosen, recipe=str(zoo_of_tests / "tiny.toml"), limit=limit)

    return make


@pytest.fixture
def worker(monkeypatch):
    """Make a worker for units of a run."""

    def worker(store, units, events=None):
        monkeypatch.setenv(trust.VARIABLE, ",".join(code_of(units)))
        return Worker(store, CPU, events or Events())

    return worker


def found(plan, store):
    """The outcome and the arrays of every cell."""
    cells = [store.read_cell(cell) for cell in plan.cells]
    return {
        cell.metric: (cell.outcome.status, cell.outcome.values, cell.outcome.details)
        for cell in cells
    }, {
        (cell.metric, name): array
        for cell in cells
        for name, array in store.read_arrays(cell).items()
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_parts_gives_the_same_bit_for_bit(
    make, worker, store, carry_out, tmp_path, attack
):
    """With three test images there are fewer shards than parts."""
    plan = make(attack, limit=3)
    other = Store(tmp_path / "other")
    training, *_ = works(plan, store.is_trained, slots=9)
    worker(store, [training]).carry_out(training)
    shutil.copytree(store.root, other.root)
    carry_out(plan, store)

    units = works(plan, other.is_trained, slots=9)
    parts = [unit for unit in units if unit.kind == "attack-part"]
    assert len(parts) == (2 if attack.startswith("distal") else 3)
    workers = [worker(other, units) for _ in range(2)]
    for number, unit in enumerate(reversed(parts)):
        assert workers[number % 2].carry_out(unit).how == "done"
    assert other.cells() == []
    for unit in units:
        if unit.kind == "fit":
            assert workers[0].carry_out(unit).how == "done"

    (outcomes, arrays), (expected, expected_arrays) = found(plan, other), found(plan, store)
    assert {status for status, *_ in outcomes.values()} == {"ok"}
    assert outcomes == expected
    assert arrays.keys() == expected_arrays.keys()
    assert all(
        np.array_equal(array, expected_arrays[key], equal_nan=True) for key, array in arrays.items()
    )


def test_what_goes_wrong_in_a_part_is_the_outcome_of_the_cell(make, worker, store, monkeypatch):
    plan = make(f"pgd:{SMALL}")
    units = works(plan, store.is_trained, slots=4)

    def fails(*_):
        raise ZeroDivisionError("a bug of the attack")

    monkeypatch.setattr("jembench.attacks.pgd.PGD.minimal", fails)
    for unit in units:
        assert worker(store, units).carry_out(unit).how == "done"
    (cell,) = (store.read_cell(cell) for cell in plan.cells)
    assert (cell.outcome.status, cell.outcome.reason) == (
        "failed",
        "ZeroDivisionError: a bug of the attack",
    )


def test_a_check_leaves_nothing_and_the_fit_looks_ahead_no_second_time(
    make, worker, store, monkeypatch
):
    looks = []

    def remarking(plan, *rest):
        looks.append(plan)
        warnings.warn("mirrored", Remark, stacklevel=2)
        return look_ahead(plan, *rest)

    monkeypatch.setattr("jembench.running.worker.look_ahead", remarking)
    check, unit = units = works(make("accuracy"), lambda key: False, check=True)
    made = worker(store, units)
    ended = made.carry_out(check)
    assert (ended.id, ended.how, ended.text) == (check.id, "done", "mirrored")
    assert not [path for path in store.root.rglob("*") if path.is_file()]
    assert made.carry_out(unit).how == "done"
    assert store.is_trained(unit.fit)
    assert len(looks) == 1


def test_what_another_process_works_on_is_busy(make, worker, store):
    units = works(make(f"pgd:{SMALL}"), store.is_trained, slots=4)
    training, part, *_, last = units
    for unit, lease in (
        (training, training.fit.id),
        (part, training.fit.id),
        (last, training.fit.id),
    ):
        with store.lease(lease):
            assert worker(store, units).carry_out(unit).how == "busy"
    assert worker(store, units).carry_out(training).how == "done"
    for unit, lease in ((part, part.id), (last, last.cells[0].id)):
        with store.lease(lease):
            assert worker(store, units).carry_out(unit).how == "busy"
        assert worker(store, units).carry_out(unit).how == "done"


def test_a_model_that_was_trained_elsewhere_is_kept_by_one_of_the_parts(
    zoo, make, worker, store, monkeypatch
):
    @pretrained
    def elsewhere(data_spec):
        return zoo.classifier(data_spec)

    monkeypatch.setattr(zoo, "elsewhere", elsewhere, raising=False)
    plan = make("distal:images=7,steps=3", model="elsewhere")
    units = works(plan, store.is_trained, slots=4)
    assert [unit.kind for unit in units] == ["attack-part"] * 4 + ["fit"]
    with store.lease(plan.fits[0].key.id):
        assert worker(store, units).carry_out(units[0]).how == "busy"
    assert not store.is_trained(plan.fits[0].key)
    assert worker(store, units).carry_out(units[0]).how == "done"
    assert store.is_trained(plan.fits[0].key)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (StoreError("It is full."), "failed"),
        (OutOfTime("It is late."), "stopped"),
        (KeyboardInterrupt("Received SIGINT"), "stopped"),
        (SpecError("It is other code."), "refused"),
    ],
)
def test_the_status_says_how_a_unit_that_is_not_done_ended(
    make, worker, store, monkeypatch, error, state
):
    (unit,) = works(make("accuracy"), store.is_trained)
    write_atomically(store.works.path(unit.id), unit.job(0).text.encode())

    def fails(self):
        assert store.works.status(unit.id).state == "running"
        assert unit.id in in_work(store.leases)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("jembench.running.worker._Unit.compute", fails)
        with pytest.raises(type(error)):
            worker(store, [unit], Events(None, store)).carry_out(unit)
    status = store.works.status(unit.id)
    assert (status.state, status.text) == (state, str(error))
    assert worker(store, [unit], Events(None, store)).carry_out(unit).how == "done"
    assert list(store.works.folder.iterdir()) == []


def test_no_metric_begins_after_the_deadline(make, worker, store, monkeypatch):
    unmeasured = make('energy-gap:sampler="sgld:steps=2"')
    (unit,) = works(unmeasured, store.is_trained, deadline=time.time() + 1000)
    load = FitWork.load_or_train

    def load_or_train(self, *how):
        found = load(self, *how)
        monkeypatch.setattr(time, "time", lambda: self.deadline)
        return found

    monkeypatch.setattr(FitWork, "load_or_train", load_or_train)
    with pytest.raises(OutOfTime, match=r"The time is up before energy-gap\."):
        worker(store, [unit]).carry_out(unit)
    assert store.is_trained(unit.fit)
    assert store.cells() == []
