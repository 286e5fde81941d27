"""From cells to rows: means over seeds by hand, gaps with their reasons, protocols that differ."""

import dataclasses
import math

import pytest
from scipy.stats import binomtest
from small_store import small_store

from jembench.interfaces import Value
from jembench.report.rows import mark_chance, mark_incomparable, mean, rows
from jembench.stats.intervals import wilson
from jembench.store.outcome import Outcome


def means(cells):
    return mark_incomparable(mean(rows(cells)))


def mean_of(cells):
    (row,) = means(cells)
    return row


def test_every_value_of_a_store_has_a_row(tmp_path):
    cells = {cell.id: cell for cell in small_store(tmp_path / "runs").cells()}
    values = rows(cells.values())
    assert len(values) == len(cells) == 16
    for row in values:
        cell, flat = cells[row.cell.id], row.as_dict()
        (label, value), *_ = cell.outcome.values.items()
        assert (row.label, row.value, row.low, row.high, row.n, row.unit, row.better) == (
            label,
            *value,
        )
        assert (row.fit, row.seeds, row.metric) == (cell.fit.names, (cell.fit.seed,), cell.metric)
        assert (row.status, row.protocol) == ("ok", cell.outcome.protocol)
        assert (flat["cell"], flat["fit"], flat["seconds"]) == (
            cell.id,
            cell.fit.id,
            cell.outcome.seconds,
        )


def test_a_cell_without_values_has_a_row_for_each_label_of_its_metric(cell):
    prc = {
        "precision": Value(0.9, 0.85, 0.94, 500, "", "higher"),
        "recall": Value(0.7, 0.6, 0.8, 397),
    }
    missing = cell("baseline", "prc", outcome=Outcome(status="na", reason="needs samples"))
    values = rows([cell("jem", "prc", **prc), missing])
    assert [(row.label, row.status, row.reason, row.better) for row in values[2:]] == [
        ("precision", "na", "needs samples", "higher"),
        ("recall", "na", "needs samples", ""),
    ]
    assert [(row.label, row.column, row.value) for row in rows([missing])] == [("", "prc", None)]


def test_seeds_give_mean_and_standard_deviation_beside_the_mean_interval(cell):
    seeds = {0: (96.0, 94.0, 97.0), 1: (97.0, 95.0, 98.5), 2: (99.0, 96.0, 99.5)}
    mean_row = mean_of(
        [
            cell(seed=seed, accuracy=Value(*numbers, 397, "%", "higher"))
            for seed, numbers in seeds.items()
        ]
    )
    assert mean_row.value == pytest.approx(292 / 3)
    assert mean_row.sd == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert (mean_row.low, mean_row.high) == pytest.approx((95.0, 295 / 3))
    assert mean_row.seeds == (0, 1, 2)


def test_an_interval_that_one_seed_lacks_is_absent(cell):
    mean_row = mean_of([cell(fid=Value(20, 19, 21, 9)), cell(seed=1, fid=Value(22, None, None, 7))])
    assert (mean_row.value, mean_row.low, mean_row.high, mean_row.n) == (21, None, None, 7)


def test_a_seed_without_value_is_left_out_and_named(cell):
    good = Value(97.5, 95.4, 98.6, 397)
    broken = cell(seed=2, outcome=Outcome(status="failed", reason="the disk is full"))
    of_ece = cell("jem", "ece", seed=3, ece=Value(1, None, None, 1))
    accuracy, ece = means([cell(accuracy=good), cell(seed=1, accuracy=good), broken, of_ece])
    assert (accuracy.seeds, accuracy.reason) == (
        (0, 1),
        "seed 2 failed: the disk is full; seed 3 not run",
    )
    assert ece.seeds == (3,)


def test_a_failure_of_one_seed_outweighs_what_the_others_lack(cell):
    gaps = [Outcome(status="na", reason="needs samples"), Outcome(status="failed", reason="broken")]
    mean_row = mean_of([cell(seed=seed, outcome=outcome) for seed, outcome in enumerate(gaps)])
    assert (mean_row.status, mean_row.reason, mean_row.seeds) == ("failed", "broken", (0, 1))


def test_a_metric_that_failed_with_a_value_that_is_not_finite_says_so(cell):
    wild = {"accuracy": Value(math.nan, None, None, 397)}
    mean_row = mean_of(
        [
            cell(
                outcome=Outcome(
                    status="failed", reason="accuracy is not a finite number", values=wild
                )
            )
        ]
    )
    assert (mean_row.status, mean_row.reason, mean_row.value) == (
        "failed",
        "accuracy is not a finite number",
        None,
    )


def nll(cell, model, images, seed=0, protocol="nll:data=digits,images={},split=test"):
    values = {"nll": Value(0.1, 0.08, 0.12, images)}
    return cell(
        model,
        "nll",
        seed=seed,
        outcome=Outcome(status="ok", protocol=protocol.format(images), values=values),
    )


def test_seeds_under_different_protocols_are_not_averaged(cell):
    mean_row = mean_of([nll(cell, "jem", 397), nll(cell, "jem", 100, seed=1)])
    assert mean_row.value is None
    assert (
        mean_row.reason
        == "measured under protocols that must not be averaged: images=397; images=100"
    )


def test_a_value_under_another_protocol_than_most_is_marked(cell):
    def comparable(*images):
        cells = [
            nll(cell, model, n)
            for model, n in zip(("jem", "glow", "baseline"), images, strict=False)
        ]
        return [row.comparable for row in means(cells)]

    assert comparable(397, 397) == [True, True]
    assert comparable(397, 100) == [False, False]
    assert comparable(397, 100, 397) == [True, False, True]


def test_other_datasets_have_other_protocols_of_course(cell):
    value = Value(97.5, 95.4, 98.6, 397)
    assert all(
        row.comparable
        for row in means([cell(accuracy=value), cell(dataset="svhn", accuracy=value)])
    )


def test_direct_samples_stand_beside_kept_chains_with_a_remark(cell):
    def made(model, source):
        protocol = f"fid:data=digits,source={source},splits=10"
        values = {"fid": Value(3.0, 2.0, 4.0, 1000)}
        return cell(model, "fid", outcome=Outcome(status="ok", protocol=protocol, values=values))

    marked_rows = means([made("jem", "buffer"), made("glow", "direct"), made("gan", "direct")])
    remark = "drawn directly; the samples of others are the chains that training kept"
    assert [(row.comparable, row.reason) for row in marked_rows] == [
        (True, ""),
        (True, remark),
        (True, remark),
    ]
    assert means([made("glow", "direct"), made("gan", "direct")])[0].reason == ""
    assert not any(
        row.comparable for row in means([made("glow", "direct"), made("jem", "chains:steps=5")])
    )


def of_training(cell, *what, seed=0, **stability):
    """A cell of a fit in whose training the guard stepped in, or saw a divergence."""
    made = cell(seed=seed, accuracy=Value(97.0 + seed, 95.0, 99.0, 397))
    return dataclasses.replace(
        made, provenance={"stability": stability or None, "interventions": list(what)}
    )


def test_a_fit_that_diverged_says_what_was_done_about_it(cell):
    what = "at iteration 8 (it broke): it went back", "at iteration 9 (again): it went back"
    repaired = of_training(
        cell, *what, diverged_at=8, reason="it broke", ended_with="20 sampling steps"
    )
    watched = of_training(cell, seed=1, diverged_at=8, reason="loss was nan", ended_with="")
    assert mean_of([repaired, watched, of_training(cell, seed=2)]).notes == (
        f"training of seed 0 diverged and was repaired {'; '.join(what)}; it ended with 20 "
        "sampling steps",
        "training of seed 1 diverged at iteration 8 (loss was nan) and was not repaired",
    )


def test_what_is_suspicious_or_not_yet_whole_says_so_at_the_value(cell):
    def with_details(seed=0, **details):
        made = cell(seed=seed, accuracy=Value(97.0 + seed, 95.0, 99.0, 397))
        return dataclasses.replace(made, outcome=dataclasses.replace(made.outcome, details=details))

    alone = with_details(
        suspicious=["a gradient is 0", "more steps help"], partial="25 of 300 images"
    )
    assert mean_of([alone]).reason == (
        "25 of 300 images so far; the same command goes on; suspicious: a gradient is 0; "
        "suspicious: more steps help"
    )
    assert (
        mean_of([with_details(), with_details(1, suspicious=["odd"])]).reason
        == "seed 1 suspicious: odd"
    )
    _, undefined = rows([with_details(undefined={"nll": "not converged"})])
    assert (undefined.label, undefined.status, undefined.reason) == ("nll", "na", "not converged")
    _, _, undefined = rows(
        [
            cell(seed=1, nll=Value(1.0, 0.5, 2.0, 9, "nats", "lower")),
            with_details(undefined={"nll": ""}),
        ]
    )
    assert (undefined.unit, undefined.better) == ("nats", "lower")


@pytest.mark.parametrize(
    ("specs", "shown"),
    [
        (["imagefolder:root=photos"], ["photos"]),
        (["imagefolder:root=photos", "digits"], ["photos", "digits"]),
        (["imagefolder:root=photos", "imagefolder:root=b/photos"],) * 2,
        (["imagefolder:root=photos", "photos"],) * 2,
    ],
)
def test_a_dataset_is_called_what_its_results_are_filed_under_if_no_other_is(cell, specs, shown):
    def measured(dataset):
        name = "photos" if "photos" in dataset else dataset
        values = {"accuracy": Value(9.0, None, None, 9)}
        outcome = Outcome(status="ok", protocol=f"accuracy:data={name},images=9", values=values)
        return cell(dataset=dataset, outcome=outcome)

    assert [row.dataset_name for row in rows(map(measured, specs))] == shown


@pytest.mark.parametrize(
    ("right", "of", "classes"), [(40, 397, 10), (49, 397, 10), (30, 397, 10), (8, 12, 2)]
)
def test_an_accuracy_is_at_chance_unless_its_interval_is_above_that_of_guessing(
    cell, right, of, classes
):
    row = marked(cell, [wilson(right, of)], 100 / classes, of)
    assert (
        row.reason
        == f"at chance: not above the {100 / classes:g} % of guessing, by the 95 % interval"
    )
    assert binomtest(right, of, 1 / classes, alternative="greater").pvalue > 0.025


def test_an_accuracy_above_chance_and_other_values_have_no_remark(cell):
    assert marked(cell, [wilson(60, 397)], 10.0).reason == ""
    assert binomtest(60, 397, 0.1, alternative="greater").pvalue < 0.025
    assert marked(cell, [wilson(40, 397)], None).reason == ""


def test_the_mean_over_seeds_is_at_chance_not_each_seed(cell):
    assert marked(cell, [wilson(90, 397), wilson(30, 397)], 10.0).reason == ""
    assert marked(cell, [wilson(50, 397), wilson(30, 397)], 10.0).reason.startswith("at chance: ")


def marked(cell, intervals, chance, n=397):
    """The row of an accuracy with these intervals, one for each seed."""
    cells = []
    for seed, (low, high) in enumerate(intervals):
        value = Value(50 * (low + high), 100 * low, 100 * high, n, "%", "higher")
        details = {} if chance is None else {"chance": chance}
        cells.append(
            cell(
                seed=seed,
                outcome=Outcome(
                    status="ok", protocol="p", values={"accuracy": value}, details=details
                ),
            )
        )
    (row,) = mark_chance(mean(rows(cells)))
    return row
