"""A small evaluation whose every part a test can set."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Generator, Tensor

from jembench.data.pixels import to_float
from jembench.interfaces import DataSpec, Features, Samples, Split

TOY = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)
CPU = torch.device("cpu")


class PixelFeatures:
    """Features that are pixels themselves: exact, and of each image alone."""

    def __init__(self, name: str = "pixels", dimensions: int = 8) -> None:
        self.name = name
        self.identity = f"{name or 'inception'}@0"
        self.dimensions = dimensions

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


@dataclass
class FakeEvaluation:
    test_logits: Tensor | None = None
    labels: Tensor | None = None
    test_energies: Tensor | None = None
    sampled: Tensor | None = None
    dataset: FakeDataset | None = None
    network: PixelFeatures = field(default_factory=PixelFeatures)
    model: object = None
    iteration_seconds: tuple[float, ...] = ()
    data: DataSpec = TOY
    device: torch.device = CPU
    seed: int = 0
    specs_asked: set[str] = field(default_factory=set)

    def test(self) -> Split:
        n = len(self.test_logits) if self.test_logits is not None else len(self.test_energies)
        return Split(torch.zeros(n, *self.data.shape, dtype=torch.uint8), self.labels)

    def logits(self) -> Tensor:
        return self.test_logits

    def energies(self) -> Tensor:
        return self.test_energies

    def energies_of(self, images: Tensor) -> Tensor:
        return self.model.energy(to_float(images, self.data.bounds))

    def samples(self) -> Samples:
        return Samples(self.sampled, None, "direct")

    def features(self, spec: str) -> PixelFeatures:
        self.specs_asked.add(spec)
        return self.network

    def features_of(self, spec: str, images: str) -> Features:
        self.specs_asked.add(spec)
        wanted = self.sampled if images == "samples" else self.dataset.split(images).images
        return self.network.features(wanted)

    def generator(self, purpose: str) -> Generator:
        return Generator().manual_seed(self.seed + sum(purpose.encode()))


def random_images(n: int, seed: int, low: int = 0, high: int = 256) -> Tensor:
    generator = Generator().manual_seed(seed)
    return torch.randint(low, high, (n, 1, 4, 4), dtype=torch.uint8, generator=generator)


@pytest.fixture
def fake():
    """The classes of this file, and a maker of random images."""

    class Fakes:
        Evaluation = FakeEvaluation
        Dataset = FakeDataset
        Features = PixelFeatures
        images = staticmethod(random_images)

    return Fakes


@pytest.fixture
def generation():
    """60 generated images, somewhat darker than the 90 and 40 real ones."""
    splits = {"train": Split(random_images(90, 1), None), "test": Split(random_images(40, 2), None)}
    return FakeEvaluation(sampled=random_images(60, 3, high=200), dataset=FakeDataset(TOY, splits))
