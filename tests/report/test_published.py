"""Published numbers beside ours where they mean the same; else below, with the reason in words."""

import csv
import io
import json
from dataclasses import replace

import pytest

from jembench.interfaces import Value
from jembench.report import references
from jembench.report.formats import render
from jembench.report.layout import document, tables
from jembench.report.references import PublishedRow
from jembench.report.sections import build
from jembench.store.outcome import Outcome

TABLE1 = ["jem-iclr2020/table1"]


def load(names):
    """The published tables, as if their accuracies said that there was no noise on the test images."""
    return [
        replace(table, rows=tuple(replace(row, protocols=_of_clean_images(row.protocols)) for row in table.rows))
        for table in references.load(names)
    ]


def _of_clean_images(protocols):
    return {
        name: text.replace(",images=", ",data_noise=0,images=") if name == "accuracy" else text
        for name, text in protocols.items()
    }


def test_a_number_of_which_the_noise_is_not_known_does_not_stand_beside_ours(measured):
    ours, published = tables(build([measured("accuracy", ACCURACY)], published=references.load(TABLE1)))
    assert texts(ours) == [["jem", "92.0"]]
    assert "not stated there: noise on test images" in reason(published)


@pytest.fixture
def measured(cell):
    """A cell of which the protocol is given part by part."""

    def make(metric, protocol, value=92.0, label=None, unit="%", model="jem", dataset="cifar10:root=/data"):
        values = {label or metric: Value(value, value - 1, value + 1, 100, unit)}
        return cell(model, metric, dataset=dataset, outcome=Outcome(status="ok", protocol=protocol, values=values))

    return make


ACCURACY = "accuracy:data=cifar10,data_noise=0,images=10000,split=test"


def texts(grid):
    return [[text.value for text in row] for row in grid.rows]


def reason(grid):
    (found,) = [note.text for note in grid.footnotes if note.text.startswith("Not comparable with ours: ")]
    return found.removeprefix("Not comparable with ours: ")


def test_a_number_under_the_same_protocol_stands_beside_ours(measured):
    ours, published = tables(build([measured("accuracy", ACCURACY)], published=load(TABLE1)))
    assert texts(ours)[0] == ["jem", "92.0"]
    assert ["Wide-ResNet · published", "95.8"] in texts(ours)
    assert ["JEM · published", "92.9"] in texts(ours)
    assert [row[0] for row in texts(ours)] == [
        "jem",
        *(
            f"{name} · published"
            for name in ("Residual Flow", "Glow", "IGEBM", "JEM p(x|y) factored", "JEM", "Wide-ResNet")
        ),
    ]
    assert [heading.label for heading in published.headings] == ["model", "dataset", "is", "fid", "standing"]
    assert "Wide-ResNet" not in [row[0] for row in texts(published)]  # it has nothing but an accuracy
    assert reason(published) == "not measured here."


def test_its_footnotes_are_the_source_and_what_is_not_stated_there(measured):
    ours = tables(build([measured("accuracy", ACCURACY)], published=load(TABLE1)))[0]
    notes = {note.mark: note.text for note in ours.footnotes}
    resnet = next(row[0] for row in ours.rows if row[0].value.startswith("Wide-ResNet"))
    assert [notes[mark] for mark in resnet.marks] == [
        "with batch norm",
        "Grathwohl et al., ICLR 2020, Table 1, https://arxiv.org/abs/1912.03263",
    ]


def test_what_is_second_hand_is_marked_as_quoted_beside_ours_too(measured):
    ours, left = tables(build([measured("accuracy", ACCURACY)], published=load(["later-work/hybrid"])))
    assert ["EGC · as quoted", "95.9"] in texts(ours)
    assert [heading.label for heading in left.headings][2:] == ["is", "fid", "standing"]


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (ACCURACY.replace("cifar10", "digits"), "dataset CIFAR-10, ours digits"),
        (ACCURACY.replace("10000", "100"), "images 10000, ours 100"),
        (ACCURACY.replace("test", "validation"), "split test, ours validation"),
        (f"{ACCURACY},corruption=fog", "not stated there: corruption"),
    ],
)
def test_a_number_under_another_protocol_stays_below_with_the_reason(measured, protocol, expected):
    ours, published = tables(build([measured("accuracy", protocol)], published=load(TABLE1)))
    assert len(ours.rows) == 1
    assert len(published.rows) == 8
    assert reason(published) == f"{expected}. is, fid: not measured here."


def test_ours_under_several_protocols_are_not_comparable_with_any(measured):
    cells = [measured("accuracy", ACCURACY), measured("accuracy", f"{ACCURACY},x=1", model="baseline")]
    ours, published = tables(build(cells, published=load(TABLE1)))
    assert len(ours.rows) == 2
    assert reason(published).startswith("ours are of several protocols. ")


def test_another_unit_is_another_number(measured):
    ours, _ = tables(build([measured("accuracy", ACCURACY, value=0.92, unit="")], published=load(TABLE1)))
    assert len(ours.rows) == 1


def test_the_inception_score_of_jem_is_of_a_selection(measured):
    protocol = "is:data=cifar10,features=inception-2015-12-05@67,images=10000,implementation=torch-fidelity,"
    cells = [measured("is", f"{protocol}pooling=one-buffer,selection=none,source=buffer,splits=10", unit="")]
    published = tables(build(cells, published=load(["jem-iclr2020/table5"])))[1]
    assert reason(published) == (
        "features inception, ours inception-2015-12-05; implementation du-mordatch or not stated, ours torch-fidelity; "
        "pooling five-buffers or not stated, ours one-buffer; selection model or not stated, ours none; "
        "not stated there: images, splits, source."
    )


def test_a_value_that_stands_above_is_not_repeated_below(measured):
    scored = measured("is", "is:data=cifar10", value=8.0, unit="")
    ours, left = tables(build([measured("accuracy", ACCURACY), scored], published=load(["later-work/hybrid"])))
    assert ["JEM++ · as quoted", "93.7", "8.29"] in texts(ours)
    assert [heading.label for heading in left.headings][2:-1] == ["fid"]


def test_a_row_of_which_a_part_stands_above_says_so(measured):
    table = replace(
        load(TABLE1)[0],
        rows=tuple(
            PublishedRow(
                model=model,
                label=model,
                dataset=dataset,
                values={"accuracy": 90.0, "is": 8.0},
                source="S",
                status="published",
                protocols={
                    "accuracy": f"accuracy:data={dataset},data_noise=0,images=10000,split=test",
                    "is": "is:data=cifar10",
                },
            )
            for model, dataset in (("a", "cifar10"), ("b", "svhn"))
        ),
    )
    ours, left = tables(build([measured("accuracy", ACCURACY)], published=[table]))
    assert texts(ours)[1:] == [["a · published", "90"]]
    assert texts(left) == [["a", "cifar10", "above", "8", "published"], ["b", "svhn", "90", "8", "published"]]
    assert "above: stands beside ours." in [note.text for note in left.footnotes]


def test_part_of_a_column_above(measured):
    cifar100 = measured("accuracy", ACCURACY.replace("cifar10", "cifar100"), dataset="cifar100")
    ours, left = tables(build([cifar100], published=load(["jem-iclr2020/accuracies"])))
    assert [row[1] for row in texts(ours)] == ["92.0", "72.2", "74.2", "74.8"]
    assert {row[1] for row in texts(left)} == {"SVHN", "CIFAR-10"}
    assert reason(left) == "dataset SVHN or CIFAR-10, ours cifar100."


def test_what_no_metric_gives(measured):
    left = tables(build([measured("accuracy", ACCURACY)], published=load(["jem-iclr2020/steps"])))[1]
    assert reason(left) == "no metric here gives such a number."


def test_rows_of_several_datasets_and_recipes(measured):
    cells = [
        measured("accuracy", ACCURACY),
        measured("accuracy", ACCURACY.replace("cifar10", "digits"), dataset="digits"),
    ]
    ours = tables(build(cells, published=load(TABLE1)))[0]
    assert [heading.label for heading in ours.headings] == ["model", "dataset", "accuracy"]
    assert texts(ours)[-1] == ["Wide-ResNet · published", "CIFAR-10", "95.8"]


def test_programs_get_the_protocols_and_everything_as_it_was_published(measured):
    table = build([measured("accuracy", ACCURACY)], published=load(TABLE1))
    (published,) = json.loads(render(document(table), "json"))["published"]
    assert published["columns"][0] == {"label": "accuracy", "unit": "%", "better": "higher", "value": "accuracy"}
    assert published["rows"][5]["protocols"] == {
        "accuracy": "accuracy:data=cifar10,data_noise=0,images=10000,split=test"
    }
    lines = [
        line for line in csv.DictReader(io.StringIO(render(document(table), "csv"))) if line["kind"] == "published"
    ]
    assert len(lines) == 6 + 7 + 7
    assert lines[0]["protocol"] == "accuracy:data=cifar10,data_noise=0,images=10000,split=test"
