"""The published numbers: read from files, set beside ours where their protocols agree, or shown
below as tables.

The files are the TOML files in ``reference/`` of every suite package. A file is one paper, a
``[[table]]`` in it one place of that paper; ``jem-iclr2020/table1`` names one. The layout is
described at the head of ``jem-iclr2020.toml``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from jembench.catalog import packages, validation
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option, Printed
from jembench.errors import PluginError, SpecError, unknown
from jembench.report import headings
from jembench.report.protocols import Match, compare, in_words
from jembench.report.rows import Better, Row, grouped
from jembench.report.table import ABSENT, Footnote, Heading, Table, detail, pivot

Standing = Literal["published", "as quoted"]


class Published(NamedTuple):
    """One number of a paper."""

    table: str  # "jem-iclr2020/table1"
    title: str  # the paper's
    note: str  # of the table
    column: int  # place of its column, from 0
    # the label of ours that it corresponds to, "auroc"; "": no metric of ours gives it
    quantity: str
    status: Standing  # "as quoted": read in another text than the paper
    # the model as the paper names it; the protocol as far as it is stated, "" without a metric of
    # ours
    row: Row
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
    where: str = ""  # "": that of the table
    dataset: str = ""
    cite: str = ""  # "": that of the paper
    protocol: Mapping[str, Mapping[str, Option]] = {}
    note: str = ""


class _File(NamedTuple):
    paper: _Paper
    table: tuple[_Table, ...]


def published_numbers(
    requested: Sequence[str] | None, of_suite: Sequence[str] = ()
) -> list[Published]:
    """Return the numbers of the requested tables in that order; of None those of a suite, of
    ``none`` nothing.

    Raises:
        SpecError: for a name that no reference file answers to.
        PluginError: for a reference file that is not of the layout.
    """
    files = packages.files("reference")
    names = of_suite if requested is None else [name for name in requested if name != "none"]
    found: dict[str, list[Published]] = {}
    for stem in dict.fromkeys(name.partition("/")[0] for name in names):
        for number in read_file(stem, files[stem]) if stem in files else ():
            found.setdefault(number.table, []).append(number)
    for name in names:
        if name not in found:
            raise unknown("published table", name, found or files, "jembench list references")
    return [
        number._replace(requested=requested is not None) for name in names for number in found[name]
    ]


def read_file(stem: str, file: Traversable) -> list[Published]:
    """Return every number of one reference file, table by table and row by row.

    Raises:
        PluginError: if the file is not of the layout; the message says where.
    """
    try:
        written = validation.read(_File, validation.parse(file.read_bytes(), str(file)), str(file))
        return [
            number
            for table in written.table
            for row in table.rows
            for number in _row(stem, row, table, written)
        ]
    except SpecError as error:
        raise PluginError(
            f"The reference file {file} cannot be used: {error} Correct it, or tell the author of its package."
        ) from error


_ALL = "*"
"""In a row's protocols, in place of a label: of all its values."""


def _row(stem: str, written: Mapping[str, Any], table: _Table, file: _File) -> Iterator[Published]:
    """Yield the numbers of a row, each with the label of ours to which it corresponds."""
    columns = {column.label: column for column in table.columns}
    fields = {key: value for key, value in written.items() if key not in columns}
    values = {label: written[label] for label in columns if label in written}
    row = validation.read(_Row, {**fields, "values": values}, f"a row of {table.name}")
    if other := sorted(row.protocol.keys() - {*columns, _ALL}):
        raise unknown(f"label with a protocol in a row of {table.name}", other[0], columns, "")
    dataset = row.dataset or table.dataset
    source = ", ".join(
        filter(None, (row.cite or file.paper.cite, row.where or table.where, file.paper.url))
    )
    for place, (label, column) in enumerate(columns.items()):
        if label in values:
            quantity, protocol = _protocol(row, column, table, dataset)
            number = Row(
                model=row.model,
                name=row.label,
                dataset=dataset,
                label=label,
                value=row.values[label],
                unit=column.unit,
                better=column.better,
                protocol=protocol,
                source=source,
                notes=(row.note,) if row.note else (),
                dataset_name=dataset,
            )
            name = f"{stem}/{table.name}"
            yield Published(
                name, file.paper.title, table.note, place, quantity, file.paper.status, number
            )


def _protocol(row: _Row, column: _Column, table: _Table, dataset: str) -> tuple[str, str]:
    """Return the label of ours, and the protocol that table, column and row state together; "": no
    metric of ours.
    """
    if column.protocol is None and table.protocol is None:
        return "", ""
    parts = {"data": re.sub(r"[^a-z0-9]", "", dataset.lower()), "metric": column.label}
    parts |= {**(table.protocol or {}), **(column.protocol or {})}
    quantity = parts.pop("value", parts["metric"])
    parts |= {**row.protocol.get(_ALL, {}), **row.protocol.get(column.label, {})}
    metric = parts.pop("metric")
    return quantity, str(
        Spec(metric, tuple((part, value) for part, value in parts.items() if value != "*"))
    )


# --- beside ours
# ------------------------------------------------------------------------------------------------------


class Elsewhere(NamedTuple):
    """A published table that has numbers which correspond to none of ours."""

    numbers: Sequence[Published]
    differs: Set[str]  # parts of their protocols that differ from what is nearest of ours


def beside(
    published: Sequence[Published], ours: Sequence[Row]
) -> tuple[list[Row], list[Elsewhere]]:
    """Find the published numbers that are of the same quantity as ours in a column, and the tables
    of the others.

    Args:
        published: the numbers.
        ours: means over seeds.

    Returns:
        The numbers as rows in our columns, and the tables that have others.
    """
    measured = grouped(
        (row for row in ours if row.value is not None), lambda row: (row.dataset, row.place)
    )
    columns = [(column[0], {row.protocol for row in column}) for column in measured]
    found: list[Row] = []
    elsewhere: list[Elsewhere] = []
    for table in grouped(published, lambda number: number.table):
        differs, placed = set[str](), 0
        for number in table:
            matches = list[tuple[Row, Match]]()
            for one, protocols in columns if number.row.protocol else ():
                compared = [compare(number.row.protocol, own, one.metric) for own in protocols]
                known = [match for match in compared if match is not None]
                if len(known) == len(compared):  # it must agree with all of ours
                    parts = (set[str]().union(*of_all) for of_all in zip(*known, strict=True))
                    matches.append((one, Match(*parts)))
            wanted = (number.quantity, number.row.unit)
            same = [
                (one, match)
                for one, match in matches
                if not match.differs and (one.label, one.unit) == wanted
            ]
            found += (_in_column(number, one, match.unstated, ours) for one, match in same)
            placed += bool(same)
            if not same:
                differs |= min((match.differs for _, match in matches), key=len, default=set[str]())
        if placed < len(table):
            elsewhere.append(Elsewhere(table, differs))
    return found, elsewhere


def _in_column(number: Published, own: Row, unstated: Set[str], ours: Sequence[Row]) -> Row:
    return replace(
        _named(number, ours, f" · {number.status}"),
        dataset=own.dataset,
        metric=own.metric,
        label=own.label,
        better=own.better,
        headed=own.headed,
        reason=f"same quantity, protocol incompletely stated there: {in_words(unstated)}"
        if unstated
        else "",
    )


def _named(number: Published, ours: Sequence[Row], standing: str = "") -> Row:
    """Return a row under the paper's name of a model, with ours where that does not tell it: ``WRN
    (baseline)``.
    """
    row = number.row
    is_ours = any(_bare(one.model) == _bare(row.model) for one in ours)
    says_it = set(re.findall(r"\w+", row.model.lower())) <= set(
        re.findall(r"\w+", row.name.lower())
    )
    name = f"{row.name} ({row.model})" if is_ours and not says_it else row.name
    return replace(row, name=name + standing, notes=(*row.notes, f"{number.status}: {row.source}"))


# --- their tables
# -----------------------------------------------------------------------------------------------------


def published_table(elsewhere: Elsewhere, ours: Sequence[Row]) -> Table:
    """Return a published table as a whole, to stand below ours."""
    in_order = [
        number.row for number in sorted(elsewhere.numbers, key=lambda number: number.column)
    ]
    columns = {
        row.label: Heading(headings.in_words(row.label), detail(row.unit, row.better))
        for row in in_order
    }
    rows = [_named(number, ours) for number in elsewhere.numbers]
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    is_other = {_bare(row.dataset) for row in ours}.isdisjoint(map(_bare, datasets))
    table = pivot(
        rows,
        {"model": lambda row: row.name, "dataset": lambda row: row.dataset},
        columns.values(),
        lambda row: columns[row.label],
        title=f"Published · dataset {', '.join(datasets)}"
        + " · another dataset than ours: for orientation, not for comparison" * is_other,
    )
    legend = [note[0].upper() + note[1:] + "." for note in (elsewhere.numbers[0].note,) if note]
    legend += [f"{ABSENT}: not given there."] if len(rows) < len(table.rows) * len(columns) else []
    legend += [f"Protocols differ in: {in_words(elsewhere.differs)}."] if elsewhere.differs else []
    return replace(table, footnotes=tuple(map(Footnote, legend)))


def _bare(name: str) -> str:
    """Reduce a name for comparison: ``CIFAR-10`` and ``cifar10:root=/data`` are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())
