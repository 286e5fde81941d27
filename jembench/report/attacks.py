"""Attacks in a table: a row for each defence of a model, and in the title what all of them have in common.

A defence changes what the attacked model answers, for example by steps of the model's own chain. It is set by options
of the metric, so the results have columns for each; here it becomes part of the row's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jembench.catalog import spec
from jembench.catalog.spec import Spec
from jembench.report.protocols import parsed
from jembench.report.record import Column, Record, Subject, mark_incomparable
from jembench.report.text import Heading, Line, View, detail

DEFENCE = ("refine", "smooth", "data_noise", "eot", "grad")
"""The options that make a defence, and parts of its protocol. At 0, nothing is there."""

_HOW = ("eot", "grad")  # of a defence, named in a row only where it differs between rows
RULE = ("sure", "verified")
"""The parts of a protocol that say how many random answers must be wrong; every defence has them."""

_BUDGET = {"images": "image", "restarts": "restart", "steps": "step", "queries": "query"}
_NAMES = {"refine": "refined {}", "smooth": "smoothed {}", "data_noise": "noise {}", "grad": "{}"}

Parts = Mapping[str, str]


def main_view(title: str, models: Sequence[Subject], rows: Sequence[Subject], columns: Sequence[Column]) -> View:
    """Some rows and columns of the results, the columns of one attack under several defences brought together.

    Args:
        title: of the table.
        models: all of the results.
        rows: those that are shown.
        columns: those that are shown.
    """
    names = dict.fromkeys(column.metric for column in columns)
    metrics = [_Metric(models, metric, columns) for metric in names]
    valued = {one.base for one in metrics if one.valued}
    found = {
        column._replace(metric=one.base): column  # where it first stands in the results
        for one in reversed(metrics)
        for column in one.labels.values()
        if one.valued or one.base not in valued
    }
    places = dict(sorted(found.items(), key=lambda place: columns.index(place[1])))
    defended = mark_incomparable([one for row in rows for one in _defended(row, metrics, places)])
    labels = tuple(column.label for column in places)
    records = tuple(tuple(row.records.get(column) for column in places) for row in defended)
    protocols = (record.protocol for row in rows for column in columns if (record := row.records.get(column)))
    return View(
        titles=(title, *in_common(protocols)),
        headings=tuple(_heading(column, labels.count(column.label) == 1) for column in places),
        labels=labels,
        rows=tuple(defended),
        lines=(Line((), tuple(places.values()), labels, records),),
    )


def _heading(column: Column, alone: bool) -> Heading:
    label = column.label if alone or column.label == column.metric else f"{column.label} ({column.metric})"
    return Heading(label, detail(column.unit, column.better))


def _defended(row: Subject, metrics: Sequence[_Metric], columns: Iterable[Column]) -> list[Subject]:
    """A row for each defence of a model, called ``jem, refined 10``."""
    by_place = {(one.base, one.defence): one for one in metrics}
    defences = sorted(dict.fromkeys(one.defence for one in metrics), key=bool)
    found = []
    for defence, name in zip(defences, defence_names([dict(defence) for defence in defences]), strict=True):
        records = {
            column: record
            for column in columns
            if (one := by_place.get((column.metric, defence))) and (record := one.record(row, column.label))
        }
        if records:
            found.append((name, records))
    return _without_gaps(row, found)


class _Metric:
    """A metric of the results: its defence, and the metric without it."""

    def __init__(self, models: Sequence[Subject], metric: str, columns: Sequence[Column]) -> None:
        self.labels = {column.label: column for column in columns if column.metric == metric}
        records = (row.records[column] for row in models for column in self.labels.values() if column in row.records)
        protocols = [record.protocol for record in records if record.protocol]
        parts = parts_of(protocols[0]) if protocols else dict(spec.parse(metric).arguments)
        self.valued = bool(protocols)
        self.defence = tuple(defence_of(parts).items())
        self.base = _without(metric, DEFENCE) if _is_attack(parts) else metric

    def record(self, row: Subject, label: str) -> Record | None:
        """Return what a row has under a label; where this metric gives no such value, why it gives none."""
        if label in self.labels:
            return row.records.get(self.labels[label])
        first = row.records.get(next(iter(self.labels.values())))
        return None if first is None or first.status == "ok" else first


def _is_attack(parts: Parts) -> bool:
    return "refine" in parts


def parts_of(protocol: str) -> dict[str, str]:
    """The parts of an attack's protocol; of another metric's, none."""
    found = parsed(protocol)
    parts = dict(found.arguments) if found else {}
    return parts if _is_attack(parts) else {}


def _without(text: str, names: Sequence[str]) -> str:
    parsed = spec.parse(text)
    return str(Spec(parsed.name, tuple(part for part in parsed.arguments if part[0] not in names)))


def defence_of(parts: Parts) -> dict[str, str]:
    """Return the parts of an attack's protocol that make its defence; none of another metric."""
    return {name: parts[name] for name in DEFENCE if parts.get(name, "0") != "0" and _is_attack(parts)}


def defence_names(defences: Sequence[Parts]) -> list[str]:
    """Return for each of several defences what tells it from the others: ``, refined 10``; of one alone, nothing."""
    if len(defences) == 1:
        return [""]
    differing = {name for name in _HOW if len({d[name] for d in defences if name in d}) > 1}
    return [
        "".join(f", {_named(name, defence)}" for name in defence if name not in _HOW or name in differing)
        for defence in defences
    ]


def _named(name: str, parts: Parts) -> str:
    if name == "eot":
        return counted(parts[name], "chain" if "refine" in parts else "copy")
    return _NAMES[name].format(parts[name])


def _without_gaps(row: Subject, defended: Sequence[tuple[str, Mapping[Column, Record]]]) -> list[Subject]:
    """A row for each defence under which the model has a value; a note says why it has none under the others."""
    valued = [(name, records) for name, records in defended if any(r.status != "na" for r in records.values())]
    kept = valued or defended[:1]
    gaps = [
        f"{name.removeprefix(', ')}: {next(iter(records.values())).reason}"
        for name, records in defended
        if name and (name, records) not in kept
    ]
    rows = [
        replace(row, printed_as=row.name + name, records={column: _alike(record) for column, record in records.items()})
        for name, records in kept
    ]
    return [replace(rows[0], notes=(*row.notes, *gaps)), *rows[1:]] if rows else []


def _alike(record: Record) -> Record:
    """The record of an attack without what the row's name and the title say of its protocol."""
    if not parts_of(record.protocol):
        return record
    return replace(record, protocol=_without(record.protocol, (*DEFENCE, *RULE)))


def in_common(protocols: Iterable[str]) -> list[str]:
    """Return what the attacks behind some numbers have in common, for a title: the norm, the budget, the defence."""
    attacks = [parts for parts in map(parts_of, protocols) if parts]
    defended = [parts for parts in attacks if any(parts.get(name, "0") != "0" for name in DEFENCE)]
    same = {**_same(defended, _HOW), **_same(attacks, ("norm", *_BUDGET))}
    if len(defended) == len(attacks):
        same |= {name: value for name, value in _same(attacks, DEFENCE).items() if value != "0"}
    budget = [counted(same[part], one) for part, one in _BUDGET.items() if part in same]
    defence = [_NAMES[part].format(same[part]) for part in DEFENCE[:3] if part in same]
    refined = any(parts["refine"] != "0" for parts in defended)
    kinds = ["refined"] if refined else []
    kinds += ["smoothed"] if any("smooth" in parts for parts in defended) else []
    chains = [counted(same["eot"], "chain" if refined else "copy")] if "eot" in same else []
    gradient = [f"gradient {same['grad']}"] if "grad" in same else []
    how = [*chains, *gradient]
    what = ", ".join(defence) or (" or ".join(kinds) or "noisy" if how else "")
    norm = f"norm {same['norm']}" if "norm" in same else ""
    return [text for text in (norm, ", ".join(budget), f"{what}: {', '.join(how)}" if how else what) if text]


def _same(attacks: Sequence[Parts], names: Iterable[str]) -> dict[str, str]:
    """The parts that all have, and have alike."""
    first = attacks[0] if attacks else {}
    return {name: first[name] for name in names if name in first and all(a.get(name) == first[name] for a in attacks)}


def counted(number: str, one: str) -> str:
    """``5 chains``, ``1000 queries``."""
    several = f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"
    return f"{number} {one if number == '1' else several}"
