"""Plans of the zoo's components, carried out in a store of their own."""

import importlib
from contextlib import nullcontext

import pytest
import torch

from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.running import session
from jembench.running.caches import FeatureBank
from jembench.running.driver import RunOptions
from jembench.running.events import Events
from jembench.running.fits import FitWork
from jembench.store.store import Store


class Recorder:
    """Notes what happens, in words, and the iterations at which a window ended."""

    def __init__(self):
        self.events = []
        self.iterations = []
        self.trained = False

    def event(self, event):
        model = short(event.fit.get("model", ""))  # what this process does beside is of no fit
        if event.kind == "queued" and event.text:
            self.events.append(f"wait {model} {event.fit['seed']}")
        elif event.kind == "window":
            if not self.trained:
                self.events.append(f"train {model} {event.fit['seed']}")
            self.trained = True
            self.iterations.append(event.done)
        elif event.kind == "measured" and event.values["seconds"]:
            self.events.append(f"measure {short(event.metric)}")
        elif event.kind == "warning":
            self.events.append(f"trouble {model}: {event.text}")
        elif event.kind == "diverged":
            self.events.append(f"{event.text} of {model}")
        elif event.kind == "ended" and event.values["how"] == "done":
            self.trained = False
            self.events.append(f"done {model} {event.fit['seed']}")


def short(spec):
    return spec.removeprefix("zoo_of_tests:")


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def zoo(zoo_of_tests):
    """The module itself."""
    return importlib.import_module("zoo_of_tests")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture
def plan(zoo_of_tests):
    """Make a plan of the zoo's components, by their names there."""

    def plan(models, metrics="score", *, seeds=(0,), settings=(), limit=None):
        block = Run(
            models=tuple(f"zoo_of_tests:{name}" for name in models.split()),
            metrics=tuple(
                name if name == "stability" else f"zoo_of_tests:{name}" for name in metrics.split()
            ),
            seeds=tuple(seeds),
        )
        chosen = Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,))
        return make_plan(
            chosen, recipe=str(zoo_of_tests / "tiny.toml"), settings=settings, limit=limit
        )

    return plan


@pytest.fixture
def carry_out():
    """Carry a plan out; gives what happened."""

    def carry_out(plan, store, trackers=()):
        recorder = Recorder()
        how = RunOptions(executor="local", trackers=trackers)
        assert session.run_plan(plan, store, how, lambda: nullcontext(recorder)).stopped is None
        return recorder.events

    return carry_out


@pytest.fixture
def outcomes():
    """The outcome of every cell of a plan, by model, seed and metric."""

    def outcomes(plan, store):
        return {
            (short(cell.fit.key.model), cell.fit.seed, short(str(cell.metric))): store.read_cell(
                cell
            ).outcome
            for cell in plan.cells
        }

    return outcomes


@pytest.fixture
def values(outcomes):
    """The numbers of every cell that has any."""

    def values(plan, store):
        return {
            key: [value.value for value in outcome.values.values()]
            for key, outcome in outcomes(plan, store).items()
            if outcome.status == "ok"
        }

    return values


@pytest.fixture
def folder():
    """The folder of a plan's only fit."""

    def folder(plan, store):
        (fit,) = plan.fits
        return store.fit_folder(fit.key)

    return folder


@pytest.fixture
def loaded(store):
    """From a plan to the evaluation of its fit, fitted or from the store."""

    def loaded(plan):
        (fit,) = plan.fits
        bank = FeatureBank(fit.dataset.make(), store, torch.device("cpu"))
        with Events().reporting(fit.key) as report:
            return (
                FitWork(fit=fit, bank=bank, store=store, report=report).load_or_train().evaluation()
            )

    return loaded
