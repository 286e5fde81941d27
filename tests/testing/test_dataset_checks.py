"""Every check of datasets finds the faults that are planted for it."""

import itertools

import pytest
import torch

from jembench.errors import Unavailable
from jembench.interfaces import DataSpec, Split
from jembench.testing import check_dataset
from jembench.testing.checks import PROMISES, perform

SIZES = {"train": 60, "test": 30}


class Toy:
    """Noise in three classes that take turns."""

    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=3, class_names=("a", "b", "c"))

    def split(self, name):
        generator = torch.Generator().manual_seed(len(name))
        images = torch.randint(256, (SIZES[name], 1, 4, 5), dtype=torch.uint8, generator=generator)
        return Split(images, torch.arange(SIZES[name]) % 3)


class Unlabelled(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=0)

    def split(self, name):
        return Split(super().split(name).images, None)


class WithoutSpec:
    split = Toy.split


class TrainAlone(Toy):
    def split(self, name):
        return {"train": super().split(name)}[name]


class UpsideDown(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=3, bounds=(1.0, -1.0))


class ShapeInAList(Toy):
    spec = DataSpec(name="toy", shape=[1, 4, 5], num_classes=3)


class OfNumpy(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images.numpy(), labels)


class LabelsInAList(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images, labels.tolist())


class OtherShape(Toy):
    spec = DataSpec(name="toy", shape=(1, 5, 4), num_classes=3)


class ShortLabels(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images, labels[:-1])


class FromOne(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=4)

    def split(self, name):
        images, labels = super().split(name)
        return Split(images, 4 - torch.arange(len(labels)) % 5)


class LabelsUnsaid(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=0)


class FourClasses(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=4)


class TestedOnTraining(Toy):
    def split(self, name):
        images, labels = super().split(name)
        if name == "test":
            images[:2] = super().split("train").images[:2]
        return Split(images, labels)


class AnotherEachTime(Toy):
    made = itertools.count()

    def __init__(self):
        self.number = next(self.made)

    def split(self, name):
        images, labels = super().split(name)
        return Split(images.roll(self.number, dims=0), labels)


KEPT = {name: Toy().split(name) for name in SIZES}


class HandsOutItsOwn(Toy):
    def split(self, name):
        return KEPT[name]


class Seeds(Toy):
    def split(self, name):
        torch.manual_seed(len(name))
        return super().split(name)


FAULTS = {
    WithoutSpec: "can-be-made",
    TrainAlone: "can-be-made",
    UpsideDown: "spec",
    ShapeInAList: "spec",
    OfNumpy: "images",
    OtherShape: "images",
    LabelsInAList: "labels",
    ShortLabels: "labels",
    FromOne: "labels",
    LabelsUnsaid: "labels",
    FourClasses: "labels",
    TestedOnTraining: "test-apart-from-train",
    AnotherEachTime: "same-each-time",
    HandsOutItsOwn: "same-each-time",
    Seeds: "global-randomness",
}
BY_NAME = {fault.__name__: fault for fault in FAULTS}


def toy(*, fault: str = ""):
    return BY_NAME.get(fault, Toy)()


def unlabelled():
    return Unlabelled()


def fails():
    raise ValueError("no such thing")


def far_away():
    raise Unavailable("The images are on the moon. Fetch them.")


def results(factory):
    return [perform(check) for check in check_dataset(f"{__name__}:{factory}")]


def failed(factory):
    return {
        result.check.name: result.message
        for result in results(factory)
        if result.status == "failed"
    }


@pytest.mark.parametrize("factory", ["toy", "unlabelled"])
def test_a_dataset_without_fault_passes_every_check(factory):
    assert {result.status for result in results(factory)} == {"passed"}


def test_a_factory_that_fails_is_told_once():
    assert list(failed("fails")) == ["can-be-made"]


@pytest.mark.parametrize("fault", BY_NAME)
def test_a_planted_fault_fails_its_check_and_no_other(fault):
    failures = failed(f"toy:fault={fault}")
    assert list(failures) == [FAULTS[BY_NAME[fault]]], failures


def test_every_check_has_a_fault_that_it_finds():
    assert {promise.name for promise in PROMISES["datasets"]} == set(FAULTS.values())


def test_images_that_are_not_at_hand_are_skipped_with_the_remedy():
    skipped = results("far_away")
    assert {result.status for result in skipped} == {"skipped"}
    assert "Fetch them" in skipped[0].message
