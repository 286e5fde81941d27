"""Trainings that start from the weights of another fit."""

import dataclasses
import re
import shutil
from contextlib import nullcontext

import pytest
import torch
from fits import assert_equal_weights, kill_from, newest

from jembench.errors import PluginError, SpecError, Unavailable
from jembench.running import session
from jembench.running.caches import FeatureBank
from jembench.running.driver import RunOptions
from jembench.running.fits import FitWork
from jembench.store import checkpoint
from jembench.store.store import Store

AVERAGED = ["optimizer.average=0.9"]
STANDING = ["optimizer.learning_rate=1e-30", "epochs=1"]
"""A training that leaves the weights where they are."""


@pytest.fixture
def begun(plan):
    """Make a plan of fits that start from the only fit of another plan."""

    def begun(first, *settings, model="jem"):
        (start,) = first.fits
        return plan(model, settings=[f"start_from={start.key.id}", *settings])

    return begun


@pytest.fixture
def weights(store):
    return lambda plan: checkpoint.read(store.fit_folder(plan.fits[0].key) / "model.safetensors")


def test_training_starts_from_the_weights_that_are_evaluated(
    plan, begun, store, carry_out, weights
):
    first = plan("classifier", settings=AVERAGED)
    second = begun(first, *STANDING, "optimizer.average=0.5")
    carry_out(first, store)
    events = carry_out(second, store)
    key = first.fits[0].key
    assert events[0] == f"trouble jem: training starts from the weights of {key}"
    before, after = weights(first), weights(second)
    assert before.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=1e-6, atol=0)
    start = {
        "fit": key.id,
        "model": str(key),
        "weights": store.read_fit(key).files["model.safetensors"],
    }
    assert store.read_fit(second.fits[0].key).provenance["started_from"] == start
    assert store.read_cell(second.cells[0]).provenance["started_from"] == start


def test_a_checkpoint_is_what_a_stopped_training_goes_on_from(
    plan, begun, store, carry_out, weights, tmp_path
):
    first = plan("classifier")
    second = begun(first)
    carry_out(first, store)
    shutil.copytree(store.root, tmp_path / "other")
    carry_out(second, store)
    (fit,), other = second.fits, Store(tmp_path / "other")
    bank = FeatureBank(fit.dataset.make(), other, torch.device("cpu"))
    with pytest.raises(PluginError, match="Killed"):
        FitWork(fit=fit, bank=bank, store=other, report=kill_from(20)).load_or_train()
    assert newest(other.fit_folder(fit.key)) > 0
    assert not any("starts from" in event for event in carry_out(second, other))
    assert_equal_weights(other.fit_folder(fit.key), store.fit_folder(fit.key))


def test_a_start_that_is_not_there_is_refused(plan, begun, store, carry_out):
    first = plan("classifier")
    with pytest.raises(Unavailable, match=r"starts from the weights of the fit \w+, and the store"):
        carry_out(begun(first), store)


def test_weights_of_another_network_are_refused_in_words(plan, begun, store, carry_out):
    first = plan("tied", "energy")
    carry_out(first, store)
    text = f"cannot start from the weights of {first.fits[0].key}. "
    with pytest.raises(SpecError, match=re.escape(text) + r".*net\.1\.weight is"):
        carry_out(begun(first, model="classifier"), store)


def test_a_fit_whose_start_diverged_says_so(plan, begun, store, outcomes):
    first = plan("diverging")
    both = dataclasses.replace(first, cells=[*first.cells, *begun(first).cells])
    done = session.run_plan(both, store, RunOptions(executor="local"), nullcontext)
    assert done.stopped is None
    found = outcomes(both, store)
    assert found["diverging", 0, "score"].reason.startswith("Diverged: ")
    outcome = found["jem", 0, "score"]
    assert outcome.status == "failed"
    assert outcome.reason.startswith("Unavailable: zoo_of_tests:jem on zoo_of_tests:data")
