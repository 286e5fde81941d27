"""Items that train on real images: statistics of batch norm counted anew, and ``speedrun``."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
import time
from typing import Any

import torch
from place import Place, jembench

SPARE = 60.0
"""Seconds of the speedrun that are left for evaluation and writing."""

COUNTED = 8000
"""Training images of which the statistics are counted."""

SPEEDRUN = {"full": "speedrun", "tiny": "speedrun-digits"}
"""The recipe of each size."""

SETS = {"uniform": 0.95, "constant": 0.95, "permuted": 0.95, "phases": 0.75}
"""The aim for the AUROC on each set of outliers, by log p(x) and by the norm of its gradient."""

AIMS = {"accuracy": (">=", 90.0), "ece": ("<=", 4.0)}
for score in ("", "score=grad-norm,"):  # the first is log p(x)
    AIMS |= {f"ood:{score}set={outliers}": (">=", least) for outliers, least in SETS.items()}
MINUTES = 10.0
"""The aim for the speedrun, from the start of the item to its last value."""

COMPARE = {">=": operator.ge, "<=": operator.le}


def recount(place: Place) -> None:
    """Train by ``fast``, and compare the running statistics of the training with counted ones.

    Chains and samples pass through batch norm as well, and their share of the statistics depends on
    the momentum: .1 was that of ``fast``, .9 is that of the authors' codes.
    """
    began = time.monotonic()
    for momentum in ("0.1", "0.9"):
        start = time.monotonic()
        _recount(place, f"model.momentum={momentum}")
        now = time.monotonic()
        if began + place.seconds - now < now - start:  # too little for another one
            break


def _recount(place: Place, setting: str) -> None:
    """Train once, and note the accuracy on held-out images by stored and by counted statistics."""
    from jembench.models.running_statistics import counted_anew

    epochs = "epochs=0.1" if place.tiny else "epochs=12"
    with place.trainer("jem", "fast", setting, epochs, images=place.images) as trainer:
        began = time.monotonic()
        while left := trainer.iterations - trainer.iteration:
            trainer.window(min(trainer.recipe.log_every, left))
        row = {"setting": setting, "iterations": trainer.iterations}
        row["seconds"] = time.monotonic() - began
        trainer.model.load_state_dict(trainer.weights())
        place.note("recount", statistics="stored", **_measured(trainer), **row)
        with counted_anew(trainer.model, _counted(trainer), trainer.data, place.device):
            place.note("recount", statistics="counted", **_measured(trainer), **row)


def _counted(trainer: Any) -> torch.Tensor:
    """Return training images, of which statistics are counted; their order may be by class."""
    from jembench import seeds

    images = trainer.held.train.images
    return images[torch.randperm(len(images), generator=seeds.seeded(0))[:COUNTED]]


def _measured(trainer: Any) -> dict[str, Any]:
    """Return the accuracy and ECE of a trainer's model on the held-out images, with intervals."""
    from jembench.metrics import functional
    from jembench.models import predictions

    held = trainer.held.validation
    device, data = trainer.device, trainer.data
    logits = predictions.read(trainer.model, held.images, data, device, {"logits"})["logits"]
    values = {"accuracy": functional.accuracy(logits, held.labels)}
    values["ece"] = functional.ece(logits, held.labels)
    return {name: [value.value, value.low, value.high] for name, value in values.items()}


def speedrun(place: Place) -> None:
    """Train by ``speedrun`` and note its values and aims, then the classifier of equal epochs."""
    began = time.monotonic()
    _train_and_measure(place, "jem", place.seconds)
    took = time.monotonic() - began
    place.note("speedrun", minutes=took / 60, aim=f"<= {MINUTES:g}", met=took <= 60 * MINUTES)
    left = place.seconds - took
    if left > took / 2 or place.tiny:  # a classifier takes less than half as long
        _train_and_measure(place, "baseline", left)


def _train_and_measure(place: Place, model: str, seconds: float) -> None:
    """Train a model within the time, from its checkpoint if there is one, and note its values.

    Exits with 3 if the time is up before the training is done.
    """
    began = time.monotonic()
    shared = ["--dataset", place.images, "--recipe", SPEEDRUN["tiny" if place.tiny else "full"]]
    shared += ["--device", str(place.device), "--store", str(place.out / "runs")]
    if place.tiny:
        shared += ["--set", "epochs=0.1"]
    hours = str(max(seconds - SPARE, 5.0) / 3600)
    train = [sys.executable, "-m", "jembench", "train", model, *shared, "--max-hours", hours]
    if code := subprocess.run(train, check=False).returncode:
        sys.exit(code)
    trained = time.monotonic() - began

    metrics = ["nll", "ece:scaling=temperature", *AIMS] if model == "jem" else list(AIMS)
    measure = ["run", "hybrid", "--models", model, "--seeds", "0", "--metrics", ",".join(metrics)]
    rows = json.loads(jembench(*measure, *shared, "--format", "json"))["rows"]
    measured = time.monotonic() - began - trained
    place.note("speedrun", model=model, training=trained, measuring=measured)
    for row in rows:
        if not row["source"] and not row["label"].startswith(("fpr", "aupr")):
            _note_beside_its_aim(place, model, row)


def _note_beside_its_aim(place: Place, model: str, row: dict[str, Any]) -> None:
    """Note a value, its aim and whether it is met."""
    values = {name: row[name] for name in ("metric", "label", "value", "low", "high", "reason")}
    if row["metric"] in AIMS:
        sign, aim = AIMS[row["metric"]]
        met = row["value"] is not None and COMPARE[sign](row["value"], aim)
        values |= {"aim": f"{sign} {aim:g}", "met": met}
    place.note("speedrun", model=model, **values)
