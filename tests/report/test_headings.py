"""Headings in words: the labels of values, given headings, and columns that would have the same
heading.
"""

import pytest

from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment.names import DisplayNames
from jembench.experiment.plan import Part
from jembench.interfaces import Value
from jembench.report.headings import in_words, known_as, split
from jembench.report.layout import Report
from jembench.report.protocols import own_name
from jembench.report.select import select


@pytest.mark.parametrize(
    ("label", "text", "network"),
    [
        ("accuracy", "accuracy", ""),
        ("is", "Inception score", ""),
        ("is-digits-cnn", "Inception score", "digits CNN"),
        ("fid-infinity-my-images-cnn", "FID infinity", "my images CNN"),
        ("fid-dinov2", "FID", "DINOv2"),
        ("classwise-ece-scaled", "classwise ECE (scaled)", ""),
        ("pgd-linf@8/255-expected", "PGD L∞ at 8/255 (expected)", ""),
        ("log-px-spread", "spread of log p(x)", ""),
        ("log-px-error", "error of log p(x)", ""),
        ("distal-log-px", "distal log p(x)", ""),
        # neither "is" nor "in" of the label is a part of it
        ("missing-piece", "missing piece", ""),
        ("mine", "mine", ""),
    ],
)
def test_a_label_reads_as_words(label, text, network):
    assert tuple(map(in_words, split(label))) == (text, network)


def columns(document):
    (table,) = document.tables()
    return [heading[:2] for heading in table.headings if not heading.identifies]


@pytest.fixture
def cells(cell):
    value = Value(8.5, 8.0, 9.0, 397, "", "higher")
    metrics = ("is", "is:selection=model,splits=1,top=0.1", "ece")
    return [
        cell(metric=name, **{"ece" if name == "ece" else "is-digits-cnn": value})
        for name in metrics
    ]


def test_columns_of_one_label_are_told_apart_and_explained(cells):
    metrics = tuple(cell.metric for cell in cells)
    document = Report(cells, parts=[Part("", metrics, (), {cells[0].fit.names: metrics})])
    assert columns(document)[:2] == [
        ("Inception score", "digits CNN ↑"),
        ("Inception score*", "digits CNN ↑"),
    ]
    notes = [note.text for note in document.tables()[0].footnotes]
    assert [note for note in notes if note.startswith("Inception score*")] == [
        f"Inception score*: {metrics[1]}."
    ]


@pytest.mark.parametrize("text", ["is-digits-cnn", "is", "Inception score digits CNN"])
def test_a_heading_is_given_by_each_text_that_names_the_column(cells, text):
    names = DisplayNames(headings={text: "IS"})
    assert columns(Report(cells[1:], names=names)) == [("IS", "↑"), ("ECE", "↑")]
    assert select("column", [text], ["ece", "is-digits-cnn"], str) == ["is-digits-cnn"]


def test_a_metric_without_values_is_headed_by_its_name(cell):
    assert known_as(Spec("ece:scaling=temperature"))[1:3] == ("ece", "ECE")
    with pytest.raises(SpecError, match="no column among these results named 'ecf'"):
        select("column", ["ecf"], ["ece"], str)


def test_equal_headings_do_not_join_columns(cells):
    names = DisplayNames(headings={"is": "A", "ece": "A"})
    assert columns(Report(cells[1:], names=names)) == [("A", "↑"), ("A*", "↑")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("imagefolder:root=/a/flat,unlabelled=true", "flat"),
        ("imagefolder:name=birds,root=/a/flat", "birds"),
        ("npz:/a/my.npz", "my"),
        ("hf:saved", "saved"),
        ("torchvision:FashionMNIST,root=data", "FashionMNIST"),
        ("imagefolder:unlabelled=true", ""),  # of a protocol, which has no paths
        ("celeba:root=/a/faces", ""),
        ("—", ""),
    ],
)
def test_a_set_of_a_folder_is_called_as_its_dataset(text, name):
    assert own_name(text) == name
