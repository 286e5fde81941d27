"""Published numbers beside ours where they mean the same; else the paper's table below, with the
parts that differ.
"""

import csv
import io

import pytest

from jembench.interfaces import Value
from jembench.report.formats import render
from jembench.report.layout import Report
from jembench.report.published import published_numbers as load
from jembench.store.outcome import Outcome


def tables(document):
    return document.tables()


TABLE1 = ["jem-iclr2020/table1"]


@pytest.fixture
def measured(cell):
    """A cell of which the protocol is given part by part."""

    def make(
        metric,
        protocol,
        value=92.0,
        label=None,
        unit="%",
        model="jem",
        dataset="cifar10:root=/data",
    ):
        values = {label or metric: Value(value, value - 1, value + 1, 100, unit)}
        return cell(
            model,
            metric,
            dataset=dataset,
            outcome=Outcome(status="ok", protocol=protocol, values=values),
        )

    return make


ACCURACY = "accuracy:data=cifar10,data_noise=0.03,images=10000,split=test"


def texts(grid):
    return [[text.value for text in row] for row in grid.rows]


def reasons(grid):
    return [note.text for note in grid.footnotes if note.text.startswith("Protocols differ in: ")]


def marks_of(grid, model):
    notes = {note.mark: note.text for note in grid.footnotes}
    row = next(row for row in grid.rows if row[0].value.startswith(model))
    return [[notes[mark] for mark in text.marks] for text in row]


def test_a_number_under_the_same_protocol_stands_beside_ours(measured):
    ours, published = tables(Report([measured("accuracy", ACCURACY)], published=load(TABLE1)))
    assert texts(ours) == [
        ["jem", "92.0"],
        ["JEM p(x|y) factored · published", "30.1"],
        ["JEM · published", "92.9"],
        ["Wide-ResNet · published", "95.8"],
    ]
    assert [heading.label for heading in published.headings[2:]] == [
        "accuracy",
        "Inception score",
        "FID",
    ]
    assert len(published.rows) == 8
    assert reasons(published) == ["Protocols differ in: noise on test images."]


def test_its_footnotes_are_the_source_and_what_the_paper_adds(measured):
    ours = tables(Report([measured("accuracy", ACCURACY)], published=load(TABLE1)))[0]
    source = "published: Grathwohl et al., ICLR 2020, Table 1, https://arxiv.org/abs/1912.03263"
    assert marks_of(ours, "Wide-ResNet") == [["with batch norm", source], []]


def test_a_number_that_another_text_quotes_says_so(measured):
    ours, _ = tables(
        Report([measured("accuracy", ACCURACY)], published=load(["later-work/hybrid"]))
    )
    assert ["EGC · as quoted", "95.9"] in texts(ours)


@pytest.mark.parametrize(
    ("metric", "protocol", "parts"),
    [
        ("accuracy", ACCURACY.replace("cifar10", "digits"), "dataset"),
        ("accuracy", ACCURACY.replace("10000", "100"), "images"),
        ("accuracy", ACCURACY.replace("test", "validation"), "split"),
        ("accuracy:data_noise=0.1", ACCURACY.replace("0.03", "0.1"), "noise on test images"),
        ("accuracy:corruption=fog", f"{ACCURACY},corruption=fog", "corruption"),
    ],
)
def test_a_number_under_another_protocol_stays_below_with_what_differs(
    measured, metric, protocol, parts
):
    found = tables(
        Report(
            [measured(metric, protocol, label="accuracy")],
            published=load(["jem-iclr2020/batch-norm"]),
        )
    )
    ours, published = found
    assert len(ours.rows) == 1
    assert len(published.rows) == 4
    (reason,) = reasons(published)
    assert parts in reason.removeprefix("Protocols differ in: ")


@pytest.mark.parametrize(
    ("metric", "ours", "beside"),
    [
        (
            "fid",
            "features=inception-2015-12-05@67,images=10000,implementation=torch-fidelity,reference=train",
            6,
        ),
        (
            "fid",
            "features=digits-cnn@ab,images=10000,implementation=torch-fidelity,reference=train",
            0,
        ),
        (
            "fid:selection=model",
            "features=inception-2015-12-05@67,implementation=torch-fidelity,selection=model",
            0,
        ),
        ("is", "features=inception-2015-12-05@67,images=10000,implementation=barratt-sharma", 3),
        ("is", "features=inception-2015-12-05@67,images=10000,implementation=torch-fidelity", 2),
    ],
)
def test_of_table_1_those_stand_beside_ours_of_which_no_stated_part_differs(
    measured, metric, ours, beside
):
    name = metric.partition(":")[0]
    cells = [measured(metric, f"{name}:data=cifar10,{ours}", label=name, unit="")]
    table = tables(Report(cells, published=load(TABLE1)))[0]
    assert len(table.rows) == 1 + beside
    for row in table.rows[1:]:
        assert len(row[1].marks) == 1  # none is stated completely


def test_ours_under_several_protocols_must_all_agree(measured):
    cells = [
        measured("accuracy", ACCURACY),
        measured("accuracy", ACCURACY.replace("0.03", "0"), model="baseline"),
    ]
    ours, published = tables(Report(cells, published=load(TABLE1)))
    assert len(ours.rows) == 2
    assert reasons(published) == ["Protocols differ in: noise on test images."]


def test_another_unit_is_another_number(measured):
    ours, _ = tables(
        Report([measured("accuracy", ACCURACY, value=0.92, unit="")], published=load(TABLE1))
    )
    assert len(ours.rows) == 1


def test_the_inception_score_of_jem_is_of_a_selection(measured):
    protocol = (
        "is:data=cifar10,features=inception-2015-12-05@67,images=10000,"
        "implementation=torch-fidelity,"
    )
    cells = [
        measured(
            "is", f"{protocol}pooling=one-buffer,selection=none,source=buffer,splits=10", unit=""
        )
    ]
    published = tables(Report(cells, published=load(["jem-iclr2020/table5"])))[1]
    assert reasons(published) == ["Protocols differ in: implementation, pooling, selection, top."]


def test_a_part_of_a_column_beside_ours(measured):
    cifar100 = measured("accuracy", ACCURACY.replace("cifar10", "cifar100"), dataset="cifar100")
    ours, left = tables(Report([cifar100], published=load(["jem-iclr2020/accuracies"])))
    assert [row[1] for row in texts(ours)] == ["92.0", "72.2", "74.2", "74.8"]
    assert reasons(left) == ["Protocols differ in: dataset, images."]


def test_rows_of_several_datasets_and_recipes(measured):
    cells = [
        measured("accuracy", ACCURACY),
        measured("accuracy", ACCURACY.replace("cifar10", "digits"), dataset="digits"),
    ]
    ours = tables(Report(cells, published=load(TABLE1)))[0]
    assert [heading.label for heading in ours.headings] == ["model", "dataset", "accuracy"]
    assert texts(ours)[-1] == ["Wide-ResNet · published", "CIFAR-10", "95.8"]


def test_programs_get_the_protocols_and_everything_as_it_was_published(measured):
    text = render(Report([measured("accuracy", ACCURACY)], published=load(TABLE1)), "csv")
    lines = [line for line in csv.DictReader(io.StringIO(text)) if line["source"]]
    assert len(lines) == 6 + 7 + 7
    first = {
        "name": "Residual Flow",
        "label": "accuracy",
        "unit": "%",
        "better": "higher",
        "value": "70.3",
    }
    assert lines[0].items() >= first.items()
    assert lines[0]["protocol"] == ACCURACY.replace("0.03", "0")
