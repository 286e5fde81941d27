"""The published numbers, from the TOML files in ``reference/`` of every suite package.

A file is one paper, a ``[[table]]`` in it one place of that paper; ``jem-iclr2020/table1`` names one. The layout is
described at the head of ``jem-iclr2020.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from jembench.catalog import packages
from jembench.catalog.spec import Spec, format_value
from jembench.errors import PluginError, SpecError

Standing = Literal["published", "as quoted"]
Better = Literal["higher", "lower", ""]
T = TypeVar("T")


class PublishedColumn(NamedTuple):
    """What the numbers under one label are."""

    label: str
    unit: str
    better: Better
    value: str = ""  # the label of ours that it corresponds to, "auroc"; "": no metric of ours gives it


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
    return from_toml(file, "reference file", lambda data: _tables(stem, data))


def from_toml(file: Traversable, what: str, made_of: Callable[[dict[str, Any]], T]) -> T:
    """What a function makes of a TOML file of a suite package.

    Raises:
        PluginError: if the file is not of the layout that the function reads; the message says where.
    """
    try:
        return made_of(tomllib.loads(file.read_text(encoding="utf-8")))
    except KeyError as error:
        problem = f"the field {error} is missing"
    except (TypeError, ValueError, RecursionError) as error:
        problem = str(error)
    raise PluginError(f"The {what} {file} cannot be used: {problem}. Correct it, or tell the author of its package.")


def only(table: Mapping[str, Any], known: Collection[str], where: str = "a table that") -> Mapping[str, Any]:
    """The table, if it has no other fields than those that are known.

    Raises:
        ValueError: if it has.
    """
    unknown = sorted(table.keys() - known)
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is no field of {where} may hold {', '.join(sorted(known))}")
    return table


def _tables(stem: str, data: Mapping[str, Any]) -> list[PublishedTable]:
    paper = only(data["paper"], {"title", "cite", "url", "status"})
    return [_table(stem, table, paper) for table in data["table"]]


def _table(stem: str, table: Mapping[str, Any], paper: Mapping[str, Any]) -> PublishedTable:
    only(table, {"name", "where", "dataset", "note", "protocol", "columns", "rows"})
    columns = tuple(_column(column, table) for column in table["columns"])
    return PublishedTable(
        id=f"{stem}/{table['name']}",
        title=paper["title"],
        url=paper["url"],
        note=table.get("note", ""),
        columns=columns,
        rows=tuple(_row(row, table, paper, columns) for row in table["rows"]),
    )


def _column(column: Mapping[str, Any], table: Mapping[str, Any]) -> PublishedColumn:
    only(column, {"label", "unit", "better", "protocol"})
    stated = _stated(column, table)
    value = "" if stated is None else stated.get("value", stated.get("metric", column["label"]))
    return PublishedColumn(column["label"], column.get("unit", ""), _one_of(Better, column.get("better", "")), value)


def _row(
    row: Mapping[str, Any], table: Mapping[str, Any], paper: Mapping[str, Any], columns: Sequence[PublishedColumn]
) -> PublishedRow:
    labels = [column.label for column in columns]
    only(row, {"model", "label", "dataset", "where", "cite", "note", "protocol", *labels})
    cite, where = row.get("cite", paper["cite"]), row.get("where", table["where"])
    dataset, printed = row.get("dataset", table["dataset"]), [label for label in labels if label in row]
    return PublishedRow(
        model=row["model"],
        label=row["label"],
        dataset=dataset,
        values={label: float(row[label]) for label in printed},
        source=f"{cite}, {where}" if where else cite,
        status=_one_of(Standing, paper["status"]),
        note=row.get("note", ""),
        protocols=_protocols(row, table, dataset, printed),
    )


def _protocols(row: Mapping[str, Any], table: Mapping[str, Any], dataset: str, labels: Sequence[str]) -> dict[str, str]:
    """What the table, the column and the row say together of the protocol of each value that is ours too."""
    of_row = only(row.get("protocol", {}), set(labels))
    found = {}
    for column in table["columns"]:
        label, stated = column["label"], _stated(column, table)
        if label not in labels or stated is None:
            continue
        parts = {"data": re.sub(r"[^a-z0-9]", "", dataset.lower()), **stated, **of_row.get(label, {})}
        metric = parts.pop("metric", label)
        parts.pop("value", None)
        found[label] = str(Spec(metric, tuple(sorted((key, _text(key, value)) for key, value in parts.items()))))
    return found


def _stated(column: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any] | None:
    """The protocol of a column, as far as it is that of all its values; None if no metric of ours gives them."""
    if "protocol" not in column and "protocol" not in table:
        return None
    return {**table.get("protocol", {}), **column.get("protocol", {})}


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{key} of a protocol is {value!r}, and must be text, a number, true or false")
    return value if isinstance(value, str) else format_value(value)


def _one_of(choices: Any, value: Any) -> Any:
    if value not in get_args(choices):
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, get_args(choices)))}")
    return value
