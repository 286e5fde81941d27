import dataclasses
import math
from statistics import NormalDist

import pytest

from jembench.catalog.spec import Spec
from jembench.interfaces import Value
from jembench.report import formats, reproduction
from jembench.report.reproduction import Pair
from jembench.stats import paired
from jembench.store.outcome import Cell, FitKey, Outcome


def cell(value, half=1.0, *, seed=0, metric="accuracy", label="accuracy", unit="%", protocol="p"):
    fit = FitKey(
        model=Spec("jem"),
        dataset=Spec("digits"),
        recipe="digits",
        seed=seed,
        id=f"fit{seed}",
        family="f",
    )
    ends = (None, None) if half is None else (value - half, value + half)
    outcome = Outcome(
        status="ok", protocol=protocol, values={label: Value(value, *ends, 100, unit, "higher")}
    )
    return Cell(id=f"{metric}{seed}", fit=fit, metric=Spec(metric), outcome=outcome)


def only(*pairs):
    (row,) = reproduction.compare([Pair(*pair) for pair in pairs])
    return row


def test_the_same_numbers_are_equal():
    row = only((cell(90.0), cell(90.0)), (cell(80.0, seed=1), cell(80.0, seed=1)))
    assert (row.verdict, row.seeds, row.p) == ("equal", (0, 1), None)
    assert only((cell(math.nan), cell(math.nan))).verdict == "equal"
    assert only((cell(90.0, None), cell(90.0, None))).verdict == "equal"


@pytest.mark.parametrize("difference", [-3.0, -1.0, 0.5, 1.3, 1.5, 4.0])
def test_of_symmetrical_intervals_it_is_the_z_test(difference):
    row = only((cell(50.0, 1.0), cell(50.0 + difference, 1.0)))
    z = abs(difference) / math.sqrt(2) * NormalDist().inv_cdf(0.975)
    assert row.p == pytest.approx(2 * NormalDist().cdf(-z))
    assert row.verdict == ("outside" if abs(difference) > math.sqrt(2) else "within")
    assert (row.images.low, row.images.high) == pytest.approx(
        (difference - math.sqrt(2), difference + math.sqrt(2))
    )


def test_of_three_seeds_training_anew_explains_what_the_images_do_not():
    ours, theirs = [50.0, 56.0, 53.0], [47.0, 49.0, 54.0]
    pairs = [
        (cell(b, 0.1, seed=seed), cell(a, 0.1, seed=seed))
        for seed, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    found = paired.seed_difference(ours, theirs)
    row = only(*pairs)
    assert (row.training.low, row.training.high, row.p) == pytest.approx(
        (found.low, found.high, found.p)
    )
    assert row.verdict == "within"
    assert only(*pairs[:2]).verdict == "outside"  # two seeds say too little of training


def test_each_of_several_values_is_judged_as_one_of_them():
    # p of .03
    border = NormalDist().inv_cdf(1 - 0.03 / 2) / NormalDist().inv_cdf(0.975) * math.sqrt(2)
    pairs = [
        Pair(cell(50.0, metric=m, label=m), cell(50.0 + border, metric=m, label=m))
        for m in ("accuracy", "ece")
    ]
    assert [row.p for row in reproduction.compare(pairs)] == pytest.approx([0.06, 0.06])
    assert [row.verdict for row in reproduction.compare(pairs[:1])] == ["outside"]


@pytest.mark.parametrize(
    ("before", "now", "verdict", "reason", "reproduced"),
    [
        (cell(1.0, unit="s"), cell(9.0, unit="s"), "not judged", "times vary by machine", True),
        (cell(1.0, None), cell(9.0, None), "not testable", "it has no interval", True),
        (cell(1.0), cell(math.inf, None), "not testable", "a value is not finite", True),
        (
            cell(1.0, protocol="m:n=1"),
            cell(1.0, protocol="m:n=2"),
            "not comparable",
            "different protocols",
            False,
        ),
        (cell(1.0), None, "missing", "it was not measured again", False),
        (
            cell(1.0),
            dataclasses.replace(cell(1.0), outcome=Outcome(status="failed", reason="no memory")),
            "missing",
            "no memory",
            False,
        ),
    ],
)
def test_what_cannot_be_judged(before, now, verdict, reason, reproduced):
    row = only((before, now))
    assert (row.verdict, reason in row.reason) == (verdict, True)
    assert reproduction.is_reproduced([row]) == reproduced


def test_the_table_and_the_records():
    rows = reproduction.compare(
        [Pair(cell(50.0), cell(53.0)), Pair(cell(1.0, metric="ece", label="ece"), None)]
    )
    document = reproduction.document(rows, ["the code of the metric ece"])
    text = formats.render(document, "markdown")
    assert "Measured again · dataset digits · recipe digits" in text
    assert "Differs: the code of the metric ece." in text
    assert [record["verdict"] for record in document.records()] == ["outside", "missing"]
