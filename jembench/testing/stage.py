"""The fits for checks of metrics: models in closed form, with chains.

Legend: N images, K classes.
"""

import atexit
import copy
import math
import tempfile
from collections.abc import Iterable
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
from jembench.testing.exact import Mixture, WithChains, WithMethods, deviation, drawn_images

DATA = DataSpec(name="mixture", shape=(1, 8, 8), num_classes=10)

CHAINS = 100
EPOCHS = 5
ITERATIONS = 4
"""Iterations per epoch, each with a quarter of the chains."""


def trained() -> TrainedFit:
    """Return a new fit with the results of a training.

    It has chains, buffers of the last epochs, and validation images.

    Only the feature networks and their features of images are shared between fits.
    """
    sampler, buffers = copy.deepcopy(_chains())
    return _fit(WithChains(Mixture(DATA)), drawn_images(DATA), sampler, buffers)


def with_capabilities(capabilities: Iterable[Capability]) -> TrainedFit:
    """Return a fit of the model with only these capabilities.

    It draws samples without chains.
    """
    methods = [capability.replace("samples", "sample") for capability in capabilities]
    return _fit(WithMethods(Mixture(DATA), methods), drawn_images(DATA))


@cache
def _chains() -> tuple[Sampler, tuple[Samples, ...]]:
    """Run proper Langevin dynamics for five epochs.

    Returns the sampler and a buffer per epoch.
    """
    model = Mixture(DATA)
    step_size = deviation(DATA) ** 2 / 10
    langevin = Langevin(steps=3, step_size=step_size, noise=math.sqrt(2 * step_size))
    sampler = PersistentChains(
        DATA, langevin, ClassGaussianStart(DATA), buffer_size=CHAINS, reinit=0.05
    )
    sampler.inform(drawn_images(DATA).split("train"))
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
    model: WithMethods,
    dataset: LazyDataset,
    sampler: Sampler | None = None,
    buffers: tuple[Samples, ...] = (),
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
    """Return the feature networks, which are trained once per process.

    Training takes seconds.
    """
    folder = tempfile.TemporaryDirectory(prefix="jembench-testing-")
    atexit.register(folder.cleanup)
    return FeatureBank(drawn_images(DATA), Store(Path(folder.name)), torch.device("cpu"))
