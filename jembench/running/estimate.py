"""What a training would cost, from a few of its iterations, and what an attack would, from a few network passes.

The images are random: no time depends on what they show, and a dataset need not be there for it. A first answer comes
within seconds, on a CPU from few images and on a GPU before anything is compiled; better ones follow.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from jembench import seeds
from jembench.attacks.target import Target
from jembench.catalog import discovery
from jembench.data.datasets import unread
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.experiment import recipe_files as recipes
from jembench.experiment.plan import PRETRAINED, FitPlan, plan_fit
from jembench.experiment.recipe import Recipe
from jembench.interfaces import Dataset, Split
from jembench.models import devices, predictions
from jembench.models.capabilities import is_fitted
from jembench.models.execution import to_channels_last
from jembench.running.fits import make_model
from jembench.training.loop import Trainer

SHORT, LONG = 1, 3
"""The chain lengths that are timed; longer ones follow, since every step of a chain takes the same time."""

QUICK = 2.0
"""Seconds; an iteration that takes longer is timed once, others a few times. Less is not worth an answer."""

PATIENCE = 60.0
"""Seconds; batches for which a better estimate would take longer are not timed."""

FEW, TIMES = 2, 4
"""Images of the first batches on a CPU, and how many times as many each of the next has."""

DIFFERENT = 1000
"""How many of the random images differ."""

WARM_UP = 4
"""Untimed iterations where the network is compiled or chains are captured: one as it is written, one that compiles, and
two in which CUDA graphs warm up and are captured. Otherwise one is enough."""


class Estimate(NamedTuple):
    """The cost of one fit on one device."""

    recipe: str
    model: str
    seconds: float  # an iteration
    iterations: int  # of the whole recipe
    hours: float  # of the whole recipe
    memory: int  # bytes at the peak: on a GPU of tensors, on a CPU of the process; 0 if not known
    timed: str  # what was timed, in words
    operations: int = 0  # floating-point, an iteration; 0 if they cannot be counted
    chosen: bool = False  # whether the recipe is the default
    reason: str = ""  # why the recipe cannot be used for this model and dataset; all numbers are then 0


class _Probe(Trainer):
    """A trainer whose chains are as long as is asked for."""

    length: int | None = None

    def use(self, recipe: Recipe) -> None:
        """Go on by another recipe for the same model, chains and images."""
        self.recipe = recipe
        self._seed()
        self._prepare()

    @property
    def sampling_steps(self) -> int:
        return super().sampling_steps if self.length is None or self.sampler is None else self.length


def estimates(fit: FitPlan, dataset: Dataset, device: torch.device) -> Iterator[Estimate]:
    """Run a few iterations with short chains and say what the whole training would take, each time more exactly.

    Few images stand for more in proportion, and the first, shortest chains for longer ones by their network passes.

    Raises:
        Unavailable: if only the files give the number of training images, and they are missing.
    """
    with devices.threads_for(dataset.spec, device):
        trainer = _Probe(
            make_model(fit, dataset), dataset.spec, random_images(dataset), fit.recipe, seed=fit.seed, device=device
        )
        iterations, batch, is_compiled = trainer.iterations, fit.recipe.batch_size, trainer.execution.compiled
        stages = list(_stages(fit.recipe, is_compiled, device))
        for number, recipe in enumerate(stages):
            trainer.use(recipe)
            images, before = recipe.batch_size, _memory(device)
            _reset_peak(device)
            seconds, short = _time(trainer, device, roughly=number == 0 and len(stages) > 1)
            memory = before + (_peak(device) - before) * batch // images
            rest = _TURNS * short * stages[number + 1].batch_size / images if number + 1 < len(stages) else 0
            last = not rest or (number > 0 and rest > PATIENCE)
            if last or seconds * batch / images > QUICK:
                timed = "whole batches" if images == batch else f"{images} of {batch} images a batch"
                if trainer.execution.compiled != is_compiled:
                    timed += ", not compiled yet"
                whole = seconds * batch / images
                hours = whole * iterations / 3600
                yield Estimate(fit.recipe.label, fit.key.model, whole, iterations, hours, memory, timed)
            if last:
                return


def counted_estimates(fit: FitPlan, dataset: Dataset, *, rate: float) -> Iterator[Estimate]:
    """What the training would cost by its operations and their rate a second, and its memory by its tensors.

    Raises:
        Unavailable: as :func:`~jembench.running.counting.counted` does.
    """
    from jembench.running.counting import counted  # only here: PyTorch's tensors without content take a second

    found = counted(fit, dataset, random_images(dataset))
    seconds = found.iteration / rate
    hours, how = seconds * found.iterations / 3600, f"nothing: operations, at {rate / 1e12:g} TFLOP/s"
    yield Estimate(
        fit.recipe.label, fit.key.model, seconds, found.iterations, hours, found.memory, how, found.iteration
    )


_TURNS = 4.0
"""What a stage takes, in iterations with the shortest chains."""


def _stages(recipe: Recipe, compiled: bool, device: torch.device) -> Iterator[Recipe]:
    """The recipe with what is soonest timed, and at last as it is."""
    batch = recipe.batch_size
    if device.type == "cpu":
        sizes = [FEW, *(FEW * TIMES**power for power in range(batch.bit_length()))]
        for images in (size for size in sizes if size < batch):
            labelled = max(1, recipe.data.labelled_batch * images // batch) if recipe.data.labelled_batch else 0
            data = dataclasses.replace(recipe.data, labelled_batch=labelled)
            yield dataclasses.replace(recipe, batch_size=images, data=data)
    elif compiled:
        yield dataclasses.replace(recipe, compute=dataclasses.replace(recipe.compute, compile="off"))
    yield recipe


def _time(trainer: _Probe, device: torch.device, *, roughly: bool) -> tuple[float, float]:
    """Seconds of an iteration of the recipe, and of one with the shortest chain."""
    trainer.length = None
    steps, passes = trainer.sampling_steps, trainer.passes
    trainer.length = SHORT
    cold = roughly and device.type == "cpu"  # a second iteration would double the time to the first answer
    warm_up = QUICK
    execution = trainer.execution
    for _ in range(WARM_UP if execution.compiled or execution.captured else 0 if cold else 1):
        warm_up = _timed(trainer, device)
    repeats = 5 if warm_up < QUICK else 1
    short = statistics.median(_timed(trainer, device) for _ in range(repeats))
    if steps <= SHORT:
        return short, short
    if roughly:
        return short * passes / trainer.passes, short
    trainer.length = LONG
    for _ in range(WARM_UP if execution.captured else 0):  # a chain of another length is captured anew
        _timed(trainer, device)
    long = statistics.median(_timed(trainer, device) for _ in range(repeats))
    return short + (steps - SHORT) * max(long - short, 0) / (LONG - SHORT), short


def seconds_a_pass(fit: FitPlan, dataset: Dataset, device: torch.device) -> float:
    """How long one image takes forward and back through the network, in the batches that attacks make."""
    model = make_model(fit, dataset).to(device)
    to_channels_last(model, dataset.spec)
    target = Target(model, dataset.spec)
    count = predictions.batch(device, dataset.spec.shape)
    x = torch.rand(count, *dataset.spec.shape, generator=seeds.generator(0, "estimate", device), device=device)
    y = torch.zeros(count, dtype=torch.long, device=device)

    def once(images: int) -> float:
        start = time.perf_counter()
        target.slope(x[:images], y[:images])[0].sum().item()  # an answer that is read is there
        return (time.perf_counter() - start) / images

    with devices.threads_for(dataset.spec, device):
        if device.type == "cpu":  # a batch of a large network takes minutes
            once(FEW)
            count = min(count, max(FEW, int(QUICK / once(FEW))))
        once(count)
        return statistics.median(once(count) for _ in range(3))


def random_images(dataset: Dataset) -> Split:
    """Noise with labels, as many as the dataset's training images.

    The images are copies of a few: drawing 50,000 of them would take longer than what is timed.
    """
    count = getattr(dataset, "train_size", None) or len(dataset.split("train").images)
    generator, numbers = seeds.generator(0, "estimate"), torch.arange(count)
    few = torch.randint(256, (DIFFERENT, *dataset.spec.shape), dtype=torch.uint8, generator=generator)
    labels: Tensor = numbers % dataset.spec.num_classes
    return Split(few[numbers % DIFFERENT], labels)


def _timed(trainer: Trainer, device: torch.device) -> float:
    _finish(device)
    start = time.perf_counter()
    trainer.iterate()
    _finish(device)
    return time.perf_counter() - start


def _finish(device: torch.device) -> None:
    """Wait for all that the device was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        _CLEAR.write_text("5")  # the process's peak is that from now on


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _of_process("VmHWM")


def _memory(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _of_process("VmRSS")


def _of_process(name: str) -> int:
    if not _STATUS.exists():
        return 0
    (line,) = [line for line in _STATUS.read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


# --- recipes side by side ---------------------------------------------------------------------------------------------

PLAIN = ("compute.precision=float32", "compute.layout=contiguous", "compute.compile=off")


def compare_recipes(
    model: str,
    dataset: str,
    recipe: str | None,
    settings: Sequence[str],
    against: Sequence[str] | None,
    device: torch.device,
    say: Callable[[str], None],
    *,
    rate: float | None = None,
) -> list[Estimate]:
    """What a training would cost, the same in float32, and the same model trained by other recipes.

    Args:
        model: its spec.
        dataset: its spec; its files need not be there.
        recipe: its name or file; None: the default.
        settings: changes of the recipe, ``key=value``.
        against: names of other recipes; None: all for the same models, and for any dataset or this one. Of these, one
            that cannot be used has a row with the reason.
        device: where the model would be trained.
        say: gets a sentence for each estimate as it comes.
        rate: floating-point operations a second of hardware that is not here: nothing is timed, and precision counts
            for nothing but the memory.

    Raises:
        SpecError: if the model was trained elsewhere, or a recipe that was named cannot be used.
        Unavailable: if operations cannot be counted.
    """
    asked, default = plan_fit(model, dataset, recipe, settings), plan_fit(model, dataset)
    if asked.model.is_pretrained:
        raise SpecError(f"{asked.key.model} was trained elsewhere: there is no training to estimate.")
    data = unread(asked.dataset)
    if is_fitted(make_model(asked, data)):
        raise SpecError(f"{asked.key.model} is fitted to all images at once: there are no iterations to estimate.")
    measure = functools.partial(counted_estimates, rate=rate) if rate else functools.partial(estimates, device=device)

    def estimated(name: str, fit: FitPlan) -> Estimate:
        say(f"{'counting' if rate else 'timing'} {name} ...")
        for found in measure(fit, data):
            say(f"{name}: about {found.hours:.3g} hours, from {found.timed}")
        chosen = fit.recipe.label == default.recipe.label
        return found._replace(recipe=name, operations=found.operations or _operations(fit, data), chosen=chosen)

    rows = [
        estimated(asked.key.recipe, asked),
        estimated("the same in float32", plan_fit(model, dataset, recipe, (*settings, *PLAIN))),
    ]
    for name in other_recipes(asked) if against is None else against:
        try:
            rows.append(estimated(name, plan_fit(model, dataset, name)))
        except JembenchError as error:
            if against is not None:
                raise
            rows.append(Estimate(name, asked.key.model, 0, 0, 0, 0, "", reason=str(error)))
    return rows


def _operations(fit: FitPlan, dataset: Dataset) -> int:
    """Floating-point operations of an iteration; 0 if they cannot be counted."""
    from jembench.running.counting import counted

    with suppress(Unavailable):
        return counted(fit, dataset, random_images(dataset)).iteration
    return 0


def other_recipes(asked: FitPlan) -> list[str]:
    """Recipes for the same models, and for any dataset or this one.

    A recipe that is no dataset's default belongs to the dataset that its name begins with, if there is one.
    """
    dataset = asked.dataset.component.name
    elsewhere = {component.name for component in discovery.components("datasets")} - {dataset}
    known = [recipes.load(name) for name in recipes.names() if name not in (asked.recipe.name, PRETRAINED)]
    return [
        other.name
        for other in known
        if other.models == asked.recipe.models
        and (dataset in other.default_for if other.default_for else other.name.partition("-")[0] not in elsewhere)
    ]
