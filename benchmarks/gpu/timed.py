"""Items that time iterations, their parts and other work on blank images."""

from __future__ import annotations

import collections
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from place import ROOT, Place, jembench, run

MODELS = ("jem", "jem-factored", "baseline", "adversarial", "igebm", "glow", "residual-flow")
GPU_TESTS = "tests/training/test_gpu.py"

LARGE = "model.net=wrn-28-10"
ITERATIONS = (("fast", ()), ("speedrun", ()), ("paper", (LARGE,)))
"""Recipes whose iterations are timed as graphs, with settings."""

WORTH = 1.2
"""The speed-up below which code that makes graphs leaves."""


def machine(place: Place) -> None:
    """Note versions, the driver, and the rate of matrix products."""
    from turns import seconds

    from jembench.models import devices

    wanted = "name,driver_version,memory.total,clocks.max.sm"
    query = ["nvidia-smi", f"--query-gpu={wanted}", "--format=csv,noheader"]
    driver = run(query).stdout.strip() if place.device.type == "cuda" else ""
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": driver}
    place.note("machine", device=devices.name(place.device), **versions)
    size = 64 if place.tiny else 8192
    for dtype in (torch.float32, torch.bfloat16):
        left = torch.randn((size, size), device=place.device).to(dtype)
        took = min(seconds(lambda left=left: left @ left, place.device) for _ in range(5))
        place.note("machine", product=str(dtype), size=size, teraflops=2 * size**3 / took / 1e12)


def tests(place: Place) -> None:
    """Run the tests that need a GPU."""
    options = ["-q", "-m", "gpu", "-rfE", "-p", "no:cacheprovider"]
    done = run([sys.executable, "-m", "pytest", *options, GPU_TESTS])
    summary = done.stdout.strip().splitlines()
    failed = [line for line in summary if line.startswith("FAILED")]
    place.note("tests", code=done.returncode, failed=failed, summary=summary[-1])


def cudnn(place: Place) -> None:
    """Time iterations with and without cuDNN's search for the fastest algorithms.

    WRN-28-10 is not compiled, which takes most of a minute and leaves convolutions to cuDNN
    either way.
    """
    for recipe, settings in (("fast", ()), ("paper", (LARGE, "compute.compile=off"))):
        row: dict[str, float] = {}
        for benchmark in (False, True):
            torch.backends.cudnn.benchmark = benchmark
            try:
                with place.trainer("jem", recipe, *settings) as trainer:
                    warm = place.warm_up(trainer.iterate)
                    took = place.pace(trainer.iterate, 50 if recipe == "fast" else 10)
                    computed = trainer.functions.computed
            finally:
                torch.backends.cudnn.benchmark = False
            name = "on" if benchmark else "off"
            row |= {f"ms_{name}": 1e3 * took, f"warm_{name}": warm}
            place.note("cudnn", recipe=recipe, ms=1e3 * took, warm=warm, **computed)
        ratio = row["ms_off"] / row["ms_on"]
        place.note("cudnn", recipe=recipe, **row, ratio=ratio)


def iteration(place: Place) -> None:
    """Compare iterations step by step, as today (chains and losses captured), and as one graph.

    The speed-up of each kind of graph says whether its code stays.
    """
    for recipe, settings in ITERATIONS:
        with ExitStack() as stack:
            contestants = _contestants(place, stack, recipe, settings)
            for name, iterate in list(contestants.items()):
                row: dict[str, Any] = {"recipe": recipe, "contestant": name}
                try:
                    row |= {"warm": place.warm_up(iterate), "GiB": place.peak()}
                except Exception as error:  # a finding; the others are measured as well
                    row["not_captured"] = f"{type(error).__name__}: {str(error)[:300]}"
                    del contestants[name]
                place.note("iteration", **row)
            _take_turns(place, recipe, contestants)


def _contestants(
    place: Place, stack: ExitStack, recipe: str, settings: tuple[str, ...]
) -> dict[str, Callable[[], Any]]:
    """Make the trainers, all before one is compiled, since each discards what was compiled before.

    ``steps`` is compiled without a graph, ``today`` as trainings are, ``whole`` compiled within one
    graph, and ``uncompiled`` one graph of the plain operations, which starts within seconds.
    """
    from whole import WholeIteration, without_graphs

    def trainer(*more: str) -> Any:
        return stack.enter_context(place.trainer("jem", recipe, *settings, *more))

    steps, today, whole, uncompiled = (
        trainer(),
        trainer(),
        trainer(),
        trainer("compute.compile=off"),
    )
    without_graphs(steps)
    return {
        "steps": steps.iterate,
        "today": today.iterate,
        "whole": WholeIteration(whole).iterate,
        "uncompiled": WholeIteration(uncompiled).iterate,
    }


def _take_turns(place: Place, recipe: str, contestants: dict[str, Callable[[], Any]]) -> None:
    """Note the milliseconds of an iteration, and how much faster each graph is."""
    count = 10 if recipe == "paper" else 50
    turns = collections.defaultdict(list)
    for _ in range(1 if place.tiny else 3):
        for name, iterate in contestants.items():
            turns[name].append(1e3 * place.pace(iterate, count))
    ms = {name: statistics.median(times) for name, times in turns.items()}
    place.note("iteration", recipe=recipe, ms=ms, turns=turns)
    for name, former in (("today", "steps"), ("whole", "today"), ("uncompiled", "today")):
        if name not in ms or former not in ms:
            continue
        ratio = ms[former] / ms[name]
        row = {"recipe": recipe, "graph": name, "over": former, "ratio": ratio}
        place.note("iteration", **row, verdict="stays" if ratio >= WORTH else "leaves")


def paper(place: Place) -> None:
    """Time an iteration of ``paper`` with WRN-28-10, and note the hours of its training."""
    with place.trainer("jem", "paper", LARGE) as trainer:
        warm = place.warm_up(trainer.iterate)
        took = place.pace(trainer.iterate, 30)
        hours = trainer.iterations * took / 3600
        row = {"ms": 1e3 * took, "hours": hours, "warm": warm, "GiB": place.peak()}
        place.note("paper", **row, **trainer.functions.computed)


# --- parts of an iteration, and other work --------------------------------------------------------


def compute(place: Place) -> None:
    """Time an iteration of JEM compiled or not, in bfloat16 or float32."""
    choices = [("on", "auto"), ("off", "auto"), ("on", "float32")]
    for net in place.nets:
        for compiled, precision in [("off", "float32")] if place.tiny else choices:
            chosen = f"compute.compile={compiled}", f"compute.precision={precision}"
            with place.trainer("jem", "fast", f"model.net={net}", *chosen) as trainer:
                warm = place.warm_up(trainer.iterate)
                ms = 1e3 * place.pace(trainer.iterate, 30)
                memory = place.peak()
                place.note(
                    "compute", net=net, warm=warm, ms=ms, GiB=memory, **trainer.functions.computed
                )


def profile(place: Place) -> None:
    """Note the kernels of an iteration, the share of time the GPU works, and waits of the host."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    on_gpu = place.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    for net in place.nets:
        with place.trainer("jem", "fast", f"model.net={net}") as trainer:
            place.warm_up(trainer.iterate)
            place.note("profile", net=net, waits=_waits(trainer) if on_gpu else None)
            with profiler(activities=activities) as profiled:
                trainer.iterate()
                if on_gpu:
                    torch.cuda.synchronize(place.device)
        events = profiled.events()
        kernels = [event for event in events if not on_gpu or event.device_type.name == "CUDA"]
        spans = [kernel.time_range for kernel in kernels]
        window = max(span.end for span in spans) - min(span.start for span in spans)
        busy = 100 * sum(span.end - span.start for span in spans) / window if on_gpu else None
        total: collections.Counter[str] = collections.Counter()
        for kernel, span in zip(kernels, spans, strict=True):
            total[kernel.name[:80]] += span.end - span.start
        longest = {name: micros / 1e3 for name, micros in total.most_common(10)}
        row = {"kernels": len(kernels), "ms": window / 1e3, "busy": busy, "longest": longest}
        place.note("profile", net=net, **row)


def _waits(trainer: Any) -> dict[str, int]:
    """Count the places where the host waits for the device in one iteration."""
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.iterate()
    torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in caught if "synchronizing" in str(warning.message)]
    return dict(collections.Counter(f"{warning.filename}:{warning.lineno}" for warning in waits))


def estimate(place: Place) -> None:
    """Compare the estimate of an iteration with the mean of many."""
    from jembench.running.estimate import estimate as estimated

    for net in place.nets:
        guess = estimated(place.fit("jem", "fast", f"model.net={net}"), place.device).seconds
        with place.trainer("jem", "fast", f"model.net={net}") as trainer:
            place.warm_up(trainer.iterate)
            measured = place.pace(trainer.iterate, 50)
        off = guess / measured - 1
        place.note("estimate", net=net, estimated=guess, measured=measured, off=off)


def recipes(place: Place) -> None:
    """Run three iterations of every model by its recipe and of JEM by all, warnings as errors."""
    from turns import seconds

    further = ("code", "fast", "sada", "speedrun")
    fits = [(model, None) for model in MODELS] + [("jem", name) for name in further]
    for model, recipe in fits[:3] if place.tiny else fits:
        row: dict[str, Any] = {"model": model, "recipe": recipe}
        try:
            with (
                place.trainer(model, recipe, "compute.compile=off") as trainer,
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("error")
                trainer.iterate()
                row["seconds"] = seconds(trainer.iterate, place.device)
                row["loss"] = float(trainer.iterate()["loss"])
                row |= trainer.functions.computed | {"GiB": place.peak()}
        except Exception as error:  # a finding; the others are measured as well
            row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        place.note("recipes", **row)


def attacks(place: Place) -> None:
    """Time a PGD attack on a network, as it is and refined by chains."""
    command = ["attack", "pgd", "--norm", "l2", "--models", "jem", "--dataset", "digits"]
    command += ["--images", "4", "--recipe", "digits", "--set", "epochs=0.1"]
    command += ["--device", str(place.device), "--store", str(place.out / "runs")]
    for refine in ("0", "1") if place.tiny else ("0", "10"):
        began = time.perf_counter()
        jembench(*command, "--refine", refine)
        place.note("attacks", refine=refine, seconds=time.perf_counter() - began)


def speed(place: Place) -> None:
    """Run the benchmark of speed beside the textbook."""
    every = ("sampling", "jem", "rate", "classifier", "evaluation", "scores")
    few = ("--batch", "4", "--steps", "2", "--repeats", "1", "--images", "8", "--scored", "4")
    for net in place.nets:
        subjects = ("sampling", *few) if place.tiny else every
        script = [sys.executable, str(ROOT / "benchmarks/speed/run.py"), *subjects, "--net", net]
        done = run([*script, "--device", str(place.device), "--format", "json"], check=True)
        for row in json.loads(done.stdout)["nets"][0]["rows"]:
            place.note("speed", net=net, **row)
