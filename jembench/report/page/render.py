"""The format ``html``: a page with all that is known of some results, in one file that works without a network."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from jembench import __version__
from jembench.catalog import spec
from jembench.errors import SpecError
from jembench.report.formats import Document
from jembench.report.page.content import Page
from jembench.report.page.origin import Commands
from jembench.report.protocols import named
from jembench.report.record import Record
from jembench.report.text import Table, Text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def html(document: Document) -> str:
    """A page in one file: tables that sort and filter, figures, samples, and the protocol of each number."""
    return render(document.page() if document.page else of_tables(document))


def of_tables(document: Document) -> Page:
    """The page of a document of which nothing is known but its tables."""
    tables = document.tables()
    return Page(title=tables[0].title if tables else "Results", tables=tables)


def render(page: Page, refresh: int | None = None) -> str:
    """Return a page as HTML.

    Args:
        page: its content.
        refresh: seconds after which a browser loads it again; None: only when the reader asks for it.
    """
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    template = _environment().get_template("page.html")
    known = _Known(page.commands)
    return template.render(
        page=page, style=style, script=script, policy=policy, refresh=refresh, version=__version__, known=known
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "key": key,
        "whisker": whisker,
        "breakable": breakable,
        "classes": classes,
        "pieces": pieces,
    }
    return environment


class _Known:
    """What the page says of a number where a reader asks: texts, each once, and records that refer to them."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.texts: dict[str, int] = {}
        self.records: list[list[Any]] = []

    def number(self, record: Record) -> int:
        """Take a record in."""
        texts = (record.model, record.dataset, record.recipe, record.metric, record.label, record.unit)
        protocol = [[named(name), value] for name, value in _parts(record.protocol)]
        commands = self._commands.get((record.model, record.dataset, record.recipe, record.metric), ())
        self.records.append(
            [
                *map(self._text, (*texts, record.reason, record.protocol)),
                *map(_finite, (record.value, record.low, record.high, record.sd)),
                record.n,
                list(record.seeds),
                record.comparable is not False,
                [list(map(self._text, part)) for part in protocol],
                list(map(self._text, commands)),
            ]
        )
        return len(self.records) - 1

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    @property
    def data(self) -> dict[str, Any]:
        """What the script of the page reads."""
        return {"texts": list(self.texts), "records": self.records}


def _parts(protocol: str) -> Sequence[tuple[str, str]]:
    try:
        return spec.parse(protocol).arguments
    except SpecError:  # of a plugin
        return ()


def _finite(number: float | None) -> float | str | None:
    return number if number is None or math.isfinite(number) else str(number)


def key(text: Text) -> str:
    """What a column is sorted by where it is a number."""
    value = text.record.value if text.record else None
    if text.record is None:
        try:
            value = float(text.value)
        except ValueError:
            return ""
    return repr(value) if value is not None and math.isfinite(value) else ""


def breakable(text: str) -> Markup:
    """A text that is broken behind the marks of specs and paths rather than within words."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([,+=/]|:(?!\d))", r"\1<wbr>", str(escape(text))))


_LONG = 20  # letters


def classes(table: Table) -> list[str]:
    """The class of each column: of numbers, of names, of long names."""
    longest = [max(len(row[number].value) for row in table.rows) for number in range(len(table.headings))]
    return [
        ("name long" if length > _LONG else "name") if heading.identifies else ""
        for heading, length in zip(table.headings, longest, strict=True)
    ]


_LETTERS = 165  # across a printed page
_GAP = 2  # letters


def pieces(table: Table) -> list[list[int]]:
    """The columns of each part of a table that is too wide for paper; none, if it fits."""

    def width(place: int) -> int:
        heading = table.headings[place]
        texts = [heading.in_one_line, *(text for row in table.rows for text in (row[place].value, row[place].interval))]
        longest = max(map(len, texts))
        return _GAP + min(longest, 2 * _LONG if heading.identifies else _LONG)  # longer ones are broken

    found = table.blocks(lambda columns: sum(map(width, columns)) <= _LETTERS)
    return found if len(found) > 1 else []


_WIDTH, _EDGE = 72, 3  # pixels of a whisker


def whisker(text: Text, scale: tuple[float, float] | None) -> dict[str, float]:
    """Where the value and its interval lie between the least and the largest number of a column, in pixels."""
    record = text.record
    if scale is None or record is None or record.value is None or not math.isfinite(record.value):
        return {}

    def place(number: float) -> float:
        return round(_EDGE + (_WIDTH - 2 * _EDGE) * (number - scale[0]) / (scale[1] - scale[0]), 1)

    ends = {"value": record.value, "low": record.low, "high": record.high}
    return {name: place(end) for name, end in ends.items() if end is not None and math.isfinite(end)}
