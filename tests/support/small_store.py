"""A small store that nobody trained, and ways of damaging its files."""

import copy
import json
import os
import random
import shutil

import numpy as np
import torch

from jembench.catalog.spec import Spec
from jembench.data import grid
from jembench.files import digest
from jembench.interfaces import Value
from jembench.store import checkpoint, pictures, records, tensors
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

HISTORY = "iteration,iterations,seconds,attempt,loss\n10,10,0.1,0,2.5\n20,10,0.1,0,1.5\n"


def small_store(root):
    """Two models with two seeds each, their weights, cells, arrays, readings and features."""
    store = Store(root)
    for model in ("jem", "baseline"):
        for seed in (0, 1):
            _fit(
                store,
                FitKey(
                    model=Spec(model),
                    dataset=Spec("digits"),
                    recipe="digits",
                    seed=seed,
                    id=f"{model}00{seed}",
                ),
            )
    for network in ("digits-cnn", "inception"):
        path = root / "features" / "of-images" / f"{network}.safetensors"
        tensors.write(path, {"pool": torch.ones(4)}, {}, placed=True)
    tensors.write(
        root / "features" / "digits-cnn" / "weights.safetensors", {"w": torch.ones(3)}, {}
    )
    return store


def flip(path):
    """Flip a bit near the end of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])


def _fit(store, key):
    rng = np.random.default_rng(key.seed)
    folder = store.fit_folder(key)
    state = {"weight": torch.full((4, 3), float(key.seed)), "bias": torch.zeros(3)}
    training = {"trainer": state, "history": [], "best": None}
    checkpoint.write(folder / "checkpoint-0.safetensors", training, age=20, placed=True)
    chains = {"images": torch.zeros(2, 1, 8, 8).byte()}
    checkpoint.write(folder / "buffer-5.safetensors", chains, placed=True)
    checkpoint.write(folder / "sampler.safetensors", {})
    checkpoint.write(folder / "model.safetensors", state, age=20)
    (folder / "history.csv").write_text(HISTORY)
    records.write(folder / "interventions.json", {"interventions": []})
    files = {
        path.name: tensors.read_seal(path).digest for path in folder.glob("[mbs]*.safetensors")
    }
    record = FitRecord(
        key=key,
        status="done",
        reason="",
        recipe={"epochs": 1.0},
        iteration=20,
        validation_accuracy=None,
        seconds=2.0,
        iteration_seconds=[0.1],
        interventions=[],
        provenance={"host": "here"},
        files={**files, "history.csv": digest(folder / "history.csv")},
    )
    store.write_fit(record)
    texts = {pictures.KEY: pictures.seal_for(folder)}
    images, places = np.zeros((1, 1, 8, 8), np.uint8), np.zeros((1, 1), np.int64)
    grid.write_png(folder / pictures.SAMPLES, images, places, texts=texts)
    readings = store.readings_of(key.id, files["model.safetensors"])
    tensors.write(readings / "images.safetensors", {"logits": torch.ones(5, 3)}, {}, placed=True)
    correct = rng.random(50) < 0.9
    measured = {
        "accuracy": (
            {"accuracy": Value(100 * correct.mean(), 80.0, 99.9, 50, "%", "higher")},
            {"correct": correct},
        ),
        "ece": (
            {"ece": Value(2.5, 0.1, 5.0, 50, "%", "lower")},
            {"correct": correct, "confidence": rng.uniform(0.5, 1, 50)},
        ),
        "nll": ({"nll": Value(0.5, 0.1, 0.9, 50, "nats", "lower")}, {"nll": rng.random(50)}),
        "iteration-time": ({"iteration-time": Value(0.1, None, None, 2, "s", "lower")}, {}),
    }
    for metric, (values, arrays) in measured.items():
        outcome = Outcome(
            status="ok", protocol=f"{metric}:dataset=digits", values=values, seconds=0.1
        )
        provenance = {
            "limit": None,
            "interventions": [],
            "time": f"2026-11-22T12:0{key.seed}:00+00:00",
        }
        cell = Cell(
            id=f"{metric[:3]}{key.id}",
            fit=key,
            metric=Spec(metric),
            outcome=outcome,
            provenance=provenance,
        )
        store.write_cell(cell, arrays)


ODD = [None, True, 0, -1, 2.5, 1e308, 2**63, [], [1], ["a"], [[]], [None], {}, {"a": 1}, {"": {}}]
ODD += [
    "",
    "x",
    "nan",
    "a b",
    "jem:a=1",
    "a" * 5000,
    "\x1b[2J",
    "\n",
    "\0",
    "os:system",
    "é\u202e",
    "../x",
]
"""Values in the place of another one."""


def edited(record, rng):
    """A JSON value in which something is another thing, or gone."""
    record = copy.deepcopy(record)
    places = list(_places(record))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        holder, key = rng.choice(places)
        if rng.random() < 0.15 and isinstance(holder, dict):
            holder.pop(key, None)
        elif isinstance(holder, dict) or key < len(holder):
            holder[key] = rng.choice(ODD)
    return record


def _places(value):
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(pairs):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


def _resealed(path, rng):
    """An edit by somebody who knows how to make digests."""
    record = json.loads(path.read_text())
    record.pop("digest", None)
    records.write(path, edited(record, rng))


def _unreadable(path, rng):
    texts = [
        b'{"schema": 1, "a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"schema": 1, "a": NaN}',
        b'{"schema": 1, "a": 1e999}',
        b"\xef\xbb\xbf" + path.read_bytes(),
        path.read_bytes().replace(b"digits", "dígits".encode("latin-1")),
        path.read_bytes().replace(b"digits", b"\\ud800"),
        path.read_bytes().replace(b"accuracy", b"ece"),
        path.read_bytes().replace(b'"low": 80.0', b'"low": 180.0'),
        b"",
        b"null",
        b"\0" * 100,
    ]
    path.write_bytes(rng.choice(texts))


def _overwritten(path, rng):
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start : start + 16] = rng.randbytes(16)
    path.write_bytes(content)


def _cut(path, rng):
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _swapped(path, rng):
    """Write the content of another file of its kind."""
    others = [
        other
        for other in path.parent.parent.rglob(f"*{path.suffix}")
        if other.is_file() and other != path
    ]
    if others:
        path.write_bytes(rng.choice(sorted(others)).read_bytes())


def _replaced(path, rng):
    """Put something other than a file in its place, or nothing."""
    path.unlink()
    rng.choice(
        [path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(path.name), lambda: None]
    )()


JSON = [_resealed, _unreadable]
ANY = [_overwritten, _cut, _swapped, _replaced]


def damage(root, rng):
    """FileFinding one file of a store; gives its path and what was done."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    if rng.random() < 0.5:
        files = [path for path in files if path.parent.name == "cells"]
    path = rng.choice(files)
    how = rng.choice([*JSON, *JSON, *ANY] if path.suffix == ".json" else ANY)
    how(path, rng)
    return path, how.__name__.strip("_")


def damaged_copies(whole, folder, count, seed=0):
    """Copies of a store, each with one damage: (the copy, the file, what was done)."""
    for number in range(count):
        rng, place = random.Random(f"{seed}/{number}"), folder / str(number)
        shutil.copytree(whole, place)
        yield place, *damage(place, rng)
        shutil.rmtree(place)
