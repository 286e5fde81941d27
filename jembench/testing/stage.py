"""What metrics are checked on: a model known exactly, as after training with chains.

Legend: N images, K classes.
"""

from __future__ import annotations

import atexit
import copy
import math
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import torch

from jembench.data.datasets import LazyDataset
from jembench.data.holdout import holdout
from jembench.data.pixels import to_uint8
from jembench.interfaces import DataSpec, Sampler, Samples
from jembench.interfaces.evaluation import TrainingRecord
from jembench.interfaces.models import Capability
from jembench.models.energies import grad_energy
from jembench.running.caches import FeatureBank
from jembench.running.evaluation import TrainedFit
from jembench.sampling import chain
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin
from jembench.sampling.starts import ClassGaussianStart
from jembench.store.store import Store
from jembench.testing.exact import ByChains, Exposing, Mixture, deviation, drawn_images

DATA = DataSpec(name="mixture", shape=(1, 8, 8), num_classes=10)

CHAINS = 100
EPOCHS = 5
ITERATIONS = 4
"""An epoch, of a quarter of the chains each."""

_METHODS: Mapping[Capability, str] = {
    "logits": "logits",
    "energy": "energy",
    "log_prob": "log_prob",
    "samples": "sample",
}


def trained() -> TrainedFit:
    """The model with all that training leaves: chains, the last epochs' too, and validation images.

    Everything in it is new, but for the feature networks and what they say of images.
    """
    sampler, buffers = copy.deepcopy(_chains())
    return _fit(ByChains(Mixture(DATA)), _dataset(), sampler, buffers)


def able(capabilities: Iterable[Capability]) -> TrainedFit:
    """The model as one that can do this alone. It draws its samples without chains."""
    return _fit(Exposing(Mixture(DATA), [_METHODS[capability] for capability in capabilities]), _dataset())


def _dataset() -> LazyDataset:
    return drawn_images(DATA)


@cache
def _chains() -> tuple[Sampler, tuple[Samples, ...]]:
    """Chains that have gone on for five epochs, by proper Langevin dynamics, and are of several ages."""
    model = Mixture(DATA)
    step_size = deviation(DATA) ** 2 / 10
    langevin = Langevin(steps=3, step_size=step_size, noise=math.sqrt(2 * step_size))
    sampler = PersistentChains(DATA, langevin, ClassGaussianStart(DATA), buffer_size=CHAINS, reinit=0.05)
    sampler.inform(_dataset().split("train"))
    generator = torch.Generator().manual_seed(0)
    buffers = []
    for _ in range(EPOCHS):
        for _ in range(ITERATIONS):
            chain.draw(sampler, CHAINS // 4, grad_energy(model), generator)
        kept = sampler.kept()
        assert kept is not None
        buffers.append(Samples(to_uint8(kept.x, DATA.bounds), kept.y, "buffer", kept.ages))
    return sampler, tuple(buffers)


def _fit(
    model: Exposing, dataset: LazyDataset, sampler: Sampler | None = None, buffers: tuple[Samples, ...] = ()
) -> TrainedFit:
    return TrainedFit(
        model=model.eval(),
        sampler=sampler,
        dataset=dataset,
        device=torch.device("cpu"),
        seed=0,
        training=TrainingRecord([0.011, 0.010, 0.012, 0.010]),
        bank=_bank(),
        held=holdout(dataset.split("train"), 50, stratified=True),
        buffers=lambda: buffers,
    )


@cache
def _bank() -> FeatureBank:
    """Training a feature network takes seconds: once a process."""
    folder = tempfile.TemporaryDirectory(prefix="jembench-testing-")
    atexit.register(folder.cleanup)
    return FeatureBank(_dataset(), Store(Path(folder.name)), torch.device("cpu"))
