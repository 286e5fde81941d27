"""CPU time and memory on folders of large images, beside plain PyTorch.

    python benchmarks/speed/large_images.py                             # 10,000 images of 224x224
    python benchmarks/speed/large_images.py evaluation --images 1000 --turns 1

The images are generated. ``plain_images.py`` has the plain scripts; they and jembench take turns,
one thread each. CPU seconds are user and system time of all processes of a command. Needs Linux.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from PIL import Image

HERE = Path(__file__).parent
CLASSES = 10
SUBJECTS = ("evaluation", "limit", "training", "workers")
LIMIT = 64
MODELS = """
from jembench.plugin import pretrained
from plain_images import network


@pretrained
def measured(data):
    return network(data.num_classes)


def trained(data):
    return network(data.num_classes)
"""
AS_PLAIN = (
    "epochs=1",
    "least_iterations=0",
    "batch_size=64",
    "data.flip=false",
    "data.pad=0",
    "data.noise=0",
)


class Cost(NamedTuple):
    """The cost of a command."""

    cpu: float  # seconds
    peak: float  # MB: the largest memory of one process
    unshared: float  # MB: the largest sum over the processes; 0: not measured


class Place(NamedTuple):
    """The folder of a measurement: images, a cache, a store, and the models."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the commands."""
        own = {
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONPATH": f"{HERE}:{self.folder}",
            "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
        }
        inherited = dict(os.environ)
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling all imports takes seconds
        return inherited | own

    def plain(self, what: str, images: str) -> list[str]:
        """Return the command of a plain script."""
        return [sys.executable, str(HERE / "plain_images.py"), what, str(self.folder / images)]

    def ours(self, model: str, images: str, *options: str) -> list[str]:
        """Return the command of jembench, with an empty store."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        program = str(Path(sys.executable).with_name("jembench"))
        command = [program, "run", "hybrid", "--models", f"own_models:{model}"]
        command += ["--metrics", "accuracy,nll", "--store", str(self.folder / "runs")]
        return [*command, "--dataset", f"imagefolder:root={self.folder / images}", *options]

    def forget(self) -> None:
        """Remove the decoded images."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)

    def decoded(self) -> int:
        """Return the number of decoded images in the cache."""
        (file,) = self.folder.glob("cache/jembench/decoded/*.pixels")
        return round(file.stat().st_blocks * 512 / (3 * 224 * 224))


@click.command()
@click.argument("what", nargs=-1, type=click.Choice(SUBJECTS))
@click.option("--images", default=10_000, show_default=True, help="Test images of 224x224.")
@click.option("--turns", default=3, show_default=True)
def main(what: tuple[str, ...], images: int, turns: int) -> None:
    """Print the costs of WHAT: everything if left out."""
    subjects: Mapping[str, Callable[[Place, int, int], None]] = {
        "evaluation": _evaluation,
        "limit": _limit,
        "training": _training,
        "workers": _workers,
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        (place.folder / "own_models.py").write_text(MODELS)
        _generate(place.folder / "images" / "test", images)
        for command in (place.plain("evaluate", "images/test"), place.ours("measured", "images")):
            _cost([*command, *_few(command)], place)  # compiles what is imported
        for subject in what or SUBJECTS:
            subjects[subject](place, images, turns)


def _few(command: list[str]) -> list[str]:
    """Return the options with which a command of jembench takes little time."""
    return ["--limit", "1"] if "run" in command else []


def _generate(folder: Path, count: int) -> None:
    """Write smooth random images as JPEG files, in one folder a class."""
    generator = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(256, size=(14, 14, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC)
        image.save(place / f"{number:05d}.jpg", quality=90)


def _linked(source: Path, target: Path, times: int) -> None:
    """Link each image ``times`` times."""
    for file in source.rglob("*.jpg"):
        place = target / file.parent.name
        place.mkdir(parents=True, exist_ok=True)
        for number in range(times):
            os.link(file, place / f"{number}-{file.name}")


def _evaluation(place: Place, images: int, turns: int) -> None:
    costs: dict[str, list[Cost]] = {"plain": [], "cold": [], "warm": []}
    for _ in range(turns):
        costs["plain"].append(_cost(place.plain("evaluate", "images/test"), place))
        place.forget()
        costs["cold"].append(_cost(place.ours("measured", "images"), place))
        costs["warm"].append(_cost(place.ours("measured", "images"), place))
    _print(f"accuracy and NLL of {images:,} images", costs)


def _limit(place: Place, images: int, turns: int) -> None:
    costs: dict[str, list[Cost]] = {"cold": []}
    for _ in range(turns):
        place.forget()
        command = place.ours("measured", "images", "--limit", str(LIMIT))
        costs["cold"].append(_cost(command, place))
    _print(f"--limit {LIMIT} of {images:,}: {place.decoded()} files decoded", costs)


def _training(place: Place, images: int, turns: int) -> None:
    """Train for an epoch on twice the number of images, and test ten."""
    folder = place.folder / "training"
    if not folder.exists():
        _linked(place.folder / "images" / "test", folder / "train", 2)
        for file in sorted((place.folder / "images" / "test").glob("*/0000?.jpg")):
            (folder / "test" / file.parent.name).mkdir(parents=True)
            os.link(file, folder / "test" / file.parent.name / file.name)
    options = [text for setting in (*AS_PLAIN, "data.validation=10") for text in ("--set", setting)]
    costs: dict[str, list[Cost]] = {"plain": [], "cold": [], "warm": []}
    for _ in range(turns):
        costs["plain"].append(_cost(place.plain("train", "training/train"), place))
        place.forget()
        costs["cold"].append(_cost(place.ours("trained", "training", *options), place))
        costs["warm"].append(_cost(place.ours("trained", "training", *options), place))
    _print(f"an epoch of {2 * images:,} images", costs)


def _workers(place: Place, images: int, turns: int) -> None:
    if not (place.folder / "many").exists():
        _linked(place.folder / "images" / "test", place.folder / "many" / "test", 5)
    options = ("--seeds", "0,1", "--executor", "processes:jobs=2")
    costs: dict[str, list[Cost]] = {"cold": [], "warm": []}
    place.forget()
    costs["cold"].append(_cost(place.ours("measured", "many", *options), place, summed=True))
    for _ in range(turns):
        command = place.ours("measured", "many", *options)
        costs["warm"].append(_cost(command, place, summed=True))
    _print(f"{5 * images:,} images by two workers", costs)


def _cost(command: list[str], place: Place, *, summed: bool = False) -> Cost:
    """Run a command, and return what it costs."""
    unshared = 0.0
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=place.environment, cwd=place.folder, stdout=output, stderr=output
        )
        while (
            summed
            and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
        ):
            unshared = max(unshared, _unshared(process.pid))
            time.sleep(0.2)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise click.ClickException(output.read().decode())
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, unshared)


def _unshared(pid: int) -> float:
    """Return the unshared memory of a process and its descendants, in MB."""
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_"):
                total += int(line.split()[1]) / 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return total
    return total + sum(_unshared(int(child)) for child in children)


def _print(title: str, costs: Mapping[str, list[Cost]]) -> None:
    """Print medians, and the ratios of CPU seconds to the plain script's."""
    click.echo(title)
    for name, measured in costs.items():
        median = Cost(*map(statistics.median, zip(*measured, strict=True)))
        line = f"  {name:5} {median.cpu:6.1f} CPU s, peak {median.peak:,.0f} MB"
        if "plain" in costs and name != "plain":
            ratios = []
            for ours, plain in zip(measured, costs["plain"], strict=True):
                ratios.append(ours.cpu / plain.cpu)
            ratio = statistics.median(ratios)
            line += f", {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) times the plain script"
        if median.unshared:
            line += f", unshared in all processes {median.unshared:,.0f} MB"
        click.echo(line)


if __name__ == "__main__":
    main()
