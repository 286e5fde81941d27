"""The published numbers, from the TOML files in ``reference/`` of every suite package.

A file is one paper, a ``[[table]]`` in it one place of that paper; ``jem-iclr2020/table1`` names one. The layout is
described at the head of ``jem-iclr2020.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from jembench.catalog import packages, validation
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option, Printed
from jembench.errors import PluginError, SpecError, unknown

Standing = Literal["published", "as quoted"]
Better = Literal["higher", "lower", ""]


class PublishedColumn(NamedTuple):
    """What the numbers under one label are."""

    label: str
    unit: str = ""
    better: Better = ""
    protocol: Mapping[str, Option] | None = None  # as far as it is that of all its values; None: no metric of ours

    @property
    def value(self) -> str:
        """The label of ours that it corresponds to, "auroc"; "": no metric of ours gives it."""
        return "" if self.protocol is None else self.protocol.get("value", self.protocol.get("metric", self.label))


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRow:
    """What a paper prints of one model."""

    model: str  # the component of ours that it corresponds to, or a plain name
    label: str  # as the paper names it
    dataset: str
    values: Mapping[str, float]  # only what is printed
    source: str  # authors, venue, table
    status: Standing  # "as quoted": read in another text than the paper
    note: str = ""
    protocols: Mapping[str, str] = field(default_factory=dict)  # label -> what is known of the protocol, as an id


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedTable:
    """One table, figure or passage of a paper."""

    id: str  # "jem-iclr2020/table1"
    title: str  # the paper's
    url: str
    note: str
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]

    def only(self, values: Collection[str]) -> PublishedTable:
        """The columns that correspond to these of our labels, and the rows that have numbers there."""
        columns = tuple(column for column in self.columns if column.value in values)
        labels = {column.label for column in columns}
        rows = (
            replace(row, values={label: value for label, value in row.values.items() if label in labels})
            for row in self.rows
        )
        return replace(self, columns=columns, rows=tuple(row for row in rows if row.values))


def load(names: Sequence[str]) -> list[PublishedTable]:
    """The tables of those names, in that order.

    Raises:
        SpecError: for a name that no reference file answers to.
        PluginError: for a reference file that is not of the layout.
    """
    files = packages.files("reference")
    found: dict[str, PublishedTable] = {}
    for stem in dict.fromkeys(name.partition("/")[0] for name in names):
        if stem in files:
            found |= {table.id: table for table in read(stem, files[stem])}
    for name in names:
        if name not in found:
            known = ", ".join(sorted(found) or sorted(files))
            raise SpecError(
                f"There is no published table named {name!r}. Known: {known}. "
                'A suite names the tables that it shows as file/table: reference = ["jem-iclr2020/table1"].'
            )
    return [found[name] for name in names]


def read(stem: str, file: Traversable) -> list[PublishedTable]:
    """Every table of one reference file.

    Raises:
        PluginError: if the file is not of the layout; the message says where.
    """
    try:
        written = validation.read(_File, validation.parse(file.read_bytes(), str(file)), str(file))
        return [_table(stem, table, written.paper) for table in written.table]
    except SpecError as error:
        raise PluginError(
            f"The reference file {file} cannot be used: {error} Correct it, or tell the author of its package."
        ) from error


class _Paper(NamedTuple):
    title: str
    cite: str
    url: str
    status: Standing


class _Table(NamedTuple):
    name: str
    where: str
    dataset: str
    columns: tuple[PublishedColumn, ...]
    rows: tuple[Mapping[str, Any], ...]
    note: str = ""
    protocol: Mapping[str, Option] | None = None


class _Row(NamedTuple):
    """A row: its values stand beside the other fields, each under the label of its column."""

    model: str
    label: str
    values: Mapping[str, Printed]
    where: str
    dataset: str
    cite: str
    protocol: Mapping[str, Mapping[str, Option]]
    note: str = ""


class _File(NamedTuple):
    paper: _Paper
    table: tuple[_Table, ...]


def _table(stem: str, table: _Table, paper: _Paper) -> PublishedTable:
    columns = tuple(
        column
        if column.protocol is None and table.protocol is None
        else column._replace(protocol={**(table.protocol or {}), **(column.protocol or {})})
        for column in table.columns
    )
    return PublishedTable(
        id=f"{stem}/{table.name}",
        title=paper.title,
        url=paper.url,
        note=table.note,
        columns=columns,
        rows=tuple(_row(row, columns, table, paper) for row in table.rows),
    )


_ALL = "*"
"""In a row's protocols, in place of a label: of all its values."""


def _row(written: Mapping[str, Any], columns: Sequence[PublishedColumn], table: _Table, paper: _Paper) -> PublishedRow:
    labels = [column.label for column in columns]
    usual = {"where": table.where, "dataset": table.dataset, "cite": paper.cite, "protocol": {}}
    fields = {key: value for key, value in written.items() if key not in labels}
    values = {label: written[label] for label in labels if label in written}
    row = validation.read(_Row, {**usual, **fields, "values": values}, f"a row of {table.name}")
    if other := sorted(row.protocol.keys() - {*labels, _ALL}):
        raise unknown(f"label with a protocol in a row of {table.name}", other[0], labels, "")
    return PublishedRow(
        model=row.model,
        label=row.label,
        dataset=row.dataset,
        values=row.values,
        source=f"{row.cite}, {row.where}" if row.where else row.cite,
        status=paper.status,
        note=row.note,
        protocols={
            column.label: _protocol(column.label, row, column.protocol)
            for column in columns
            if column.label in values and column.protocol is not None
        },
    )


def _protocol(label: str, row: _Row, of_column: Mapping[str, str]) -> str:
    """What the table, the column and the row say together of the protocol of a value that is ours too."""
    parts = {"data": re.sub(r"[^a-z0-9]", "", row.dataset.lower()), **of_column}
    parts |= {**row.protocol.get(_ALL, {}), **row.protocol.get(label, {})}
    metric = parts.pop("metric", label)
    parts.pop("value", None)
    return str(Spec(metric, tuple(sorted((part, value) for part, value in parts.items() if value != "*"))))
