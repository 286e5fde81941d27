"""What users run, as they run it: a training that is killed and goes on, and JEM on real images."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import travel
from measure import Findings, Place
from PIL import Image

from jembench.experiment.plan import plan_fit
from jembench.store import checkpoint
from jembench.store.fits import HISTORY
from jembench.store.store import Store

ACCURACY, ECE, MINUTES = 83.7, 4.3, 25.0
"""Of the reproducibility report, in %, after twelve hours; and the time that ours may take for the same."""

SLOW = 60.0
"""Seconds of a call that are left for evaluation and for what is to be moved."""

TIME_IS_UP = 3
"""The exit code of a training that will go on."""


SHOWN = ("iteration", "seconds", "loss", "energy_data", "energy_samples", "validation_accuracy")


def _jembench(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "jembench", *arguments]


def _set(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def noise(place: Place) -> str:
    """The spec of a dataset of random images, which are written once."""
    root = place.folder.parent / "noise"
    pixels = 8 if place.size.backend == "eager" else 32
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for number in range(0 if (root / split).exists() else place.size.images):
            path = root / f"{split}.partial" / f"class{number % 10}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(256, size=(pixels, pixels, 3), dtype=np.uint8)).save(path)
        if not (root / split).exists():
            (root / f"{split}.partial").rename(root / split)
    return f"imagefolder:root={root},name=noise,size={pixels}"


# --- killed -----------------------------------------------------------------------------------------------------------


def kill(place: Place, found: Findings) -> None:
    """Trainings that are killed after a checkpoint, and the same undisturbed: both end with the same weights."""
    for name, recipe, settings in place.size.killed:
        dataset = noise(place) if name == "noise" else name
        fit = plan_fit("jem", dataset, recipe, settings)
        command = _jembench("train", "jem", "--dataset", dataset, "--recipe", recipe, *_set(settings))
        command += ["--device", str(place.device), "--store"]
        stores = {name: place.folder / f"{recipe}-{name}" for name in ("straight", "killed")}
        for store in stores.values():
            shutil.rmtree(store, ignore_errors=True)
        start = time.perf_counter()
        subprocess.run([*command, str(stores["straight"])], check=True)
        whole = time.perf_counter() - start
        at = _killed([*command, str(stores["killed"])], Store(stores["killed"]).fit_folder(fit.key))
        start = time.perf_counter()
        subprocess.run([*command, str(stores["killed"])], check=True)
        rest = time.perf_counter() - start
        off = _difference(*(Store(store).fit_folder(fit.key) / "model.safetensors" for store in stores.values()))
        row = {"recipe": recipe, "straight, s": whole, "killed after iteration": at, "rest, s": rest, "difference": off}
        found.row("trainings", **row)
        if place.device.type == "cpu":
            found.aim(f"{recipe}: the weights are the same bit for bit", off, off == 0)
        else:
            found.aim(f"{recipe}: the killed training ends", at, at > 0)


def _killed(command: list[str], folder: Path) -> int:
    """Kill a training once it has a checkpoint beside its start; gives the iteration of that."""
    process = subprocess.Popen(command)
    try:
        while process.poll() is None and not list(folder.glob("checkpoint-[01].safetensors")):
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return max((checkpoint.age_of(path) for path in folder.glob("checkpoint-[01].safetensors")), default=0)


def _difference(*paths: Path) -> float:
    """The distance of two sets of weights over the size of the first."""
    first, second = (torch.cat([v.flatten().double() for v in checkpoint.read(path).values()]) for path in paths)
    return float((first - second).norm() / first.norm())


# --- real images ------------------------------------------------------------------------------------------------------


def cifar10(place: Place, found: Findings) -> None:
    """Train for the time that is left, keep what the next call needs to go on, and measure once it is done."""
    end = time.monotonic() + place.seconds - SLOW
    dataset = noise(place) if place.data is None and place.size.backend == "eager" else _images(place)
    fit = plan_fit("jem", dataset, "fast", place.size.fit)
    store = Store(place.folder / "runs")
    folder = store.fit_folder(fit.key)
    if not store.is_trained(fit.key) and travel.unpack(place.kept, folder):
        found.note("goes on from another machine at iteration", checkpoint.age_of(folder / "checkpoint-0.safetensors"))
    shared = ["--dataset", dataset, "--recipe", "fast", *_set(place.size.fit), "--store", str(store.root)]
    shared += ["--device", str(place.device)]
    hours = max(end - time.monotonic(), 5.0) / 3600
    code = subprocess.run(_jembench("train", "jem", *shared, "--max-hours", str(hours)), check=False).returncode
    if code not in (0, TIME_IS_UP):
        raise SystemExit(code)
    found.note("iteration", travel.pack(folder, place.kept))
    for row in _last_rows(folder):
        found.row("the last windows", **row)
    if code == TIME_IS_UP:
        return
    _measured(place, found, shared)
    record = store.read_fit(fit.key)
    assert record is not None
    minutes = record.seconds / 60
    found.aim(f"minutes of training, at most {MINUTES:g}", minutes, minutes <= MINUTES)
    if (folder / "samples.png").exists():
        shutil.copy(folder / "samples.png", place.kept.with_suffix(".samples.png"))
    found.done()


def _measured(place: Place, found: Findings, shared: list[str]) -> None:
    metrics = "accuracy,ece,ece:scaling=temperature,nll,energy-gap"
    command = _jembench("run", "hybrid", "--models", "jem", "--seeds", "0", "--metrics", metrics, *shared)
    done = subprocess.run([*command, "--format", "json"], stdout=subprocess.PIPE, text=True, check=True)
    values = {}
    for value in json.loads(done.stdout)["rows"][0]["values"]:
        values[value["label"]] = value["value"]
        found.row("results", **{name: value[name] for name in ("label", "value", "low", "high", "unit", "n", "reason")})
    found.aim(f"accuracy of at least {ACCURACY} %", values["accuracy"], values["accuracy"] >= ACCURACY)
    best = min(value for label, value in values.items() if label.startswith("ece"))
    found.aim(f"ECE of at most {ECE} %, as it is or scaled by a temperature", best, best <= ECE)


def _last_rows(folder: Path) -> list[dict[str, str]]:
    if not (folder / HISTORY).exists():  # it came from another machine and has no window yet
        return []
    with (folder / HISTORY).open() as stream:
        rows = list(csv.DictReader(stream))[-3:]
    return [{name: row[name] for name in SHOWN if name in row} for row in rows]


def _images(place: Place) -> str:
    """The spec of the real images; an archive is unpacked once."""
    if place.data is None or not place.data.exists():
        raise SystemExit("--data names no images: a folder with train/ and test/, or a tar archive of it.")
    root = place.data
    if root.is_file():
        root = place.folder / "images"
        if not root.exists():
            partial = place.folder / f"images.{os.getpid()}"
            with tarfile.open(place.data) as archive:
                archive.extractall(partial, filter="data")
            partial.rename(root)
        while not (root / "train").exists():
            (root,) = [path for path in root.iterdir() if path.is_dir()]
    return f"imagefolder:root={root},name=cifar10-jpeg,size=32"
