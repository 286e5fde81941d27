"""The overview and the origin of a page: which values and which provenance stand in them."""

import dataclasses

from jembench.interfaces import Value
from jembench.report.layout import build
from jembench.report.page.content import origin, overview

VALUE = Value(1.0, 0.5, 2.0, 9, "", "higher")


def test_the_overview_has_the_first_value_of_each_metric_under_the_fewest_options(cell):
    cells = [
        cell(metric="fid:source=fresh,steps=10", fid_cnn=VALUE),
        cell(metric="fid", fid_cnn=VALUE),
        cell(metric="ood:set=interp", auroc=VALUE, fpr95=VALUE),
        cell(metric="ood:score=max-py,set=interp", auroc=VALUE, fpr95=VALUE),
        cell(metric="iteration-time", time=VALUE),
        cell(metric="accuracy", accuracy=VALUE),
    ]
    assert [row.place for row in overview(build(cells).rows)] == [
        *(("accuracy", "accuracy"), ("fid", "fid-cnn"), ("ood:set=interp", "auroc"))
    ]


def test_a_trained_model_has_the_commands_and_the_environment_of_its_values(cell):
    made = {
        "hardware": {"gpu": "H100", "cuda": ""},
        "threads": 4,
        "python": "3.11",
        "packages": {"torch": "2.15"},
        "command": "run jem",
    }
    cells = [
        dataclasses.replace(cell(metric=metric, **{metric: VALUE}), provenance={**made, "time": time})
        for metric, time in (("accuracy", "2026-11-23T09:30:00"), ("ece", "2026-11-23T09:10:59"))
    ]
    table = origin(cells, {})
    (row,) = table.rows
    assert [text.value for text in row] == [
        *("jem", "digits", "digits", "0", "", "", "2026-11-23 09:10 to 2026-11-23 09:30", "run jem")
    ]
    assert [note.text for note in table.footnotes] == ["gpu H100, threads 4, python 3.11, torch 2.15"]
