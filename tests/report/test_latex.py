"""The contents of LaTeX tables, and the bold values. tests/pages compiles them."""

import re

import numpy as np
import pytest

from jembench.errors import SpecError
from jembench.interfaces import Value
from jembench.report.formats import Document, render
from jembench.report.layout import Report
from jembench.report.published import published_numbers
from jembench.report.table import Footnote, Heading, Table, TableCell
from jembench.store.outcome import Outcome

N = 300


@pytest.fixture
def full(full_cells):
    return Report(full_cells, published=published_numbers(["jem-iclr2020/table1"]))


def test_all_rows_have_the_columns_of_their_heading(full):
    text = render(full, "latex:width=page")
    assert text.isascii()
    for alignment, body in re.findall(
        r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}\n(.*?)\\end\{tabular\}", text, re.S
    ):
        lines = [line for line in body.splitlines() if line.endswith(("]", r"\\"))]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(alignment) - 1}
    assert r"100\% finite\_" in text
    assert r"JEM p(x\textbar{}y) factored" in text
    assert r"failed\rlap{\textsuperscript{1}}" in text
    assert r"\textsuperscript{2} needs samples: baseline has logits \textbar{} energy only." in text


@pytest.mark.parametrize(
    ("options", "first"), [("", "tab:results"), (":label=mine", "tab:mine"), (":label=t:a", "t:a")]
)
def test_every_label_is_there_once(full, options, first):
    text = render(full, f"latex{options}")
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert labels[0] == first
    assert len(labels) == len(set(labels)) == text.count(r"\caption") > 1
    assert all(label.startswith(first) for label in labels) or not options


def test_a_label_that_latex_cannot_read(full):
    with pytest.raises(SpecError, match="letters, digits"):
        render(full, "latex:label=a}b")


def test_several_tables_have_one_block_of_notes_each_once(full):
    text = render(full, "latex")
    (block,) = re.findall(r"\{\\par\\medskip\\footnotesize.*?\\par\\medskip\}", text, re.S)
    assert text.endswith(f"{block}\n")
    notes = block.splitlines()[1:-1]
    assert notes[0].startswith(r"\textbf{Notes to Tables~\ref{tab:results} and~\ref{")
    assert len(notes) == len(set(notes))


def test_a_table_of_notes_alone_is_no_float():
    results = Table(title="Results", headings=(Heading("value"),), rows=((TableCell("1.5"),),))
    to_do = Table(title="Not measured", footnotes=(Footnote("`jembench run ood` measures it"),))
    text = render(Document([results, to_do]), "latex")
    assert "1.5" in text
    assert "easure" not in text
    assert "Not measured" in render(Document([to_do]), "latex")


@pytest.mark.parametrize(("columns", "environment"), [(3, "table"), (4, "table*"), (30, "table*")])
def test_a_wide_table_is_over_both_columns(cell, columns, environment):
    one = Value(0.123, 0.111, 0.135, N, "", "higher")
    cells = [cell(metric=f"m{number}", **{f"quantity-{number}": one}) for number in range(columns)]
    text = render(Report(cells), "latex")
    assert text.count(r"\begin{tabular}") == 1
    assert f"\\begin{{{environment}}}[tp]\n" in text
    assert "table*" in render(Report(cells), "latex:width=page")
    assert "table*" not in render(Report(cells), "latex:width=345pt")


@pytest.mark.parametrize("width", ["narrow", "0.5in", "30in", "5em", "-3in"])
def test_a_width_that_is_none(full, width):
    with pytest.raises(SpecError, match="column, page or a length"):
        render(full, f"latex:width={width}")


def test_special_characters(cell):
    outcome = Outcome(status="failed", reason=r"\{}$&#%_^~<>| a ε of ∞, Ω")
    text = render(Report([cell(outcome=outcome)]), "latex")
    assert r"\textbackslash{}\{\}\$\&\#\%\_\textasciicircum{}\textasciitilde{}" in text
    assert r"\textless{}\textgreater{}\textbar{} a $\epsilon$ of $\infty$, $\Omega$" in text


def test_what_is_between_backticks_is_code(cell):
    outcome = Outcome(status="failed", reason="`jembench run x_1` and `y`: `open' is no `pair'")
    text = render(Report([cell(outcome=outcome)]), "latex")
    assert (
        r"\texttt{jembench run x\_1} and \texttt{y}: \textquoteleft{}open' is no "
        r"\textquoteleft{}pair'" in text
    )


def test_numbers_have_signs_and_powers(cell):
    values = {"energy_gap": Value(-12_500_000.0, -13_000_000.0, -12_000_000.0, 9, "nats")}
    text = render(Report([cell(metric="energy-gap", **values)]), "latex")
    assert r"$-$1.25$\cdot10^{7}$" in text


def test_the_interval_is_below_or_its_half_behind_the_value(cell):
    single = Report([cell(accuracy=Value(97.0, 96.0, 98.0, 397, "%", "higher"))])
    assert r"{\scriptsize [96.0, 98.0]}" in render(single, "latex")
    shown = render(single, "latex:interval=pm")
    assert r"97.0 $\pm$ 1.0" in shown
    assert "one seed: half the width of the 95" in shown
    several = Report(
        [cell(accuracy=Value(v, v - 1, v + 1, 397, "%"), seed=s) for s, v in ((0, 96.0), (1, 97.0))]
    )
    shown = render(several, "latex:interval=pm")
    assert r"96.50 $\pm$ 0.71" in shown
    assert "half the width" not in shown


def shown(cell, *shares, seeds=1):
    """A table of models that are right on shares of the images, of all seeds or of each; the first
    images.
    """
    arrays, cells = {}, []
    for number, share in enumerate(shares):
        for seed in range(seeds):
            right = np.arange(N) < (share[seed] if isinstance(share, tuple) else share) * N
            accuracy = Value(100 * right.mean(), None, None, N, "%", "higher")
            cells.append(cell(f"model-{number}", accuracy=accuracy, seed=seed))
            arrays[cells[-1].id] = {"correct": right}
    return render(Report(cells, read=lambda cell: arrays[cell.id]), "latex")


def bold(text):
    return re.findall(r"\\textbf\{(.*?)\}", text)


def test_the_best_is_bold_if_it_differs_from_the_runner_up(cell):
    text = shown(cell, 0.9, 0.5, 0.6)
    assert bold(text) == ["90.00"]
    assert (
        "Bold: better than the runner-up of its column (p \\textless{} 0.05, adjusted by Holm"
        in text
    )


@pytest.mark.parametrize("shares", [(0.9, 0.89, 0.5), (0.9, 0.9), (0.9,)])
def test_nothing_is_bold_if_the_difference_may_be_chance(cell, shares):
    text = shown(cell, *shares)
    assert bold(text) == []
    assert "Bold" not in text


@pytest.mark.parametrize(
    ("metrics", "expected"), [(["accuracy"], 1), (["accuracy", "accuracy:data_noise=0.03"], 0)]
)
def test_the_columns_are_adjusted_by_holm(cell, metrics, expected):
    """Six images of one sign: p of McNemar's test is 2 / 2**6 = .031 in each column."""
    arrays, cells = {}, []
    for model, right in (("jem", 156), ("baseline", 150)):
        for metric in metrics:
            accuracy = Value(100 * right / N, None, None, N, "%", "higher")
            cells.append(cell(model, metric, accuracy=accuracy))
            arrays[cells[-1].id] = {"correct": np.arange(N) < right}
    text = render(Report(cells, read=lambda cell: arrays[cell.id]), "latex")
    assert len(bold(text)) == expected


def test_from_three_seeds_on_the_seeds_are_tested_as_well(cell):
    assert bold(shown(cell, 0.9, 0.5, seeds=3)) == [r"90.00 $\pm$ 0.00"]
    varied = (0.95, 0.5, 0.6), (0.5, 0.6, 0.5)
    assert bold(shown(cell, *varied, seeds=2)) == [r"72 $\pm$ 32"]
    assert bold(shown(cell, *varied, seeds=3)) == []  # training anew explains the difference


def test_without_arrays_or_with_other_protocols_nothing_is_bold(cell):
    cells = [cell("jem", accuracy=Value(90.0, None, None, N, "%", "higher"))]
    cells.append(cell("baseline", accuracy=Value(50.0, None, None, N, "%", "higher")))
    assert bold(render(Report(cells, read=lambda cell: {}), "latex")) == []
    assert bold(render(Report(cells), "latex")) == []
