"""The directive `components`: a table of what is installed of one kind, from the registry."""

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from jembench.api import listing
from jembench.catalog import discovery


class Components(Directive):
    """`{components} models`: the name of each, what it is, and its options or, of a published
    table, its columns.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        kind = self.arguments[0]
        rows = [_row(entry) for entry in listing.entries(kind)]
        last = "options, with their defaults" if kind in discovery.KINDS else "columns"
        return [table((discovery.singular(kind), "what it is", last), rows, (22, 48, 30))]


def _row(entry: listing.Listed) -> list[nodes.Element]:
    assert not entry.problem, f"{entry.name}: {entry.problem}"
    head = nodes.paragraph("", "", nodes.literal("", entry.name))
    distribution = entry.fields.get("distribution", "jembench")
    if distribution != "jembench":
        head += [nodes.Text(" "), nodes.emphasis("", distribution)]
    block = nodes.line_block(
        "", *(nodes.line("", "", nodes.literal("", line)) for line in entry.lines)
    )
    return [head, nodes.paragraph("", "", *inline(entry.title)), block]


def inline(text: str) -> Iterator[nodes.Node]:
    """Yield the parts of a docstring's line, in which code stands between backticks."""
    for place, part in enumerate(re.split(r"``?([^`]+)``?", text)):
        yield nodes.literal("", part) if place % 2 else nodes.Text(part)


def table(
    heads: tuple[str, ...], rows: list[list[nodes.Element]], widths: tuple[int, ...]
) -> nodes.table:
    """Return a table of cells, with a heading and a width in percent for each column."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in widths), cols=len(widths))
    group += nodes.thead("", _line([nodes.paragraph("", head) for head in heads]))
    group += nodes.tbody("", *map(_line, rows))
    return nodes.table("", group)


def _line(cells: list[nodes.Element]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("components", Components)
    return {"parallel_read_safe": True}
