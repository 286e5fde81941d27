"""The formats: each holds everything, none breaks on what the texts contain."""

import csv
import io
import itertools
import json
import math
import re
import subprocess
import sys
from random import Random

import pytest
from rich.console import Console

from jembench.interfaces import Value
from jembench.report import terminal
from jembench.report.formats import Document, render
from jembench.report.layout import NO_RESPECT, NOTHING, Report
from jembench.report.published import published_numbers
from jembench.report.table import Heading, Table, TableCell
from jembench.store.outcome import Outcome

SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


@pytest.fixture
def full(full_cells):
    return Report(full_cells, published=published_numbers(["jem-iclr2020/table1"]))


def on_terminal(table, width):
    return render(table, f"table:width={width}")


def numbers(value):
    """Every number in a JSON value, as it is written there."""
    if isinstance(value, dict):
        return {
            number
            for key, item in value.items()
            if key not in ("schema", "column")
            for number in numbers(item)
        }
    if isinstance(value, list):
        return {number for item in value for number in numbers(item)}
    return (
        {json.dumps(value)}
        if isinstance(value, int | float) and not isinstance(value, bool)
        else set()
    )


def test_every_number_in_the_json_is_in_the_csv(cell, full_cells):
    again = [
        cell("jem", seed=seed, accuracy=Value(96 + 1 / seed, 1 / 7, None, 397)) for seed in (3, 4)
    ]
    table = Report([*full_cells, *again], published=published_numbers(["jem-iclr2020/table1"]))
    fields = {
        part
        for line in csv.reader(io.StringIO(render(table, "csv")))
        for field in line
        for part in field.split()
    }
    found = numbers(json.loads(render(table, "json")))
    assert len(found) > 50
    assert found <= fields


@pytest.mark.parametrize("format", ["json", "csv"])
def test_what_is_not_finite_is_a_string(cell, format):
    text = render(Report([cell(accuracy=Value(math.nan, -math.inf, math.inf, 1))]), format)
    if format == "json":
        value = json.loads(text, parse_constant=pytest.fail)["rows"][0]
    else:
        (value,) = csv.DictReader(io.StringIO(text))
    assert (value["value"], value["low"], value["high"]) == ("nan", "-inf", "inf")


def test_markdown_escapes_what_would_be_markup(cell):
    outcome = Outcome(status="failed", reason="a*b_c`d\n<e>|~\\")
    text = render(Report([cell("x:net=a|b", outcome=outcome)]), "markdown")
    assert r"a\*b\_c\`d \<e\>\|\~\\" in text
    assert r"x:net=a\|b" in text


def test_widths_are_those_of_rich_without_laying_a_table_out(monkeypatch):
    random, sums = Random(0), []

    def text(length):
        return "".join(random.choice("abc é漢.-") for _ in range(random.randint(0, length)))

    def blocks(table, widths, gap, most):
        sums.append(sum(widths) + gap * (len(widths) - 1))
        return [list(range(len(widths)))]

    monkeypatch.setattr(Table, "blocks", blocks)
    console = Console(width=10_000, file=io.StringIO())
    for _ in range(20):
        headings = tuple(
            Heading(text(10), text(6), random.random() < 0.3) for _ in range(random.randint(1, 6))
        )
        rows = tuple(
            tuple(TableCell(text(50), text(12), ("1", "2")) for _ in headings) for _ in range(4)
        )
        for width in (10_000, 0):  # each interval beside its value, and below
            (laid_out,) = terminal._blocks(Table(title="", headings=headings, rows=rows), width)
            assert console.measure(laid_out).maximum == sums.pop()


def test_the_arrangement_of_a_table_is_found_without_laying_others_out(monkeypatch, full):
    laid_out, rich = [], terminal.RichTable
    monkeypatch.setattr(terminal, "RichTable", lambda **how: (laid_out.append(how), rich(**how))[1])
    text = on_terminal(full, 60)
    assert len(laid_out) == len(re.findall("^─+$", text, re.MULTILINE))


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_the_terminal_shows_everything_at_any_width(full, width):
    text = on_terminal(full, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for grid in full.tables():
        assert " ".join(grid.title.split()) in flat
        for heading in grid.headings:
            assert heading.label in flat
        for row in grid.rows:
            for cell_text in row:
                assert cell_text.value in flat
                assert cell_text.interval in flat
        for footnote in grid.footnotes:
            assert footnote.text in flat


def test_a_long_spec_is_folded_not_cut(cell):
    spec = "mypackage.zoo.models:build:activation=leaky,depth=28,dropout=0.1,norm=batch,width=10"
    text = on_terminal(Report([cell(spec, accuracy=Value(97.5, 95.4, 98.6, 397))]), 60)
    column = "".join(line[:34].strip() for line in text.splitlines())
    assert spec in column


@pytest.mark.parametrize(
    ("first", "whole"), [("a sentence of words that breaks", True), ("jem:" + 30 * "x", False)]
)
def test_a_sentence_takes_more_lines_where_the_table_is_whole_then(first, whole):
    cells = (TableCell(first), *(TableCell(str(value)) for value in (10**20, 10**21)))
    table = Table(
        title="",
        headings=(Heading("", identifies=True), Heading("one"), Heading("two")),
        rows=(cells,),
    )
    document = Document([table])
    lines = terminal.render(document, width=70).splitlines()
    assert any("one" in line and "two" in line for line in lines) == whole
    assert max(map(len, lines)) <= 70


def test_a_wide_terminal_shows_the_interval_beside_its_value(cell):
    table = Report([cell(accuracy=Value(97.5, 95.4, 98.6, 397))])
    assert "97.5 [95.4, 98.6]" in on_terminal(table, 80)
    assert not re.search(r"97\.5 +\[", on_terminal(table, 20))


def test_brackets_are_not_markup(cell):
    table = Report([cell("m:tag=[red]", accuracy=Value(97.5, 95.4, 98.6, 397))])
    assert "m:tag=[red]" in on_terminal(table, 80)


@pytest.mark.parametrize("format", ["markdown", "latex", "html", "table:width=80"])
def test_no_rows_says_so(cell, format):
    assert NOTHING in render(Report([]), format)
    assert NO_RESPECT in render(
        Report([cell(metric="nll", nll=Value(1.0, None, None, 9))], joint=True), format
    )


@pytest.mark.parametrize("width", [30, 60, 200])
def test_footnotes_of_a_terminal_are_numbered_in_the_order_of_their_marks(width):
    headings = (
        Heading("model", identifies=True),
        *(Heading(f"a long heading {n}") for n in range(4)),
    )
    notes = itertools.count()
    lines = [[TableCell("1.5", notes=(f"note {next(notes)}",)) for _ in range(4)] for _ in range(3)]
    rows = tuple((TableCell(f"model {n}"), *line) for n, line in enumerate(lines))
    text = on_terminal(Document([Table(title="A", headings=headings, rows=rows)] * 2), width)
    marks = [int(mark.translate(DIGITS)) for mark in re.findall("(?<=1\\.5)[⁰¹²³⁴⁵⁶⁷⁸⁹]+", text)]
    assert marks == list(range(1, 13)) * 2
    below = dict(re.findall(r"([⁰¹²³⁴⁵⁶⁷⁸⁹]+) note (\d+)", text))
    assert sorted(map(int, below.values())) == list(range(12))
    columns = {30: 1, 60: 2, 200: 4}[width]
    first = [below[str(number + 1).translate(SUPERSCRIPT)] for number in range(columns)]
    assert first == [str(number) for number in range(columns)]


def test_no_rows_are_empty_as_data():
    assert json.loads(render(Report([]), "json")) == {"schema": 2, "rows": []}
    assert len(render(Report([]), "csv").splitlines()) == 1


def test_a_report_loads_no_heavy_library():
    code = (
        "import sys, jembench.report.layout, jembench.report.terminal, jembench.report.published;"
        "jembench.report.published.published_numbers(['jem-iclr2020/table1']);"
        "print(*{'numpy', 'torch', 'scipy', 'sklearn', 'matplotlib'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
