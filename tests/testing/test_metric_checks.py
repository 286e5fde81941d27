"""Every check of metrics finds the faults that are planted for it."""

import itertools

import numpy as np
import pytest
import torch

from jembench.data.pixels import to_float
from jembench.errors import NotApplicable
from jembench.interfaces import Measurement, Resampling, Value
from jembench.testing import check_metric
from jembench.testing.checks import PROMISES, perform


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
        return {
            "confidence": Resampling(
                lambda indices: confidence[indices].mean(axis=1), (len(confidence),), (0, 1)
            )
        }


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


class Raises(Toy):
    def compute(self, evaluation):
        raise ZeroDivisionError("division by zero")


class MeasuresNothing(Changed):
    def change(self, measurement):
        return Measurement(protocol=measurement.protocol, values={})


class NeedsMore(Toy):
    def confidences(self, evaluation):
        evaluation.predictions.read("energy")
        return super().confidences(evaluation)


class WithoutProtocol(Changed):
    def change(self, measurement):
        return Measurement(
            protocol="",
            values=measurement.values,
            arrays=measurement.arrays,
            details=measurement.details,
        )


def with_value(measurement, **parts):
    values = {**measurement.values, "above": measurement.values["above"]._replace(**parts)}
    return Measurement(
        protocol=measurement.protocol,
        values=values,
        arrays=measurement.arrays,
        details=measurement.details,
    )


class NotANumber(Changed):
    def change(self, measurement):
        return with_value(measurement, value=float("nan"))


class SurelyZero(Changed):
    def change(self, measurement):
        return with_value(measurement, value=0.0, low=0.0, high=0.0)


class DetailsOfArrays(Changed):
    def change(self, measurement):
        details = {"per class": np.arange(3)}
        return Measurement(
            protocol=measurement.protocol,
            values=measurement.values,
            arrays=measurement.arrays,
            details=details,
        )


class ArraysOfInfinities(Changed):
    def change(self, measurement):
        arrays = {**measurement.arrays, "odds": np.array([1.0, np.inf])}
        return Measurement(
            protocol=measurement.protocol,
            values=measurement.values,
            arrays=arrays,
            details=measurement.details,
        )


class OtherFormula(Toy):
    def resamplings(self, arrays):
        confidence = arrays["confidence"]
        return {
            "confidence": Resampling(
                lambda indices: np.median(confidence[indices], axis=1), (len(confidence),)
            )
        }


class Counts(Toy):
    measured = itertools.count()

    def compute(self, evaluation):
        measurement = super().compute(evaluation)
        return with_value(
            measurement, value=measurement.values["above"].value + 1e-9 * next(self.measured)
        )


class SilentThreshold(Changed):
    def change(self, measurement):
        return Measurement(
            protocol="toy",
            values=measurement.values,
            arrays=measurement.arrays,
            details=measurement.details,
        )


class Global(Toy):
    def confidences(self, evaluation):
        return super().confidences(evaluation) + 1e-6 * np.random.rand()  # noqa: NPY002


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


class Inverts(Toy):
    def compute(self, evaluation):
        measurement = super().compute(evaluation)
        evaluation.data.part("test").images.bitwise_not_()
        return measurement


FAULTS = {
    WithoutRequires: "can-be-made",
    RequiresMagic: "needs-are-capabilities",
    Raises: "computes",
    MeasuresNothing: "computes",
    WithoutProtocol: "computes",
    NeedsMore: "needs-are-all",
    NotANumber: "values-are-numbers",
    SurelyZero: "intervals-hold-their-values",
    DetailsOfArrays: "details-are-json",
    ArraysOfInfinities: "arrays-are-numbers",
    OtherFormula: "resamplings-give-the-values",
    Counts: "same-twice",
    SilentThreshold: "one-protocol-one-number",
    Global: "nothing-changed",
    LeavesGradients: "nothing-changed",
    Trains: "nothing-changed",
    Inverts: "nothing-changed",
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
    assert {result.message for result in results("toy") if result.status != "passed"} == set()


@pytest.mark.parametrize("fault", BY_NAME)
def test_a_planted_fault_fails_its_check(fault):
    (check,) = (
        check
        for check in check_metric(f"{__name__}:toy:fault={fault}")
        if check.name == FAULTS[BY_NAME[fault]]
    )
    assert perform(check).status == "failed"


def test_every_check_has_a_fault_that_it_finds():
    assert {promise.name for promise in PROMISES["metrics"]} == set(FAULTS.values())


def test_what_cannot_be_measured_here_is_skipped_with_the_remedy():
    by_name = {result.check.name: result for result in results("elsewhere")}
    assert by_name["computes"].status == by_name["same-twice"].status == "skipped"
    assert "Ask for one" in by_name["computes"].message
    assert not [result for result in by_name.values() if result.status == "failed"]


def test_checking_leaves_global_randomness_as_it_was():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    results("toy:fault=Global")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
