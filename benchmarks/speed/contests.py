"""Contests: the same work by the textbook implementation and by jembench, with a check that the
results agree.

Images are random levels of CIFAR's shape, since timings do not depend on their content.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import textbook
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jembench import seeds
from jembench.catalog import registry
from jembench.data.pixels import to_float
from jembench.experiment import recipe
from jembench.interfaces import Batch, ChainState, DataSpec, Negatives, Split
from jembench.models import devices, predictions
from jembench.models.energies import grad_energy
from jembench.models.execution import Execution, autocast, frozen, to_channels_last
from jembench.running.estimate import WARM_UP
from jembench.sampling import chain
from jembench.sampling.graph import ChainGraph
from jembench.sampling.sgld import Langevin, ShortRun
from jembench.stats import ranking
from jembench.stats.intervals import Interval, bootstrap_interval
from jembench.training.loop import Trainer

DATA = DataSpec(name="noise", shape=(3, 32, 32), num_classes=10)
IMAGES = 10_000
CLASSIFIER_ITERATIONS = 5  # a turn; one alone is too short to time
RESAMPLES = 100  # a turn


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The network, the device and the amount of work."""

    net: str
    batch: int
    steps: int  # of a chain
    images: int  # for logits
    scored: int  # images for gradient norms
    attacked: int  # images of digits for the search of the smallest eps
    workers: int  # processes per data loader of the textbook
    device: str
    precision: Literal["auto", "float32", "bfloat16"]  # of jembench; the textbook's is float32

    @property
    def place(self) -> torch.device:
        """The device."""
        return torch.device(self.device)

    @property
    def execution(self) -> Execution:
        """The execution of the network by jembench."""
        return devices.execution(DATA, self.place, precision=self.precision)

    def model(self, name: str) -> Any:
        """Make a jembench model, with the same weights each time."""
        with seeds.drawing(0, "initialisation"):
            return registry.resolve("models", f"{name}:net={self.net}").make(DATA).to(self.place)

    def trainer(self, model: Any, *overrides: str) -> Trainer:
        """Return jembench's trainer with the paper's recipe."""
        sampler = f"pcd:steps={self.steps},step_size=1.0,noise=0.01,buffer=10000,reinit=0.05"
        settings = [
            f"batch_size={self.batch}",
            f"chains.sampler={sampler}",
            f"compute.precision={self.precision}",
        ]
        paper = recipe.load("paper", [*settings, *overrides])
        return Trainer(model, DATA, toy_images().split, paper, seed=0, device=self.place)

    def jem_training(self, net: nn.Module) -> textbook.JemTraining:
        """Return the textbook's training."""
        _, pixels, labels = toy_images()
        options = {"batch": self.batch, "device": self.place, "workers": self.workers}
        return textbook.JemTraining(net, pixels, labels, steps=self.steps, **options)


class ToyImages(NamedTuple):
    """The same images in the layouts of jembench and of the textbook."""

    split: Split
    pixels: np.ndarray  # uint8 (N, H, W, C)
    labels: list[int]


@functools.cache
def toy_images() -> ToyImages:
    """Draw random levels and labels."""
    channels, height, width = DATA.shape
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(IMAGES, height, width, channels), dtype=np.uint8)
    labels = torch.from_numpy(rng.integers(DATA.num_classes, size=IMAGES))
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return ToyImages(Split(images, labels), pixels, labels.tolist())


class Contest(NamedTuple):
    """The same work by both implementations, warmed up."""

    unit: str
    units: float  # per call
    textbook: Callable[[], object]
    ours: Callable[[], object]
    agreement: Mapping[str, float]  # measures of the agreement of both results


def sampling(setting: Setting) -> Contest:
    """Return the contest of a chain of SGLD with the paper's constants; agreement is that of chains
    without noise.
    """
    model, device = setting.model("jem").eval(), setting.place
    net = copy.deepcopy(model.net)
    if setting.execution.channels_last:
        to_channels_last(model, DATA)
    evaluate = grad_energy(model, setting.execution)
    generator = torch.Generator(device).manual_seed(0)
    start = to_float(_first(setting, setting.batch), DATA.bounds)
    chains = {noise: ShortRun(DATA, _langevin(setting, noise)) for noise in (0.0, textbook.NOISE)}
    runs = {
        noise: ChainGraph(model).run if setting.execution.captured else chain.run
        for noise in chains
    }

    def ours(noise: float = textbook.NOISE) -> Tensor:
        with frozen(model):
            return runs[noise](chains[noise], ChainState(start), evaluate, generator, None).x

    def theirs(noise: float = textbook.NOISE) -> Tensor:
        return textbook.langevin(net, start, setting.steps, noise)

    for _ in range(WARM_UP if setting.execution.captured else 0):
        ours()
    cosine = _cosine(theirs(0.0) - start, ours(0.0) - start)
    return Contest("SGLD step", setting.steps, theirs, ours, {"cosine": cosine})


def jem(setting: Setting) -> Contest:
    """Return the contest of an iteration of JEM, from the images in memory to the new weights."""
    model = setting.model("jem")
    net = copy.deepcopy(model.net)
    ours, theirs = setting.trainer(model), setting.jem_training(net)
    x, labelled, samples = to_float(_first(setting, 3 * setting.batch), DATA.bounds).chunk(3)
    y = _labels(setting, setting.batch)
    loss = textbook.jem_loss(net, x, samples, labelled, y)
    agreement = _agreement(ours, Batch(x, labelled, y), Negatives(samples, None), net, loss)
    return _training(ours, theirs, 1, agreement)


def classifier(setting: Setting) -> Contest:
    """Return the contest of an iteration of the same network as a classifier."""
    model = setting.model("baseline")
    net = copy.deepcopy(model.net)
    _, pixels, labels = toy_images()
    ours = setting.trainer(model)
    theirs = textbook.ClassifierTraining(
        net, pixels, labels, batch=setting.batch, device=setting.place, workers=setting.workers
    )
    x, y = to_float(_first(setting, setting.batch), DATA.bounds), _labels(setting, setting.batch)
    agreement = _agreement(ours, Batch(x, x, y), None, net, F.cross_entropy(net(x), y))
    return _training(ours, theirs, CLASSIFIER_ITERATIONS, agreement)


def evaluation(setting: Setting) -> Contest:
    """Return the contest of f(x) of the test images, as metrics of classification need it."""
    model, device = setting.model("jem").eval(), setting.place
    net = copy.deepcopy(model.net)
    to_channels_last(model, DATA)

    def ours(count: int = setting.images) -> Tensor:
        return predictions.read(model, toy_images().split.images[:count], DATA, device, {"logits"})[
            "logits"
        ]

    def theirs(count: int = setting.images) -> Tensor:
        return textbook.logits(net, _evaluation_loader(setting, count), device)

    few = min(setting.images, predictions.CPU_BATCH)
    agreement = {"largest difference": float((theirs(few) - ours(few)).abs().max())}
    return Contest(f"{setting.images:,} images", 1, theirs, ours, agreement)


def gradient_norm(setting: Setting) -> Contest:
    """Return the contest of -|d log p(x) / dx|, in float32 as in evaluation."""
    model, device = setting.model("jem").eval(), setting.place
    net = copy.deepcopy(model.net)
    to_channels_last(model, DATA)
    evaluate = grad_energy(model)

    def ours(count: int = setting.scored) -> Tensor:
        parts = torch.split(toy_images().split.images[:count], textbook.EVALUATION_BATCH)
        grads = (evaluate(to_float(part.to(device), DATA.bounds), None)[1] for part in parts)
        return torch.cat([-grad.flatten(1).norm(dim=1).cpu() for grad in grads])

    def theirs(count: int = setting.scored) -> Tensor:
        return textbook.gradient_scores(net, _evaluation_loader(setting, count), device)

    few = min(setting.scored, textbook.EVALUATION_BATCH)
    own, reference = ours(few), theirs(few)
    agreement = {"largest relative difference": float(((own - reference) / reference).abs().max())}
    return Contest(f"{setting.scored:,} images", 1, theirs, ours, agreement)


def scores(setting: Setting) -> Contest:
    """Return the contest of the three scores of out-of-distribution detection against the passes
    that they need.

    The other side is not the textbook but the least work: one forward and one backward pass towards
    the images per batch, of the same size and in the same layout. So the best ratio is 1.
    """
    model, device = setting.model("jem").eval(), setting.place
    to_channels_last(model, DATA)
    size = predictions.batch(device, DATA.shape)

    def ours(count: int = setting.scored) -> predictions.Readings:
        images = toy_images().split.images[:count]
        return predictions.read(model, images, DATA, device, {"logits", "energy", "grad-norm"})

    def bare(count: int = setting.scored) -> list[Tensor]:
        gradients = []
        with frozen(model):
            for part in torch.split(_first(setting, count), size):
                x = to_float(part, DATA.bounds).requires_grad_()
                gradients += torch.autograd.grad(model.net(x).logsumexp(1).sum(), x)
        return gradients

    few = min(setting.scored, size)
    reference = torch.cat(bare(few)).flatten(1).norm(dim=1).cpu()
    agreement = {
        "largest relative difference": float((ours(few)["grad-norm"] / reference - 1).abs().max())
    }
    return Contest(f"{setting.scored:,} images", 1, bare, ours, agreement)


def bootstrap(setting: Setting) -> Contest:
    """Return the contest of the interval of AUROC from equal numbers of scores, on the CPU."""
    rng = np.random.default_rng(0)
    count = setting.images
    inside, outside = rng.normal(1, 1, count), rng.normal(0, 1, count)
    estimate = textbook.auroc(inside, outside)

    def ours() -> Interval | None:
        return bootstrap_interval(
            estimate, ranking.auroc_resampling(inside, outside), rng=rng, resamples=RESAMPLES
        )

    def theirs() -> np.ndarray:
        return textbook.auroc_interval(inside, outside, RESAMPLES, rng)

    i, j = rng.integers(count, size=(2, count))
    own = ranking.auroc_resampling(inside, outside).statistic(i[None], j[None]).item()
    agreement = {"largest difference": abs(own - textbook.auroc(inside[i], outside[j]))}
    return Contest(f"resample of 2 x {count:,} scores", RESAMPLES, theirs, ours, agreement)


def _langevin(setting: Setting, noise: float) -> Langevin:
    return Langevin(steps=setting.steps, step_size=textbook.STEP_SIZE, noise=noise)


def _first(setting: Setting, count: int) -> Tensor:
    return toy_images().split.images[:count].to(setting.place)


def _labels(setting: Setting, count: int) -> Tensor:
    return torch.tensor(toy_images().labels[:count], device=setting.place)


def _evaluation_loader(setting: Setting, count: int) -> Any:
    _, pixels, labels = toy_images()
    return textbook.evaluation_loader(pixels[:count], labels[:count], workers=setting.workers)


def _training(
    ours: Trainer, theirs: textbook.Training, iterations: int, agreement: Mapping[str, float]
) -> Contest:
    """Return the contest of two trainings, after an iteration that fills and compiles."""

    def repeated(iterate: Callable[[], object]) -> Callable[[], None]:
        def work() -> None:
            for _ in range(iterations):
                iterate()

        return work

    execution = ours.functions.execution
    for _ in range(WARM_UP if execution.compiled or execution.captured else 1):
        ours.iterate()
    theirs.iterate()
    return Contest(
        "iteration", iterations, repeated(theirs.iterate), repeated(ours.iterate), agreement
    )


def _agreement(
    ours: Trainer, batch: Batch, negatives: Negatives | None, net: nn.Module, reference: Tensor
) -> dict[str, float]:
    """Return the difference of both losses at the same weights, images and negatives, and the
    cosine of the gradients.

    The cosine is the lowest of all parameters': over all of them, those of the last layer would
    hide the rest.
    """
    with autocast(ours.functions.execution.precision, ours.device):
        loss = ours.model.training_loss(batch, negatives).total
    grads = torch.autograd.grad(loss, list(ours.model.parameters()))
    references = torch.autograd.grad(reference, list(net.parameters()))
    lowest = min(_cosine(theirs, own) for theirs, own in zip(references, grads, strict=True))
    return {"loss": reference.item(), "our loss": loss.item(), "lowest cosine": lowest}


def _cosine(first: Tensor, second: Tensor) -> float:
    return float(torch.cosine_similarity(first.flatten(), second.flatten(), dim=0))
