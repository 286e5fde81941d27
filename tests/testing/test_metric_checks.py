"""Every check of metrics catches the fault that is planted for it, and no other does."""

import itertools
import random

import numpy as np
import pytest
import torch

from jembench.data.pixels import to_float
from jembench.errors import NotApplicable
from jembench.interfaces import Measurement, Resampling, Value
from jembench.testing import check_metric, perform
from jembench.testing.checks import PROMISES


class Toy:
    """The mean confidence, and the share of images whose confidence is above a threshold."""

    name = "toy"
    requires = frozenset({"logits"})
    reads = frozenset({"logits"})

    def __init__(self, threshold=0.5):
        self.threshold = threshold

    def confidences(self, evaluation):
        return evaluation.predictions.read("logits").softmax(dim=1).amax(dim=1).numpy()

    def compute(self, evaluation):
        arrays = {"confidence": self.confidences(evaluation)}
        mean, above = arrays["confidence"].mean(), (arrays["confidence"] > self.threshold).mean()
        n = len(arrays["confidence"])
        return Measurement(
            protocol=f"toy:data={evaluation.data.spec.name},threshold={self.threshold}",
            values={
                "confidence": Value(mean, mean - 0.1, mean + 0.1, n, "", "higher"),
                "above": Value(float(above), None, None, n),
            },
            arrays=arrays,
            details={"threshold": self.threshold, "bins": [1, 2, {"a": float("nan")}]},
        )

    def resamplings(self, arrays):
        confidence = arrays["confidence"]
        return {"confidence": Resampling(lambda indices: confidence[indices].mean(axis=1), (len(confidence),), (0, 1))}


class Changed(Toy):
    """The measurement is changed before it is given."""

    def compute(self, evaluation):
        return self.change(super().compute(evaluation))


class WithoutRequires:
    name = "toy"

    def compute(self, evaluation):
        return Toy().compute(evaluation)


class RequiresMagic(Toy):
    requires = frozenset({"logits", "magic"})


class ReadsATuple(Toy):
    reads = ("logits",)


class CostsAHalf(Toy):
    def passes(self, images):
        return images / 2


class Raises(Toy):
    def compute(self, evaluation):
        raise ZeroDivisionError("division by zero")


class MeasuresNothing(Changed):
    def change(self, found):
        return Measurement(protocol=found.protocol, values={})


class NeedsMore(Toy):
    def confidences(self, evaluation):
        evaluation.predictions.read("energy")
        return super().confidences(evaluation)


class WithoutProtocol(Changed):
    def change(self, found):
        return Measurement(protocol="", values=found.values, arrays=found.arrays, details=found.details)


def with_value(found, **parts):
    values = {**found.values, "above": found.values["above"]._replace(**parts)}
    return Measurement(protocol=found.protocol, values=values, arrays=found.arrays, details=found.details)


class NotANumber(Changed):
    def change(self, found):
        return with_value(found, value=float("nan"))


class OfNothing(Changed):
    def change(self, found):
        return with_value(found, n=0)


class BetterIfLarger(Changed):
    def change(self, found):
        return with_value(found, better="larger")


class SurelyZero(Changed):
    def change(self, found):
        return with_value(found, value=0.0, low=0.0, high=0.0)


class Outside(Changed):
    def change(self, found):
        return with_value(found, low=2.0, high=3.0)


class HalfAnInterval(Changed):
    def change(self, found):
        return with_value(found, low=0.0)


class DetailsOfArrays(Changed):
    def change(self, found):
        details = {"per class": np.arange(3)}
        return Measurement(protocol=found.protocol, values=found.values, arrays=found.arrays, details=details)


class ArraysOfTexts(Changed):
    def change(self, found):
        arrays = {**found.arrays, "names": np.array(["a", "b"])}
        return Measurement(protocol=found.protocol, values=found.values, arrays=arrays, details=found.details)


class ArraysOfInfinities(Changed):
    def change(self, found):
        arrays = {**found.arrays, "odds": np.array([1.0, np.inf])}
        return Measurement(protocol=found.protocol, values=found.values, arrays=arrays, details=found.details)


class OtherFormula(Toy):
    def resamplings(self, arrays):
        confidence = arrays["confidence"]
        return {"confidence": Resampling(lambda indices: np.median(confidence[indices], axis=1), (len(confidence),))}


class OtherLabel(Toy):
    def resamplings(self, arrays):
        return {"confidence (%)": super().resamplings(arrays)["confidence"]}


class OneForAll(Toy):
    def resamplings(self, arrays):
        confidence = arrays["confidence"]
        return {"confidence": Resampling(lambda indices: confidence[indices].mean(), (len(confidence),))}


class Counts(Toy):
    measured = itertools.count()

    def compute(self, evaluation):
        found = super().compute(evaluation)
        return with_value(found, value=found.values["above"].value + 1e-9 * next(self.measured))


class ByPlace(Toy):
    """A running mean, which depends on who came before."""

    def confidences(self, evaluation):
        confidences = super().confidences(evaluation)
        return confidences.cumsum() / np.arange(1, len(confidences) + 1)


class SilentThreshold(Changed):
    def change(self, found):
        return Measurement(protocol="toy", values=found.values, arrays=found.arrays, details=found.details)


class OfPython(Toy):
    def confidences(self, evaluation):
        return super().confidences(evaluation).astype(np.float64) + 1e-6 * random.random()


class Global(Toy):
    def confidences(self, evaluation):
        return super().confidences(evaluation) + 1e-6 * np.random.rand()  # noqa: NPY002


class LeavesItTraining(Toy):
    def compute(self, evaluation):
        evaluation.model.train()
        return super().compute(evaluation)


class LeavesGradients(Toy):
    def compute(self, evaluation):
        x = to_float(evaluation.data.part("test").images, evaluation.data.spec.bounds)
        evaluation.model.logits(x).sum().backward()
        return super().compute(evaluation)


class Trains(Toy):
    def compute(self, evaluation):
        if evaluation.sampler is not None:
            state = evaluation.sampler.init(5, generator=evaluation.services.generator("toy"))
            evaluation.sampler.finish(state._replace(x=0 * state.x))
        return super().compute(evaluation)


class InPlace(Toy):
    def confidences(self, evaluation):
        logits = evaluation.predictions.read("logits")
        return logits.sub_(logits.logsumexp(dim=1, keepdim=True)).exp().amax(dim=1).numpy()


class Inverts(Toy):
    def compute(self, evaluation):
        found = super().compute(evaluation)
        evaluation.data.part("test").images.bitwise_not_()
        return found


FAULTS = {
    WithoutRequires: "all-parts",
    RequiresMagic: "needs-are-capabilities",
    ReadsATuple: "needs-are-capabilities",
    CostsAHalf: "passes-are-counted",
    Raises: "computes",
    MeasuresNothing: "computes",
    NeedsMore: "needs-are-all",
    WithoutProtocol: "protocol-is-said",
    NotANumber: "values-are-numbers",
    OfNothing: "values-are-numbers",
    BetterIfLarger: "values-are-numbers",
    SurelyZero: "intervals-hold-their-values",
    Outside: "intervals-hold-their-values",
    HalfAnInterval: "intervals-hold-their-values",
    DetailsOfArrays: "details-are-json",
    ArraysOfTexts: "arrays-are-numbers",
    ArraysOfInfinities: "arrays-are-numbers",
    OtherFormula: "resamplings-give-the-values",
    OtherLabel: "resamplings-give-the-values",
    OneForAll: "resamplings-give-the-values",
    Counts: "same-twice",
    OfPython: "same-twice",
    ByPlace: "order-of-images",
    SilentThreshold: "one-protocol-one-number",
    Global: "global-randomness",
    LeavesItTraining: "leaves-the-model",
    LeavesGradients: "leaves-the-model",
    Trains: "leaves-the-sampler",
    InPlace: "leaves-what-is-shared",
    Inverts: "leaves-what-is-shared",
}
BY_NAME = {fault.__name__: fault for fault in FAULTS}


def toy(*, threshold: float = 0.4, fault: str = ""):
    made = BY_NAME.get(fault, Toy)
    return made() if made is WithoutRequires else made(threshold)


class Elsewhere(Toy):
    def compute(self, evaluation):
        raise NotApplicable("It needs a weather report. Ask for one.")


def elsewhere():
    return Elsewhere()


def results(factory):
    return [perform(check) for check in check_metric(f"{__name__}:{factory}")]


def test_a_metric_without_fault_passes_every_check():
    status = {result.check.name: (result.status, result.message) for result in results("toy")}
    assert {name for name, (found, _) in status.items() if found != "passed"} == {"passes-are-counted"}, status


@pytest.mark.parametrize("fault", BY_NAME)
def test_a_planted_fault_fails_its_check_and_no_other(fault):
    failed = {found.check.name: found.message for found in results(f"toy:fault={fault}") if found.status == "failed"}
    assert list(failed) == [FAULTS[BY_NAME[fault]]], failed


def test_every_check_has_a_fault_that_it_catches():
    assert {promise.name for promise in PROMISES["metrics"]} == set(FAULTS.values())


def test_what_cannot_be_measured_here_is_skipped_with_the_remedy():
    found = {result.check.name: result for result in results("elsewhere")}
    assert found["computes"].status == found["same-twice"].status == "skipped"
    assert "Ask for one" in found["computes"].message
    assert not [result for result in found.values() if result.status == "failed"]


def test_a_failure_says_where_it_was_raised():
    (failed,) = (result for result in results("toy:fault=Raises") if result.status == "failed")
    assert "ZeroDivisionError: division by zero (" in failed.message
    assert "test_metric_checks.py:" in failed.message


def test_checking_leaves_global_randomness_as_it_was():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    results("toy:fault=Global")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
