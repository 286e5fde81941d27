"""The overview and the origin of a page: which values and which provenance stand in them."""

import dataclasses

from jembench.interfaces import Value
from jembench.report.page.tables import origin, overview
from jembench.report.sections import build


def value(number=1.0):
    return Value(number, 0.5, 2.0, 9, "", "higher")


def test_the_overview_has_the_first_value_of_each_metric_under_the_fewest_options(cell):
    cells = [
        cell(metric="accuracy", accuracy=value()),
        cell(metric="fid", fid_cnn=value()),
        cell(metric="fid:source=fresh,steps=10", fid_cnn=value()),
        cell(metric="ood:set=interp", auroc=value(), fpr95=value()),
        cell(metric="ood:set=uniform", auroc=value(), fpr95=value()),
        cell(metric="ood:score=max-py,set=uniform", auroc=value(), fpr95=value()),
        cell(metric="pgd:budget=quick", pgd_linf=value(), success=value()),
        cell(metric="pgd:budget=quick,norm=l2", pgd_l2=value()),
        cell(metric="iteration-time", time=value()),
    ]
    (view,) = overview(build(cells))
    assert [heading.label for heading in view.headings] == [
        *("accuracy", "fid-cnn", "auroc (ood:set=interp)", "auroc (ood:set=uniform)", "pgd-linf", "pgd-l2")
    ]


def test_each_dataset_with_such_values_has_an_overview(cell):
    cells = [cell(accuracy=value()), cell(dataset="b", accuracy=value()), cell(dataset="c", metric="x", x=value())]
    assert [[row.dataset for row in view.rows] for view in overview(build(cells))] == [["digits"], ["b"]]


def test_a_trained_model_has_the_commands_and_the_environment_of_its_values(cell):
    made = {
        "hardware": {"gpu": "H100", "cuda": ""},
        "threads": 4,
        "python": "3.11",
        "packages": {"torch": "2.15"},
        "command": "run jem",
    }
    cells = [
        dataclasses.replace(cell(metric=metric, **{metric: value()}), provenance={**made, "time": time})
        for metric, time in (("accuracy", "2026-11-23T09:30:00"), ("ece", "2026-11-23T09:10:59"))
    ]
    table = origin(cells, {})
    (row,) = table.rows
    assert [text.value for text in row] == [
        *("jem", "digits", "digits", "0", "", "", "2026-11-23 09:10 to 2026-11-23 09:30", "run jem")
    ]
    assert [note.text for note in table.footnotes] == ["gpu H100, threads 4, python 3.11, torch 2.15"]
