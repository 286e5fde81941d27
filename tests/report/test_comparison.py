"""Differences of two models: against closed forms, scipy's tests and exchanges of the two."""

import math

import numpy as np
import pytest
from scipy import stats

from jembench.catalog.spec import Spec
from jembench.errors import StoreError
from jembench.interfaces import Value
from jembench.report.comparison import (
    SEEDS,
    Difference,
    Side,
    Uncertainty,
    adjusted,
    conclusion,
    contrast,
    number,
)
from jembench.report.differences import compare
from jembench.report.rows import grouped, rows, sides
from jembench.store.outcome import Cell, FitKey, Outcome

N = 400
RNG = np.random.default_rng(0)
BETTER = {"accuracy": "higher", "nll": "lower", "auroc": "higher"}


class Results:
    """Cells with their arrays, made by hand."""

    def __init__(self):
        self.arrays = {}

    def add(
        self,
        model,
        metric,
        value,
        arrays=None,
        *,
        seed=0,
        label=None,
        protocol=None,
        recipe="digits",
    ):
        fit = FitKey(
            model=Spec(model),
            dataset=Spec("digits"),
            recipe=recipe,
            seed=seed,
            id=f"{model}{recipe}{seed}",
        )
        label = label or metric
        values = {label: Value(value, None, None, N, "", BETTER.get(label, ""))}
        outcome = Outcome(status="ok", protocol=protocol or f"{metric}:data=digits", values=values)
        cell = Cell(id=f"{fit.id}{metric}", fit=fit, metric=Spec(metric), outcome=outcome)
        self.arrays[cell.id] = arrays or {}
        return cell

    def accuracy(self, model, correct, **more):
        return self.add(model, "accuracy", 100 * correct.mean(), {"correct": correct}, **more)

    def nll(self, model, scores, **more):
        return self.add(model, "nll", scores.mean(), {"nll": scores}, **more)

    def read(self, cell):
        return self.arrays[cell.id]


@pytest.fixture
def results():
    return Results()


def side(*cells):
    (values,) = sides(rows(cells)).values()
    return values


def compared(results, *cells, resamples=500, read=None):
    a, b = grouped(rows(cells), lambda row: row.fit)
    return compare(a, b, read or results.read, resamples)


def right(share, rng):
    return rng.random(N) < share


def test_accuracy_of_one_seed_is_tested_by_mcnemar(results):
    rng = np.random.default_rng(1)
    a, b = right(0.9, rng), right(0.85, rng)
    tested = contrast(
        side(results.accuracy("jem", a)), side(results.accuracy("baseline", b)), results.read
    )
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    assert tested.difference == pytest.approx(100 * (only_a - only_b) / N)
    assert tested.images.test == "McNemar"
    assert tested.images.p == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue)
    error = 100 * (a.astype(float) - b).std() / math.sqrt(N)
    assert tested.images.low == pytest.approx(tested.difference - 1.96 * error, abs=0.15 * error)
    assert tested.images.high == pytest.approx(tested.difference + 1.96 * error, abs=0.15 * error)


def test_a_mean_on_the_same_images_has_the_error_of_the_paired_differences(results):
    rng = np.random.default_rng(2)
    # what both models share makes either mean uncertain, but not their difference
    hard = rng.exponential(1.0, N)
    a, b = hard + rng.normal(0, 0.1, N), hard + rng.normal(0.02, 0.1, N)
    tested = contrast(side(results.nll("jem", a)), side(results.nll("baseline", b)), results.read)
    error = (a - b).std() / math.sqrt(N)
    assert tested.images.test == "paired bootstrap"
    assert tested.images.high - tested.images.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert tested.images.high - tested.images.low < 0.2 * 2 * 1.96 * math.sqrt(
        (a.var() + b.var()) / N
    )
    assert tested.images.p == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.01)


def test_seeds_are_averaged_within_each_resample(results):
    rng = np.random.default_rng(3)
    a, b = rng.exponential(1.0, (4, N)), rng.exponential(1.1, (4, N))
    several = contrast(
        side(*(results.nll("jem", scores, seed=seed) for seed, scores in enumerate(a))),
        side(*(results.nll("baseline", scores, seed=seed) for seed, scores in enumerate(b))),
        results.read,
    )
    averaged = contrast(
        side(results.nll("jem", a.mean(axis=0))),
        side(results.nll("baseline", b.mean(axis=0))),
        results.read,
    )
    width = averaged.images.high - averaged.images.low
    assert several.difference == pytest.approx(averaged.difference)
    assert several.images.low == pytest.approx(averaged.images.low, abs=0.05 * width)
    assert several.images.high == pytest.approx(averaged.images.high, abs=0.05 * width)


def test_models_with_images_of_their_own_are_not_paired(results):
    rng = np.random.default_rng(4)
    drawn = {"jem": rng.normal(0, 1, 300), "other": rng.normal(0, 1, 200)}
    data = {model: rng.normal(0, 1, N) for model in drawn}
    cells = {
        model: results.add(
            model,
            "energy-gap",
            data[model].mean() - drawn[model].mean(),
            {"energy-data": data[model], "energy-samples": drawn[model]},
        )
        for model in drawn
    }
    tested = contrast(side(cells["jem"]), side(cells["other"]), results.read)
    error = math.sqrt(sum(array.var() / len(array) for array in (*data.values(), *drawn.values())))
    assert tested.images.test == "bootstrap"
    assert tested.images.high - tested.images.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_a_constant_is_no_interval(results):
    scores = RNG.exponential(1.0, N)
    tested = contrast(
        side(results.nll("jem", scores)), side(results.nll("baseline", scores)), results.read
    )
    assert (tested.difference, tested.images.low, tested.images.high, tested.images.p) == (
        0,
        None,
        None,
        None,
    )
    assert tested.reason == "all resamples agree, so that they determine no interval"


def test_intervals_decide_where_there_are_no_values_of_each_image(results):
    cells = [results.add(model, "is", 0.0) for model in ("jem", "igebm")]
    for cell, value in zip(cells, [(2.96, 2.90, 2.99), (8.92, 8.85, 8.98)], strict=True):
        cell.outcome.values["is"] = Value(*value, N, "", "higher")
    (row,) = compared(results, *cells).rows
    assert row.images.test == "intervals"
    assert (row.images.low, row.images.high) == pytest.approx(
        (-5.96 - math.hypot(0.06, 0.06), -5.96 + math.hypot(0.03, 0.07))
    )
    assert row.images.p < 1e-9
    assert row.verdict == "one seed only (igebm better)"
    assert "the 95 % intervals of both values decide" in row.reason


def test_seeds_that_all_give_the_same_leave_no_interval(results):
    cells = [
        results.add(model, "fid", value, seed=seed)
        for model, value in (("a", 1.0), ("b", 2.0))
        for seed in range(3)
    ]
    tested = contrast(side(*cells[:3]), side(*cells[3:]), results.read)
    assert (tested.training.low, tested.training.high) == (None, None)


def test_a_number_takes_the_place_of_the_other_model(results):
    rng = np.random.default_rng(5)
    scores = rng.normal(1.0, 1.0, N)
    ours = side(results.nll("jem", scores))
    tested = contrast(ours, number(0.9, ours), results.read)
    error = scores.std() / math.sqrt(N)
    assert (tested.b.value, tested.difference) == (0.9, pytest.approx(scores.mean() - 0.9))
    assert tested.images.high - tested.images.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert tested.images.p == pytest.approx(stats.ttest_1samp(scores, 0.9).pvalue, abs=0.02)


def test_a_margin_moves_the_null_and_not_the_interval(results):
    rng = np.random.default_rng(6)
    a, b = rng.normal(1.0, 0.5, N), rng.normal(1.1, 0.5, N)
    of_a, of_b = side(results.nll("jem", a)), side(results.nll("baseline", b))
    plain, moved = (
        contrast(of_a, of_b, results.read, margin=margin) for margin in (0.0, b.mean() - a.mean())
    )
    assert moved.difference == plain.difference
    assert (moved.images.low, moved.images.high) == pytest.approx(
        (plain.images.low, plain.images.high), abs=0.01
    )
    assert plain.images.p < 0.05
    assert moved.images.p > 0.9


def test_mcnemar_knows_no_margin(results):
    rng = np.random.default_rng(7)
    a, b = right(0.9, rng), right(0.9, rng)
    tested = contrast(
        side(results.accuracy("a", a)), side(results.accuracy("b", b)), results.read, margin=5.0
    )
    assert tested.images.test == "paired bootstrap"


def test_other_seeds_are_students_t(results):
    rng = np.random.default_rng(8)
    a, b = rng.normal(3, 1, 5), rng.normal(2, 1, 5)
    cells_a, cells_b = (
        [results.add(model, "fid", value, seed=seed) for seed, value in enumerate(values)]
        for model, values in (("jem", a), ("baseline", b))
    )
    tested = contrast(side(*cells_a), side(*cells_b), results.read)
    expected = stats.ttest_rel(a, b)
    assert tested.training.p == pytest.approx(expected.pvalue)
    assert (tested.training.low, tested.training.high) == pytest.approx(
        tuple(expected.confidence_interval())
    )
    assert tested.images.p is None
    assert tested.reason == "the store has no per-example values of it"
    assert tested.larger_p == tested.training.p


@pytest.mark.parametrize(
    ("images_p", "training_p", "p", "verdict"),
    [
        (0.001, 0.001, 0.01, "better"),
        (0.001, 0.01, 0.2, "jem better, but not significant after adjustment (three seeds)"),
        (0.3, 0.01, 0.9, "jem better, but not significant on other images (three seeds)"),
        (0.001, 0.3, 0.9, "no difference seen"),
        (0.001, None, 0.01, "three seeds only (jem better)"),
        (0.01, None, 0.2, "jem better, but not significant after adjustment (three seeds)"),
        (0.3, None, 0.9, "no difference seen"),
    ],
)
def test_the_verdict_says_what_a_difference_does_not_withstand(images_p, training_p, p, verdict):
    row = Difference(
        metric="nll",
        a=Side("jem"),
        b=Side("baseline"),
        seeds=(0, 1, 2),
        images=Uncertainty(p=images_p),
        training=Uncertainty(p=training_p),
        p=p,
    )
    assert conclusion(row, "better", "jem better") == verdict


@pytest.mark.parametrize("count", [1, 2])
def test_few_seeds_say_nothing_of_others(results, count):
    assert count < SEEDS
    cells = [
        results.nll(m, RNG.exponential(1.0, N), seed=s)
        for m in ("jem", "baseline")
        for s in range(count)
    ]
    tested = contrast(side(*cells[:count]), side(*cells[count:]), results.read)
    assert tested.training.p is None
    assert tested.larger_p == tested.images.p


def test_a_difference_that_other_seeds_may_undo_does_not_count(results):
    rng = np.random.default_rng(9)
    cells = []
    # on the same images, each of these is beyond doubt
    for seed, shift in enumerate((-0.5, 1.2, 0.9)):
        scores = rng.exponential(1.0, N)
        cells += [
            results.nll("jem", scores + rng.normal(shift, 0.1, N), seed=seed),
            results.nll("baseline", scores, seed=seed),
        ]
    (row,) = compared(results, *cells).rows
    assert row.images.p < 0.01
    assert row.larger_p == row.training.p > 0.05
    assert row.verdict == "no difference seen"


def test_only_seeds_of_both_are_compared(results):
    cells = [results.nll("jem", RNG.exponential(1.0, N), seed=seed) for seed in (0, 1, 2)]
    cells += [results.nll("baseline", RNG.exponential(1.0, N), seed=seed) for seed in (1, 2, 3)]
    (row,) = compared(results, *cells).rows
    assert row.seeds == (1, 2)
    assert row.a.value == pytest.approx(
        np.mean([cells[seed].outcome.values["nll"].value for seed in (1, 2)])
    )


def test_the_better_of_two(results):
    rng = np.random.default_rng(10)
    shared = rng.exponential(1.0, N)
    cells = [
        results.accuracy("jem", right(0.95, rng)),
        results.accuracy("baseline", right(0.6, rng)),
        results.nll("jem", shared + rng.normal(1, 0.1, N)),
        results.nll("baseline", shared),
    ]
    rows = {row.label: row for row in compared(results, *cells).rows}
    assert {label: row.verdict for label, row in rows.items()} == {
        "accuracy": "one seed only (jem better)",
        "nll": "one seed only (baseline better)",
    }


def test_where_no_direction_is_better_the_higher_is_named(results):
    cells = [
        results.add(
            model,
            "energy-gap",
            mean,
            {"energy-data": RNG.normal(mean, 0.1, N), "energy-samples": np.zeros(N)},
            seed=seed,
        )
        for model, mean in (("jem", 5.0), ("other", 1.0))
        for seed in (0, 1)
    ]
    (row,) = compared(results, *cells).rows
    assert (row.better, row.verdict) == ("", "two seeds only (jem higher)")


def test_p_values_are_adjusted_over_the_whole_table(results):
    rng = np.random.default_rng(11)
    shared = rng.exponential(1.0, N)
    cells = []
    for extra in range(10):
        metric = f"nll:resamples={1000 + extra}"
        for model, by in (("jem", 0.0), ("baseline", 0.012)):
            scores = shared + rng.normal(by, 0.1, N)
            cells.append(results.add(model, metric, scores.mean(), {"nll": scores}, label="nll"))
    rows = compared(results, *cells, resamples=2000).rows
    raw = [row.larger_p for row in rows]
    assert [row.p for row in rows] == pytest.approx([row.p for row in adjusted(rows)])
    significant = [row for row in rows if row.verdict == "one seed only (jem better)"]
    assert sum(p < 0.05 for p in raw) > len(significant)
    assert min(row.p for row in rows) == pytest.approx(min(1.0, 10 * min(raw)))


def test_what_has_no_p_value_is_not_counted_by_holm():
    sides = {"a": Side("jem"), "b": Side("baseline")}
    rows = [
        Difference(metric="nll", **sides, images=Uncertainty(p=p)) for p in (0.01, None, 0.04, None)
    ]
    assert [row.p for row in adjusted(rows)] == [0.02, None, 0.04, None]
    assert adjusted([]) == []


def test_protocols_that_differ_are_not_compared(results):
    cells = [
        results.nll("jem", RNG.exponential(1.0, N), protocol="nll:data_noise=0"),
        results.nll("baseline", RNG.exponential(1.0, N), protocol="nll:data_noise=0.03"),
    ]
    (row,) = compared(results, *cells).rows
    assert (row.verdict, row.difference, row.p) == ("not comparable", None, None)
    assert row.protocols == ("nll:data_noise=0", "nll:data_noise=0.03")


def test_what_cannot_be_tested_says_why(results):
    cells = [
        results.add("jem", "fid", 3.0),
        results.add("baseline", "fid", 2.0),
        results.nll("jem", RNG.exponential(1.0, N), seed=0),
        results.nll("baseline", RNG.exponential(1.0, N), seed=1),
        results.add("jem", "brier", 0.1),
        results.add("baseline", "brier", 0.2),
        results.add(
            "jem", "ece", math.nan, {"confidence": np.ones(N), "correct": np.ones(N, bool)}
        ),
        results.add(
            "baseline", "ece", 1.0, {"confidence": np.ones(N), "correct": np.ones(N, bool)}
        ),
        results.add("jem", "gone", 1.0),
        results.add("baseline", "gone", 2.0),
    ]
    rows = {row.label: row for row in compared(results, *cells).rows}
    assert {row.verdict for row in rows.values()} == {"not testable"}
    assert rows["fid"].reason == "the store has no per-example values of it"
    assert rows["nll"].reason == "no seed in common: 0 and 1"
    assert rows["brier"].reason == "the store has no per-example values of it"
    assert rows["ece"].reason == "a value is not finite"
    assert rows["gone"].reason.startswith("There is no metric named 'gone'")


def test_arrays_that_do_not_belong_to_the_metric_are_told(results):
    cells = [results.add(model, "nll", 1.0, {"other": np.ones(N)}) for model in ("jem", "baseline")]
    (row,) = compared(results, *cells).rows
    assert row.reason == "its per-example values do not fit the metric nll ('nll')"


def test_arrays_that_cannot_be_read_are_told(results):
    cells = [results.nll(model, RNG.exponential(1.0, N)) for model in ("jem", "baseline")]

    def torn(cell):
        raise StoreError(f"{cell.id} cannot be read")

    (row,) = compared(results, *cells, read=torn).rows
    assert (row.verdict, row.reason) == ("not testable", "jemdigits0nll cannot be read")


def test_what_only_one_has_is_not_compared(results):
    failed = Cell(
        id="x",
        fit=FitKey(model=Spec("baseline"), dataset=Spec("digits"), recipe="digits", seed=0, id="b"),
        metric=Spec("fid"),
        outcome=Outcome(status="na", reason="needs samples"),
    )
    cells = [results.add("jem", "fid", 3.0), failed, results.add("baseline", "nll", 1.0)]
    tested = compared(results, *cells)
    assert tested.rows == ()
