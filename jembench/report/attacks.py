"""Attacks in a table: a row for each defence of a model, and in the title what all of them have in common.

A defence is what stands between an attacker and a model's answer, such as steps of the model's own chain. It is set by
options of the metric, so the flat table has columns for each; here it becomes part of the row's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jembench.catalog import spec
from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.report.table import NOT_ASKED_FOR, Column, Entry, Row, Table, mark_incomparable

DEFENCE = ("refine", "smooth", "data_noise", "eot", "grad")
"""The options that make a defence, and parts of its protocol. At 0, nothing is there."""

_HOW = ("eot", "grad")  # of a defence, told in a row's name only where it differs between rows
RULE = ("sure", "verified")
"""The parts of a protocol that say how many random answers must be wrong; every defence has them."""

_BUDGET = ("images", "restarts", "steps", "queries")
_NAMES = {"refine": "refined {}", "smooth": "smoothed {}", "data_noise": "noise {}", "grad": "{}"}

Parts = Mapping[str, str]


class Lines(NamedTuple):
    """A main table with its defences in the rows."""

    columns: tuple[Column, ...]
    places: tuple[int, ...]  # where each column first stands in the flat table
    rows: tuple[Row, ...]  # their models are called "jem, refined 10"
    of: tuple[int, ...]  # which row of the flat table each was


def lines(table: Table, rows: Sequence[int], columns: Sequence[int]) -> Lines:
    """Some rows and columns of a flat table, the columns of one attack under several defences brought together."""
    names = dict.fromkeys(table.columns[index].metric for index in columns)
    metrics = [_Metric(table, metric, columns) for metric in names]
    valued = {one.base for one in metrics if one.valued}
    merged = {
        (one.base, label): index
        for one in reversed(metrics)
        for label, index in one.labels.items()
        if one.valued or one.base not in valued
    }
    merged = dict(sorted(merged.items(), key=lambda place: place[1]))
    defences = sorted(dict.fromkeys(one.defence for one in metrics), key=bool)
    by_place = {(one.base, one.defence): one for one in metrics}
    found: list[tuple[int, Row]] = []
    for index in rows:
        of_row = []
        for defence, name in zip(defences, _names([dict(defence) for defence in defences]), strict=True):
            entries = [
                by_place[base, defence].entry(table, index, label) if (base, defence) in by_place else NOT_ASKED_FOR
                for base, label in merged
            ]
            if any(entry.status != "not asked for" for entry in entries):
                of_row.append((name, entries))
        found += [(index, row) for row in _without_gaps(table.rows[index], of_row)]
    shown = tuple(table.columns[index]._replace(metric=base) for (base, _), index in merged.items())
    marked = mark_incomparable([row for _, row in found], shown)
    return Lines(shown, tuple(merged.values()), marked, tuple(index for index, _ in found))


class _Metric:
    """A metric in the flat table: its defence, and the metric without it."""

    def __init__(self, table: Table, metric: str, columns: Sequence[int]) -> None:
        mine = [index for index in columns if table.columns[index].metric == metric]
        options = spec.parse(metric)
        protocols = [row.entries[i].protocol for row in table.rows for i in mine if row.entries[i].protocol]
        parts = parts_of(protocols[0]) if protocols else dict(options.arguments)
        self.valued = bool(protocols)
        self.defence = tuple(
            (name, parts[name]) for name in DEFENCE if parts.get(name, "0") != "0" and _is_attack(parts)
        )
        self.base = _without(metric, DEFENCE) if _is_attack(parts) else metric
        self.labels = {table.columns[index].label: index for index in mine}

    def entry(self, table: Table, row: int, label: str) -> Entry:
        """What a row has under a label; where this metric gives no such value, why it gives none."""
        entries = table.rows[row].entries
        if label in self.labels:
            return entries[self.labels[label]]
        first = entries[next(iter(self.labels.values()))]
        return NOT_ASKED_FOR if first.status == "ok" else first


def _is_attack(parts: Parts) -> bool:
    return "refine" in parts


def parts_of(protocol: str) -> dict[str, str]:
    """The parts of an attack's protocol; of another metric's, none."""
    try:
        parts = dict(spec.parse(protocol).arguments)
    except SpecError:  # a plugin writes its protocols as it likes
        return {}
    return parts if _is_attack(parts) else {}


def _without(text: str, names: Sequence[str]) -> str:
    parsed = spec.parse(text)
    return str(Spec(parsed.name, tuple(part for part in parsed.arguments if part[0] not in names)))


def _names(defences: Sequence[Parts]) -> list[str]:
    """What tells each defence from the others."""
    if len(defences) == 1:
        return [""]
    told = {name for name in _HOW if len({d[name] for d in defences if name in d}) > 1}
    return [
        "".join(f", {_named(name, defence)}" for name in defence if name not in _HOW or name in told)
        for defence in defences
    ]


def _named(name: str, parts: Parts) -> str:
    if name == "eot":
        return counted(parts[name], "chain" if "refine" in parts else "copy")
    return _NAMES[name].format(parts[name])


def _without_gaps(row: Row, defended: Sequence[tuple[str, Sequence[Entry]]]) -> list[Row]:
    """A row for each defence under which the model has a value; a note says why it has none under the others."""
    having = [any(entry.status not in ("na", "not asked for") for entry in entries) for _, entries in defended]
    kept = [one for one, has in zip(defended, having, strict=True) if has] or list(defended[:1])
    gaps = [
        f"{name.removeprefix(', ')}: {next(entry.reason for entry in entries if entry.status == 'na')}"
        for name, entries in defended
        if name and (name, entries) not in kept
    ]
    rows = [replace(row, model=row.model + name, entries=tuple(map(_alike, entries))) for name, entries in kept]
    return [replace(rows[0], notes=(*row.notes, *gaps)), *rows[1:]] if rows else []


def _alike(entry: Entry) -> Entry:
    """The entry of an attack without what the row's name and the title say of its protocol."""
    if not parts_of(entry.protocol):
        return entry
    return replace(entry, protocol=_without(entry.protocol, (*DEFENCE, *RULE)))


def in_common(protocols: Iterable[str]) -> list[str]:
    """What the attacks behind some numbers have in common, for a title: the norm, the budget, the defence."""
    attacks = [parts for parts in map(parts_of, protocols) if parts]
    defended = [parts for parts in attacks if any(parts.get(name, "0") != "0" for name in DEFENCE)]
    same = {**_same(defended, _HOW), **_same(attacks, ("norm", *_BUDGET))}
    if len(defended) == len(attacks):
        same |= {name: value for name, value in _same(attacks, DEFENCE).items() if value != "0"}
    budget = [counted(same[part], part.removesuffix("s")) for part in _BUDGET if part in same]
    defence = [_NAMES[part].format(same[part]) for part in DEFENCE[:3] if part in same]
    refined = any(parts["refine"] != "0" for parts in defended)
    kinds = ["refined"] if refined else []
    kinds += ["smoothed"] if any("smooth" in parts for parts in defended) else []
    chains = [counted(same["eot"], "chain" if refined else "copy")] if "eot" in same else []
    gradient = [f"gradient {same['grad']}"] if "grad" in same else []
    how = [*chains, *gradient]
    what = ", ".join(defence) or (" or ".join(kinds) or "noisy" if how else "")
    return [
        *([f"norm {same['norm']}"] if "norm" in same else []),
        *([", ".join(budget)] if budget else []),
        *([f"{what}: {', '.join(how)}" if how else what] if what else []),
    ]


def _same(attacks: Sequence[Parts], names: Sequence[str]) -> dict[str, str]:
    """The parts that all have, and have alike."""
    return {
        name: attacks[0][name]
        for name in names
        if attacks and len({a.get(name, "") for a in attacks}) == 1 and name in attacks[0]
    }


def counted(number: str, what: str) -> str:
    """``5 chains``, ``1000 queries``."""
    plural = {"querie": "queries", "copy": "copies"}.get(what, f"{what}s")
    return f"{number} {what.replace('querie', 'query') if number == '1' else plural}"
