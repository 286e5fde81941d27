"""The published numbers: those of the papers, each with its source, and a file that cannot be used
says why.
"""

import math
from pathlib import Path

import pytest

from jembench.catalog import packages
from jembench.catalog.spec import Spec
from jembench.errors import PluginError, SpecError
from jembench.report.published import published_numbers, read_file


def everything():
    return [
        number
        for stem, file in packages.files("reference").items()
        for number in read_file(stem, file)
    ]


def numbers(name, model, label=None):
    rows = [
        number.row
        for number in published_numbers([name])
        if number.row.model == model and label in (None, number.row.name)
    ]
    assert len({place(row) for row in rows}) == 1
    return {row.label: row.value for row in rows}


def place(row):
    """Return what the numbers in one row of a table have in common."""
    return row.model, row.name, row.dataset, row.source


@pytest.mark.parametrize(
    ("name", "model", "label", "expected"),
    [
        ("jem-iclr2020/table1", "residual-flow", None, {"accuracy": 70.3, "is": 3.6, "fid": 46.4}),
        ("jem-iclr2020/table1", "glow", None, {"accuracy": 67.6, "is": 3.92, "fid": 48.9}),
        ("jem-iclr2020/table1", "igebm", None, {"accuracy": 49.1, "is": 8.3, "fid": 37.9}),
        ("jem-iclr2020/table1", "jem-factored", None, {"accuracy": 30.1, "is": 6.36, "fid": 61.8}),
        ("jem-iclr2020/table1", "jem", None, {"accuracy": 92.9, "is": 8.76, "fid": 38.4}),
        ("jem-iclr2020/table1", "baseline", "Wide-ResNet", {"accuracy": 95.8}),
        ("jem-iclr2020/table1", "sngan", None, {"is": 8.59, "fid": 25.5}),
        ("jem-iclr2020/table1", "ncsn", None, {"is": 8.91, "fid": 25.32}),
        ("jem-iclr2020/figure4", "baseline", None, {"ece": 22.32}),
        ("jem-iclr2020/figure4", "jem", None, {"ece": 4.87}),
        ("jem-iclr2020/table5", "igebm", "IGEBM, unconditional, single", {"is": 6.02}),
        ("jem-iclr2020/table6", "jem", None, {"is-bs": 7.13, "is-dm": 8.76, "fid-h": 38.4}),
        ("jem-iclr2020/table6", "glow", None, {"is-dm": 3.9, "fid-paper": 48.9, "fid-h": 107}),
        (
            "jem-iclr2020/table7-log-px",
            "jem",
            None,
            {
                "svhn": 0.67,
                "uniform": 1,
                "constant": 0.51,
                "interp": 0.65,
                "cifar100": 0.67,
                "celeba": 0.75,
            },
        ),
        (
            "jem-iclr2020/table7-max-py",
            "baseline",
            None,
            {
                "svhn": 0.93,
                "uniform": 0.97,
                "constant": 0.99,
                "interp": 0.77,
                "cifar100": 0.85,
                "celeba": 0.62,
            },
        ),
        (
            "jem-iclr2020/table7-grad-norm",
            "igebm",
            None,
            {
                "svhn": 0.84,
                "uniform": 0.99,
                "constant": 0,
                "interp": 0.65,
                "cifar100": 0.55,
                "celeba": 0.66,
            },
        ),
        ("reproduction-wrn28-2/tables2and3", "jem", None, {"accuracy": 83.72, "is": 19.39}),
        ("reproduction-wrn28-2/figure2", "baseline", None, {"ece": 7.78}),
        ("reproduction-wrn28-2/table4", "jem", "WRN-28-2, JEM, k = 500", {"is": 22.0}),
        ("reproduction-wrn28-2/table5", "jem", "WRN-28-2, JEM, k = 10000", {"is": 2.88}),
        ("reproduction-wrn28-2/table6", "jem", "WRN-28-2, JEM, 100 steps", {"is": 4.21}),
        ("later-work/hybrid", "sada-jem", "SADA-JEM, K = 10", {"accuracy": 95.5, "fid": 9.41}),
    ],
)
def test_numbers_are_those_of_the_papers(name, model, label, expected):
    assert numbers(name, model, label) == expected


def test_what_the_paper_could_not_compute_is_not_a_number():
    assert math.isnan(numbers("jem-iclr2020/table7-grad-norm", "glow")["constant"])


def test_every_number_has_a_dataset_a_source_and_a_row_of_its_own():
    for number in everything():
        assert number.row.dataset
        assert number.row.source
    places = [(number.table, *place(number.row), number.row.label) for number in everything()]
    assert len(set(places)) == len(places)
    assert published_numbers(["jem-iclr2020/table1"])[0].row.source.startswith(
        "Grathwohl et al., ICLR 2020, Table 1, "
    )


def test_a_row_overrides_its_table():
    rows = [number.row for number in published_numbers(["jem-iclr2020/accuracies"])]
    assert (rows[0].dataset, rows[0].value) == ("SVHN", 96.7)
    conditional = next(row for row in rows if "SGLD" in row.name)
    assert conditional.source.startswith("Grathwohl et al., ICLR 2020, Appendix A, ")


def test_second_hand_numbers_are_marked():
    standing = {number.table: number.status for number in everything()}
    assert standing["later-work/hybrid"] == "as quoted"
    assert standing["jem-iclr2020/table1"] == "published"


def test_tables_come_in_the_order_asked_for():
    names = ["reproduction-wrn28-2/figure2", "jem-iclr2020/table1"]
    assert list(dict.fromkeys(number.table for number in published_numbers(names))) == names


@pytest.mark.parametrize("name", ["jem-iclr2020/table99", "nowhere/table1", "jem-iclr2020", ""])
def test_an_unknown_name_is_answered_with_the_known(name):
    with pytest.raises(
        SpecError, match=rf"no published table named '{name}'\..*Known: .*jem-iclr2020"
    ):
        published_numbers([name])


@pytest.mark.parametrize(
    ("name", "row", "label", "protocol"),
    [
        (
            "jem-iclr2020/table1",
            0,
            "accuracy",
            "accuracy:data=cifar10,data_noise=0,images=10000,split=test",
        ),
        (
            "jem-iclr2020/accuracies",
            0,
            "accuracy",
            "accuracy:data=svhn,data_noise=0.03,images=26032,split=test",
        ),
        # "*": not said
        (
            "jem-iclr2020/accuracies",
            3,
            "accuracy",
            "accuracy:data=cifar100,images=10000,split=test",
        ),
        (
            "jem-iclr2020/figure4",
            1,
            "ece",
            "ece:bins=20,data=cifar100,data_noise=0.03,images=10000,split=test",
        ),
        (
            "jem-iclr2020/table7-max-py",
            3,
            "constant",
            "ood:data=cifar10,data_noise=0.03,images=10000,score=max-py,set=constant:value=0,split=test",
        ),
        (
            "jem-iclr2020/table7-max-py",
            1,
            "svhn",
            "ood:data=cifar10,data_noise=0,images=10000,score=max-py,set=svhn,split=test",
        ),
        (
            "reproduction-wrn28-2/table6",
            1,
            "is",
            "is:data=cifar10,features=inception-*,images=100,implementation=barratt-sharma,selection=none,"
            "source=chains:steps=10",
        ),
        ("reproduction-wrn28-2/figure2", 0, "ece", "ece:data=cifar10"),  # nothing else is told
    ],
)
def test_a_protocol_is_put_together_of_table_column_and_row(name, row, label, protocol):
    rows = [number.row for number in published_numbers([name])]
    of_row = list(dict.fromkeys(map(place, rows)))[row]
    assert [
        row_of_paper.protocol
        for row_of_paper in rows
        if (place(row_of_paper), row_of_paper.label) == (of_row, label)
    ] == [protocol]


def test_a_column_names_the_value_of_ours_that_it_is():
    def quantities(name):
        numbers = sorted(published_numbers([name]), key=lambda number: number.column)
        return {number.row.label: number.quantity for number in numbers}

    assert set(quantities("jem-iclr2020/table7-log-px").values()) == {"auroc"}
    assert list(quantities("jem-iclr2020/table6").values()) == ["is"] * 3 + ["fid"] * 3
    assert set(quantities("jem-iclr2020/table4").values()) == {""}


def test_every_protocol_is_of_a_metric_that_there_is_and_of_parts_that_it_has():
    """A misspelt part would keep a number from ever standing beside ours, in silence."""
    parts = {
        "accuracy": {"split", "images", "data_noise", "top"},
        "ece": {"split", "images", "bins", "data_noise"},
        "ood": {"split", "images", "score", "set", "data_noise"},
        "fid": {"features", "implementation", "reference"},
        "is": {
            "features",
            "images",
            "implementation",
            "per_class",
            "pooling",
            "selection",
            "source",
            "top",
        },
    }
    for number in everything():
        if number.row.protocol:
            protocol = Spec(number.row.protocol)
            assert protocol.options.keys() <= parts[protocol.name] | {"data"}, number.row


GOOD = """
[paper]
title = "T"
cite = "A"
url = ""
status = "published"
[[table]]
name = "one"
where = "Table 1"
dataset = "D"
columns = [{ label = "ece", unit = "%", better = "lower" }]
rows = [{ model = "m", label = "M", ece = 1.5 }]
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('cite = "A"', "", "lacks paper.cite"),
        (
            'status = "published"',
            'status = "rumour"',
            "paper.status is 'rumour'; it must be one of published, as quoted",
        ),
        ("ece = 1.5", "fid = 1.5", "There is no key in a row of one named 'fid'"),
        ("ece = 1.5", 'ece = "a"', "values.ece is 'a'; it must be a number"),
        ("ece = 1.5", "ece = []", "values.ece is []; it must be a number"),
        (
            'better = "lower"',
            'better = "less"',
            "table[0].columns[0].better is 'less'; it must be one of higher, lower",
        ),
        ("[[table]]", "[[table]", "line 7"),
        (
            "ece = 1.5",
            "ece = 1.5, protocol = { fid = {} }",
            "There is no label with a protocol in a row of one named 'fid'",
        ),
        (
            "[[table]]",
            "[[table]]\nprotocol = { bins = [] }",
            "table[0].protocol.bins is []; it must be text",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, monkeypatch, old, new, problem):
    file = tmp_path / "mine.toml"
    monkeypatch.setattr(packages, "files", lambda folder: {"mine": file})
    file.write_text(GOOD)
    assert [number.row.value for number in published_numbers(["mine/one"])] == [1.5]
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(PluginError, match=r"mine\.toml cannot be used") as caught:
        published_numbers(["mine/one"])
    assert problem in str(caught.value)
