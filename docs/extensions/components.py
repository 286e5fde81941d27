"""The directive `components`: a table of the components of a kind, from the registry."""

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from jembench.api import listing
from jembench.catalog import discovery


class Components(Directive):
    """`{components} models`: a table of the components of this kind."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table: name and distribution, what it is, options with their defaults."""
        kind: Any = self.arguments[0]
        rows = []
        for found in map(listing.describe, discovery.components(kind)):
            assert not found.problem, f"{found.component.name}: {found.problem}"
            name = nodes.paragraph("", "", nodes.literal("", found.component.name))
            if found.component.distribution != "jembench":
                name += [nodes.Text(" "), nodes.emphasis("", found.component.distribution)]
            options = [nodes.line("", "", nodes.literal("", str(option))) for option in found.options]
            rows.append([name, nodes.paragraph("", found.summary), nodes.line_block("", *options)])
        return [table((discovery.singular(kind), "what it is", "options, with their defaults"), rows, (20, 45, 35))]


def table(heads: tuple[str, ...], rows: list[list[nodes.Element]], widths: tuple[int, ...]) -> nodes.table:
    """A table of elements under headings."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in widths), cols=len(heads))
    group += nodes.thead("", _row([nodes.paragraph("", head) for head in heads]))
    group += nodes.tbody("", *map(_row, rows))
    return nodes.table("", group)


def _row(cells: list[nodes.Element]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("components", Components)
    return {"parallel_read_safe": True}
