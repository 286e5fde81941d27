"""Make ``store.tar.xz`` anew from real runs of this code on digits, some minutes of one core.

    python tests/golden/make_store.py && pytest tests/golden --update-golden

The ids in it are those of installed plugins: an editable installation adds its code to them.
Weights, images and caches are left out, and so are all arrays but those that ``jembench compare``
reads.
"""

import json
import os
import shlex
import tarfile
import tempfile
from pathlib import Path

import torch

from jembench.catalog import code_identity
from jembench.cli.main import main

STORE = Path(__file__).with_name("store.tar.xz")
FOLDERS = ("arrays", "cells", "fits")
FILES = {"fit.json", "history.csv", "interventions.json"}
"""The files of a fit that reports read."""

COMPARED = ("accuracy", "ece", "ood")
"""Metrics of the recipe ``digits-validation`` whose arrays are kept."""

RUNS = [
    "run hybrid --models jem-factored --recipe jem-factored-digits",
    "run hybrid --models glow --metrics accuracy,energy-gap",
    "run calibration --seeds 0,1",
    "run hybrid --recipe digits-validation --seeds 0,1 --metrics ood:set=interp",
]
BY_DIGITS = [
    "run hybrid --models jem,baseline",
    "run hybrid --models jem --set epochs=1 --set optimizer.learning_rate=1e8 --set "
    "guard.mode=off --metrics accuracy",
    "run hybrid --models baseline --limit 100 --metrics accuracy",
    "run ood --metrics "
    "ood:set=interp,ood:set=uniform,ood:set=interp,score=max-py,ood:set=uniform,score=max-py",
    "run samples --metrics "
    "class-samples,log-density,chain-age,is,is:pooling=mean,fid:source=fresh,steps=20",
    "run robustness --models jem,baseline --metrics "
    "pgd:budget=quick,pgd:budget=quick,refine=1,boundary:budget=quick",
]


def make_runs() -> None:
    """Carry the runs out in the folder ``runs`` of the working directory.

    Raises:
        SystemExit: if one of them ends with an error; that of the diverged model measures what it
            can.
    """
    code_identity.code = lambda module, of_package=False: ""
    for name in [name for name in os.environ if name.startswith("JEMBENCH_")]:
        del os.environ[name]
    torch.set_num_threads(1)
    for line in (*RUNS, *(f"{line} --recipe digits" for line in BY_DIGITS)):
        if main([*shlex.split(line), "--executor", "local"]) and "learning_rate=1e8" not in line:
            raise SystemExit(f"This run failed: jembench {line}")


def is_kept(path: Path) -> bool:
    """Return whether a file of the store belongs into the archive."""
    if path.parts[0] == "fits":
        return path.name in FILES
    if path.parts[0] != "arrays":
        return True
    cell = json.loads(Path("runs/cells", path.with_suffix(".json").name).read_text())
    return cell["fit"]["recipe"] == "digits-validation" and cell["metric"].split(":")[0] in COMPARED


def pack() -> None:
    """Write the archive: files by name, without their times and owners."""
    paths = sorted(
        path.relative_to("runs") for folder in FOLDERS for path in Path("runs", folder).rglob("*.*")
    )
    with tarfile.open(STORE, "w:xz") as archive:
        for path in filter(is_kept, paths):
            entry = tarfile.TarInfo(path.as_posix())
            entry.size = (file := Path("runs", path)).stat().st_size
            with file.open("rb") as content:
                archive.addfile(entry, content)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_runs()
        pack()
