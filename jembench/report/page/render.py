"""The format ``html``: a page of results in one file, without a network."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING

from jembench.catalog.spec import slug
from jembench.report.formats import Document, table_csv
from jembench.report.latex import latex
from jembench.report.page.content import Page
from jembench.report.page.pictures import data_uri
from jembench.report.protocols import parsed
from jembench.report.rows import Row
from jembench.report.table import Table, TableCell, number_in
from jembench.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def html(document: Document) -> str:
    """Return a page in one file.

    The page has tables that sort and filter, figures, samples, and the protocol of each number.
    """
    page = document.page()
    if page:
        return render(page)
    tables = document.tables()
    title = tables[0].title if tables else "Results"
    return render(Page(title=title, tables=tables))


def render(page: Page, refresh: int | None = None) -> str:
    """Return a page as HTML.

    Args:
        page: its content.
        refresh: seconds after which a browser reloads the page; None: no automatic reload.
    """
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    template = _environment().get_template("page.html")
    return template.render(
        page=page,
        style=style,
        script=script,
        policy=policy,
        refresh=refresh,
        version=__version__,
        unique=_unique(),
    )


def _unique() -> Callable[[str], str]:
    """Return a function that makes ids unique by a suffix."""
    taken = set[str]()

    def unique(name: str) -> str:
        while name in taken:
            name = f"{name}-2"
        taken.add(name)
        return name

    return unique


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


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
    environment.filters.update(key=key, breakable=breakable, prose=prose)
    environment.filters.update(details=details, anchor=anchor)
    environment.filters.update(slug=slug, csv=_csv, latex=_latex)
    return environment


def details(row: Row) -> list[tuple[str, str]]:
    """Return a number's origin and parts of protocol, as pairs of texts."""
    pairs = list(row.as_dict().items())
    protocol = parsed(row.protocol)
    if protocol:
        pairs = [pair for pair in pairs if pair[0] not in _SHOWN]
        pairs += protocol.options.items()
    return [(name, _text(value)) for name, value in pairs if value not in (None, "", ())]


def anchor(row: Row) -> str:
    """Return the id of a number in the page of its results: ``jem.digits.digits-quick.accuracy``.

    No other id of the page has dots.
    """
    parts = dict.fromkeys((row.name, row.dataset, row.recipe, row.metric, row.label))
    return ".".join(map(slug, parts))


def _csv(table: Table) -> str:
    return data_uri("text/csv;charset=utf-8", table_csv(table).encode())


def _latex(table: Table) -> str:
    return data_uri("text/x-tex;charset=utf-8", latex(Document([table])).encode())


_SHOWN = (
    "name",
    "status",
    "comparable",
    "protocol",
    "unit",
    "better",
)  # in the table itself, or part by part


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


def key(cell: TableCell) -> str:
    """Return the number by which the page sorts a cell, or "" if it has none."""
    value = cell.row.value if cell.row else number_in(cell.value)
    if value is None or not math.isfinite(value):
        return ""
    return repr(value)


def prose(text: str) -> Markup:
    """Return a sentence in which the words between backticks are code."""
    from markupsafe import Markup

    parts = re.split(r"`([^`]+)`", text)
    for place in range(1, len(parts), 2):
        parts[place] = Markup("<code>{}</code>").format(parts[place])
    return Markup("").join(parts)


def breakable(text: str) -> Markup:
    """Return a text that may break after marks of specs and paths."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([,+=/]|:(?!\d))", r"\1<wbr>", str(escape(text))))
