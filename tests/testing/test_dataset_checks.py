"""Every check of datasets catches the fault that is planted for it, and no other does."""

import itertools

import pytest
import torch

from jembench.errors import Unavailable
from jembench.interfaces import DataSpec, Split
from jembench.testing import check_dataset, perform
from jembench.testing.checks import PROMISES

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


class InThree(Toy):
    def split(self, name):
        return *super().split(name), None


class TrainAlone(Toy):
    def split(self, name):
        return {"train": super().split(name)}[name]


class NamesTooFew(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=3, class_names=("a", "b"))


class UpsideDown(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=3, bounds=(1.0, -1.0))


class OneBound(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes=3, bounds=(1.0,))


class WithoutName(Toy):
    spec = DataSpec(name=" ", shape=(1, 4, 5), num_classes=3)


class ShapeInAList(Toy):
    spec = DataSpec(name="toy", shape=[1, 4, 5], num_classes=3)


class SpecInADictionary(Toy):
    spec = {"name": "toy", "shape": (1, 4, 5), "num_classes": 3}  # noqa: RUF012


class ClassesInText(Toy):
    spec = DataSpec(name="toy", shape=(1, 4, 5), num_classes="3")


class OfNumpy(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images.numpy(), labels)


class LabelsOfNumpy(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images, labels.numpy())


class LabelsInAList(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images, labels.tolist())


class Floats(Toy):
    def split(self, name):
        images, labels = super().split(name)
        return Split(images.float() / 255, labels)


class OtherShape(Toy):
    spec = DataSpec(name="toy", shape=(1, 5, 4), num_classes=3)


class Turned(Toy):
    spec = DataSpec(name="toy", shape=(1, 5, 4), num_classes=3)

    def split(self, name):
        images, labels = super().split(name)
        return Split(images.transpose(2, 3), labels)


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
    InThree: "can-be-made",
    TrainAlone: "can-be-made",
    NamesTooFew: "spec",
    UpsideDown: "spec",
    OneBound: "spec",
    WithoutName: "spec",
    ShapeInAList: "spec",
    SpecInADictionary: "spec",
    ClassesInText: "spec",
    OfNumpy: "images",
    LabelsOfNumpy: "labels",
    LabelsInAList: "labels",
    Floats: "images",
    OtherShape: "images",
    Turned: "contiguous",
    ShortLabels: "labels",
    FromOne: "labels",
    LabelsUnsaid: "labels",
    FourClasses: "every-class-in-train",
    TestedOnTraining: "test-apart-from-train",
    AnotherEachTime: "same-each-time",
    HandsOutItsOwn: "handed-out-once",
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
    return {result.check.name: result.message for result in results(factory) if result.status == "failed"}


@pytest.mark.parametrize(
    ("factory", "skipped"),
    [
        ("toy", set()),
        ("unlabelled", {"every-class-in-train"}),
    ],
)
def test_a_dataset_without_fault_passes_every_check(factory, skipped):
    status = {result.check.name: (result.status, result.message) for result in results(factory)}
    assert {name for name, (found, _) in status.items() if found != "passed"} == skipped, status


def test_a_factory_that_fails_is_told_once():
    assert list(failed("fails")) == ["can-be-made"]


@pytest.mark.parametrize("fault", BY_NAME)
def test_a_planted_fault_fails_its_check_and_no_other(fault):
    found = failed(f"toy:fault={fault}")
    assert list(found) == [FAULTS[BY_NAME[fault]]], found


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("WithoutSpec", "It has no spec: see jembench.interfaces.Dataset"),
        ("TrainAlone", "KeyError: 'test'. The factory is called"),
        ("ShapeInAList", "shape is [1, 4, 5]; it must be a tuple (C, H, W)"),
        ("OfNumpy", "The train images are a ndarray, not a tensor. Give torch.from_numpy"),
        ("LabelsInAList", "The train labels are a list, not a tensor"),
    ],
)
def test_what_is_of_the_wrong_type_is_told_with_the_remedy(fault, words):
    assert words in failed(f"toy:fault={fault}").popitem()[1]


def test_what_cannot_be_asked_because_of_a_fault_is_skipped_with_the_check_that_tells_it():
    status = {result.check.name: (result.status, result.message) for result in results("toy:fault=OfNumpy")}
    told = {
        "can-be-made": "passed",
        "spec": "passed",
        "labels": "passed",
        "images": "failed",
    }
    assert {name: status[name][0] for name in told} == told
    assert {found for name, found in status.items() if name not in told} == {("skipped", "See the check images.")}


def test_every_check_has_a_fault_that_it_catches():
    assert {promise.name for promise in PROMISES["datasets"]} == set(FAULTS.values())


def test_what_is_handed_out_is_as_it_was_after_the_check():
    failed("toy:fault=HandsOutItsOwn")
    assert torch.equal(HandsOutItsOwn().split("train").images, Toy().split("train").images)


def test_images_that_are_not_at_hand_are_skipped_with_the_remedy():
    found = results("far_away")
    assert {result.status for result in found} == {"skipped"}
    assert "Fetch them" in found[0].message
