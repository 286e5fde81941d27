"""The page as a file: complete, escaped, and without anything from elsewhere."""

import base64
import math
import re
from html.parser import HTMLParser

import pytest

from jembench.api.results import Results
from jembench.interfaces import Value
from jembench.report.formats import Document, render, table_csv
from jembench.report.page.render import anchor, breakable, details, key, prose
from jembench.report.published import published_numbers
from jembench.report.table import Heading, Table, TableCell, row_cell
from jembench.store.outcome import Outcome

EVIL = "x:net=</script><script>alert(1)</script><img src=http://x.example/>"


VOID = {"meta", "link", "input", "br", "img", "wbr"}


class Read(HTMLParser):
    """The elements of a page, its texts by element, and what the script reads."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and text.strip():
            self.texts.setdefault(self.open[-1], []).append(text.strip(" \n\N{WORD JOINER}"))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page(cells, published=()):
    return Results(cells, published=published).table("html")


def test_every_value_interval_and_reason_stands_in_the_page(full_cells):
    results = Results(full_cells)
    text = results.table("html")
    read = Read(text)
    shown = {*read.texts["summary"], *read.texts["span"]}
    for record in results:
        found = row_cell(record)
        assert found.value in shown
        assert not found.interval or found.interval in shown
    assert {"N/A", "failed"} <= shown
    assert "needs samples: baseline has logits | energy only" in read.texts["li"]


def test_every_number_opens_to_its_record(full_cells):
    results = Results(full_cells)
    assert len(
        [of for of in Read(results.table("html")).all("details") if of.get("class") == "number"]
    ) >= len(results)
    record = next(record for record in results if record.protocol == "ece:data=digits,images=397")
    assert {("data", "digits"), ("images", "397"), ("metric", "ece")} <= set(details(record))


def test_a_protocol_that_is_no_spec_stands_as_it_is(cell):
    (record,) = Results(
        [
            cell(
                outcome=Outcome(
                    status="ok", protocol="as I like", values={"a": Value(1, None, None, 9)}
                )
            )
        ]
    )
    assert ("protocol", "as I like") in details(record)


def test_names_are_text_and_never_markup(cell):
    outcome = Outcome(status="na", reason=EVIL)
    text = page(
        [cell(EVIL, accuracy=Value(90, 80, 95, 9)), cell("b", outcome=outcome, recipe=EVIL)]
    )
    read = Read(text)
    assert len(read.all("script")) == 1
    assert read.all("img") == []
    assert EVIL in "".join(read.texts["th"])
    assert text.count("<script") == 1


def test_nothing_comes_from_elsewhere(full_cells):
    read = Read(page(full_cells, published_numbers(["jem-iclr2020/table1"])))
    links = [
        of[name]
        for _, of in read.elements
        for name in ("href", "src", "action", "srcset")
        if name in of
    ]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not any(
        name.startswith("on") or name == "style" for _, of in read.elements for name in of
    )
    assert "url(" not in read.texts["style"][0]
    (policy,) = (
        of["content"]
        for of in read.all("meta")
        if of.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy


def test_links_and_labels_lead_somewhere_and_ids_are_unique(full_cells):
    read = Read(page(full_cells, published_numbers(["jem-iclr2020/table1"])))
    ids = [of["id"] for _, of in read.elements if "id" in of]
    assert len(ids) == len(set(ids))
    targets = [of["href"][1:] for of in read.all("a") if "download" not in of]
    targets += [of["aria-labelledby"] for _, of in read.elements if "aria-labelledby" in of]
    assert set(targets) <= set(ids)


def test_a_number_has_an_id_of_its_own_in_the_tables_whatever_stands_beside_it(full_cells, cell):
    read = Read(page([*full_cells, cell("other", accuracy=Value(1, 0, 2, 9))]))
    ids = [of["id"] for of in read.all("details") if of.get("class") == "number"]
    (record,) = Results([full_cells[0]])
    assert anchor(record) == "jem.digits.accuracy"
    assert {"jem.digits.accuracy", "jem.digits.is.is-digits-cnn"} <= set(ids)
    assert all("." in one for one in ids)  # no other id has dots
    assert not any("." in of["id"] for tag, of in read.elements if "id" in of and tag != "details")
    assert {f"#{one}" for one in ids} <= {of["href"] for of in read.all("a")}


def test_each_table_is_there_as_csv_and_latex(full_cells):
    results = Results(full_cells)
    links = [
        of
        for of in Read(results.table("html")).all("a")
        if of.get("download", "").startswith("Results")
    ]
    assert [of["download"].rpartition(".")[2] for of in links] == ["csv", "tex"] * (len(links) // 2)
    contents = [base64.b64decode(of["href"].partition("base64,")[2]).decode() for of in links]
    (table,) = results.document.tables()
    assert contents[-2:] == [table_csv(table), results.table("latex")]


def test_the_same_results_give_the_same_page(full_cells):
    assert page(full_cells) == page(full_cells)


def test_a_document_without_more_has_the_page_of_its_tables():
    table = Table(
        title="a < b", headings=(Heading("value"),), rows=((TableCell("1.5"),),), footnotes=()
    )
    read = Read(render(Document([table]), "html"))
    assert read.texts["title"] == ["a < b"]
    assert read.texts["h3"][0] == "a < b"
    assert "1.5" in read.texts["th"]


@pytest.mark.parametrize(
    ("text", "expected"), [("1.5", "1.5"), ("jem", ""), ("nan", ""), ("—", "")]
)
def test_columns_are_sorted_by_the_numbers_that_texts_are(text, expected):
    assert key(TableCell(text)) == expected


def test_columns_are_sorted_in_full_precision(cell):
    for value, expected in ((0.123456789, "0.123456789"), (math.inf, ""), (math.nan, "")):
        (record,) = Results([cell(accuracy=Value(value, None, None, 9))])
        assert key(row_cell(record)) == expected


def test_names_break_behind_marks_and_stay_text():
    assert breakable("a:b=<c>,d") == "a:<wbr>b=<wbr>&lt;c&gt;,<wbr>d"


def test_words_between_backticks_are_code_and_stay_text():
    assert prose("run `a <b>` & `c`") == "run <code>a &lt;b&gt;</code> &amp; <code>c</code>"


def test_the_size_of_fifty_models_with_forty_values(cell):
    cells = [
        cell(f"m{model}", f"m{metric}", **{f"v{metric}": Value(model + metric / 7, 0, 60, 9)})
        for model in range(50)
        for metric in range(40)
    ]
    text = page(cells)
    assert len(re.findall("<summary>", text)) == 2000
    assert len(text) < 2_000_000
