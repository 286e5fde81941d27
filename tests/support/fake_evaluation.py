"""A small evaluation whose every part a test can set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from jembench import progress
from jembench.data.pixels import to_float
from jembench.errors import Unavailable
from jembench.interfaces import DataSpec, Evaluation, Features, Samples, Source, Split
from jembench.interfaces.evaluation import KEPT, TrainingRecord

TOY = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
CPU = torch.device("cpu")


class PixelFeatures:
    """Features that are pixels themselves: exact, and of each image alone."""

    def __init__(self, name: str = "pixels", dimensions: int = 8) -> None:
        self.name = name
        self.identity = f"{name or 'inception'}@0"
        self.dimensions = dimensions
        self.published = not name

    def prepare(self, dataset, cache, device) -> None: ...

    def features(self, images: Tensor) -> Features:
        flat = images.flatten(1).float() / 255
        return Features(pool=flat[:, : self.dimensions], logits=8 * flat[:, self.dimensions :])


@dataclass
class FakeDataset:
    spec: DataSpec
    splits: dict[str, Split]

    def split(self, name: str) -> Split:
        return self.splits[name]


class FakeEvaluation(Evaluation):
    """An evaluation that is all of its parts itself, and whose attributes can be set."""

    __setattr__ = object.__setattr__

    def __init__(self, **given):
        self.test_logits = None
        self.labels = None
        self.test_energies = None
        self.sampled = None
        self.dataset = None
        self.network = PixelFeatures()
        self.model = None
        self.iteration_seconds = ()
        self.other_load = None
        self.stability = None
        self.hours = None
        self.spec = TOY
        self.content = ""
        self.truth = None
        self.device = CPU
        self.seed = 0
        self.specs_asked = set()
        self.sets = {}  # images by name; a test may name them as it likes
        self.set_labels = {}
        self.readings = {}  # by (quantity, name of the images)
        self.refinements = {}  # refined energies by the name of the images
        self.by_source = {}
        self.sampler = None
        self.memory = {}  # what was remembered, by name
        self.shards_left = None  # of long work, until the time is over; None: there is time for all
        self.noises = []  # that were asked for
        self.told = []  # how many images were done of how many, before each shard
        for name, value in given.items():
            assert hasattr(self, name)
            setattr(self, name, value)

    def but(self, **changes) -> FakeEvaluation:
        """The same with other parts."""
        return FakeEvaluation(**{**vars(self), **changes})

    @property
    def data(self):
        return self

    predictions = services = data

    @property
    def training(self) -> TrainingRecord:
        return TrainingRecord(self.iteration_seconds, self.other_load, self.stability, self.hours)

    def part(self, name: str) -> Split:
        if name != "test":
            if name not in self.set_labels:
                raise Unavailable(f"There are no images named {name}.")
            return Split(self.sets.get(name), self.set_labels[name])
        if "test" in self.sets:
            return Split(self.sets["test"], self.labels)
        n = len(self.test_logits) if self.test_logits is not None else len(self.test_energies)
        return Split(torch.zeros(n, *self.spec.shape, dtype=torch.uint8), self.labels)

    def images(self, name: str) -> Tensor:
        if name == "test":
            return self.part("test").images
        if name not in self.sets:
            raise Unavailable(f"There are no images named {name}.")
        return self.sets[name]

    def read(self, quantity: str, images: str | Tensor = "test", noise: float = 0.0) -> Tensor:
        """Return the tensor that the test set down for a name; of images, the model's."""
        self.noises.append(noise)
        if isinstance(images, Tensor):
            x = to_float(images, self.spec.bounds)
            if quantity == "logits":
                return self.model.logits(x)
            if quantity == "energy":
                return self.model.energy(x)
            x = x.requires_grad_()
            return torch.autograd.grad(self.model.energy(x).sum(), x)[0].flatten(1).norm(dim=1)
        if (quantity, images) in self.readings:
            return self.readings[quantity, images]
        return {"logits": self.test_logits, "energy": self.test_energies}[quantity]

    def refined(self, images: str | Tensor, steps: int, noise: float = 0.0) -> Tensor:
        return self.refinements[images]

    def remembered(self, name: str, compute) -> dict[str, Tensor]:
        self.told.append(progress.now()[1:3])
        if name not in self.memory:
            self.memory[name] = compute()
        return self.memory[name]

    share = (0, 1)

    def out_of_time(self) -> bool:
        if self.shards_left is None:
            return False
        self.shards_left -= 1
        return self.shards_left < 0

    def samples(self, source: Source = KEPT) -> Samples:
        if source in self.by_source:
            return self.by_source[source]
        if source != KEPT:
            raise Unavailable(f"There are no samples from {source}.")
        return Samples(self.sampled, None, "direct")

    def features(self, spec: str) -> PixelFeatures:
        self.specs_asked.add(spec)
        return self.network

    def features_of(self, spec: str, images: str | Tensor) -> Features:
        self.specs_asked.add(spec)
        if isinstance(images, Tensor):
            return self.network.features(images)
        return self.network.features(self.dataset.split(images).images)

    def generator(self, purpose: str) -> Generator:
        return Generator().manual_seed(self.seed + sum(purpose.encode()))


def random_images(n: int, seed: int, low: int = 0, high: int = 256) -> Tensor:
    generator = Generator().manual_seed(seed)
    return torch.randint(low, high, (n, 1, 4, 4), dtype=torch.uint8, generator=generator)


class Fakes:
    """The classes of this file, and a maker of random images."""

    Evaluation = FakeEvaluation
    Dataset = FakeDataset
    Features = PixelFeatures
    images = staticmethod(random_images)
