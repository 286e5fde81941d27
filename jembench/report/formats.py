"""The document that a command shows, and the formats that render it.

A format is a function from a :class:`Document` to text, with options if it likes. The entry-point
group ``jembench.formats`` names the formats; ``--format`` takes such a name or an import path.
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
        fields: of a record.
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
        """Return the tables; ``paper``: with the best values marked, which may take a while, and
        without hints.
        """
        return self._tables

    def records(self) -> Sequence[Mapping[str, Any]]:
        """Return the records."""
        return self._records

    def page(self) -> Any:
        """Return the :class:`jembench.report.page.content.Page` of all that is known; None: the
        tables are.
        """
        return None


def render(document: Document, format: str) -> Any:
    """Return the whole text, with a line break at its end; bytes, if the format is none of text.

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
    """Return a line for each row below the names of the fields; the items of a list have spaces
    between them.

    It is safe to open in a spreadsheet: a text that would run as a formula (``=HYPERLINK(...)``)
    gets an apostrophe before it.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fields, lineterminator="\n")
    writer.writerow({name: _inert(name) for name in fields})
    writer.writerows({key: _inert(value) for key, value in encode(row).items()} for row in rows)
    return stream.getvalue()


def table_csv(table: Table) -> str:
    """Return one table as CSV in full precision, with columns for the ends of intervals and
    deviations over seeds.
    """
    columns: dict[str, Sequence[Any]] = {}
    for heading, cells in zip(table.headings, zip(*table.rows, strict=True), strict=True):
        name, rows = heading.in_one_line, [cell.row for cell in cells]
        values = [row.value if row else None for row in rows]
        columns[name] = [
            cell.in_one_line if one is None else one
            for cell, one in zip(cells, values, strict=True)
        ]
        for end in ("low", "high", "sd"):
            found = [getattr(row, end, None) for row in rows]
            columns |= {f"{name} {end}": found} if any(one is not None for one in found) else {}
    lines = zip(*columns.values(), strict=True)
    return csv_text(list(columns), (dict(zip(columns, line, strict=True)) for line in lines))


def to_parquet(document: Document) -> bytes:
    """Return a Parquet file in full precision, a row for each value; the items of a list have
    spaces between them.

    Raises:
        Unavailable: if pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError as error:
        raise Unavailable(
            f"Parquet needs pyarrow, which cannot be imported ({error}). Install it: pip install "
            '"jembench[parquet]"; or write CSV.'
        ) from error
    records = list(document.records())
    columns = {name: [_joined(row.get(name)) for row in records] for name in document.fields}
    stream = io.BytesIO()
    write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _inert(value: Any) -> Any:
    """Return a value for CSV; a text that a spreadsheet may take for a formula gets an apostrophe
    before it.
    """
    value = _joined(value)
    if not isinstance(value, str) or number_in(value) is not None:
        return value
    value = printable(value)
    # programs read a full-width sign as the usual one
    narrow = unicodedata.normalize("NFKC", value)
    # and drop what is before it
    visible = (sign for sign in narrow if sign.isprintable() and not sign.isspace())
    may_run = value[:1] in tuple("\t\n") or next(visible, "") in tuple("=+-@")
    return f"'{value}" if may_run else value


# --- Markdown (GitHub, GitLab, Pandoc, notebooks)
# ---------------------------------------------------------------------


def markdown(document: Document) -> str:
    """Return tables in Markdown, each below a heading and above its footnotes."""
    return "\n\n".join(map(_table, document.tables())) + "\n"


def _table(table: Table) -> str:
    blocks = [f"### {in_markdown(table.title)}"]
    if table.rows:
        rule = ["---" if heading.identifies else "---:" for heading in table.headings]
        lines = [
            [in_markdown(one.in_one_line) for one in table.headings],
            rule,
            *([*map(_text, row)] for row in table.rows),
        ]
        blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    notes = [
        f"{_marks([footnote.mark])} {in_markdown(footnote.text)}".strip()
        for footnote in table.footnotes
    ]
    blocks.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(block for block in blocks if block)


def _text(text: TableCell) -> str:
    return in_markdown(text.in_one_line) + _marks(text.marks)


def _marks(marks: Sequence[str]) -> str:
    return f"<sup>{in_markdown(', '.join(marks))}</sup>" if any(marks) else ""


def in_markdown(text: str) -> str:
    """Return a text for Markdown, in one line."""
    return re.sub(r"([\\`*_<>|~]|\](?=[(\[:]))", r"\\\1", " ".join(text.splitlines()))
