"""The document that a command shows, and the formats that render it.

A format is a function from a :class:`Document` to text or bytes, which may have options. The
entry-point group ``jembench.formats`` names the formats; ``--format`` takes such a name or an
import path.
"""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jembench.catalog import registry
from jembench.errors import Unavailable, printable
from jembench.report.table import Table, TableCell, number_in, numbered
from jembench.store.outcome import encode

TERMINAL = "table"
"""The format for people at a terminal: with it, commands print more than their results."""


SCHEMA = 2
"""The version of the layout of JSON."""


class Document:
    """The same results for people and for programs.

    Args:
        tables: for people: short texts with footnotes.
        records: for programs: in full precision, each with all or some of the fields.
        fields: names of the fields of a record.
        about: further content of JSON.
    """

    fields: Sequence[str] = ()
    about: Mapping[str, Any] = {}

    def __init__(
        self,
        tables: Sequence[Table] = (),
        records: Sequence[Mapping[str, Any]] = (),
        fields: Sequence[str] | None = None,
        **about: Any,
    ) -> None:
        self._tables, self._records, self.about = numbered(tables), records, about
        self.fields = fields or self.fields

    def tables(self, *, paper: bool = False) -> Sequence[Table]:
        """Return the tables.

        Args:
            paper: True to mark the best values, which may take a while, and leave hints out.
        """
        return self._tables

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return the records."""
        return self._records

    def page(self) -> Any:
        """Return the page of all results; None: a page of the tables.

        A page is a :class:`jembench.report.page.content.Page`.
        """
        return None


def render(document: Document, format: str) -> Any:
    """Return the whole text, or the bytes of a binary format.

    A text ends with a line break.

    Args:
        document: what is shown.
        format: the spec of a format: ``markdown``, or ``package.module:function``.

    Raises:
        SpecError: if there is no such format.
    """
    return registry.resolve("formats", format).make(document)


def to_json(document: Document) -> str:
    """Return JSON in full precision, an object for each value."""
    content = {"schema": SCHEMA, **document.about, "rows": list(document.records())}
    return json.dumps(encode(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_csv(document: Document) -> str:
    """Return CSV in full precision, a line for each value."""
    return csv_text(document.fields, document.records())


def csv_text(fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a line for each row below the names of the fields.

    The items of a list have spaces between them. The text is safe to open in a spreadsheet: a text
    that would run as a formula (``=HYPERLINK(...)``) gets an apostrophe before it.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fields, lineterminator="\n")
    for row in (dict(zip(fields, fields, strict=True)), *rows):
        writer.writerow({key: _inert(value) for key, value in encode(row).items()})
    return stream.getvalue()


def table_csv(table: Table) -> str:
    """Return one table as CSV in full precision.

    Intervals and deviations have columns of their own.
    """
    columns: dict[str, Sequence[Any]] = {}
    for heading, cells in zip(table.headings, zip(*table.rows, strict=True), strict=True):
        name = heading.in_one_line
        columns[name] = list(map(_plain, cells))
        for end in ("low", "high", "sd"):
            values = [getattr(cell.row, end, None) for cell in cells]
            if any(value is not None for value in values):
                columns[f"{name} {end}"] = values
    lines = zip(*columns.values(), strict=True)
    return csv_text(list(columns), (dict(zip(columns, line, strict=True)) for line in lines))


def _plain(cell: TableCell) -> Any:
    """Return the number that a cell shows, or its text."""
    if cell.row is None or cell.row.value is None:
        return cell.in_one_line
    return cell.row.value


def to_parquet(document: Document) -> bytes:
    """Return a Parquet file in full precision, a row for each value.

    The items of a list have spaces between them.

    Raises:
        Unavailable: if pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError as error:
        problem = f"Parquet needs pyarrow, which cannot be imported ({error})."
        remedy = 'Install it: pip install "jembench[parquet]"; or write CSV.'
        raise Unavailable(f"{problem} {remedy}") from error
    records = document.records()
    columns = {}
    for name in document.fields:
        columns[name] = [_joined(record.get(name)) for record in records]
    stream = io.BytesIO()
    write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def _joined(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return value


def _inert(value: Any) -> Any:
    """Return a value for CSV that runs as no formula.

    A text that may run gets an apostrophe before it.
    """
    value = _joined(value)
    if not isinstance(value, str) or number_in(value) is not None:
        return value
    value = printable(value)
    if value.startswith(("\t", "\n")):
        return f"'{value}"
    # spreadsheets read a full-width sign as usual, and drop invisible characters before it
    narrow = unicodedata.normalize("NFKC", value)
    visible = (sign for sign in narrow if sign.isprintable() and not sign.isspace())
    if next(visible, None) in tuple("=+-@"):
        return f"'{value}"
    return value


# --- Markdown (GitHub, GitLab, Pandoc, notebooks) -------------------------------------------------


def markdown(document: Document) -> str:
    """Return tables in Markdown, each below a heading and above its footnotes."""
    return "\n\n".join(map(_table, document.tables())) + "\n"


def _table(table: Table) -> str:
    blocks = [f"### {in_markdown(table.title)}"]
    if table.rows:
        names, rulers = [], []
        for heading in table.headings:
            names.append(in_markdown(heading.in_one_line))
            rulers.append("---" if heading.identifies else "---:")
        lines = [names, rulers]
        lines += [list(map(_text, row)) for row in table.rows]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    notes = []
    for footnote in table.footnotes:
        text = f"{_marks([footnote.mark])} {in_markdown(footnote.text)}"
        notes.append(f"- {text.strip()}")
    if notes:
        blocks.append("\n".join(notes))
    return "\n\n".join(blocks)


def _text(text: TableCell) -> str:
    return in_markdown(text.in_one_line) + _marks(text.marks)


def _marks(marks: Sequence[str]) -> str:
    if any(marks):
        return f"<sup>{in_markdown(', '.join(marks))}</sup>"
    return ""


def in_markdown(text: str) -> str:
    """Return a text for Markdown, in one line."""
    return re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", " ".join(text.splitlines()))
