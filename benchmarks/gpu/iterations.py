"""Iterations of training, and gradients of attacks: whether they run, how fast, and what the device does meanwhile."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from measure import ROOT, Findings, Place
from turns import seconds, spread

from jembench import seeds
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Target
from jembench.catalog import registry
from jembench.data.datasets import unread
from jembench.experiment.plan import FitPlan, plan_fit
from jembench.models.execution import forget_compiled
from jembench.running import estimate as estimating
from jembench.running.estimate import WARM_UP, random_images
from jembench.running.fits import make_model
from jembench.training.loop import Trainer

AIMS = {"speed": 4.0, "rate": 45.0, "cosine": 0.99, "estimate": 0.1}


def trainer_of(fit: FitPlan, place: Place) -> Trainer:
    """A trainer on random images; the files of its dataset are not needed."""
    data = unread(fit.dataset)
    return Trainer(make_model(fit, data), data.spec, random_images(data), fit.recipe, seed=0, device=place.device)


def _fit(place: Place, model: str, recipe: str | None = None, *settings: str) -> FitPlan:
    return plan_fit(model, place.size.dataset, recipe, (*place.size.settings, *settings))


@contextlib.contextmanager
def _gone(place: Place) -> Iterator[None]:
    """What was made within is let go of, and the peak of the memory is that from here on."""
    if place.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place.device)
    yield
    gc.collect()
    forget_compiled()
    if place.device.type == "cuda":
        torch.cuda.empty_cache()


def _gib(place: Place, *, peak: bool) -> float | None:
    if place.device.type != "cuda":
        return None
    count = torch.cuda.max_memory_allocated if peak else torch.cuda.memory_allocated
    return count(place.device) / 2**30


def _nets(place: Place) -> list[str]:
    return list(dict.fromkeys((place.size.small, place.size.large)))


# --- whether everything runs ------------------------------------------------------------------------------------------


def recipes(place: Place, found: Findings) -> None:
    """Every model by its own recipe and jem by all, not compiled: three iterations, warnings as errors."""
    fits = [_fit(place, model, None, "compute.compile=off") for model in place.size.models]
    names = place.size.recipes or ("code", "fast", "sada")
    fits += [_fit(place, place.size.models[0], name, "compute.compile=off") for name in names]
    failed = 0
    for fit in fits:
        row = {"model": fit.key.model, "recipe": fit.recipe.name}
        with _gone(place):
            try:
                took, computed = _three_iterations(fit, place)
                row |= {"s/iteration": took, "peak GiB": _gib(place, peak=True), "computed": computed, "error": ""}
            except Exception as error:  # a finding; the others are looked at as well
                failed += 1
                row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        found.row("iterations", **row)
    found.aim("models and recipes that fail or warn", failed, failed == 0)


def _three_iterations(fit: FitPlan, place: Place) -> tuple[float, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = trainer_of(fit, place)
        trainer.iterate()
        took = seconds(trainer.iterate, place.device)
        loss = trainer.iterate()["loss"]
    if not bool(loss.isfinite()):
        raise ArithmeticError(f"the loss is {loss.item()} after three iterations")
    return took, f"{trainer.computed['precision']} {trainer.computed['layout']}"


def compiler(place: Place, found: Findings) -> None:
    """Networks that are compiled one after the other in one process."""
    from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics

    _choose_backend(place.size.backend)
    refused = 0
    for model in place.size.networks:
        with _gone(place):
            counters.clear()
            clear_compilation_metrics()
            start = time.perf_counter()
            trainer = trainer_of(_fit(place, model, None, "compute.compile=on"), place)
            for _ in range(WARM_UP):
                trainer.iterate()
            warm = time.perf_counter() - start
            timed = [seconds(trainer.iterate, place.device) for _ in range(3)]
            given_up = trainer.computed["not_compiled"]
            refused += bool(given_up or trainer.computed["not_captured"])
            found.row(
                "networks",
                model=model,
                **{"until warm, s": warm, "s/iteration": min(timed), "peak GiB": _gib(place, peak=True)},
                graphs=counters["stats"].get("unique_graphs", 0),
                **{"not compiled": given_up, "not captured": trainer.computed["not_captured"]},
                **{"graph breaks": dict(counters["graph_break"])},
                recompiled=[one.recompile_reason for one in get_compilation_metrics() if one.recompile_reason],
                **{"CUDA graphs skipped": counters["inductor"].get("cudagraph_skips", 0)},
            )
            del trainer
        found.row("memory that is left", after=model, GiB=_gib(place, peak=False))
    found.aim("networks of this process that were not compiled or captured", refused, refused == 0)


def _choose_backend(backend: str) -> None:
    """Dynamo alone for tiny runs: what follows it takes most of the time."""
    if backend != "inductor":
        torch.compile = lambda function, **options: _compile(function, fullgraph=True, dynamic=False, backend=backend)


_compile = torch.compile


# --- how fast ---------------------------------------------------------------------------------------------------------


def speed_large(place: Place, found: Findings) -> None:
    """The benchmark of speed on the large network, with the aims."""
    rows = _speed(place, found, place.size.large, *place.size.subjects[:3])
    ratio, cosine = rows["sampling"]["ratio"]["median"], rows["sampling"]["notes"]["cosine"]
    found.aim(f"sampling: at least {AIMS['speed']:g} times the textbook", ratio, ratio >= AIMS["speed"])
    found.aim(f"sampling: cosine to the textbook's above {AIMS['cosine']}", cosine, cosine > AIMS["cosine"])
    if "rate of sampling" in rows:
        share = rows["rate of sampling"]["ours"]["median"]
        found.aim(f"sampling: at least {AIMS['rate']:g} % of the matrix rate", share, share >= AIMS["rate"])


def speed_small(place: Place, found: Findings) -> None:
    """The same of the small network, with evaluation."""
    _speed(place, found, place.size.small, *place.size.subjects)


def _speed(place: Place, found: Findings, net: str, *subjects: str) -> dict[str, Any]:
    size = place.size
    few = min(size.attacked, 1000)
    options = {"net": net, "batch": size.batch, "steps": size.steps, "repeats": size.repeats, "device": place.device}
    options |= {"images": size.attacked, "scored": few, "format": "json"}
    command = [sys.executable, str(ROOT / "benchmarks" / "speed" / "run.py"), *subjects]
    command += [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(done.stdout)["nets"][0]["rows"]
    for row in rows:
        ratio = row["ratio"] or {}
        sides = {side: row[side]["median"] for side in ("textbook", "ours")}
        spread_of = {"ratio": ratio.get("median", ""), "low": ratio.get("low", ""), "high": ratio.get("high", "")}
        found.row(
            f"{net}, {row['measure']}", subject=row["subject"], per=row["per"], **sides, **spread_of, notes=row["notes"]
        )
    return {row["subject"]: row for row in rows}


SWITCHES = (
    ("on", "auto", True),
    ("on", "auto", False),
    ("off", "auto", False),
    ("on", "float32", True),
)
"""Whether the network is compiled, its precision and whether chains are captured."""


def switches(place: Place, found: Findings) -> None:
    """An iteration by the recipe fast with each choice of how it is computed."""
    _choose_backend(place.size.backend)
    for net, (compile, precision, captured) in itertools.product(_nets(place), SWITCHES):
        settings = [f"model.net={net}", f"compute.compile={compile}", f"compute.precision={precision}"]
        with _gone(place):
            start = time.perf_counter()
            trainer = trainer_of(_fit(place, "jem", "fast", *settings), place)
            trainer.graph = trainer.graph if captured else None
            for _ in range(WARM_UP):
                trainer.iterate()
            warm = time.perf_counter() - start
            took = spread(seconds(trainer.iterate, place.device) for _ in range(place.size.iterations))
            computed = trainer.computed
            row = {"net": net, "compiled": compile, "precision": computed["precision"], "captured": captured}
            row |= {"s/iteration": took.median, "low": took.low, "high": took.high}
            row |= {"until warm, s": warm, "peak GiB": _gib(place, peak=True)}
            found.row("iterations", **row, notes=[*computed["not_compiled"], *computed["not_captured"]])
            del trainer


# --- what the device does meanwhile -----------------------------------------------------------------------------------


def profiled(place: Place, found: Findings) -> None:
    """Iterations under PyTorch's profiler, and the places where the host waits for the device."""
    for net in _nets(place):
        with _gone(place):
            trainer = trainer_of(_fit(place, "jem", "fast", f"model.net={net}"), place)
            for _ in range(WARM_UP):
                trainer.iterate()
            found.row("synchronisations of an iteration", net=net, **_synchronisations(trainer, place))
            _profile(trainer, place, found, net)
            del trainer


def _synchronisations(trainer: Trainer, place: Place) -> dict[str, Any]:
    if place.device.type != "cuda":
        return {"count": None}
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            trainer.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [one for one in seen if "called a synchronizing" in str(one.message)]
    places = collections.Counter(f"{os.path.relpath(one.filename, ROOT)}:{one.lineno}" for one in waits)
    return {"count": len(waits), "where": dict(places.most_common(10))}


def _profile(trainer: Trainer, place: Place, found: Findings, net: str) -> None:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    on_gpu = place.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    count = min(3, place.size.iterations)
    with profile(activities=activities) as profiler:
        for _ in range(count):
            trainer.iterate()
        if on_gpu:
            torch.cuda.synchronize(place.device)
    events = list(profiler.events())
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    kernels = sorted(
        (one.time_range.start, one.time_range.end, one.name)
        for one in events
        if one.device_type == kind and not getattr(one, "is_user_annotation", False)
    )
    busy, window = _busy([(start, end) for start, end, _ in kernels])
    calls = collections.Counter(
        one.name for one in events if one.name.startswith(("cudaLaunch", "cuLaunch", "cudaGraphLaunch"))
    )
    found.row(
        "an iteration",
        net=net,
        ms=window / count / 1e3,
        **{
            "kernels": len(kernels) / count,
            "kernels a sampling step": len(kernels) / count / max(1, trainer.sampling_steps),
        },
        **{
            "busy %": 100 * busy / max(window, 1e-9),
            "launches": {name: number / count for name, number in calls.items()},
        },
    )
    total: collections.Counter[str] = collections.Counter()
    number: collections.Counter[str] = collections.Counter()
    for start, end, name in kernels:
        total[name] += end - start
        number[name] += 1
    for name, taken in total.most_common(15):
        share = 100 * taken / max(sum(total.values()), 1e-9)
        found.row(
            f"kernels of {net}",
            kernel=name[:100],
            **{"ms/iteration": taken / count / 1e3, "%": share, "times": number[name] / count},
        )


def _busy(intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """How long any of the intervals (sorted) lasts, and how long it is from the first start to the last end."""
    if not intervals:
        return 0.0, 0.0
    busy, until = 0.0, intervals[0][0]
    for start, end in intervals:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy, until - intervals[0][0]


def estimate(place: Place, found: Findings) -> None:
    """What is estimated from a few iterations, beside the mean of many."""
    for net, recipe in zip(_nets(place), ("fast", "paper"), strict=False):
        fit = _fit(place, "jem", recipe, f"model.net={net}")
        with _gone(place):
            guess = estimating.estimate(fit, place.device)
        with _gone(place):
            trainer = trainer_of(fit, place)
            for _ in range(WARM_UP):
                trainer.iterate()
            took = seconds(
                lambda trainer=trainer: [trainer.iterate() for _ in range(place.size.iterations)], place.device
            )
            each = took / place.size.iterations
            row = {
                "net": net,
                "recipe": recipe,
                "estimated s/iteration": guess.seconds,
                "measured": each,
            }
            row |= {"estimated GiB": guess.memory / 2**30, "measured GiB": _gib(place, peak=True), "hours": guess.hours}
            found.row("iterations", **row)
            off = guess.seconds / each - 1
            found.aim(f"the estimate of {recipe} on {net} is within 10 %", 100 * off, abs(off) <= AIMS["estimate"])
            del trainer


# --- attacks ----------------------------------------------------------------------------------------------------------


def attacks(place: Place, found: Findings) -> None:
    """Gradients of an attack on the network as it is and refined, and on a device whose memory is too small."""
    fit = _fit(place, f"jem:net={place.size.small}")
    data = unread(fit.dataset).spec
    model = make_model(fit, unread(fit.dataset)).to(place.device).eval()
    sampler = registry.resolve("samplers", "pcd:steps=10,buffer=100").make(data)
    x = torch.rand((place.size.attacked, *data.shape), device=place.device)
    y = torch.zeros(len(x), dtype=torch.int64, device=place.device)
    for steps in place.size.chains:
        with _gone(place):
            generator = seeds.generator(0, "attack", place.device)
            refined = Refined(model, sampler, steps=steps, chains=1, grad="through", generator=generator)
            target = Target(refined if steps else model, data)
            work = functools.partial(target.slope, x, y)
            work()
            took = spread(seconds(work, place.device) for _ in range(place.size.repeats))
            found.row(
                "gradients",
                refined=steps,
                **{"rows/s": len(x) / took.median, "low": len(x) / took.high, "high": len(x) / took.low},
                **{"peak GiB": _gib(place, peak=True)},
            )
    if place.device.type == "cuda":
        _too_small(place, found, Target(model, data), x, y)


def _too_small(place: Place, found: Findings, target: Target, x: torch.Tensor, y: torch.Tensor) -> None:
    """The same gradients with a quarter of the memory that they took: shards are halved, and nothing changes."""
    expected = target.slope(x, y).gradient
    total, held = torch.cuda.get_device_properties(place.device).total_memory, torch.cuda.memory_allocated(place.device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(place.device)
    target.slope(x, y)
    allowed = held + (torch.cuda.max_memory_allocated(place.device) - held) / 4
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(allowed / total, place.device)
    try:
        small = Target(target.model, target.data)
        gradient = small.slope(x, y).gradient
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, place.device)
    cosine = float(torch.cosine_similarity(gradient.flatten(), expected.flatten(), dim=0))
    found.note("memory that was allowed, GiB", allowed / 2**30)
    found.aim("cosine of the gradients with a memory that is too small", cosine, cosine > AIMS["cosine"])
