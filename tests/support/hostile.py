"""Hostile contents of a store: code that leaves a mark when imported, and records that name it."""

import dataclasses
from pathlib import Path

import numpy as np

from jembench.catalog.spec import Spec
from jembench.experiment import recipe as recipes
from jembench.interfaces import Value
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

CANARY = """
from pathlib import Path

MARK = Path(__file__).parent / "CANARY"
MARK.write_text("imported")

def build(*context, command: str = ""):
    MARK.write_text("called")

def __getattr__(name):
    return build
"""


def write_import(model, sampler="sgld"):
    """The record of a fit that was imported under the name ``shared``."""
    recipe = dataclasses.asdict(recipes.load("pretrained", ["source=0123456789ab"]))
    recipe["overrides"] = (*recipe["overrides"], f"chains.sampler={sampler}")
    unchecked = Spec.of(model, {})
    key = FitKey(model=unchecked, dataset=Spec("digits"), recipe="pretrained", seed=0, id="f0")
    about = {"imported": {"name": "shared"}}
    record = FitRecord(key, "imported", "", recipe, 0, None, 0.0, [], [], about)
    Store(Path("runs")).write_fit(record)


def write_cells(store, **hostile):
    """The accuracy of two models, and what a hostile metric would be; texts of the caller in other
    fields.
    """
    metrics = ["accuracy", *([hostile.pop("metric")] if "metric" in hostile else [])]
    for model, accuracy in (("jem", 97.0), ("baseline", 96.0)):
        for metric in metrics:
            fields = {"model": model, "dataset": "digits", "recipe": "digits", "seed": 0, **hostile}
            fit = FitKey(**fields, id=f"f{model}")
            value = Value(accuracy, accuracy - 1, accuracy + 1, 100, "%", "higher")
            outcome = Outcome(status="ok", protocol="accuracy", values={"accuracy": value})
            cell = Cell(
                id=f"c{model}{len(metric)}",
                fit=fit,
                metric=Spec(metric),
                outcome=outcome,
                provenance={"limit": None},
            )
            Store(Path(store)).write_cell(cell, {"correct": np.arange(100) < accuracy})
