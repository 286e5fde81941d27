"""The page of results, in Markdown. It needs nothing but Python itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def page(state: Mapping[str, Any], items: Sequence[Any]) -> str:
    """All items: what was measured, whether the aims were reached, and the last lines of what failed.

    Args:
        state: what ``run.py`` keeps.
        items: the list, in its order.
    """
    found = state["items"]
    rows = [_line(item, found.get(item.name, {})) for item in items]
    parts = [
        "# What the GPU shows",
        _table(rows),
        *(_section(item, found[item.name]) for item in items if item.name in found),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _line(item: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    aims = result.get("values", {}).get("aims", [])
    reached = f"{sum(aim['reached'] for aim in aims)} of {len(aims)}" if aims else ""
    return {
        "item": item.title,
        "status": result.get("status", "not measured"),
        "seconds": result.get("seconds", ""),
        "aims reached": reached,
    }


def _section(item: Any, result: Mapping[str, Any]) -> str:
    values = result["values"]
    notes = "\n".join(f"- {name}: {_text(value)}" for name, value in values.get("notes", {}).items())
    tables = [f"**{name}**\n\n{_table(rows)}" for name, rows in values.get("tables", {}).items()]
    last = "\n".join(["```", *result.get("last lines", []), "```"]) if result.get("last lines") else ""
    parts = [f"## {item.title}", _table(values.get("aims", [])), notes, *tables, _ended(result), last]
    return "\n\n".join(filter(None, parts))


def _ended(result: Mapping[str, Any]) -> str:
    if result["status"] in ("ok", "part"):
        return ""
    return (
        f"{result['status'].capitalize()} after {result['seconds']} s, exit code {result.get('code')}. The last lines:"
    )


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return ""
    lines = [names, ["---"] * len(names), *([_text(row.get(name, "")) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return " ".join(str(value).replace("|", "\\|").split())
