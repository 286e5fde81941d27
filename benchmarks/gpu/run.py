"""Measure what only a GPU can show, item by item, in calls of a few minutes.

    python benchmarks/gpu/run.py --minutes 9 --data cifar10-jpeg
    python benchmarks/gpu/run.py --only compute,profile
    python benchmarks/gpu/run.py --device cpu --size tiny

Each item runs in a process of its own with a time limit, and each measurement is a line of ``results.jsonl`` in the
output folder as soon as it is made. A later call runs the items that are not done; the training goes on from its
checkpoint.
"""

from __future__ import annotations

import collections
import gc
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "speed"))

MODELS = ("jem", "jem-factored", "baseline", "adversarial", "igebm", "glow", "residual-flow")
TINY = ("batch_size=4", "data.validation=0")
FIT = {"full": ("model.net=wrn-28-2", "epochs=60"), "tiny": (*TINY, "model.net=small-1", "epochs=0.02")}
GPU_TESTS = "tests/training/test_gpu.py"
SPARE = 30.0  # seconds of a call that are left for evaluation and writing


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device and the amount of an item's work."""

    device: torch.device
    tiny: bool
    out: Path
    data: Path | None
    seconds: float

    @property
    def nets(self) -> tuple[str, ...]:
        """The networks that are measured."""
        return ("small-1",) if self.tiny else ("wrn-28-2", "wrn-28-10")

    def note(self, item: str, **values: Any) -> None:
        """Append a measurement to the results, and print it."""
        line = json.dumps({"item": item, **values}, default=str)
        with (self.out / "results.jsonl").open("a") as results:
            results.write(f"{line}\n")
        click.echo(line)

    def peak(self) -> float:
        """Return the largest memory of the device's tensors in GiB, and start anew."""
        if self.device.type != "cuda":
            return 0.0
        peak = torch.cuda.max_memory_allocated(self.device) / 2**30
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak


def machine(place: Place) -> None:
    """Note versions, the driver, and the rate of matrix products."""
    from turns import seconds

    from jembench.models import devices

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    driver = _printed(query) if place.device.type == "cuda" else ""
    place.note(
        "machine", device=devices.name(place.device), torch=torch.__version__, cuda=torch.version.cuda, gpu=driver
    )
    size = 64 if place.tiny else 8192
    for dtype in (torch.float32, torch.bfloat16):
        left = torch.randn((size, size), device=place.device).to(dtype)
        took = min(seconds(lambda left=left: left @ left, place.device) for _ in range(5))
        place.note("machine", product=str(dtype), size=size, teraflops=2 * size**3 / took / 1e12)


def tests(place: Place) -> None:
    """Run the tests that need a GPU."""
    done = _run([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-rfE", "-p", "no:cacheprovider", GPU_TESTS])
    summary = done.stdout.strip().splitlines()
    place.note("tests", code=done.returncode, failed=[line for line in summary if line.startswith("FAILED")])
    place.note("tests", summary=summary[-1])


def recipes(place: Place) -> None:
    """Run three iterations of every model by its recipe and of JEM by all, with warnings as errors."""
    from turns import seconds

    fits = [(model, None) for model in MODELS] + [("jem", name) for name in ("code", "fast", "sada")]
    for model, recipe in fits[:3] if place.tiny else fits:
        row: dict[str, Any] = {"model": model, "recipe": recipe}
        try:
            with _trainer(place, model, recipe, "compute.compile=off") as trainer, warnings.catch_warnings():
                warnings.simplefilter("error")
                trainer.iterate()
                row |= {"seconds": seconds(trainer.iterate, place.device), "loss": float(trainer.iterate()["loss"])}
                row |= trainer.computed | {"GiB": place.peak()}
        except Exception as error:  # a finding; the others are measured as well
            row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        place.note("recipes", **row)


def speed(place: Place) -> None:
    """Run the benchmark of speed beside the textbook."""
    for net in place.nets:
        subjects = ("sampling",) if place.tiny else ("sampling", "jem", "rate", "classifier", "evaluation", "scores")
        few = ("--batch", "4", "--steps", "2", "--repeats", "1", "--images", "8", "--scored", "4") if place.tiny else ()
        script = [sys.executable, str(ROOT / "benchmarks/speed/run.py"), *subjects, "--net", net, *few]
        done = _run([*script, "--device", str(place.device), "--format", "json"], check=True)
        for row in json.loads(done.stdout)["nets"][0]["rows"]:
            place.note("speed", net=net, **row)


def compute(place: Place) -> None:
    """Time an iteration of JEM compiled or not, in bfloat16 or float32."""
    from turns import seconds, spread

    for net in place.nets:
        for compiled, precision in (
            (("off", "float32"),) if place.tiny else (("on", "auto"), ("off", "auto"), ("on", "float32"))
        ):
            settings = (f"model.net={net}", f"compute.compile={compiled}", f"compute.precision={precision}")
            with _trainer(place, "jem", "fast", *settings) as trainer:
                began = time.perf_counter()
                for _ in range(1 if place.tiny else 5):
                    trainer.iterate()
                warm = time.perf_counter() - began
                took = spread(seconds(trainer.iterate, place.device) for _ in range(2 if place.tiny else 20))
                computed = {name: str(value) for name, value in trainer.computed.items()}
                place.note("compute", net=net, warm=warm, seconds=took._asdict(), GiB=place.peak(), **computed)


def profile(place: Place) -> None:
    """Note the kernels of an iteration, the share of time in which the GPU works, and waits of the host."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    on_gpu = place.device.type == "cuda"
    for net in place.nets:
        with _trainer(place, "jem", "fast", f"model.net={net}") as trainer:
            for _ in range(1 if place.tiny else 5):
                trainer.iterate()
            place.note("profile", net=net, waits=_waits(trainer) if on_gpu else None)
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
            with profiler(activities=activities) as profiled:
                trainer.iterate()
                if on_gpu:
                    torch.cuda.synchronize(place.device)
            kernels = [one for one in profiled.events() if not on_gpu or one.device_type.name == "CUDA"]
            times = [one.time_range for one in kernels]
            window = max(time.end for time in times) - min(time.start for time in times)
            busy = 100 * sum(time.end - time.start for time in times) / window if on_gpu else None
            total: collections.Counter[str] = collections.Counter()
            for one, span in zip(kernels, times, strict=True):
                total[one.name[:80]] += span.end - span.start
            longest = {name: micros / 1e3 for name, micros in total.most_common(10)}
            place.note("profile", net=net, kernels=len(kernels), ms=window / 1e3, busy=busy, longest=longest)


def estimate(place: Place) -> None:
    """Compare the estimate of an iteration with the mean of many."""
    from turns import seconds

    from jembench.running.estimate import estimate as estimated

    for net in place.nets:
        count = 2 if place.tiny else 50
        guess = estimated(_fit(place, "jem", "fast", f"model.net={net}"), place.device)
        with _trainer(place, "jem", "fast", f"model.net={net}") as trainer:
            for _ in range(1 if place.tiny else 5):
                trainer.iterate()
            measured = sum(seconds(trainer.iterate, place.device) for _ in range(count)) / count
        place.note("estimate", net=net, estimated=guess.seconds, measured=measured, off=guess.seconds / measured - 1)


def attacks(place: Place) -> None:
    """Time a PGD attack on a network, as it is and refined by chains."""
    shared = [
        "--device",
        str(place.device),
        "--store",
        str(place.out / "runs"),
        "--set",
        "epochs=0.1",
        "--recipe",
        "digits",
    ]
    for refine in ("0", "1") if place.tiny else ("0", "10"):
        began = time.perf_counter()
        command = ["attack", "pgd", "--norm", "l2", "--models", "jem", "--dataset", "digits", "--images", "4"]
        _jembench(*command, "--refine", refine, *shared)
        place.note("attacks", refine=refine, seconds=time.perf_counter() - began)


def training(place: Place) -> None:
    """Train JEM on real images for the time that is left, and measure the model when it is done."""
    dataset = "digits" if place.tiny else f"imagefolder:root={place.data},name=cifar10-jpeg,size=32"
    if not place.tiny and place.data is None:
        raise click.UsageError("The item training needs --data: a folder with train/ and test/.")
    shared = ["--dataset", dataset, "--recipe", "digits" if place.tiny else "fast", "--device", str(place.device)]
    for setting in FIT["tiny" if place.tiny else "full"]:
        shared += ["--set", setting]
    hours = str(max(place.seconds - SPARE, 5.0) / 3600)
    store = place.out / "runs"
    train = [sys.executable, "-m", "jembench", "train", "jem", *shared, "--store", str(store), "--max-hours", hours]
    if code := subprocess.run(train, check=False).returncode:
        sys.exit(code)  # 3: its time is up, and the next call goes on
    metrics = "accuracy,ece,ece:scaling=temperature,nll,energy-gap"
    command = ["run", "hybrid", "--models", "jem", "--seeds", "0", "--metrics", metrics, "--format", "json"]
    for row in json.loads(_jembench(*command, *shared, "--store", str(store)))["rows"]:
        if not row["source"]:
            place.note("training", **{name: row[name] for name in ("label", "value", "low", "high", "n")})


ITEMS: dict[str, tuple[Callable[[Place], None], float]] = {
    "machine": (machine, 60),
    "tests": (tests, 180),
    "recipes": (recipes, 120),
    "speed": (speed, 300),
    "compute": (compute, 200),
    "profile": (profile, 90),
    "estimate": (estimate, 120),
    "attacks": (attacks, 120),
    "training": (training, 500),
}
"""Each item, and the seconds that it takes on a large GPU at most; the training takes all that are left."""


# --- how an item runs -------------------------------------------------------------------------------------------------


def _fit(place: Place, model: str, recipe: str | None, *settings: str) -> Any:
    from jembench.experiment.plan import plan_fit

    if place.tiny:
        net = () if any(setting.startswith("model.net") for setting in settings) else ("model.net=small-1",)
        return plan_fit(model, "digits", None, [*TINY, *net, *settings])
    return plan_fit(model, "cifar10", recipe, settings)


@contextmanager
def _trainer(place: Place, *fit: Any) -> Iterator[Any]:
    """Make a trainer on blank images, whose memory is freed afterwards."""
    from jembench.data.datasets import blank, make
    from jembench.models.execution import forget_compiled
    from jembench.running.building import make_model
    from jembench.training.loop import Trainer

    plan = _fit(place, *fit)
    data = make(plan.dataset, download=True)
    model = make_model(plan, data)
    yield Trainer(model, data.spec, (blank(data) or data).split("train"), plan.recipe, seed=0, device=place.device)
    gc.collect()
    forget_compiled()


def _waits(trainer: Any) -> dict[str, int]:
    """Count the places where the host waits for the device in one iteration."""
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        trainer.iterate()
    torch.cuda.set_sync_debug_mode("default")
    return dict(
        collections.Counter(f"{one.filename}:{one.lineno}" for one in seen if "synchronizing" in str(one.message))
    )


def _run(command: list[str], *, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=check, cwd=ROOT)


def _printed(command: list[str]) -> str:
    return _run(command).stdout.strip()


def _jembench(*arguments: str) -> str:
    return _run([sys.executable, "-m", "jembench", *arguments], check=True).stdout


def _is_done(out: Path, item: str) -> bool:
    results = out / "results.jsonl"
    lines = map(json.loads, results.read_text().splitlines()) if results.exists() else ()
    return any(line["item"] == item and line.get("ended") == "done" for line in lines)


@click.command(help=__doc__)
@click.option("--minutes", default=9.0, show_default=True, help="Length of this call.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("gpu"), show_default=True, help="Output folder.")
@click.option("--only", default="", help=f"Run these items again: {','.join(ITEMS)}.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--size", type=click.Choice(["full", "tiny"]), default="full", show_default=True)
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Real images.")
@click.option("--item", type=click.Choice(list(ITEMS)), hidden=True, help="Run one item in this process.")
def main(minutes: float, out: Path, only: str, device: str, size: str, data: Path | None, item: str | None) -> None:
    """Run the items that are not done, each in a process of its own."""
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    place = Place(
        device=torch.device(device), tiny=size == "tiny", out=out, data=data and data.absolute(), seconds=60 * minutes
    )
    if item:
        ITEMS[item][0](place)
        return
    end = time.monotonic() + 60 * minutes
    chosen = only.split(",") if only else [name for name in ITEMS if not _is_done(out, name)]
    for name in chosen:
        left = end - time.monotonic()
        if left < min(ITEMS[name][1], 60 * minutes) and not only:
            continue  # a shorter one may fit
        command = [sys.executable, __file__, "--item", name, "--out", str(out), "--device", device, "--size", size]
        command += ["--minutes", str(left / 60), *(("--data", str(data)) if data else ())]
        began = time.monotonic()
        try:
            code = subprocess.run(command, timeout=left, check=False).returncode
            ended = "done" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ended = "out of time"
        place.note(name, ended=ended, took=time.monotonic() - began)


if __name__ == "__main__":
    main()
