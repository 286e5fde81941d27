"""The published numbers, from the TOML files in ``reference/`` of every suite package.

A file is one paper, a ``[[table]]`` in it one place of that paper; ``jem-iclr2020/table1`` names one. The layout is
described at the head of ``jem-iclr2020.toml``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from jembench.catalog import packages, validation
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option, Printed
from jembench.errors import PluginError, SpecError, unknown
from jembench.report.rows import Better, Row

Standing = Literal["published", "as quoted"]


class Published(NamedTuple):
    """One number of a paper."""

    table: str  # "jem-iclr2020/table1"
    title: str  # the paper's
    note: str  # of the table
    column: int  # place of its column, from 0
    quantity: str  # the label of ours that it corresponds to, "auroc"; "": no metric of ours gives it
    status: Standing  # "as quoted": read in another text than the paper
    row: Row  # the model as the paper names it; the protocol as far as it is stated, "" without a metric of ours
    requested: bool = True  # False: of a table that the suite names, not the user


class _Paper(NamedTuple):
    title: str
    cite: str
    url: str
    status: Standing


class _Column(NamedTuple):
    label: str
    unit: str = ""
    better: Better = ""
    protocol: Mapping[str, Option] | None = None  # of all its values; None: no metric of ours


class _Table(NamedTuple):
    name: str
    where: str
    dataset: str
    columns: tuple[_Column, ...]
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


def load(requested: Sequence[str] | None, of_suite: Sequence[str] = ()) -> list[Published]:
    """Return the numbers of the requested tables in that order; of None those of a suite, of ``none`` nothing.

    Raises:
        SpecError: for a name that no reference file answers to.
        PluginError: for a reference file that is not of the layout.
    """
    files = packages.files("reference")
    names = of_suite if requested is None else [name for name in requested if name != "none"]
    found: dict[str, list[Published]] = {}
    for stem in dict.fromkeys(name.partition("/")[0] for name in names):
        for number in read(stem, files[stem]) if stem in files else ():
            found.setdefault(number.table, []).append(number)
    for name in names:
        if name not in found:
            raise unknown("published table", name, found or files, "jembench list references")
    return [number._replace(requested=requested is not None) for name in names for number in found[name]]


def read(stem: str, file: Traversable) -> list[Published]:
    """Return every number of one reference file, table by table and row by row.

    Raises:
        PluginError: if the file is not of the layout; the message says where.
    """
    try:
        written = validation.read(_File, validation.parse(file.read_bytes(), str(file)), str(file))
        return [number for table in written.table for row in table.rows for number in _row(stem, row, table, written)]
    except SpecError as error:
        raise PluginError(
            f"The reference file {file} cannot be used: {error} Correct it, or tell the author of its package."
        ) from error


_ALL = "*"
"""In a row's protocols, in place of a label: of all its values."""


def _row(stem: str, written: Mapping[str, Any], table: _Table, file: _File) -> Iterator[Published]:
    """Yield the numbers of a row, with the label of ours and the protocol that table, column and row state together."""
    labels = [column.label for column in table.columns]
    usual = {"where": table.where, "dataset": table.dataset, "cite": file.paper.cite, "protocol": {}}
    fields = {key: value for key, value in written.items() if key not in labels}
    values = {label: written[label] for label in labels if label in written}
    row = validation.read(_Row, {**usual, **fields, "values": values}, f"a row of {table.name}")
    if other := sorted(row.protocol.keys() - {*labels, _ALL}):
        raise unknown(f"label with a protocol in a row of {table.name}", other[0], labels, "")
    for place, column in enumerate(table.columns):
        if column.label not in row.values:
            continue
        quantity = protocol = ""
        if column.protocol is not None or table.protocol is not None:
            parts = {"data": re.sub(r"[^a-z0-9]", "", row.dataset.lower()), "metric": column.label}
            parts |= {**(table.protocol or {}), **(column.protocol or {})}
            quantity = parts.pop("value", parts["metric"])
            parts |= {**row.protocol.get(_ALL, {}), **row.protocol.get(column.label, {})}
            metric = parts.pop("metric")
            protocol = str(Spec(metric, tuple((part, value) for part, value in parts.items() if value != "*")))
        number = Row(
            model=row.model,
            name=row.label,
            dataset=row.dataset,
            label=column.label,
            value=row.values[column.label],
            unit=column.unit,
            better=column.better,
            protocol=protocol,
            source=", ".join(filter(None, (row.cite, row.where, file.paper.url))),
            notes=(row.note,) if row.note else (),
            dataset_name=row.dataset,
        )
        name = f"{stem}/{table.name}"
        yield Published(name, file.paper.title, table.note, place, quantity, file.paper.status, number)
