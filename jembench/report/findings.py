"""Findings that are no table of results, as text: grids for people, records for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jembench.report import latex, markdown, sheets
from jembench.report.render import Format
from jembench.report.text import Grid
from jembench.store.outcome import encode


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The same in both forms."""

    grids: tuple[Grid, ...]
    head: Mapping[str, Any]  # what is true of all records, for JSON
    name: str  # what the records are called there
    records: Sequence[Mapping[str, Any]]
    fields: Sequence[str]  # those of a record, in the order of the columns of CSV


def render(findings: Findings, format: Format) -> str:
    """The whole text, with a line break at its end. JSON and CSV carry full precision."""
    if format == "markdown":
        return markdown.of_grids(findings.grids)
    if format == "latex":
        return latex.of_grids(findings.grids)
    return _json(findings) if format == "json" else _csv(findings)


def _json(findings: Findings) -> str:
    content = {**findings.head, findings.name: list(findings.records)}
    return json.dumps(encode(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _csv(findings: Findings) -> str:
    rows = ({key: _flat(value) for key, value in encode(record).items()} for record in findings.records)
    return sheets.to_csv(findings.fields, rows)


def _flat(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value
