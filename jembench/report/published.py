"""The published numbers, beside ours or as tables below.

The files are the TOML files in ``reference/`` of every suite package. A file is one paper, and a
``[[table]]`` one place of the paper, named ``jem-iclr2020/table1``. The layout is described at the
head of ``jem-iclr2020.toml``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from jembench.catalog import packages, validation
from jembench.catalog.spec import Spec
from jembench.catalog.validation import Option, Printed
from jembench.errors import PluginError, SpecError, unknown
from jembench.report import headings
from jembench.report.protocols import Match, compare, in_words
from jembench.report.rows import Better, Row, grouped, measured
from jembench.report.table import ABSENT, Footnote, Heading, Table, detail, pivot
from jembench.store.outcome import Evaluated

Standing = Literal["published", "as quoted"]


class Published(NamedTuple):
    """One number of a paper."""

    table: str  # "jem-iclr2020/table1"
    title: str  # the paper's
    note: str  # of the table
    column: int  # place of its column, from 0
    # our label of the same quantity, "auroc"; "": no metric of ours gives it
    quantity: str
    status: Standing  # "as quoted": read in another text than the paper
    # the model as the paper names it; the protocol as far as it is stated, "" without a metric of
    # ours
    row: Row
    requested: bool = True  # False: the suite names the table, not the user


class _Paper(NamedTuple):
    title: str
    cite: str
    url: str
    status: Standing


class _Column(NamedTuple):
    label: str
    unit: str = ""
    better: Better = ""
    protocol: Mapping[str, Option] | None = None  # of the whole column; None: no metric of ours


class _Table(NamedTuple):
    name: str
    where: str
    dataset: str
    columns: tuple[_Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    note: str = ""
    protocol: Mapping[str, Option] | None = None


class _Row(NamedTuple):
    """A row of a table, with values by the labels of columns."""

    model: Spec
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
    requested: Sequence[str] | None, of_suite: Sequence[str] = (), split: Evaluated = "test"
) -> list[Published]:
    """Return the numbers of published tables, in the order of the tables.

    Beside results on validation images there are none.

    Args:
        requested: names of tables; ``none``: nothing; None: those of the suite.
        of_suite: the names of the suite's tables.
        split: the images of the results.

    Raises:
        SpecError: for a name that no published table has, or for any table beside results on
            validation images.
        PluginError: for a reference file of another layout.
    """
    files = packages.files("reference")
    names = of_suite if requested is None else [name for name in requested if name != "none"]
    if split != "test":
        if requested and names:
            raise SpecError(
                f"{', '.join(names)} has numbers on test images, which are not shown beside "
                "results on validation images. Leave the table out, or --split."
            )
        return []
    tables: dict[str, list[Published]] = {}
    for stem in dict.fromkeys(name.partition("/")[0] for name in names):
        if stem in files:
            for of_table in grouped(read_file(stem, files[stem]), lambda number: number.table):
                tables[of_table[0].table] = of_table
    numbers: list[Published] = []
    for name in names:
        if name not in tables:
            raise unknown("published table", name, tables or files, "jembench list references")
        numbers += tables[name]
    return [number._replace(requested=requested is not None) for number in numbers]


def read_file(stem: str, file: Traversable) -> list[Published]:
    """Return every number of one reference file, in its order.

    Raises:
        PluginError: if the file has another layout; the message says where.
    """
    numbers: list[Published] = []
    try:
        written = validation.read(_File, validation.parse(file.read_bytes(), str(file)), str(file))
        for table in written.table:
            for row in table.rows:
                numbers += _row(stem, row, table, written)
    except SpecError as error:
        problem = f"The reference file {file} cannot be used: {error}"
        raise PluginError(f"{problem} Correct it, or tell the author of its package.") from error
    return numbers


_ALL = "*"
"""In a row's protocols, the label that stands for all values."""


def _row(stem: str, written: Mapping[str, Any], table: _Table, file: _File) -> Iterator[Published]:
    """Yield the numbers of a row, with our labels."""
    columns = {column.label: column for column in table.columns}
    fields = {key: value for key, value in written.items() if key not in columns}
    values = {label: written[label] for label in columns if label in written}
    row = validation.read(_Row, {**fields, "values": values}, f"a row of {table.name}")
    unknown_labels = sorted(row.protocol.keys() - {*columns, _ALL})
    if unknown_labels:
        kind = f"label with a protocol in a row of {table.name}"
        raise unknown(kind, unknown_labels[0], columns, "")
    dataset = row.dataset or table.dataset
    source = (row.cite or file.paper.cite, row.where or table.where, file.paper.url)
    for place, column in enumerate(table.columns):
        if column.label not in values:
            continue
        quantity, protocol = _protocol(row, column, table, dataset)
        yield Published(
            table=f"{stem}/{table.name}",
            title=file.paper.title,
            note=table.note,
            column=place,
            quantity=quantity,
            status=file.paper.status,
            row=Row(
                model=row.model,
                name=row.label,
                dataset=Spec.of(dataset, {}),
                label=column.label,
                value=row.values[column.label],
                unit=column.unit,
                better=column.better,
                protocol=protocol,
                source=", ".join(filter(None, source)),
                notes=(row.note,) if row.note else (),
                dataset_name=dataset,
            ),
        )


def _protocol(row: _Row, column: _Column, table: _Table, dataset: str) -> tuple[str, str]:
    """Return our label and the stated protocol.

    Returns:
        "" for both without a metric of ours.
    """
    if column.protocol is None and table.protocol is None:
        return "", ""
    parts = {"data": re.sub(r"[^a-z0-9]", "", dataset.lower()), "metric": column.label}
    parts |= {**(table.protocol or {}), **(column.protocol or {})}
    quantity = parts.pop("value", parts["metric"])
    parts |= {**row.protocol.get(_ALL, {}), **row.protocol.get(column.label, {})}
    metric = parts.pop("metric")
    stated = {part: value for part, value in parts.items() if value != "*"}
    return quantity, Spec.of(metric, stated)


# --- beside ours ----------------------------------------------------------------------------------


class Elsewhere(NamedTuple):
    """A published table with numbers that correspond to none of ours."""

    numbers: Sequence[Published]
    differs: Set[str]  # parts of their protocols that differ from our nearest ones


def beside(
    published: Sequence[Published], ours: Sequence[Row]
) -> tuple[list[Row], list[Elsewhere]]:
    """Place published numbers in our columns of the same quantity.

    Args:
        published: the numbers.
        ours: means over seeds.

    Returns:
        The numbers as rows in our columns, and the tables with numbers that have no column.
    """
    columns = []
    for column in grouped(measured(ours), lambda row: (row.dataset, row.place)):
        columns.append((column[0], {row.protocol for row in column}))
    rows: list[Row] = []
    elsewhere: list[Elsewhere] = []
    for table in grouped(published, lambda number: number.table):
        differs: set[str] = set()
        placed = 0
        for number in table:
            in_columns = []
            nearest: Set[str] | None = None
            for own, match in _matches(number, columns):
                is_value = (own.label, own.unit) == (number.quantity, number.row.unit)
                if is_value and not match.differs:
                    in_columns.append(_in_column(number, own, match.unstated, ours))
                if nearest is None or len(match.differs) < len(nearest):
                    nearest = match.differs
            rows += in_columns
            if in_columns:
                placed += 1
            elif nearest:
                differs |= nearest
        if placed < len(table):
            elsewhere.append(Elsewhere(table, differs))
    return rows, elsewhere


def _matches(
    number: Published, columns: Iterable[tuple[Row, Set[str]]]
) -> Iterator[tuple[Row, Match]]:
    """Yield the first row and the match of each column that fits."""
    if not number.row.protocol:
        return
    for own, protocols in columns:
        differs, unstated = set[str](), set[str]()
        for protocol in protocols:  # the number must agree with all protocols of the column
            match = compare(number.row.protocol, protocol, own.metric)
            if match is None:
                break
            differs |= match.differs
            unstated |= match.unstated
        else:
            yield own, Match(differs, unstated)


def _in_column(number: Published, own: Row, unstated: Set[str], ours: Sequence[Row]) -> Row:
    reason = ""
    if unstated:
        reason = f"same quantity, protocol incompletely stated there: {in_words(unstated)}"
    return replace(
        _named(number, ours, f" · {number.status}"),
        dataset=own.dataset,
        metric=own.metric,
        label=own.label,
        better=own.better,
        headed=own.headed,
        reason=reason,
    )


def _named(number: Published, ours: Sequence[Row], standing: str = "") -> Row:
    """Return a row under the name in the paper: ``WRN (baseline)``.

    Our name is added if we have the model and the paper's name does not contain our name.
    """
    row = number.row
    is_ours = any(_bare(own.model) == _bare(row.model) for own in ours)
    in_name = set(re.findall(r"\w+", row.name.lower()))
    says_it = in_name.issuperset(re.findall(r"\w+", row.model.lower()))
    name = f"{row.name} ({row.model})" if is_ours and not says_it else row.name
    return replace(row, name=name + standing, notes=(*row.notes, f"{number.status}: {row.source}"))


# --- their tables ---------------------------------------------------------------------------------


def published_table(elsewhere: Elsewhere, ours: Sequence[Row]) -> Table:
    """Return a published table as a whole, to stand below ours."""
    columns = {}
    for number in sorted(elsewhere.numbers, key=lambda number: number.column):
        row = number.row
        unit = detail(row.unit, row.better)
        columns[row.label] = Heading(headings.in_words(row.label), unit)
    rows = [_named(number, ours) for number in elsewhere.numbers]
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    title = f"Published · dataset {', '.join(datasets)}"
    if {_bare(row.dataset) for row in ours}.isdisjoint(map(_bare, datasets)):
        title += " · another dataset than ours: for orientation, not for comparison"
    table = pivot(
        rows,
        {"model": lambda row: row.name, "dataset": lambda row: row.dataset},
        columns.values(),
        lambda row: columns[row.label],
        title=title,
    )
    legend = []
    note = elsewhere.numbers[0].note
    if note:
        legend.append(f"{note[0].upper()}{note[1:]}.")
    if len(rows) < len(table.rows) * len(columns):
        legend.append(f"{ABSENT}: not given there.")
    if elsewhere.differs:
        legend.append(f"Protocols differ in: {in_words(elsewhere.differs)}.")
    return replace(table, footnotes=tuple(map(Footnote, legend)))


def _bare(name: str) -> str:
    """Reduce a name for comparison: ``CIFAR-10`` and ``cifar10:root=/data`` are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.partition(":")[0].rpartition("/")[2].lower())
