"""The cost of a training, and the remaining work of a plan.

A few iterations of a training are timed, with short chains and blank images: times do not depend
on the content of images, and the dataset need not be available.
"""

import random
import resource
import statistics
import time
from typing import NamedTuple

import torch

from jembench import limits
from jembench.catalog.spec import Spec
from jembench.data.datasets import blank, make
from jembench.data.images import Images
from jembench.errors import NotApplicable, SpecError
from jembench.experiment.plan import CellPlan, FitPlan, Plan
from jembench.files import cache_folder
from jembench.metrics.attacks import Attack
from jembench.models import devices
from jembench.models.capabilities import is_fitted
from jembench.running.building import make_model
from jembench.running.check import Datasets, Outlook, look_ahead
from jembench.store.outcome import Outcome
from jembench.store.store import Store
from jembench.training.loop import Trainer

SHORT, LONG = 1, 3
"""The lengths of the timed chains. Times of other lengths are extrapolated, since all steps take
the same time.
"""

QUICK = 2.0
"""Seconds from which on an iteration is timed once; quicker iterations are timed three times."""

READ = 64
"""The number of images that are read to time the reading of all."""

WARM_UP = 4
"""The number of untimed iterations if the network is compiled or chains are captured: one is plain,
one compiles, and in two CUDA graphs warm up and are captured. Otherwise one is enough.
"""


class TrainingCost(NamedTuple):
    """The cost of one fit on one device."""

    recipe: str
    model: str
    seconds: float  # per iteration
    iterations: int  # of the whole recipe
    hours: float  # of the whole recipe
    memory: int  # peak in bytes, of tensors on a GPU, of the process on a CPU


class _Probe(Trainer):
    """A trainer with chains of a given length."""

    length: int | None = None

    @property
    def sampling_steps(self) -> int:
        if self.length is None or self.chains.sampler is None:
            return super().sampling_steps
        return self.length


def estimate(fit: FitPlan, device: torch.device) -> TrainingCost:
    """Estimate the cost of a training.

    Args:
        fit: the training; the files of its dataset need not be available.
        device: of the timed iterations.

    Raises:
        SpecError: if the model is not trained in iterations.
        Unavailable: if only the files give the number of training images, and they are missing.
    """
    if fit.is_pretrained:
        raise SpecError(f"{fit.asked} was trained elsewhere: there is no training to estimate.")
    dataset = blank(make(fit.dataset, download=True)) or fit.dataset.make()
    model = make_model(fit, dataset)
    if is_fitted(model):
        raise SpecError(
            f"{fit.asked} is fitted to all images at once: there are no iterations to estimate."
        )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with devices.threads_for(dataset.spec, device):
        trainer = _Probe(
            model, dataset.spec, dataset.split("train"), fit.recipe, seed=fit.seed, device=device
        )
        seconds = _seconds(trainer)
    if device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(device)
    else:
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hours = seconds * trainer.iterations / 3600
    return TrainingCost(fit.key.recipe, fit.key.model, seconds, trainer.iterations, hours, memory)


def _seconds(trainer: _Probe) -> float:
    """Return an iteration's seconds, extrapolated from shorter chains."""
    steps = trainer.sampling_steps
    short = _timed_chains(trainer, SHORT)
    if steps <= SHORT:
        return short
    per_step = max(_timed_chains(trainer, LONG) - short, 0) / (LONG - SHORT)
    return short + (steps - SHORT) * per_step


def _timed_chains(trainer: _Probe, length: int) -> float:
    """Return the median seconds of an iteration with chains of a length."""
    trainer.length = length
    warm_up, repeats = 1, 3
    execution = trainer.functions.execution
    if execution.compiled or execution.captured:
        warm_up = WARM_UP
    for _ in range(warm_up):
        seconds = _timed(trainer)
    if seconds >= QUICK:
        repeats = 1
    return statistics.median(_timed(trainer) for _ in range(repeats))


def _timed(trainer: Trainer) -> float:
    """Return the seconds of one iteration, including the work of the device."""
    synchronize = torch.get_device_module(trainer.device).synchronize
    synchronize(trainer.device)
    start = time.perf_counter()
    trainer.iterate()
    synchronize(trainer.device)
    return time.perf_counter() - start


# --- a dry run ------------------------------------------------------------------------------------


class FitPreview(NamedTuple):
    """The remaining work of one fit."""

    model: Spec
    dataset: Spec
    recipe: str
    seed: int
    trained: bool  # True also for a model that was trained elsewhere
    iterations: int | None  # None: unknown, since the dataset is missing
    to_do: list[Spec]  # metrics
    done: list[Spec]
    not_applicable: dict[Spec, str]  # metric -> why
    missing: dict[Spec, str]  # metric or dataset -> what is missing, with the remedy
    passes: dict[Spec, int]  # attack -> network passes at one size of the change
    memory: str = ""  # of the training, in words; "": unknown, or small


def preview(plan: Plan, store: Store, device: torch.device) -> tuple[list[FitPreview], Outlook]:
    """Check the pending part of a plan, without training, downloading or writing.

    Returns:
        the work of each fit, and the results of the check.
    """
    settled: dict[str, Outcome] = {}
    for cell in plan.cells:
        record = store.read_cell(cell)
        if record and record.outcome.is_settled:
            settled[cell.id] = record.outcome
    pending = [cell for cell in plan.cells if cell.id not in settled]
    outlook = look_ahead(Plan(plan.suite, pending), Datasets(dry=True), device)

    previews = []
    for fit in plan.fits:
        planned = outlook.fits.get(fit.key.id)
        trained = fit.is_pretrained or store.is_trained(fit.key)
        iterations = planned.iterations if planned else None
        row = FitPreview(*fit.key.names, fit.seed, trained, iterations, [], [], {}, {}, {})
        for cell in plan.cells_of(fit):
            _add(row, cell, settled.get(cell.id), outlook)
        if planned and planned.memory:
            row = row._replace(memory=str(planned.memory))
        if fit.key.dataset in outlook.absent:
            row.missing[fit.key.dataset] = outlook.absent[fit.key.dataset]
        if trained or not row.to_do:
            row = row._replace(iterations=0, memory="")
        previews.append(row)
    return previews, outlook


def readings(outlook: Outlook) -> list[str]:
    """Describe the reading of images that do not lie in memory, timed on some of them."""
    texts = dict[str, None]()
    for planned in outlook.fits.values():
        for part, images in (
            ("training", planned.dataset.split("train").images),
            ("test", planned.test.images),
        ):
            if isinstance(images, Images):
                texts[f"{planned.spec.name}: {_reading(part, images)}"] = None
    return list(texts)


def _reading(part: str, images: Images) -> str:
    """Return the size of images, and the seconds of reading all of them."""
    # other ones each time, since some may be kept already
    rows = torch.tensor(random.sample(range(len(images)), min(READ, len(images))))
    start = time.perf_counter()
    images[rows]
    minutes = (time.perf_counter() - start) / len(rows) * len(images) / 60
    size = images.numel() / limits.GIB
    kept = f"kept in {cache_folder()} as they are first read"
    if size > limits.CACHE.value:
        kept = f"decoded at each reading, above {limits.CACHE.variable}={limits.CACHE.value}"
    height, width = images.shape[-2:]
    return (
        f"{len(images):,} {part} images of {height}x{width} pixels, {size:,.1f} GiB, are read in "
        f"parts. Image files are {kept}. Reading all takes about {minutes:,.1f} minutes, by "
        f"{len(rows)} of them."
    )


def _add(row: FitPreview, cell: CellPlan, outcome: Outcome | None, outlook: Outlook) -> None:
    """Add a cell to its fit's work, by stored outcome or check."""
    metric, reason = cell.metric.spec, outlook.reason(cell)
    if outcome and outcome.status == "ok":
        row.done.append(metric)
    elif outcome:
        row.not_applicable[metric] = outcome.reason
    elif isinstance(reason, NotApplicable):
        row.not_applicable[metric] = str(reason)
    elif reason:
        row.missing[metric] = str(reason)
    else:
        row.to_do.append(metric)
        if cell.fit.key.id in outlook.fits:
            attack = cell.metric.make()
            if isinstance(attack, Attack) and attack.passes:
                row.passes[metric] = attack.passes
